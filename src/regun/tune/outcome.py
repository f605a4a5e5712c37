"""What a search found: its trials, the best of them, and their forms as JSON and tables."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Judged:
    """One trial's scores (to minimise), and what was run: `model` is its key in the store, if it has one."""

    score: float
    forgetting: float
    utility: float
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    diverged: str | None = None
    model: str | None = None
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Trial:
    """Settings that were tried and how they did; trial 0 is where the search started."""

    number: int
    values: Mapping[str, Any]
    judged: Judged

    @property
    def score(self) -> float:
        return self.judged.score

    def to_json(self) -> dict[str, Any]:
        return {"number": self.number, "values": dict(self.values), **asdict(self.judged)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Trial":
        rest = {k: v for k, v in value.items() if k not in ("number", "values")}
        return cls(value["number"], dict(value["values"]), Judged(**rest))


@dataclass(frozen=True)
class Tuned:
    """A finished search of one method. `fixed` are settings that were given and not searched."""

    method: str
    objective: str
    trials: tuple[Trial, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    note: str = ""
    key: str = ""

    @property
    def best(self) -> Trial:
        """The trial with the smallest score; the earliest among equals, so the start keeps its place in a tie."""
        return min(self.trials, key=lambda t: (t.score, t.number))

    @property
    def best_values(self) -> dict[str, Any]:
        return dict(self.best.values)

    @property
    def best_score(self) -> float:
        return self.best.score

    @property
    def default_score(self) -> float:
        """The score of the settings the search started from."""
        return self.trials[0].score

    @property
    def settings(self) -> dict[str, Any]:
        """What a settings file keeps: the best values of what was searched, and what was given."""
        return {**self.fixed, **self.best_values}

    @property
    def front(self) -> tuple[Trial, ...]:
        """Trials that no other beats in forgetting without losing in utility, best forgetting first."""
        ordered = sorted(self.trials, key=lambda t: (t.judged.forgetting, t.judged.utility, t.number))
        kept: list[Trial] = []
        for trial in ordered:
            if not kept or trial.judged.utility < kept[-1].judged.utility:
                kept.append(trial)
        return tuple(kept)

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "objective": self.objective,
            "key": self.key,
            "note": self.note,
            "fixed": dict(self.fixed),
            "default_score": self.default_score,
            "best_score": self.best_score,
            "best": self.best.number,
            "best_values": self.best_values,
            "front": [t.number for t in self.front],
            "trials": [t.to_json() for t in self.trials],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Tuned":
        trials = tuple(Trial.from_json(t) for t in value["trials"])
        return cls(value["method"], value["objective"], trials, dict(value["fixed"]), value["note"], value["key"])


def trials_csv(found: Mapping[str, Sequence[Trial]]) -> str:
    """All trials of several methods as one table; settings and parts a method does not have stay empty."""
    trials = [t for each in found.values() for t in each]
    settings = list(dict.fromkeys(name for t in trials for name in t.values))
    parts = list(dict.fromkeys(name for t in trials for name in t.judged.parts))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    plain = ("score", "forgetting", "utility", "diverged", "model", "steps", "seconds")
    writer.writerow(["method", "trial", *settings, *plain, *parts])
    for method, t in ((method, t) for method, each in found.items() for t in each):
        cells = [getattr(t.judged, name) for name in plain]
        measured = ["" if c is None else c for c in cells] + [t.judged.parts.get(p, "") for p in parts]
        writer.writerow([method, t.number, *(t.values.get(s, "") for s in settings), *measured])
    return out.getvalue()
