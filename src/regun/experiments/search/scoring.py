"""Who judges a trial, and how: one judge for models of the store and for models in memory.

ReGUn trains towards its predictions on held-out examples, so the same examples cannot also judge it: forgotten ones
would look like them whether or not anything was forgotten. Without a retrained model, half of the held-out set is
therefore set aside for scoring alone, class by class, and joined by the validation split, which no method sees anyway.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from regun.auditing.predictions import Predictions
from regun.errors import NotFiniteError, SplitError
from regun.experiments.search.objectives import Scored, gap_score, reference_score, worst
from regun.hashing import digest
from regun.methods import Method
from regun.rng import derive
from regun.splits import Splits, proportional_order
from regun.types import Indices

SET_ASIDE = 0.5

Ask = Callable[[Indices], Predictions]
"""What a model says about the examples at these indices; raises `NotFiniteError` where that is no finite number."""


@dataclass(frozen=True)
class Judge:
    """Scores trials by one objective, on the examples in `parts` (see `judged_on`).

    `others` are the models to compare with: the base for `reference`, Retrain and then the references for `gap`. They
    are asked once, and only if there is a trial to score.
    """

    objective: str
    parts: Mapping[str, Indices]
    others: Sequence[Ask]

    def score(self, ask: Ask, diverged: str | None = None) -> Scored:
        """The score of a trial's model; the worst there is for a run that diverged or answers that are not finite."""
        if diverged:
            return worst(self.objective, diverged)
        first, *more = self._said_by_others
        try:
            target = self._said(ask)
        except NotFiniteError as fault:
            return worst(self.objective, str(fault))
        return gap_score(target, first, more) if self.objective == "gap" else reference_score(target, first)

    @cached_property
    def _said_by_others(self) -> list[dict[str, Predictions]]:
        return [self._said(ask) for ask in self.others]

    def _said(self, ask: Ask) -> dict[str, Predictions]:
        return {name: ask(part) for name, part in self.parts.items()}


def judged_on(objective: str, splits: Splits, labels: Indices) -> dict[str, Indices]:
    """The examples that a trial's model is asked about, by name; never test data."""
    if objective == "gap":
        return {"retain": splits.retain, "forget": splits.forget, "val": splits.val}
    retain = {"retain": splits.retain} if len(splits.retain) else {}
    return {"forget": splits.forget, "unseen": set_aside(splits, labels)[1], **retain}


def shown_to(method: Method, objective: str, splits: Splits, labels: Indices) -> Splits:
    """The splits of a trial: a method that may look at held-out examples does not see those that judge it.

    A method of this package says whether it looks; a user's own need not say.
    """
    looks = method.needs.uses_heldout or method.source is not None
    return set_aside(splits, labels)[0] if objective == "reference" and looks else splits


def set_aside(splits: Splits, labels: Indices) -> tuple[Splits, Indices]:
    """The splits a method may see, with half of the held-out set gone, and the examples it is scored on.

    The half depends on the held-out examples alone, never on a seed: searching again cannot reveal the other half.
    """
    shuffled = splits.heldout.tolist()
    random.Random(derive(digest(splits.heldout), "set aside")).shuffle(shuffled)
    order = proportional_order(np.array(shuffled, dtype=np.int64), labels) if shuffled else splits.heldout
    scored = order[: round(SET_ASIDE * len(order))]
    unseen = np.union1d(splits.val, scored).astype(np.int64)
    if len(unseen) < 2:
        raise SplitError(
            f"the reference objective is scored on unseen examples, of which there are {len(unseen)} (validation and "
            f"half of {len(splits.heldout)} held-out ones); set some aside before training: regun train --val 0.1."
        )
    return replace(splits, heldout=np.setdiff1d(splits.heldout, scored)), unseen
