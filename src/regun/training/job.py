"""All that training and a method may use: the job, its steps and its running cost."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor, nn

from regun.data.examples import Batch, Examples
from regun.errors import RegunError
from regun.models.forward import allow_single_example, logits_of
from regun.rng import derive
from regun.splits import Splits
from regun.training.recipes import Recipe
from regun.types import Indices, Inputs

HALF = (torch.float16, torch.bfloat16)


@dataclass
class Cost:
    """What was spent so far: optimizer steps, samples through forward and backward passes, seconds."""

    steps: int = 0
    forward: int = 0
    backward: int = 0
    seconds: float = 0.0

    def add(self, *, steps: int = 0, forward: int = 0, backward: int = 0, seconds: float = 0.0) -> None:
        self.steps += steps
        self.forward += forward
        self.backward += backward
        self.seconds += seconds


@dataclass(frozen=True)
class Budget:
    """Length of a run in optimizer steps or in backward samples (one of the two), in place of the recipe's epochs."""

    steps: int | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        limits = [n for n in (self.steps, self.samples) if n is not None]
        if len(limits) != 1 or limits[0] < 1:
            raise RegunError(f"a budget is steps=N or samples=N with N >= 1; got {self}.")

    @classmethod
    def of(cls, value: Mapping[str, int | None] | None) -> "Budget | None":
        """Return the budget of its JSON form."""
        return None if value is None else cls(**value)

    def to_json(self) -> dict[str, int | None]:
        return {"steps": self.steps, "samples": self.samples}


class Step:
    """The batches of one update, by part (`train`, `forget`, `retain`), and where in the run it stands.

    Reading a part the stream does not give raises; what was read is what the step cost.
    """

    def __init__(self, parts: Mapping[str, Batch], epoch: int, epochs: int, number: int) -> None:
        self._parts = parts
        self._read: set[str] = set()
        self.epoch, self.epochs, self.number = epoch, epochs, number

    def part(self, name: str) -> Batch:
        if name not in self._parts:
            raise RegunError(f"this step has no {name!r} batch; its stream gives {', '.join(sorted(self._parts))}.")
        self._read.add(name)
        return self._parts[name]

    @property
    def train(self) -> Batch:
        return self.part("train")

    @property
    def forget(self) -> Batch:
        return self.part("forget")

    @property
    def retain(self) -> Batch:
        return self.part("retain")

    def has(self, name: str) -> bool:
        return name in self._parts

    @property
    def samples_read(self) -> int:
        return sum(len(self._parts[name]) for name in self._read)


@dataclass(frozen=True)
class Epoch:
    """What an observer learns after an epoch (numbered from 1)."""

    number: int
    epochs: int
    loss: float
    lr: float
    seconds: float
    images_per_second: float


@dataclass(frozen=True)
class Progress:
    """What a watcher learns during an epoch: how many of how many steps, the latest loss, speed and time left."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    images_per_second: float
    seconds_left: float


def _ignore(*_: Any) -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A private copy of a model, the data it may see, and a seed from which every random number is derived.

    `teacher` is a model of the user's that never saw the forgotten examples; `rebuild(seed)` returns a new model,
    and `recipe` is how it was trained, where that is known.
    """

    model: nn.Module
    examples: Examples
    splits: Splits | None = None
    seed: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    on_epoch: Callable[[Epoch, nn.Module], None] = _ignore
    on_progress: Callable[[Progress], None] = _ignore
    budget: Budget | None = None
    teacher: nn.Module | None = None
    rebuild: Callable[[int], nn.Module] | None = None
    recipe: Recipe | None = None
    out_of_fold: Tensor | None = None
    """Probabilities (forgotten examples, classes) that models which never saw them give, in the order of `forget`."""
    cost: Cost = field(default_factory=Cost)

    def logits(self, x: Inputs) -> Tensor:
        """Return the current model's logits (fp32), in its current mode; one example alone may train BatchNorm too."""
        with allow_single_example(self.model, x):
            return logits_of(self.model, x).float()

    def indices(self, part: str) -> Indices:
        """Return the split's index set of this name; methods do not read the validation set."""
        if self.splits is None or part not in ("retain", "forget", "heldout", "base"):
            raise RegunError(f"a job has retain, forget, heldout and base examples to offer; got {part!r}.")
        return getattr(self.splits, part)

    def derive(self, *names: int | str) -> int:
        """Return a seed of this job for the purpose `names`."""
        return derive(self.seed, *names)


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's parameters."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def copied(model: nn.Module) -> nn.Module:
    """Return a deep copy, also after a forward pass.

    Pruning and the old weight_norm leave a tensor with a gradient history in the module, which `deepcopy` refuses.
    """
    computed = [v for m in model.modules() for v in vars(m).values() if isinstance(v, Tensor) and not v.is_leaf]
    return copy.deepcopy(model, {id(tensor): tensor.detach().clone() for tensor in computed})


