"""Passes that change nothing: order, mode, and BatchNorm folded away only where the answer stays the same."""

import copy

import numpy as np
import torch
from torch import Tensor, nn

from regun.models import ModelSpec, build_model
from regun.training.forward import eval_features, eval_logits, folded, in_eval_mode
from toys import conv_net, images, mlp, same_state


def warmed(model: nn.Module, x: Tensor) -> nn.Module:
    """Running statistics away from their start."""
    with torch.no_grad():
        for _ in range(3):
            model.train()(x)
    return model.eval()


def test_logits_are_those_of_the_model_in_the_order_asked_for() -> None:
    examples = images(n=700)
    model = warmed(conv_net(), examples.x).train()
    before = copy.deepcopy(model.state_dict())
    order = np.random.default_rng(0).permutation(700)
    found = eval_logits(model, examples, order)
    assert model.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    with torch.no_grad():
        expected = model.eval()(examples.x)[torch.from_numpy(order)]
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.equal(found.argmax(1), expected.argmax(1))


def test_resnets_fold_every_batchnorm() -> None:
    x = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    model = warmed(build_model(ModelSpec("resnet18", {"width": 4}), 5, (3, 16, 16), 0), x)
    twin = folded(model, x)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in twin.modules())
    assert torch.allclose(twin(x), model(x), atol=1e-5)
    assert any(isinstance(m, nn.BatchNorm2d) for m in model.modules())


def test_what_cannot_be_folded_is_left_alone() -> None:
    class Twice(nn.Module):
        """The convolution's output is used beside its BatchNorm: folding would be wrong."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            raw = self.conv(x)
            return self.head((self.norm(raw) + raw).mean((2, 3)))

    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0)) + 1
    model = warmed(Twice(), x)
    assert folded(model, x) is model
    plain = mlp().eval()
    assert folded(plain, torch.zeros(2, 6)) is plain


def test_modes_come_back_one_by_one() -> None:
    model = conv_net().train()
    model[1].eval()
    with in_eval_mode(model):
        assert not any(m.training for m in model.modules())
    assert model.training
    assert not model[1].training
    assert same_state(model, conv_net())


def test_features_are_the_input_of_the_head() -> None:
    examples = images()
    model = conv_net().eval()
    features = eval_features(model, examples, np.arange(10))
    assert torch.allclose(model[5](features), model(examples.x[:10]), atol=1e-6)
