"""Data sets by name: one record each, and a data set of the user's own by its function."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from regun.data.arrays import ArrayExamples
from regun.data.cifar import load_cifar
from regun.data.digits import load_digits
from regun.data.examples import Data, Examples, InputPipeline, ProgressCallback
from regun.data.image_folder import load_image_folder
from regun.data.pipelines import IMAGENET, OWN, PIPELINES, Constants, find_preset, with_pipeline
from regun.data.user_data import find_user_data, load_user_data, user_parameters
from regun.data.views import Selected
from regun.errors import DataError, RegunError, SettingsError, unknown
from regun.plugins import is_code, located
from regun.rng import isolated
from regun.settings import bind, check, setting, to_json


@dataclass(frozen=True)
class DataSettings:
    """Settings of a data set, as in `cifar10,root=/data,limit=3000`."""

    root: str | None = setting(None, "folder that holds the data set (all but digits)")
    limit: int | None = setting(None, "use this many training images, drawn once and for all", low=1)
    test_limit: int | None = setting(None, "use this many test images", low=1)
    download: bool = setting(False, "download the archive if it is missing (CIFAR only)")
    image_size: int | None = setting(None, "resize images to this many pixels (folder only)", low=1)
    cache: str | None = setting(None, "where decoded images are kept (default: beside the images)")

    def __post_init__(self) -> None:
        check(self, "data")


LIMITS = ("limit", "test_limit")
"""Settings that every data set has, one of the user's own too."""


@dataclass(frozen=True)
class DataSpec:
    """A data set's name and settings; `own` are those of a user's function, by its signature.

    >>> DataSpec.read("digits", {"limit": "500"}).settings.limit
    500
    """

    name: str
    settings: DataSettings = field(default_factory=DataSettings)
    own: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)

    @classmethod
    def read(cls, name: str, values: Mapping[str, Any], folder: Path | str | None = None) -> "DataSpec":
        """From text values; every unknown name, key or bad value is reported at once.

        A relative `file.py:function` is looked for in `folder`, or else here.
        """
        if is_code(name):
            return _read_own(located(name, folder), values)
        problems = [] if name in DATA_SETS else [unknown("data set", name, [*DATA_SETS, USER_NAME])]
        try:
            settings = bind(DataSettings, values, "data")
        except SettingsError as fault:
            raise SettingsError([*problems, *fault.problems]) from None
        problems += _misused(DATA_SETS[name], settings) if name in DATA_SETS else []
        if problems:
            raise SettingsError(problems)
        return cls(name, settings)

    def below(self, folder: str | None) -> "DataSpec":
        """The same with its files in another folder; data sets without files, and None, change nothing."""
        if folder is None or not takes_root(self.name):
            return self
        if is_code(self.name):
            return replace(self, own={**self.own, "root": folder})
        return replace(self, settings=replace(self.settings, root=folder))

    def to_json(self) -> dict[str, Any]:
        """The settings as plain values, from which `read` makes the same again."""
        if not is_code(self.name):
            return to_json(self.settings)
        own = {key: str(value) if isinstance(value, Path) else value for key, value in self.own.items()}
        return own | {key: value for key, value in vars(self.settings).items() if key in LIMITS and value is not None}


@dataclass(frozen=True)
class DataSet:
    """One data set: what it is, how it is read, and what goes with it unless something else is named."""

    name: str
    about: str
    load: Callable[[DataSpec, InputPipeline, ProgressCallback | None], Data]
    constants: Constants
    """Mean and standard deviation of every channel."""
    sizes: tuple[int, int] | None = None
    """Training and test images of the complete set, for planning without it."""
    takes: tuple[str, ...] = ()
    """Its settings besides the limits; one that takes `root` needs it."""
    model: str = "resnet18"
    augment: str | None = None
    """The input pipeline it is used with, whatever the model's."""


def _load_cifar(
    classes: Literal[10, 100], spec: DataSpec, inputs: InputPipeline, on_progress: ProgressCallback | None
) -> Data:
    root = Path(spec.settings.root or "")
    if spec.settings.download:
        from regun.data.download import fetch_cifar  # it imports requests, which takes time

        fetch_cifar(root, classes, on_progress=on_progress)
    return load_cifar(root, classes, inputs)


def _load_folder(unpacked: str, spec: DataSpec, inputs: InputPipeline, on_progress: ProgressCallback | None) -> Data:
    """Images below the root, or below `unpacked` in it, as an archive unpacks."""
    root, cache = Path(spec.settings.root or ""), spec.settings.cache
    root = root / unpacked if (root / unpacked).is_dir() else root
    size = spec.settings.image_size
    return load_image_folder(root, inputs, size, Path(cache) if cache else None, on_progress=on_progress)


def _load_own(spec: DataSpec, inputs: InputPipeline, on_progress: ProgressCallback | None) -> Data:
    with isolated(0):  # what a user's function draws is the same every time
        return load_user_data(find_user_data(spec.name, spec.own))


