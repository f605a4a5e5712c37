"""The words of every verdict, from one test to a receipt. `inconclusive` means the same everywhere: no power.

A test has power if it flags the model before unlearning. Without power its result is no evidence, whatever it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["passed", "inconclusive", "failed"]
"""Of one test, of a whole audit, and of one condition of an acceptance rule."""
InfluenceVerdict = Literal["forgotten", "inconclusive", "remembered", "over-forgotten"]
"""Of the influence that the forgotten records still have."""
Decision = Literal["accepted", "inconclusive", "rejected"]
"""Of a whole acceptance rule, and so of a deletion request."""

ERROR_RATE = 0.05
"""Probability, over all comparisons together, that a retrained model fails, and that a model
which forgot half is called forgotten."""


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


def decide(verdicts: Iterable[Verdict]) -> Decision:
    """Return `rejected` if any condition failed, else `inconclusive` if any is, else `accepted`."""
    present = set(verdicts)
    return "rejected" if "failed" in present else "inconclusive" if "inconclusive" in present else "accepted"
