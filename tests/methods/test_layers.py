"""The last layers alone (CF-k, EU-k): which they are, that the others stay, and fresh weights that keep frozen parts."""

import pytest
import torch
from torch import nn
from trials import plain_net, run

from expect import error
from regun.errors import RegunError, SettingsError
from regun.methods import finetune, retrain
from regun.methods._fresh_weights import fresh_model, is_norm, shrink_towards
from regun.methods._layers import chosen_layers, copy_layers, training_only
from regun.training.job import Budget
from toys import blobs, conv_net, images, job_for, mlp, same_parameters, same_state

SAME = dict(batch_size=16, lr=0.05, budget=Budget(steps=6))


def names(model: nn.Module, text: str) -> set[str]:
    with training_only(model, text) as found:
        return set(found)


def test_the_last_k_layers_are_those_with_matrices_and_what_is_registered_after() -> None:
    net = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    assert names(net, "last:1") == {"4.weight", "4.bias"}
    assert names(net, "last:2") == {"4.weight", "4.bias", "3.weight", "3.bias", "2.weight", "2.bias"}
    assert names(net, "last:3") == {n for n, _ in net.named_parameters()} == names(net, "all")
    with error(RegunError, "layers", "last:4", "3"):
        chosen_layers(net, "last:4")
    net[4].requires_grad_(False)
    with error(RegunError, "layers", "last:1", "frozen"), training_only(net, "last:1"):
        pass


def test_what_was_trainable_before_is_trainable_after_even_if_training_fails() -> None:
    net = mlp()
    net[1].requires_grad_(False)
    before = {n: p.requires_grad for n, p in net.named_parameters()}
    with training_only(net, "last:1"):
        assert [n for n, p in net.named_parameters() if p.requires_grad] == ["3.weight", "3.bias"]
    with pytest.raises(ZeroDivisionError), training_only(net, "last:1"):
        raise ZeroDivisionError
    assert {n: p.requires_grad for n, p in net.named_parameters()} == before


def test_finetune_of_the_last_layer_is_finetune_of_a_model_whose_rest_is_frozen() -> None:
    last, fitted = run("finetune", conv_net(), images(), layers="last:1", **SAME)
    frozen = conv_net()
    for layer in frozen[:-1]:
        layer.requires_grad_(False)
    plain, _ = run("finetune", frozen, images(), **SAME)
    assert same_state(last.model, plain.model)
    assert fitted.notes["trained"] == ["5.weight", "5.bias"]
    assert torch.equal(last.model[0].weight, conv_net()[0].weight)
    assert not torch.equal(last.model[5].weight, conv_net()[5].weight)
    assert all(p.requires_grad for p in last.model.parameters())


def test_all_layers_named_by_number_are_all_layers() -> None:
    counted, _ = run("finetune", mlp(), layers="last:2", **SAME)
    plain, fitted = run("finetune", mlp(), **SAME)
    assert same_state(counted.model, plain.model)
    assert fitted.notes == {}
    assert same_state(*(run("retrain", mlp(), layers=text, epochs=2, **SAME)[0].model for text in ("all", "last:2")))


def test_retrain_of_the_last_layer_forgets_that_layer_and_keeps_the_rest() -> None:
    ends = []
    for seed in (1, 2):
        model = mlp()
        model[3] = mlp(seed=seed)[3]  # two bases that differ in what is drawn anew
        ends.append(run("retrain", model, layers="last:1", epochs=2, batch_size=16, lr=0.05)[0].model)
    assert same_parameters(*ends)
    assert torch.equal(ends[0][0].weight, mlp()[0].weight)
    start = mlp()
    copy_layers(fresh_model(job_for(mlp(), blobs()), "init"), start, "last:1")
    assert torch.equal(start[0].weight, mlp()[0].weight)
    assert not torch.equal(start[3].weight, mlp()[3].weight)


@pytest.mark.parametrize("text", ["last", "last:0", "last:-1", "first:2", "last:x", ""])
@pytest.mark.parametrize("method", [finetune, retrain])
def test_layers_are_all_or_last_k(method, text: str) -> None:
    with error(SettingsError, "all", "last:K"):
        method.Config(layers=text)


def test_fresh_weights_keep_frozen_layers_and_their_statistics() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    model(torch.randn(9, 6, generator=torch.Generator().manual_seed(0)))
    model[0].requires_grad_(False)
    model[1].requires_grad_(False)
    fresh = retrain.reset(model, 0)
    assert torch.equal(fresh[0].weight, model[0].weight)
    assert torch.equal(fresh[1].running_mean, model[1].running_mean)
    assert not torch.equal(fresh[3].weight, model[3].weight)
    trained, _ = run("retrain", model, epochs=2, batch_size=16, lr=0.05)
    assert torch.equal(trained.model[0].weight, model[0].weight)
    assert not trained.model[0].weight.requires_grad
    half = nn.Linear(6, 3)
    half.bias.requires_grad_(False)
    assert torch.equal(retrain.reset(half, 0).bias, half.bias)
    assert not torch.equal(retrain.reset(half, 0).weight, half.weight)


def test_a_frozen_layer_that_cannot_draw_its_weights_is_no_obstacle() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.full((6,), 2.0), requires_grad=False)
            self.head = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.scale * x)

    assert torch.equal(retrain.reset(Scaled(), 0).scale, torch.full((6,), 2.0))


def test_shrinking_moves_all_weights_but_those_of_norms_and_frozen_ones() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.LayerNorm(4), nn.Linear(4, 3))
    model[0].bias.requires_grad_(False)
    with torch.no_grad():
        model[1].weight.fill_(3.0)
        model[2].bias.fill_(2.0)
    fresh, moved = retrain.reset(model, 1), retrain.reset(model, 1)
    moved.load_state_dict(model.state_dict())
    shrink_towards(moved, fresh, 0.25)
    assert torch.allclose(moved[0].weight, 0.75 * model[0].weight + 0.25 * fresh[0].weight)
    assert torch.allclose(moved[3].weight, 0.75 * model[3].weight + 0.25 * fresh[3].weight)
    assert torch.equal(moved[0].bias, model[0].bias)
    assert torch.equal(moved[1].weight, model[1].weight)
    assert torch.equal(moved[2].bias, model[2].bias)
    shrink_towards(moved, fresh, 1.0)
    assert torch.equal(moved[3].weight, fresh[3].weight)


def test_what_is_a_norm() -> None:
    class MyRMSNorm(nn.Module):
        pass

    class NormedBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = plain_net()

    assert all(
        map(is_norm, [nn.BatchNorm2d(2), nn.LayerNorm(2), nn.GroupNorm(1, 2), nn.InstanceNorm1d(2), MyRMSNorm()])
    )
    assert not any(map(is_norm, [nn.Linear(2, 2), nn.Conv2d(1, 1, 1), NormedBlock()]))