RECORDS = (
    DataSet(
        "digits",
        "1,797 noisy 8x8 digits that ship with scikit-learn; needs no files",
        lambda spec, inputs, on_progress: load_digits(inputs),
        ((0.5,), (0.5,)),
        sizes=(1437, 360),
        model="cnn",
        augment="digits",
    ),
    DataSet(
        "cifar10",
        "CIFAR-10 in its python layout",
        partial(_load_cifar, 10),
        ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        sizes=(50_000, 10_000),
        takes=("root", "download"),
    ),
    DataSet(
        "cifar100",
        "CIFAR-100 in its python layout",
        partial(_load_cifar, 100),
        ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
        sizes=(50_000, 10_000),
        takes=("root", "download"),
    ),
    DataSet(
        "tiny-imagenet",
        "Tiny-ImageNet in its folder layout; its validation folder is the test set",
        partial(_load_folder, "tiny-imagenet-200"),
        ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
        sizes=(100_000, 10_000),
        takes=("root", "image_size", "cache"),
        model="swin-t",
    ),
    DataSet(
        "folder",
        "any folder of images: train/<class>/*, test/<class>/* (or val/)",
        partial(_load_folder, ""),
        IMAGENET,
        takes=("root", "image_size", "cache"),
    ),
)
DATA_SETS: dict[str, DataSet] = {record.name: record for record in RECORDS}
USER_NAME = "module:function"
USERS_OWN = DataSet(
    USER_NAME,
    "your own: also path/to/file.py:function; called with its settings, it returns regun.data.Data or (train, test)",
    _load_own,
    ((), ()),
    augment=OWN.name,
)


def data_help() -> dict[str, str]:
    """What can be given as a data set's name, each with a line on it."""
    return {record.name: record.about for record in (*RECORDS, USERS_OWN)}


def data_set(name: str) -> DataSet:
    """The record of a data set; all of the user's own have one together."""
    if is_code(name):
        return USERS_OWN
    if name not in DATA_SETS:
        raise SettingsError([unknown("data set", name, [*DATA_SETS, USER_NAME])])
    return DATA_SETS[name]


def takes_root(name: str, folder: Path | str | None = None) -> bool:
    """Whether a data set has files in a folder that is to be named; False also for what is no data set."""
    try:
        if is_code(name):
            return "root" in user_parameters(located(name, folder))
        return "root" in data_set(name).takes
    except RegunError:
        return False


def pipeline(name: str, data_name: str) -> InputPipeline:
    """The input pipeline `name` with the constants of the data set `data_name`; the 224x224 ones use ImageNet's.

    The constants of a data set of the user's own are known when it is loaded, and left empty here.

    >>> pipeline("resnet", "cifar10").train[0]
    PadCrop(padding=4)
    """
    problems = [unknown("input pipeline", name, PIPELINES)] if name not in PIPELINES else []
    try:
        constants = data_set(data_name).constants
    except SettingsError as fault:
        raise SettingsError([*problems, *fault.problems]) from None
    return find_preset(name).on(data_name, constants)


def load_data(spec: DataSpec, preset: str, on_progress: ProgressCallback | None = None) -> Data:
    """The data set, its images turned into inputs by the named input pipeline (see `data.presets`)."""
    pipeline(preset, spec.name)  # refused before anything is read
    record = data_set(spec.name)
    found = record.load(spec, InputPipeline(OWN.name, *record.constants), on_progress)
    train = _limited(found.train, spec.settings.limit, "limit")
    test = _limited(found.test, spec.settings.test_limit, "test_limit")
    if preset != OWN.name and not isinstance(train, ArrayExamples):
        raise DataError(
            f"the input pipeline {preset!r} is for stored images, but {spec.name} gives {type(train).__name__}; "
            f"leave it out, or let the function return ArrayExamples."
        )
    return with_pipeline(replace(found, name=spec.name, train=train, test=test), preset)


def _read_own(name: str, values: Mapping[str, Any]) -> DataSpec:
    """The settings of a user's function and the limits, which are regun's."""
    problems: list[str] = []
    own, limits = ({k: v for k, v in values.items() if (k in LIMITS) is limit} for limit in (False, True))
    settings = DataSettings()
    try:
        settings = bind(DataSettings, limits, "data")
    except SettingsError as fault:
        problems += fault.problems
    try:
        own = find_user_data(name, own).settings
    except RegunError as fault:
        problems += fault.problems if isinstance(fault, SettingsError) else [str(fault)]
    if problems:
        raise SettingsError(problems)
    return DataSpec(name, settings, own)


def _misused(record: DataSet, settings: DataSettings) -> list[str]:
    """What a data set needs and lacks, and what it is given and has no use for."""
    problems: list[str] = []
    if "root" in record.takes and settings.root is None:
        problems.append(f"the data set {record.name} needs its folder: give root=FOLDER (or --data-dir FOLDER).")
    for key, value in vars(settings).items():
        if value and key not in (*LIMITS, *record.takes):
            users = ", ".join(other.name for other in RECORDS if key in other.takes)
            problems.append(f"data.{key} is {value!r}, but {record.name} has no use for it; it is for {users}.")
    return problems


def _limited(examples: Examples, limit: int | None, name: str) -> Examples:
    """A fixed random subset: the same examples whatever the seeds of a study are."""
    count = len(examples.labels)
    if limit is None or limit == count:
        return examples
    if limit > count:
        raise DataError(f"data.{name} is {limit}, but there are only {count} images; give fewer.")
    keep = np.sort(np.random.Generator(np.random.PCG64(0)).permutation(count)[:limit])
    return examples.chosen(keep) if isinstance(examples, ArrayExamples) else Selected(examples, keep)
