"""What a study found, as plain data: the one input of tables, figures and the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from regun.evaluate import Evaluation, Signals

Kind = Literal["retrain", "base", "method"]


@dataclass(frozen=True)
class Run:
    """One model of one seed, judged; `evaluation` is None where a diverged model no longer gives finite answers."""

    seed: int
    key: str
    evaluation: Evaluation | None
    cost: Mapping[str, float]
    """steps, forward, backward (samples through each pass), seconds"""
    epochs: Sequence[Mapping[str, float]] = ()
    """The learning curve: number, epochs, loss, lr, seconds, images_per_second of every epoch."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    diverged: str | None = None
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Entry:
    """A row: Retrain, Base or a method, on one forget request, over the seeds."""

    name: str
    """Unique in its block and stable: `retrain`, `base`, or the method as the study names it, `regun@wide_retain`."""
    title: str
    kind: Kind
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Block:
    """Everything that was done for one forget request; `entries` start with Retrain and Base."""

    forget: str
    """The request as the study writes it: `0.1`, `class:3`."""
    label: str
    """The request for people: `10 %`, `class 3`."""
    sizes: Mapping[str, int]
    """Examples in retain, forget, heldout, val, test."""
    entries: tuple[Entry, ...]

    def entry(self, name: str) -> Entry:
        return next(e for e in self.entries if e.name == name)


@dataclass(frozen=True)
class Results:
    """A study's results so far; `missing` says what has not been made yet or has failed."""

    name: str
    title: str
    about: Mapping[str, str]
    """What was run, for people, in reading order: data, model, recipe, seeds, budget, references, ..."""
    seeds: tuple[int, ...]
    blocks: tuple[Block, ...]
    missing: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Closeup:
    """What the models of one forget request answered, for curves, histograms and the risk list; first seed only."""

    forget: str
    seed: int
    signals: Mapping[str, Mapping[str, Signals]]
    """Entry name -> split (retain, forget, test, val, heldout) -> signals."""
    references: Sequence[Mapping[str, Signals]]
    """Of each reference model: split -> signals."""


@dataclass(frozen=True)
class Point:
    """Where a model stands: utility (test accuracy) and forgetting (RMIA AUC), means and sample deviations, in %."""

    utility: float
    forgetting: float
    utility_std: float | None = None
    forgetting_std: float | None = None
    w: float | None = None


@dataclass(frozen=True)
class TradeOff:
    """The sweep of w on one forget request: curves by method title, methods without a w as single points."""

    forget: str
    label: str
    retrain: Point
    base: Point
    curves: Mapping[str, tuple[Point, ...]]
    fixed: Mapping[str, Point]
    noise: tuple[float, float] | None = None
    """How far two retrained models are apart at most: in utility, in forgetting."""
