"""The numbers that the paper prints, for comparison."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Literal

from regun.errors import RegunError, unknown
from regun.methods import MethodSpec

_SETUPS = {
    # study: setup in the packaged table, what a reader must know before comparing
    "resnet18-cifar10": ("resnet18_cifar10", ""),
    "resnet18-cifar100": ("resnet18_cifar100", ""),
    "swin-t-tiny-imagenet": ("swint_tinyimagenet", ""),
    "resnet18-tiny-imagenet": ("resnet18_tinyimagenet", ""),
    "resnet18-cifar10-small": ("resnet18_cifar10", "small"),
    "resnet18-cifar100-small": ("resnet18_cifar100", "small"),
    "swin-tiny-imagenet-small": ("swint_tinyimagenet", "small"),
    "resnet18-tiny-imagenet-small": ("resnet18_tinyimagenet", "small"),
}
_TITLES = {
    "resnet18_cifar10": "ResNet-18 on CIFAR-10",
    "resnet18_cifar100": "ResNet-18 on CIFAR-100",
    "swint_tinyimagenet": "Swin-T on Tiny-ImageNet",
    "resnet18_tinyimagenet": "ResNet-18 on Tiny-ImageNet",
}
_SMALLER = " Model and data of this study are smaller than the paper's: compare the pattern, not the values."
_REMARKS = {
    "resnet18_tinyimagenet": " Some of these rows seem to rest on one or two seeds (their deviations say so).",
}

_PRESETS = ("swin", "cifar10", "cifar100", "tiny_imagenet")
"""Presets with the settings of the paper's rows; any other preset is not in the paper."""


Mark = Literal["best", "second"]


@dataclass(frozen=True)
class Printed:
    """A mean and sample standard deviation over seeds as the paper prints them, ranked among the paper's methods."""

    mean: float
    std: float
    mark: Mark | None = None


@dataclass(frozen=True)
class Paper:
    """The paper's numbers of one setup, by forget fraction, method and metric."""

    setup: str
    note: str
    numbers: Mapping[tuple[float, str, str], Printed]

    def number(self, forget: str, method: str, metric: str) -> Printed | None:
        """Return the printed number; None for a forget request, method or metric that the paper does not report."""
        spec = MethodSpec.parse(method)
        printed = spec.name if spec.preset in _PRESETS and not spec.settings else method
        return self.numbers.get((_fraction(forget), printed, metric))


def paper_numbers(study_name: str) -> Paper:
    """Return the paper's numbers for the setup that a built-in study repeats, in full or in small.

    >>> paper_numbers("resnet18-cifar10").number("0.1", "regun", "gap_rftp")
    Printed(mean=2.0, std=0.18, mark='second')
    """
    if study_name not in _SETUPS:
        raise RegunError(
            unknown("study with numbers in the paper", study_name, _SETUPS) + " Leave paper= out for other studies."
        )
    setup, size = _SETUPS[study_name]
    note = f"Rows named paper: {_TITLES[setup]}, mean ± sample standard deviation as the paper's appendix prints them."
    numbers = {
        (float(row["forget_fraction"]), row["method"], row["metric"]): Printed(float(row["mean"]), float(row["std"]))
        for row in _rows()
        if row["setup"] == setup
    }
    return Paper(setup, note + _REMARKS.get(setup, "") + (_SMALLER if size else ""), _ranked(numbers))


def _ranked(numbers: Mapping[tuple[float, str, str], Printed]) -> dict[tuple[float, str, str], Printed]:
    """Return the numbers with their marks: by the distance of the printed means to Retrain's, Base excluded."""
    ranked = dict(numbers)
    for fraction, metric in {(fraction, metric) for fraction, _, metric in numbers}:
        rows = {name: n for (f, name, m), n in numbers.items() if (f, m) == (fraction, metric)}
        methods = [name for name in rows if name not in ("retrain", "base")]
        marks = _marks({name: abs(rows[name].mean - rows["retrain"].mean) for name in methods})
        ranked |= {(fraction, name, metric): replace(rows[name], mark=mark) for name, mark in marks.items()}
    return ranked


def _marks(distances: Mapping[str, float]) -> dict[str, Mark]:
    """Return best and second best as the paper marks them, without regard to noise; equal distances share a mark."""
    names: dict[int, Mark] = {0: "best", 1: "second"}
    closer = {
        name: sum(other < distance - 1e-9 for other in distances.values()) for name, distance in distances.items()
    }
    return {name: names[n] for name, n in closer.items() if n in names}


def _rows() -> list[dict[str, str]]:
    text = resources.files("regun.experiments.study").joinpath("paper_results.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _fraction(forget: str) -> float:
    try:
        return float(forget)
    except ValueError:  # `class:3`, a list of ids: not of the paper
        return float("nan")
