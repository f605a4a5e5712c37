"""Logits and features of any classifier."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from expect import error
from regun.errors import RegunError
from regun.models import ModelSpec, build_model, features_of, logits_of


class Returns(nn.Module):
    """A model that returns what a function makes of its input."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> Any:
        return self.make(x)


@dataclass
class Output:
    logits: Tensor


@pytest.mark.parametrize("make", [lambda x: x, lambda x: Output(x), lambda x: {"logits": x, "loss": None}])
def test_logits_from_a_tensor_an_object_or_a_mapping(make: Callable[[Tensor], Any]) -> None:
    x = torch.randn(2, 3)
    assert torch.equal(logits_of(Returns(make), x), x)
    assert torch.equal(logits_of(Returns(make), {"x": x}), x)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda x: (x, x), ["Returns", "tuple", "logits"]),
        (lambda x: {"scores": x}, ["Returns", "dict", "['scores']"]),
        (lambda x: None, ["NoneType"]),
        (lambda x: Output("high"), ["Output"]),  # type: ignore[arg-type]
    ],
)
def test_outputs_without_logits_are_refused(make: Callable[[Tensor], Any], names: list[str]) -> None:
    with error(RegunError, *names):
        logits_of(Returns(make), torch.zeros(1, 2))


def test_other_inputs_are_refused() -> None:
    with error(RegunError, "tensor", "list"):
        logits_of(nn.Identity(), [torch.zeros(1)])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["resnet18", "swin-nano", "vit", "cnn", "mlp"])
def test_the_head_applied_to_the_features_gives_the_logits(name: str) -> None:
    settings = {"resnet18": {"width": 4}, "vit": {"dim": 32, "depth": 2}, "mlp": {"hidden": 10}}
    model = build_model(ModelSpec(name, settings.get(name, {})), 10, (1, 8, 8), 0).eval()
    x = torch.randn(3, 1, 8, 8)
    head = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
    features = features_of(model, x)
    assert features.shape == (3, head.in_features)
    assert torch.allclose(head(features), model(x), atol=1e-6)


def test_features_of_a_convolutional_head_are_averaged_over_positions() -> None:
    body, head = nn.Conv2d(1, 6, 3), nn.Conv2d(6, 4, 1)
    model = nn.Sequential(body, head, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    x = torch.randn(2, 1, 8, 8)
    assert torch.allclose(features_of(model, x), body(x).mean((2, 3)), atol=1e-6)


def test_features_are_those_of_the_layer_run_last() -> None:
    first, second, idle = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(5, 3)
    model = Returns(lambda x: second(first(x)))
    model.layers = nn.ModuleList([second, first, idle])
    x = torch.randn(2, 3)
    assert torch.equal(features_of(model, x), first(x))


def test_reading_features_leaves_no_hook_behind_even_after_a_failure() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    with pytest.raises(RuntimeError):
        features_of(model, torch.zeros(1, 7))
    features_of(model, torch.zeros(1, 3))
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_a_model_without_a_final_linear_layer_is_refused() -> None:
    with error(RegunError, "Sequential", 16, 8):
        features_of(nn.Sequential(nn.Linear(4, 8), Returns(lambda x: torch.cat([x, x], 1))), torch.zeros(1, 4))
