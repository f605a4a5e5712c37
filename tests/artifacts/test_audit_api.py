"""`regun.audit` on a user's own models: who plays which part, what the model before adds, and a single example."""

import numpy as np
import torch
from torch import nn

import regun
from regun.predict import predict

CLASSES, FEATURES = 3, 4


class Lookup(nn.Module):
    """Answers by a fixed linear map, so that every model is another one and nothing need be trained."""

    def __init__(self, seed: int, sure: float = 1.0) -> None:
        super().__init__()
        weights = np.random.default_rng(seed).normal(size=(FEATURES, CLASSES)) * sure
        self.weights = nn.Parameter(torch.tensor(weights, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weights


def data(seed: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(size, FEATURES)), dtype=torch.float32), torch.arange(size) % CLASSES


SETS = {"forget": data(0, 20), "retain": data(1, 60), "test": data(2, 40), "val": data(3, 30)}


def test_every_model_plays_its_own_part() -> None:
    model, before, retrain, *others = (Lookup(seed) for seed in range(6))
    found = regun.audit(
        model, **SETS, before=before, retrained=[retrain, *others[:2]], out_models=others[2:], bootstrap=0
    )
    for seed, numbers in ((0, found.values()), (1, {n: v.value for n, v in found.before.items()}), (2, found.retrain)):
        alone = regun.audit(Lookup(seed), **SETS, bootstrap=0)
        for name in ("retain_acc", "forget_acc", "test_acc", "smia_auc", "smia_auc_val"):
            assert numbers[name] == alone.numbers[name].value, (seed, name)
    assert found.settings["references"] == 2
    assert found.influence is not None
    assert found.influence.out_models == 3  # the retrained one and the references
    short = regun.audit(model, **SETS, before=before, out_models=others, bootstrap=0)
    assert short.influence is not None
    assert short.influence.out_models == 3
    assert short.judgement is not None
    assert short.judgement.test == "influence"


def test_the_sets_that_are_judged_can_be_named() -> None:
    model, before, *others = (Lookup(seed) for seed in range(4))
    found = regun.audit(model, **SETS, before=before, out_models=others, unseen=["val"], bootstrap=0)
    assert found.influence is not None
    assert [part.against for part in found.influence.parts] == ["val"]


def test_a_single_example_is_told_its_place() -> None:
    one = (SETS["forget"][0][:1], SETS["forget"][1][:1])
    model, before, out = (Lookup(seed) for seed in range(3))
    found = regun.audit(model, forget=one, test=SETS["test"], before=before, out_models=out, bootstrap=20)
    sides = [regun_losses(model, pair) for pair in (one, SETS["test"])]
    assert found.numbers["smia_auc"].value == 100 * float((sides[1] < sides[0]).mean())
    assert found.influence is not None
    assert found.influence.records == 1


def regun_losses(model: nn.Module, pair: tuple[torch.Tensor, torch.Tensor]) -> np.ndarray:
    from regun.data.tensors import TensorExamples

    return predict(model, TensorExamples(pair[0], pair[1].numpy(), CLASSES)).true_log_prob
