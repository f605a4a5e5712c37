"""Models whose truth is known: every record has a hardness, every model its own noise, and members are remembered."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from regun.auditing import Predictions

FloatArray = npt.NDArray[np.float64]
UNSEEN = {"test": 300, "heldout": 150, "val": 150}


def from_odds(odds: FloatArray) -> Predictions:
    """Two classes, true label 0, with these log-odds of it."""
    return Predictions.from_logits(
        np.stack([odds, np.zeros_like(odds)], axis=1), np.zeros(len(odds), int), range(len(odds))
    )


@dataclass
class World:
    """`n` records to forget among unseen ones; models trained alike differ by `noise` record by record, and by a shift
    of their own. A member's log-odds are around `member` or higher."""

    seed: int
    n: int
    noise: float = 1.5
    shifts: float = 0.1
    member: float = 6.0
    retain: int = 400
    unseen: Mapping[str, int] = field(default_factory=lambda: UNSEEN)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, self.n])
        sizes = {"forget": self.n, "retain": self.retain, **self.unseen}
        self.hard = {name: self.rng.normal(1.5, 2.5, size) for name, size in sizes.items()}

    def odds(self, members: float = 0.0) -> dict[str, FloatArray]:
        """Log-odds of one model that was trained on retain and the first `members` of the forget set."""
        shift, found = self.rng.normal(0, self.shifts), dict[str, FloatArray]()
        for name, hard in self.hard.items():
            own = hard + shift + self.rng.normal(0, self.noise, len(hard))
            count = {"retain": len(hard), "forget": round(members * len(hard))}.get(name, 0)
            own[:count] = np.maximum(own[:count], self.rng.normal(self.member, 1.0, count))
            found[name] = own
        return found

    def model(self, members: float = 0.0) -> dict[str, Predictions]:
        return said(self.odds(members))

    def models(self, count: int) -> list[dict[str, Predictions]]:
        """So many that never saw the forget set."""
        return [self.model() for _ in range(count)]


def said(odds: Mapping[str, FloatArray]) -> dict[str, Predictions]:
    return {name: from_odds(values) for name, values in odds.items()}


def half_way(base: Mapping[str, FloatArray], retrained: Mapping[str, FloatArray]) -> dict[str, Predictions]:
    """The mean of both models' probabilities."""
    found: dict[str, Predictions] = {}
    for name in base:
        p, q = (np.mean([1 / (1 + np.exp(sign * m[name])) for m in (base, retrained)], axis=0) for sign in (-1, 1))
        found[name] = from_odds(np.log(p) - np.log(q))
    return found
