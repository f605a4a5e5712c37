"""MSG and CT: which weights are drawn anew or turned, what fine-tuning then does, and the limits that are finetune."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from trials import ce, gradient, plain_conv, plain_net, run, state

from expect import error
from regun.errors import RegunError
from regun.methods import ct, finetune, get_method, msg
from regun.training.job import Budget
from regun.training.streams import one_pass
from toys import blobs, conv_net, images, job_for, same_parameters, same_state

SAME = dict(batch_size=16, lr=0.05, schedule="constant", weight_decay=0.0, budget=Budget(steps=6))


def slow_difference(model: nn.Module, examples, retain, forget) -> dict[str, torch.Tensor]:
    """Retain minus forget gradient, one example at a time in fp64."""
    twin = copy.deepcopy(model).double().eval()
    total = {name: torch.zeros_like(p) for name, p in twin.named_parameters()}
    for indices, sign in ((retain, 1), (forget, -1)):
        for i in indices:
            batch = examples.fetch(np.array([i]))
            found = gradient(functional.cross_entropy(twin(batch.x.double()), batch.y), twin)
            for name in total:
                total[name] += sign * found[name]
    return total


# ---- MSG -----------------------------------------------------------------------------------------------------------


def test_msg_with_rate_0_is_finetune() -> None:
    drawn, fitted = run("msg", conv_net(), images(), rate=0.0, **SAME)
    plain, _ = run("finetune", conv_net(), images(), **SAME)
    assert same_state(drawn.model, plain.model)
    assert drawn.cost.backward == plain.cost.backward
    assert fitted.notes["reinitialised"] == 0


def test_msg_draws_the_weights_with_the_smallest_gradients_of_every_convolution() -> None:
    model = plain_conv()
    job = job_for(model, images())
    masks = msg.redraw(job, msg.Config(rate=0.3, batch_size=7))
    subset = finetune.retained(job, True)
    expected = slow_difference(model, images(), subset, job.indices("forget"))
    assert len(subset) == len(job.indices("forget"))
    assert set(masks) == {"0.weight", "2.weight"}
    before, after = state(model), state(job.model)
    for name, mask in masks.items():
        size = expected[name].abs()
        assert int(mask.sum()) == round(0.3 * mask.numel())
        assert size[mask].max() <= size[~mask].min() * (1 + 1e-4)
        assert torch.equal(after[name][~mask], before[name][~mask])
        assert (after[name][mask] != before[name][mask]).all()
    for name in before.keys() - masks.keys():  # biases and the linear layer
        assert torch.equal(after[name], before[name])


def test_msg_draws_by_kaiming_s_fan_out() -> None:
    model = nn.Sequential(nn.Conv2d(1, 40, 5), nn.Conv2d(40, 20, 3, stride=2), nn.Flatten(), nn.LazyLinear(3))
    model(torch.zeros(1, 1, 8, 8))
    job = job_for(model, images())
    msg.redraw(job, msg.Config(rate=1.0))
    for layer, fan_out in ((job.model[0], 40 * 25), (job.model[1], 20 * 9)):
        assert float(layer.weight.detach().std()) == pytest.approx((2 / fan_out) ** 0.5, rel=0.1)
        assert abs(float(layer.weight.detach().mean())) < 0.2 * (2 / fan_out) ** 0.5


def test_a_step_of_msg_holds_the_kept_weights_of_its_layers_back() -> None:
    settings = dict(rate=0.4, damping=0.1, batch_size=16, lr=0.5, momentum=0.0, weight_decay=0.01, schedule="constant")
    job = job_for(plain_conv(), images(), budget=Budget(steps=1))
    masks = msg.redraw(job, msg.Config(**settings))
    batch = next(one_pass(job, "retain", job.indices("retain"), 16).run(0, 0))["retain"]
    found = gradient(ce(job.model, batch), job.model)
    expected = {}
    for name, weight in job.model.named_parameters():
        scale = masks[name] + 0.1 * ~masks[name] if name in masks else 1.0
        expected[name] = weight.detach() - 0.5 * (scale * found[name] + 0.01 * weight.detach())
    moved, _ = run("msg", plain_conv(), images(), budget=Budget(steps=1), **settings)
    for name, weight in moved.model.named_parameters():
        assert torch.allclose(weight, expected[name], atol=1e-6)


def test_msg_with_damping_1_is_finetune_from_where_it_drew() -> None:
    settings = {k: v for k, v in SAME.items() if k != "budget"}
    start = job_for(conv_net(), images())
    msg.redraw(start, msg.Config(**settings))
    drawn, _ = run("msg", conv_net(), images(), damping=1.0, **SAME)
    plain, _ = run("finetune", start.model, images(), **SAME)
    assert same_parameters(drawn.model, plain.model)


def test_msg_takes_linear_layers_if_asked() -> None:
    job = job_for(plain_net(), blobs())
    assert set(msg.redraw(job, msg.Config(linear=True))) == {"0.weight", "2.weight"}
    with error(RegunError, "msg.linear=true"):
        msg.redraw(job_for(plain_net(), blobs()), msg.Config())
    frozen = plain_net().requires_grad_(False)
    with error(RegunError, "MSG", "Sequential"):
        msg.redraw(job_for(frozen, blobs()), msg.Config(linear=True))


def test_the_triangle_rises_and_falls_in_a_straight_line() -> None:
    config = msg.Config(lr=1.0)
    assert [config.lr_at(e, 0.0, 5) for e in range(5)] == pytest.approx([1 / 3, 2 / 3, 1, 2 / 3, 1 / 3])
    for epochs in range(1, 12):
        rates = [config.lr_at(e, 0.0, epochs) for e in range(epochs)]
        assert max(rates) == 1.0
        assert min(rates) > 0
    assert msg.Config(lr=1.0, schedule="constant").lr_at(0, 0.0, 5) == 1.0


# ---- CT ------------------------------------------------------------------------------------------------------------


def test_ct_swaps_height_and_width_and_twice_is_nothing() -> None:
    model = plain_conv()
    turned = copy.deepcopy(model)
    assert ct.transpose(turned) == (2, 0)
    for o in range(6):
        for i in range(4):
            for h in range(3):
                for w in range(3):
                    assert turned[2].weight[o, i, h, w] == model[2].weight[o, i, w, h]
    assert torch.equal(turned[0].bias, model[0].bias)
    assert torch.equal(turned[6].weight, model[6].weight)
    ct.transpose(turned)
    assert same_state(turned, model)


def test_ct_answers_a_turned_image_as_the_model_answered_the_image() -> None:
    model = plain_conv()
    turned = copy.deepcopy(model)
    ct.transpose(turned)
    x = images().x[:5]
    assert torch.allclose(turned(x.transpose(2, 3)), model(x), atol=1e-6)
    assert not torch.allclose(turned(x), model(x), atol=1e-6)


def test_ct_leaves_small_uneven_and_frozen_kernels_alone() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, (1, 3)), nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 3))
    model[3].requires_grad_(False)
    turned = copy.deepcopy(model)
    assert ct.transpose(turned) == (1, 1)
    assert not torch.equal(turned[0].weight, model[0].weight)
    assert all(torch.equal(turned[n].weight, model[n].weight) for n in (1, 2, 3))


def test_ct_on_symmetric_kernels_is_finetune() -> None:
    model = conv_net()
    with torch.no_grad():
        model[0].weight.copy_((model[0].weight + model[0].weight.transpose(2, 3)) / 2)
    turned, fitted = run("ct", model, images(), **SAME)
    plain, _ = run("finetune", model, images(), **SAME)
    assert same_state(turned.model, plain.model)
    assert fitted.notes == {"transposed": 1}


def test_ct_without_a_step_is_the_turned_model() -> None:
    turned, _ = run("ct", plain_conv(), images(), epochs=0)
    expected = plain_conv()
    ct.transpose(expected)
    assert same_state(turned.model, expected)


def test_the_challenge_s_settings_are_the_defaults() -> None:
    for name, epochs in (("msg", 5), ("ct", 3)):
        config = get_method(name).configure({})
        assert (config.epochs, config.lr, config.momentum, config.weight_decay) == (epochs, 1e-3, 0.9, 5e-4)
        assert config.batch_size == 64
