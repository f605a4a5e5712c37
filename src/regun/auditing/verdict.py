"""The words of every verdict, from one test to a receipt. `inconclusive` means the same everywhere: no power.

A test has power if it flags the model before unlearning. Without power its result is no evidence, whatever it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["passed", "inconclusive", "failed"]
"""Of one test, of a whole audit, and of one condition of an acceptance rule."""
InfluenceVerdict = Literal["forgotten", "inconclusive", "remembered", "over-forgotten"]
"""Of the influence that the forgotten records still have."""
Decision = Literal["accepted", "inconclusive", "rejected"]
"""Of a whole acceptance rule, and so of a deletion request."""
Test = Literal["noise floor", "influence", "loss attack"]
"""What a verdict rests on: retrained models, models that never saw the records, or unseen records alone."""

ERROR_RATE = 0.05
"""Probability, over all tests of a verdict together, that a retrained model fails, and that a model which forgot half
is called forgotten."""

UNKNOWN_POWER = "The model before unlearning was not given (before=), so the power of these tests is unknown."


@dataclass(frozen=True)
class VerdictText:
    """A verdict for people: `phrase` completes "the model is ...", `meaning` explains it."""

    phrase: str
    meaning: str


VERDICTS: dict[Verdict, VerdictText] = {
    "passed": VerdictText(
        "inside the noise floor",
        "not distinguishable from a retrained model, by a test that does flag the model before unlearning",
    ),
    "inconclusive": VerdictText(
        "inconclusive (no power)",
        "not distinguishable from a retrained model, but the test does not flag the model before unlearning either, or "
        "that model was not given",
    ),
    "failed": VerdictText(
        "outside the noise floor",
        "significantly farther from a retrained model than retrained models are from each other",
    ),
}
"""The verdicts of comparisons, the good one first."""

OF_INFLUENCE: Mapping[InfluenceVerdict, Verdict] = {
    "forgotten": "passed",
    "inconclusive": "inconclusive",
    "remembered": "failed",
    "over-forgotten": "failed",
}
"""The verdict that each answer about the influence left amounts to."""


@dataclass(frozen=True)
class Part:
    """One of the tests behind a verdict: its name, its verdict, and a sentence with the numbers.

    The name is a number's, `influence` or `all_numbers`. `flagged`: whether the test flags the model before unlearning;
    None where that model is unknown, or the number is about utility. `limit` is the largest distance to Retrain that
    passes, where the test is of one number.
    """

    name: str
    verdict: Verdict
    text: str
    flagged: bool | None = None
    limit: float | None = None


@dataclass(frozen=True)
class Judgement:
    """The verdict of an audit, its reason in plain words, and the tests behind it.

    All tests together have an error rate of 5 %, so each has 5 % over their number (`level`). `worst` names the test
    that is farthest off, measured by its own limit.
    """

    verdict: Verdict
    test: Test
    reason: str
    parts: tuple[Part, ...] = ()
    worst: str | None = None

    @property
    def level(self) -> float:
        """The error rate of each test."""
        return ERROR_RATE / max(1, len(self.parts))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Judgement:
        parts: dict[str, Any] = {"parts": tuple(Part(**part) for part in value["parts"])}
        return cls(**{**value, **parts})


def decide(verdicts: Iterable[Verdict]) -> Decision:
    """Return `rejected` if any condition failed, else `inconclusive` if any is, else `accepted`."""
    present = set(verdicts)
    return "rejected" if "failed" in present else "inconclusive" if "inconclusive" in present else "accepted"
