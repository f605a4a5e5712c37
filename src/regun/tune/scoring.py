"""Which examples a search without a retrained model is judged on.

ReGUn trains towards its predictions on held-out examples, so the same examples cannot also judge it: forgotten ones
would look like them whether or not anything was forgotten. Half of the held-out set is therefore set aside for scoring
alone, class by class, and joined by the validation split, which no method sees anyway.
"""

import random
from dataclasses import replace

import numpy as np

from regun.errors import SplitError
from regun.seeds import derive, digest
from regun.splits import Indices, Splits, proportional_order

SET_ASIDE = 0.5


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
