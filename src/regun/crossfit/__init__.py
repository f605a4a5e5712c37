"""Cross-fitting: short models trained without one fold each, and what they predict for the records they never saw.

    D = F_1 + ... + F_K        folds, stratified by label; all rows of a group or of equal content are in one fold
    f_k                        trained on D without F_k, for a share of the usual epochs
    q(x) = f_k(x), x in F_k    the out-of-fold prediction; unseen records are dealt to the K models at random

The models are not kept. Cost, once: K (1 - 1/K) share trainings per repeat; 0.75 of one training with K = 4 and a
quarter of the epochs, 3 with all of them. "Cross-fitted references" in the documentation says what each gives.
"""

from regun.crossfit.fold_models import TrainFunction, function_digest, subset_of
from regun.crossfit.preparing import prepare

__all__ = ["TrainFunction", "function_digest", "prepare", "subset_of"]
