"""Data sets by name: one record each, and a user's data set by its function."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from regun.data.arrays import ArrayExamples
from regun.data.cifar import CifarClasses, load_cifar
from regun.data.digits import load_digits
from regun.data.examples import Data, Examples, InputPipeline, ProgressCallback
from regun.data.image_folder import load_image_folder
from regun.data.pipelines import IMAGENET, OWN, PIPELINES, Constants, get_pipeline_spec, with_pipeline
from regun.data.sources import load_user_data
from regun.data.views import Selected
from regun.errors import DataError, RegunError, SettingsError, unknown
from regun.plugins import absolute_name, find_function, find_user_function, is_code, parameters_of
from regun.rng import isolated
from regun.settings import bind, check, setting, to_json


@dataclass(frozen=True)
class DataSettings:
    """Settings of a data set, as in `cifar10,root=/data,limit=3000`."""

    root: str | None = setting(None, "folder that holds the data set (all but digits)")
    limit: int | None = setting(None, "use this many training images, a fixed random subset", low=1)
    test_limit: int | None = setting(None, "use this many test images", low=1)
    download: bool = setting(False, "download the archive if it is missing (CIFAR only)")
    image_size: int | None = setting(None, "resize images to this many pixels (folder only)", low=1)
    cache: str | None = setting(None, "directory of decoded images (default: next to the images)")

    def __post_init__(self) -> None:
        check(self, "data")


LIMITS = ("limit", "test_limit")
"""Settings that every data set has, also a user's."""
RETURNS = "returns a data set"


