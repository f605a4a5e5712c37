"""Convolutions in channels_last layout, except where a kernel of the CPU writes outside its memory."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from regun.training.job import private_copy

CPU = torch.device("cpu")

CHILD = """
import sys, torch
from torch import nn
from regun.training.job import private_copy
torch.manual_seed(0)
for channels in range(1, 8):
    for stride in (2, 3):
        net = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.Conv2d(channels, 2 * channels, 1, stride=stride))
        net = private_copy(net, torch.device("cpu")) if sys.argv[1] == "guarded" else net.to(memory_format=torch.channels_last)
        for _ in range(60):
            x = torch.randn(16, 3, 8, 8).contiguous(memory_format=torch.channels_last)
            net(x).square().sum().backward()
print("alive")
"""


def child(how: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "7"}
    return subprocess.run([sys.executable, "-c", CHILD, how], env=env, capture_output=True, text=True, timeout=250)


def test_no_memory_is_written_outside_on_processors_without_avx512() -> None:
    """The kernels that torch takes on such processors, whatever processor runs this test."""
    done = child("guarded")
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr[-500:]


def shortcut(channels: int, stride: int = 2, kernel: int = 1, groups: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, channels, 3), nn.Conv2d(channels, 2 * channels, kernel, stride, groups=groups))


def is_plain(tensor: torch.Tensor) -> bool:
    return tensor.stride() == torch.empty(tensor.shape).stride()


def layouts(model: nn.Module) -> tuple[bool, bool]:
    """Whether the second layer's weight has plain strides, and whether its inputs are made plain."""
    seen = []
    layer = model[1]
    plain = is_plain(layer.weight)
    hook = layer.register_forward_pre_hook(lambda _, args: seen.append(is_plain(args[0])))
    model(torch.randn(2, 3, 9, 9).contiguous(memory_format=torch.channels_last))
    hook.remove()
    return plain, seen[0]


@pytest.mark.parametrize(
    ("made", "guarded"),
    [
        (shortcut(1), True),
        (shortcut(4), True),
        (shortcut(7, stride=3), True),
        (shortcut(8, groups=2), True),
        (shortcut(8), False),
        (shortcut(4, stride=1), False),
        (shortcut(4, kernel=3), False),
    ],
)
def test_only_layers_with_the_broken_kernel_stay_in_plain_layout(made: nn.Module, guarded: bool) -> None:
    copied = private_copy(made, CPU)
    assert layouts(copied) == (guarded, guarded)
    assert copied[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_answers_and_gradients_are_those_of_the_model_and_a_copy_of_a_copy_is_guarded_once() -> None:
    made = shortcut(4)
    copied = private_copy(private_copy(made, CPU), CPU)
    assert len(copied[1]._forward_pre_hooks) == 1
    x = torch.randn(5, 3, 9, 9)
    for model in (made, copied):
        model(x.contiguous(memory_format=torch.channels_last)).square().sum().backward()
    torch.testing.assert_close(copied(x), made(x))
    for ours, theirs in zip(copied.parameters(), made.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert copied.state_dict().keys() == made.state_dict().keys()
