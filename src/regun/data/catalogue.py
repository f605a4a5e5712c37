"""Data sets by name."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from regun.data.arrays import ArrayExamples
from regun.data.cifar import load_cifar
from regun.data.digits import load_digits
from regun.data.download import fetch_cifar
from regun.data.examples import Data
from regun.data.image_folder import load_image_folder
from regun.data.presets import pipeline
from regun.errors import DataError, SettingsError, unknown
from regun.settings import bind, check, setting

DATA_SETS: dict[str, str] = {
    "digits": "1,797 noisy 8x8 digits that ship with scikit-learn; needs no files",
    "cifar10": "CIFAR-10 in its python layout",
    "cifar100": "CIFAR-100 in its python layout",
    "tiny-imagenet": "Tiny-ImageNet in its folder layout; its validation folder is the test set",
    "folder": "any folder of images: train/<class>/*, test/<class>/* (or val/)",
}


FULL_SIZES: dict[str, tuple[int, int]] = {
    "digits": (1437, 360),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "tiny-imagenet": (100_000, 10_000),
}
"""Training and test images of the complete data sets, for planning without them."""

USERS: dict[str, tuple[str, ...]] = {
    "root": ("cifar10", "cifar100", "tiny-imagenet", "folder"),
    "download": ("cifar10", "cifar100"),
    "image_size": ("tiny-imagenet", "folder"),
    "cache": ("tiny-imagenet", "folder"),
}
"""Which data sets a setting is for; for others it is refused rather than ignored."""


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


@dataclass(frozen=True)
class DataSpec:
    """A data set's name and settings."""

    name: str
    settings: DataSettings = field(default_factory=DataSettings)

    @classmethod
    def read(cls, name: str, values: Mapping[str, Any]) -> "DataSpec":
        """From text values; every unknown name, key or bad value is reported at once."""
        problems = [] if name in DATA_SETS else [unknown("data set", name, DATA_SETS)]
        try:
            settings = bind(DataSettings, values, "data")
        except SettingsError as fault:
            raise SettingsError([*problems, *fault.problems]) from None
        if name in DATA_SETS and name != "digits" and settings.root is None:
            problems.append(f"the data set {name} needs its folder: give root=FOLDER (or --data-dir FOLDER).")
        problems += [
            f"data.{key} is {getattr(settings, key)!r}, but {name} has no use for it; it is for {', '.join(users)}."
            for key, users in USERS.items()
            if name in DATA_SETS and name not in users and getattr(settings, key)
        ]
        if problems:
            raise SettingsError(problems)
        return cls(name, settings)


def load_data(spec: DataSpec, preset: str, on_progress: Callable[[int, int], None] | None = None) -> Data:
    """The data set, its images turned into inputs by the named preset (see `data.presets`)."""
    settings = spec.settings
    inputs = pipeline(preset, spec.name)
    root = Path(settings.root) if settings.root else Path()
    if spec.name == "digits":
        data = load_digits(inputs)
    elif spec.name in ("cifar10", "cifar100"):
        classes = 10 if spec.name == "cifar10" else 100
        if settings.download:
            fetch_cifar(root, classes, on_progress=on_progress)
        data = load_cifar(root, classes, inputs)
    else:
        inside = root / "tiny-imagenet-200"  # as its archive unpacks
        root = inside if spec.name == "tiny-imagenet" and inside.is_dir() else root
        cache = Path(settings.cache) if settings.cache else None
        data = load_image_folder(root, inputs, image_size=settings.image_size, cache=cache, on_progress=on_progress)
    return dataclasses.replace(
        data,
        name=spec.name,
        train=_limited(data.train, settings.limit, "limit"),
        test=_limited(data.test, settings.test_limit, "test_limit"),
    )


def _limited(examples: Any, limit: int | None, name: str) -> ArrayExamples:
    """A fixed random subset: the same images whatever the seeds of a study are."""
    arrays: ArrayExamples = examples
    if limit is None or limit == len(arrays):
        return arrays
    if limit > len(arrays):
        raise DataError(f"data.{name} is {limit}, but there are only {len(arrays)} images; give fewer.")
    keep = np.sort(np.random.Generator(np.random.PCG64(0)).permutation(len(arrays))[:limit])
    return ArrayExamples(np.asarray(arrays.images)[keep], arrays.labels[keep], arrays.num_classes, arrays.pipeline)
