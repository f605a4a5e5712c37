"""U-LiRA: no unlearning is found out, retraining is not; complementary halves; bad input."""

import numpy as np
import pytest
import torch

from regun.data.catalogue import DataSpec, load_data
from regun.errors import AuditError
from regun.methods import get_method
from regun.models import ModelSpec
from regun.runs.shadows import Shadowed, _half, audit_by_shadows
from regun.runs.training import Training, Unlearning, train_model, unlearn_model
from regun.splits import Request, make_splits, reserve
from regun.store import Store
from regun.training.recipes import Recipe

CPU = torch.device("cpu")
RECIPE = Recipe(epochs=12, lr=0.05, nesterov=True, schedule="cosine", batch_size=64)


def nothing(job) -> None:
    """Forget nothing at all."""


@pytest.mark.parametrize(("name", "low", "high"), [("nothing", 62, 100), ("retrain", 35, 65)])
def test_what_was_not_unlearned_is_found_and_what_was_retrained_is_not(
    tmp_path, name: str, low: int, high: int
) -> None:
    torch.set_num_threads(1)
    store = Store(tmp_path)
    data = load_data(DataSpec("digits"), "digits")
    kept = reserve(data.train.labels, 0)
    splits = make_splits(data.train.labels, Request.random(0.1), kept)
    base = train_model(Training(data, kept.base, ModelSpec("cnn"), RECIPE, 0), store, CPU, about={})
    method = get_method(nothing if name == "nothing" else "retrain")
    config = method.configure({} if name == "nothing" else base.inputs["recipe"])
    target = unlearn_model(Unlearning(base, data, splits, method, config, 0), store, CPU, about={})
    found = audit_by_shadows(Shadowed(base, target, method, config, data, splits), store, CPU, shadows=4, bootstrap=100)
    assert (found.members, found.nonmembers) == (len(splits.forget), len(splits.val))
    assert low < found.auc.value < high, found.auc
    assert found.auc.low is not None


def test_halves_are_complementary_so_that_every_example_is_in_both_worlds() -> None:
    halves = np.array([_half(11, n, 0) for n in range(6)])
    assert (halves.sum(0) == 3).all()
    assert not np.array_equal(halves[0], halves[2])


def test_too_few_shadow_runs_are_refused() -> None:
    with pytest.raises(AuditError, match="give an even number of at least 4"):
        audit_by_shadows(None, None, CPU, shadows=5)
