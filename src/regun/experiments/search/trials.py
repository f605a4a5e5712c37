"""The result of a search: its trials, the best of them, and their form as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TrialScore:
    """A score, its forgetting and utility sides (all to minimise) and its parts, in points.

    `diverged` is the reason if there was nothing to score.
    """

    score: float
    forgetting: float
    utility: float
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    diverged: str | None = None


@dataclass(frozen=True, kw_only=True)
class Trial(TrialScore):
    """Settings and their score; trial 0 is the start. `model` is the key of its model in the store, if it has one."""

    number: int
    values: Mapping[str, Any]
    model: str | None = None
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class SearchResult:
    """A finished search of one method. `fixed` are settings that were not searched."""

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
        """The settings for a file: the best searched values and the fixed ones; TOML has no None, so it is `none`."""
        values = {**self.fixed, **self.best_values}
        return {name: "none" if value is None else value for name, value in values.items()}

    @property
    def front(self) -> tuple[Trial, ...]:
        """Trials that no other beats in forgetting without losing in utility, best forgetting first."""
        front: list[Trial] = []
        for trial in sorted(self.trials, key=lambda t: (t.forgetting, t.utility, t.number)):
            if not front or trial.utility < front[-1].utility:
                front.append(trial)
        return tuple(front)

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
            "trials": [asdict(t) for t in self.trials],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SearchResult":
        trials = tuple(Trial(**t) for t in value["trials"])
        return cls(value["method"], value["objective"], trials, dict(value["fixed"]), value["note"], value["key"])