@dataclass(frozen=True)
class DataSpec:
    """A data set's name and settings; `arguments` are those of a user's function, read by its signature.

    >>> DataSpec.read("digits", {"limit": "500"}).settings.limit
    500
    """

    name: str
    settings: DataSettings = field(default_factory=DataSettings)
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)

    @classmethod
    def read(cls, name: str, values: Mapping[str, Any], folder: Path | str | None = None) -> "DataSpec":
        """Read text values; the error lists every unknown name, unknown key and bad value.

        A relative `file.py:function` is relative to `folder`, or else to the current directory.
        """
        if is_code(name):
            if "root" not in values and default_folder() is not None and takes_root(name, folder):
                values = {"root": default_folder(), **values}
            return _read_user_data(absolute_name(name, folder), values)
        problems = [] if name in DATA_SETS else [unknown("data set", name, [*DATA_SETS, USER_NAME])]
        try:
            settings = bind(DataSettings, values, "data")
        except SettingsError as fault:
            raise SettingsError([*problems, *fault.problems]) from None
        record = DATA_SETS.get(name)
        if record and "root" in record.takes:
            settings = replace(settings, root=settings.root or default_folder())
        if record and "root" in record.takes and settings.root is None:
            problems.append(f"the data set {name} needs its folder: give root=FOLDER, data_dir= or $REGUN_DATA.")
        for key, value in vars(settings).items() if record else ():
            if record and value and key not in (*LIMITS, *record.takes):
                users = ", ".join(other.name for other in RECORDS if key in other.takes)
                problems.append(f"data.{key} is {value!r}, but {name} does not take {key}; only {users} do.")
        if problems:
            raise SettingsError(problems)
        return cls(name, settings)

    def below(self, folder: str | None) -> "DataSpec":
        """Return the same with its files in `folder`; data sets without files, and None, change nothing."""
        if folder is None or not takes_root(self.name):
            return self
        if is_code(self.name):
            return replace(self, arguments={**self.arguments, "root": folder})
        return replace(self, settings=replace(self.settings, root=folder))

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain values that `read` accepts."""
        if not is_code(self.name):
            return to_json(self.settings)
        arguments = {key: str(value) if isinstance(value, Path) else value for key, value in self.arguments.items()}
        limits = {key: value for key, value in vars(self.settings).items() if key in LIMITS and value is not None}
        return arguments | limits


@dataclass(frozen=True)
class DataSet:
    """One data set: what it is, how it is loaded, and its default model and pipeline."""

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
    pipeline: str | None = None
    """Its input pipeline, which overrides that of the model."""


def _load_cifar(
    classes: CifarClasses, spec: DataSpec, inputs: InputPipeline, on_progress: ProgressCallback | None
) -> Data:
    root = Path(spec.settings.root or "")
    if spec.settings.download:
        from regun.data.download import fetch_cifar  # it imports requests, which takes time

        fetch_cifar(root, classes, on_progress=on_progress)
    return load_cifar(root, classes, inputs)


def _load_folder(unpacked: str, spec: DataSpec, inputs: InputPipeline, on_progress: ProgressCallback | None) -> Data:
    """Load the images below the root, or below the folder `unpacked` in it, as archives unpack."""
    root, cache = Path(spec.settings.root or ""), spec.settings.cache
    root = root / unpacked if (root / unpacked).is_dir() else root
    size = spec.settings.image_size
    return load_image_folder(root, inputs, size, Path(cache) if cache else None, on_progress=on_progress)


def _load_user_data(spec: DataSpec, inputs: InputPipeline, on_progress: ProgressCallback | None) -> Data:
    with isolated(0):  # a user's function draws the same numbers every time
        return load_user_data(find_user_function(spec.name, spec.arguments, RETURNS))


CIFAR100: Constants = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
RECORDS = (
    DataSet(
        "digits",
        "1,797 noisy 8x8 digits that ship with scikit-learn; needs no files",
        lambda spec, inputs, on_progress: load_digits(inputs),
        ((0.5,), (0.5,)),
        sizes=(1437, 360),
        model="cnn",
        pipeline="digits",
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
        "cifar20",
        "CIFAR-100 with its 20 coarse labels",
        partial(_load_cifar, 20),
        CIFAR100,
        sizes=(50_000, 10_000),
        takes=("root", "download"),
    ),
    DataSet(
        "cifar100",
        "CIFAR-100 in its python layout",
        partial(_load_cifar, 100),
        CIFAR100,
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
USER_DATA = DataSet(
    USER_NAME,
    "your function, also path/to/file.py:function; it returns regun.data.Data or (train, test)",
    _load_user_data,
    ((), ()),
    pipeline=OWN.name,
)


def data_help() -> dict[str, str]:
    """Return the names of data sets, each with one line about it."""
    return {record.name: record.about for record in (*RECORDS, USER_DATA)}


def data_set(name: str) -> DataSet:
    """Return the record of a data set; all user data sets share one."""
    if is_code(name):
        return USER_DATA
    if name not in DATA_SETS:
        raise SettingsError([unknown("data set", name, [*DATA_SETS, USER_NAME])])
    return DATA_SETS[name]


def default_folder() -> str | None:
    """Return the folder of the data sets, from the environment."""
    return os.environ.get("REGUN_DATA") or None


def takes_root(name: str, folder: Path | str | None = None) -> bool:
    """Return True if a data set needs a folder; False also for unknown names."""
    try:
        if is_code(name):
            path = absolute_name(name, folder)
            return "root" in parameters_of(path, find_function(path, RETURNS))
        return "root" in data_set(name).takes
    except RegunError:
        return False


def get_pipeline(name: str, data_name: str) -> InputPipeline:
    """Return the input pipeline `name` with the constants of the data set; those for 224x224 images use ImageNet's.

    The constants of a user's data set are empty until it is loaded.

    >>> get_pipeline("resnet", "cifar10").train[0]
    PadCrop(padding=4)
    """
    problems = [unknown("input pipeline", name, PIPELINES)] if name not in PIPELINES else []
    try:
        constants = data_set(data_name).constants
    except SettingsError as fault:
        raise SettingsError([*problems, *fault.problems]) from None
    return get_pipeline_spec(name).on(data_name, constants)


def load_data(spec: DataSpec, pipeline: str, on_progress: ProgressCallback | None = None) -> Data:
    """Load a data set with the named input pipeline (see `regun.data.pipelines`)."""
    get_pipeline(pipeline, spec.name)  # raises before anything is read
    record = data_set(spec.name)
    data = record.load(spec, InputPipeline(OWN.name, *record.constants), on_progress)
    train = _limited(data.train, spec.settings.limit, "limit")
    test = _limited(data.test, spec.settings.test_limit, "test_limit")
    if pipeline != OWN.name and not isinstance(train, ArrayExamples):
        raise DataError(
            f"the input pipeline {pipeline!r} needs stored images, but {spec.name} returns {type(train).__name__}; "
            f"leave it out, or return ArrayExamples."
        )
    return with_pipeline(replace(data, name=spec.name, train=train, test=test), pipeline)


def _read_user_data(name: str, values: Mapping[str, Any]) -> DataSpec:
    """Read the arguments of a user's function, and the limits, which every data set has."""
    problems: list[str] = []
    arguments, limits = ({k: v for k, v in values.items() if (k in LIMITS) is limit} for limit in (False, True))
    settings = DataSettings()
    try:
        settings = bind(DataSettings, limits, "data")
    except SettingsError as fault:
        problems += fault.problems
    try:
        arguments = find_user_function(name, arguments, RETURNS).settings
    except RegunError as fault:
        problems += fault.problems if isinstance(fault, SettingsError) else [str(fault)]
    if problems:
        raise SettingsError(problems)
    return DataSpec(name, settings, arguments)


def _limited(examples: Examples, limit: int | None, name: str) -> Examples:
    """Return a fixed random subset, the same for all seeds of a study."""
    count = len(examples.labels)
    if limit is None or limit == count:
        return examples
    if limit > count:
        raise DataError(f"data.{name} is {limit}, but there are only {count} examples.")
    rows = np.sort(np.random.Generator(np.random.PCG64(0)).permutation(count)[:limit])
    return examples.select(rows) if isinstance(examples, ArrayExamples) else Selected(examples, rows)