def private_copy(model: nn.Module, device: torch.device) -> nn.Module:
    """Return a deep copy on `device`, convolutions in channels_last layout (measured 1.3-1.5x faster on CPU).

    A model compiled by torch.compile is copied as it was before. One that trains in half precision works in fp32 here,
    whatever precision its inputs have: in half precision small updates are rounded away.
    """
    twin = copied(uncompiled(model)).to(device)
    if any(p.dtype in HALF and p.requires_grad for p in twin.parameters()):
        twin.float().register_forward_pre_hook(_single_precision, with_kwargs=True)
    if any(p.ndim == 4 for p in twin.parameters()):
        twin = cast("nn.Module", twin.to(memory_format=torch.channels_last))  # pyright: ignore[reportCallIssue]
        for layer in twin.modules():
            if _breaks_in_channels_last(layer):
                _keep_plain(layer)
    return twin


def uncompiled(model: nn.Module) -> nn.Module:
    """Return the model that torch.compile was given, or the model itself."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else model


def _single_precision(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def single(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.dtype in HALF else value

    return tuple(map(single, args)), {name: single(value) for name, value in kwargs.items()}


def _breaks_in_channels_last(layer: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Return True if oneDNN's backward kernel without AVX-512 writes outside its memory for this layer.

    Seen with torch 2.13 in channels_last layout: 1x1 kernels with a stride above 1 and fewer than 8 input channels.
    """
    if not isinstance(layer, nn.Conv2d) or layer.kernel_size != (1, 1):
        return False
    return max(layer.stride) > 1 and layer.in_channels // layer.groups < 8


def _keep_plain(layer: nn.Conv2d) -> None:
    """Keep weight and inputs of this layer in plain layout: torch takes the channels_last way if either has it."""
    with torch.no_grad():
        layer.weight.data = torch.empty(layer.weight.shape, dtype=layer.weight.dtype, device=layer.weight.device).copy_(
            layer.weight.data
        )
    if _plain_input not in layer._forward_pre_hooks.values():  # pyright: ignore[reportPrivateUsage]
        layer.register_forward_pre_hook(_plain_input)


def _plain_input(layer: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    # a clone has plain strides for sure; `contiguous` leaves those of a single channel as they are
    return (args[0].clone(memory_format=torch.contiguous_format), *args[1:])


def frozen_copy(model: nn.Module) -> nn.Module:
    """Return a deep copy in eval mode that takes no gradients: a teacher or reference that cannot move."""
    return copied(model).eval().requires_grad_(False)


@dataclass(frozen=True)
class Callbacks:
    """What to tell the person who waits."""

    on_epoch: Callable[[Epoch, nn.Module], None] = lambda epoch, model: None
    on_progress: Callable[[Progress], None] = lambda progress: None
    on_resume: Callable[[int, int], None] = lambda epoch, step: None
