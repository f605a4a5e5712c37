"""The price of an outcome next to a retraining, and retraining by the user's own function."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import regun
from expect import error
from regun.deletion.receipt import claim_of
from regun.errors import DataError, RegunError
from regun.unlearning import Price
from toys import blobs, mlp, same_state


def sets() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    data = blobs()
    x, y = data.x, torch.from_numpy(data.labels)
    return {"forget": (x[:15], y[:15]), "retain": (x[15:90], y[15:90]), "heldout": (x[90:], y[90:])}


def own_loop(dataset, seed: int) -> nn.Module:
    """As a user would write it."""
    model = mlp(seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.manual_seed(seed)
    for x, y in DataLoader(dataset, batch_size=25, shuffle=True):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("wrapped", [False, True])
def test_retraining_by_a_function_of_one_s_own_is_that_function_on_the_retained_records(wrapped: bool) -> None:
    data, base = sets(), mlp(seed=9)
    given = {**data, "retain": TensorDataset(*data["retain"])} if wrapped else data
    outcome = regun.unlearn(base, **given, method="retrain", train=own_loop, seed=3)
    assert same_state(outcome.model, own_loop(TensorDataset(*data["retain"]), 3))
    assert same_state(base, mlp(seed=9))
    assert outcome.from_scratch
    assert claim_of(outcome) == "retrained"
    assert outcome.method == "retrain"
    assert outcome.notes["trained_by"]["train"] == "own_loop"
    assert outcome.price.branch == "retrained"
    assert outcome.price.advice is None
    assert outcome.cost.forward >= 75


def test_a_training_that_cannot_be_used_is_named() -> None:
    data, base = sets(), mlp()
    again = {**data, "method": "retrain"}
    with error(RegunError, "train", "retrain", "auto"):
        regun.unlearn(base, **data, train=own_loop)
    with error(RegunError, "train", "recipe"):
        regun.unlearn(base, **again, train=own_loop, recipe={"epochs": 1, "lr": 0.1})
    with error(RegunError, "retain="):
        regun.unlearn(base, forget=data["forget"], method="retrain", train=own_loop)
    with error(RegunError, "train", "str", "dataset"):
        regun.unlearn(base, **again, train="own_loop")
    with error(RegunError, "int"):
        regun.unlearn(base, **again, train=lambda dataset, seed: 3)
    for made in (lambda dataset, seed: base, lambda dataset, seed: mlp()):
        with error(RegunError, "train"):
            regun.unlearn(base, **again, train=made)
    with error(RegunError, "0.bias"):
        regun.unlearn(base, **again, train=lambda dataset, seed: nn.Sequential(nn.Linear(6, 3)))
    with error(RegunError, "ZeroDivisionError"):
        regun.unlearn(base, **again, train=lambda dataset, seed: 1 / 0)
    by_name = {name: ({"x": x}, y) for name, (x, y) in data.items()}
    with error(DataError, "mapping"):
        regun.unlearn(Named(), **by_name, method="retrain", train=own_loop)


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


def test_an_outcome_says_what_it_cost_next_to_a_retraining() -> None:
    recipe = {"epochs": 4, "lr": 0.05, "batch_size": 16}
    outcome = regun.unlearn(mlp(), **sets(), recipe=recipe)
    price = outcome.price
    assert (price.retraining, price.estimated, price.retrained) == (300, False, True)
    assert price.samples == outcome.cost.backward <= price.planned
    assert price.seconds == outcome.cost.seconds
    assert outcome.notes["trained_by"]["epochs"] == 4
    finetuned = regun.unlearn(mlp(), **sets(), recipe=recipe, method="finetune,epochs=3").price
    assert (finetuned.share, finetuned.branch) == (0.75, None)
    assert "75%" in (finetuned.advice or "")
    assert regun.unlearn(mlp(), **sets(), method="finetune,epochs=3").price.share is None


@pytest.mark.parametrize(
    ("samples", "retrained", "estimated", "advised"),
    [(40, False, False, False), (60, False, False, True), (60, False, True, True), (100, True, False, False),
     (60, True, True, True), (40, True, True, False)],
)  # fmt: skip
def test_above_half_of_a_retraining_a_retraining_is_advised(samples, retrained, estimated, advised) -> None:
    price = Price(samples, 1.0, 100, estimated=estimated, retrained=retrained)
    assert (price.advice is not None) == advised
