"""The score of a trial: one scorer for models of the store and for models in memory.

ReGUn trains towards its predictions on held-out examples, so these examples cannot score it as well: forgotten ones
would look like them whether or not anything was forgotten. Without a retrained model, half of the held-out set is
therefore set aside for scoring alone, class by class, and joined by the validation split, which no method trains on.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from regun.auditing.predictions import Predictions
from regun.errors import NotFiniteError, SplitError
from regun.experiments.search.objectives import TrialScore, gap_score, reference_score, worst
from regun.hashing import digest
from regun.methods import Method
from regun.rng import derive
from regun.splits import Splits, proportional_order
from regun.types import Indices

SET_ASIDE = 0.5

PredictPart = Callable[[Indices], Predictions]
"""Returns a model's predictions on the examples at these indices; raises `NotFiniteError` if they are not finite."""


@dataclass(frozen=True)
class TrialScorer:
    """Scores trials by one objective, on the examples in `parts` (see `scoring_parts`).

    `compared_with` are the base for `reference`, Retrain and then the references for `gap`. Each predicts once, and
    only if there is a trial to score.
    """

    objective: str
    parts: Mapping[str, Indices]
    compared_with: Sequence[PredictPart]

    def score(self, predict: PredictPart, diverged: str | None = None) -> TrialScore:
        """Return the score of a trial's model: the worst if it diverged or its predictions are not finite."""
        if diverged:
            return worst(self.objective, diverged)
        first, *references = self._compared_predictions
        try:
            target = self._predictions(predict)
        except NotFiniteError as error:
            return worst(self.objective, str(error))
        return gap_score(target, first, references) if self.objective == "gap" else reference_score(target, first)

    @cached_property
    def _compared_predictions(self) -> list[dict[str, Predictions]]:
        return [self._predictions(predict) for predict in self.compared_with]

    def _predictions(self, predict: PredictPart) -> dict[str, Predictions]:
        return {name: predict(part) for name, part in self.parts.items()}


def scoring_parts(objective: str, splits: Splits, labels: Indices) -> dict[str, Indices]:
    """Return the examples that score a trial, by name; never test data."""
    if objective == "gap":
        return {"retain": splits.retain, "forget": splits.forget, "val": splits.val}
    retain = {"retain": splits.retain} if len(splits.retain) else {}
    return {"forget": splits.forget, "unseen": set_aside(splits, labels)[1], **retain}


def visible_splits(method: Method, objective: str, splits: Splits, labels: Indices) -> Splits:
    """Return the splits of a trial: a method that may use held-out examples does not get those that score it.

    A method of this package declares whether it uses them; a user's method need not.
    """
    looks = method.needs.uses_heldout or method.source is not None
    return set_aside(splits, labels)[0] if objective == "reference" and looks else splits


def set_aside(splits: Splits, labels: Indices) -> tuple[Splits, Indices]:
    """Return the splits without half of the held-out set, and the examples that score trials.

    The half depends on the held-out examples alone, never on a seed: another search cannot use the other half.
    """
    shuffled = splits.heldout.tolist()
    random.Random(derive(digest(splits.heldout), "set aside")).shuffle(shuffled)
    order = proportional_order(np.array(shuffled, dtype=np.int64), labels) if shuffled else splits.heldout
    scored = order[: round(SET_ASIDE * len(order))]
    unseen = np.union1d(splits.val, scored).astype(np.int64)
    if len(unseen) < 2:
        raise SplitError(
            f"the reference objective needs at least 2 unseen examples; got {len(unseen)} (validation and half of "
            f"{len(splits.heldout)} held-out ones). Set some aside before training: regun train --split val=0.1."
        )
    return replace(splits, heldout=np.setdiff1d(splits.heldout, scored)), unseen
