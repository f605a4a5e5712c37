"""Relearning as a run: its steps, its artifacts, and models whose memory is known."""

import pytest
import torch
from torch import nn

import regun
from expect import error
from regun.errors import RegunError
from regun.relearning import _between, relearn_steps, relearn_updates, relearning_checkpoints
from regun.training.recipes import RECIPES, Updates
from regun.training.streams import Stream, one_pass
from toys import blobs, job_for, mlp

CLASSES, EACH = 8, 200


class Veiled(nn.Module):
    """A model behind a veil: a bias that makes every answer class 0, and that a few steps on anything take off."""

    def __init__(self, inner: nn.Module, thickness: float) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.veil = nn.Parameter(torch.zeros(CLASSES))
        self.veil.data[0] = thickness

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.veil


def memoriser(x: torch.Tensor, y: torch.Tensor, seed: int) -> nn.Module:
    """A net trained to know random labels by heart."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Linear(128, CLASSES))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(120):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return model.eval()


def random_labels(seed: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (
            torch.randn(EACH, 40, generator=generator),
            torch.randint(0, CLASSES, (EACH,), generator=generator),
        )
        for name in ("retain", "forget", "test")
    }


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_was_veiled_comes_back_and_what_was_never_known_does_not(seed: int) -> None:
    """Labels are random, so a model without the forgotten examples is right on one in eight of them, however long it
    trains on others; one that knew them by heart behind a veil is right on all as soon as the veil is off."""
    sets = random_labels(seed)
    everything = [torch.cat([sets["retain"][k], sets["forget"][k]]) for k in (0, 1)]
    base, retrain = memoriser(everything[0], everything[1], seed), memoriser(*sets["retain"], seed + 10)
    hidden = Veiled(base, 30.0)
    before = {name: value.clone() for name, value in hidden.state_dict().items()}
    found = regun.relearn(hidden, **sets, retrained=Veiled(retrain, 30.0), settings={"lr": 0.1, "epochs": 12})
    assert found.curve[0].forget_acc < 30
    assert found.numbers["relearn_forget_acc"].value > 60
    assert found.retrain["relearn_forget_acc"] < 35
    assert found.numbers["regained_acc"].value > 30
    assert found.curve[0].steps == 0
    assert [p.steps for p in found.curve] == [p.steps for p in found.retrain_curve]
    for name, value in hidden.state_dict().items():
        assert torch.equal(value, before[name]), "the model given was changed"
    alone = regun.relearn(hidden, **sets, settings={"lr": 0.1, "epochs": 12})
    assert alone.numbers["regained_acc"].value > 30


def test_the_forgotten_examples_are_never_trained_on() -> None:
    """With a rate of 0 nothing moves; with other forgotten examples the steps are the same."""
    sets = random_labels(0)
    model = memoriser(*sets["retain"], 0)
    still = regun.relearn(model, **sets, settings={"lr": 0.0})
    assert len({point.forget_acc for point in still.curve}) == 1
    assert len({point.smia_auc for point in still.curve}) == 1
    other = {**sets, "forget": random_labels(9)["forget"]}
    runs = [regun.relearn(model, **given, settings={"lr": 0.1}) for given in (sets, other)]
    assert [p.unseen_acc for p in runs[0].curve] == [p.unseen_acc for p in runs[1].curve]
    assert [p.retain_acc for p in runs[0].curve] == [p.retain_acc for p in runs[1].curve]


def test_points_are_an_eighth_a_quarter_a_half_and_all_of_the_steps() -> None:
    assert relearning_checkpoints(Updates(epochs=2, batch_size=64), 1280) == (0, 5, 10, 20, 40)
    assert relearning_checkpoints(Updates(epochs=2, batch_size=64), 3) == (0, 1, 2)


def test_the_rate_is_a_tenth_of_the_bases() -> None:
    assert relearn_updates(None).lr == 0.01
    assert relearn_updates(RECIPES["resnet18"]).lr == pytest.approx(0.01)
    assert relearn_updates(RECIPES["swin-t"]).optimizer == "adamw"
    assert relearn_updates(RECIPES["swin-t"]).lr == pytest.approx(3e-5)
    assert relearn_updates(RECIPES["resnet18"]).weight_decay == 0


def test_cut_at_points_a_stream_gives_the_same_batches() -> None:
    job = job_for(mlp(), blobs())
    whole = one_pass(job, "retain", job.indices("retain"), 7)
    total = 2 * whole.steps(0)
    cut = _between(whole, (0, 1, total // 2 + 1, total))

    def rows(stream: Stream, epochs: int) -> list[list[int]]:
        return [batch["retain"].indices.tolist() for epoch in range(epochs) for batch in stream.run(epoch, 0)]

    assert rows(cut, 3) == rows(whole, 2)
    assert sum(cut.steps(epoch) for epoch in range(3)) == total
    late = [batch["retain"].indices.tolist() for batch in cut.run(1, 2)]
    assert late == rows(whole, 2)[3 : total // 2 + 1]


def test_the_last_point_is_plain_training_of_as_many_epochs() -> None:
    updates, looked = Updates(epochs=2, batch_size=16, lr=0.05), list[int]()
    job = job_for(mlp(), blobs())
    relearn_steps(job, updates, lambda model: looked.append(1))
    assert job.cost.steps == relearning_checkpoints(updates, len(job.indices("retain")))[-1]
    assert len(looked) == len(relearning_checkpoints(updates, len(job.indices("retain"))))


def test_no_unseen_examples_are_refused() -> None:
    sets = random_labels(0)
    model = memoriser(*sets["retain"], 0)
    with error(RegunError, "unseen", "test"):
        regun.relearn(model, forget=sets["forget"], retain=sets["retain"])


def test_a_job_without_retained_examples_is_refused() -> None:
    sets = random_labels(0)
    model, nothing = memoriser(*sets["retain"], 0), (torch.zeros(0, 40), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(RegunError):
        regun.relearn(model, forget=sets["forget"], retain=nothing, test=sets["test"])
