"""Recipes: how weights are updated, as data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from regun.errors import SettingsError, unknown
from regun.settings import bind, check, noun_of, parse_spec, setting, shown


@dataclass(frozen=True)
class Updates:
    """How weights are updated: what every method that runs the loop may set."""

    epochs: int = setting(10, "passes over the stream", low=0)
    batch_size: int = setting(128, "examples per batch", low=1)
    optimizer: str = setting("sgd", "update rule", choices=("sgd", "adam", "adamw"))
    lr: float = setting(0.01, "learning rate (its peak, where a schedule changes it)", low=0)
    momentum: float = setting(0.9, "momentum of sgd", low=0, high=1)
    nesterov: bool = setting(False, "Nesterov momentum (sgd only; needs momentum)")
    beta1: float = setting(0.9, "adam, adamw: decay of the first moment", low=0, high=1)
    beta2: float = setting(0.999, "adam, adamw: decay of the second moment", low=0, high=1)
    weight_decay: float = setting(0.0, "weight decay", low=0)
    decay: str = setting(
        "all", "decayed parameters: all, or weights (not biases and norms)", choices=("all", "weights")
    )
    schedule: str = setting(
        "constant", "learning rate over time", choices=("constant", "linear", "cosine", "onecycle", "steps")
    )
    milestones: tuple[int, ...] = setting((), "schedule steps: divide the rate by 10 at each of these epochs")
    warmup_epochs: int = setting(0, "epochs of linear warm-up before the schedule", low=0)
    warmup_lr: float = setting(1e-6, "where the warm-up starts", low=0)
    precision: str = setting(
        "auto", "auto: bf16 where the accelerator has it, else fp32", choices=("auto", "fp32", "bf16")
    )
    compile: bool = setting(False, "compile the model with torch.compile")
    clip_norm: float | None = setting(None, "clip gradients to this norm (torch.nn.utils.clip_grad_norm_)", above=0)

    def __post_init__(self) -> None:
        noun = noun_of(self)
        check(self, noun)
        problems: list[str] = []
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            problems.append(f"{noun}.nesterov is true; it needs optimizer sgd with momentum above 0.")
        if self.warmup_epochs and self.warmup_epochs >= self.epochs:
            problems.append(f"{noun}.warmup_epochs is {self.warmup_epochs}; keep it below epochs ({self.epochs}).")
        if self.warmup_epochs and self.schedule == "onecycle":
            problems.append(f"{noun}.warmup_epochs is set, but onecycle warms up by itself; set it to 0.")
        if problems:
            raise SettingsError(problems)

    def lr_at(self, epoch: int, fraction: float, epochs: int) -> float:
        """Return the learning rate in `epoch` (from 0) of `epochs`; `fraction` of the epoch is done."""
        return _rate(self, epoch, fraction, epochs)


@dataclass(frozen=True)
class Recipe(Updates):
    """How a model is trained from scratch."""

    weight_decay: float = setting(None, "weight decay (default: PyTorch's, 0.01 for adamw, else 0)", low=0)
    label_smoothing: float = setting(0.0, "label smoothing of the training loss", low=0, high=1)
    warmup_ratio: float = setting(0.0, "share of all steps with a linear warm-up from 0, in place of epochs", low=0)
    step_every: str = setting(
        "auto", "when the schedule moves (auto: linear, onecycle and after warmup_ratio by batch, others by epoch)",
        choices=("auto", "epoch", "batch"),
    )  # fmt: skip
    min_lr: float = setting(0.0, "learning rate at the end of cosine and linear", low=0)
    milestone_factor: float = setting(0.1, "schedule steps: factor on the rate at each milestone", above=0)

    def __post_init__(self) -> None:
        if self.weight_decay is None:  # pyright: ignore[reportUnnecessaryComparison]
            object.__setattr__(self, "weight_decay", 0.01 if self.optimizer == "adamw" else 0.0)
        super().__post_init__()
        problems: list[str] = []
        if self.warmup_ratio >= 1:
            problems.append(f"recipe.warmup_ratio is {self.warmup_ratio}; give a share below 1.")
        if self.warmup_ratio and (self.warmup_epochs or self.schedule == "onecycle"):
            other = "warmup_epochs is set" if self.warmup_epochs else "onecycle warms up by itself"
            problems.append(f"recipe.warmup_ratio is {self.warmup_ratio}, but {other}; give one warm-up.")
        if problems:
            raise SettingsError(problems)

    def lr_at(self, epoch: int, fraction: float, epochs: int) -> float:
        """Return the learning rate in `epoch` (from 0) of `epochs`; `fraction` of the epoch is done."""
        by_batch = self.schedule == "linear" or self.warmup_ratio > 0
        if self.step_every != "auto":
            by_batch = self.step_every == "batch"
        warm = self.warmup_ratio * epochs
        if epoch + fraction < warm:
            return self.lr * (epoch + fraction) / warm
        return _rate(
            self, epoch, fraction, epochs,
            by_batch=by_batch, warm=warm, min_lr=self.min_lr, factor=self.milestone_factor,
        )  # fmt: skip

    def annealed(self, epochs: int, lr: float | None = None) -> "Recipe":
        """Return the recipe with a cosine over so many epochs and no warm-up: for updates of a trained model."""
        return replace(
            self,
            epochs=epochs,
            lr=self.lr if lr is None else lr,
            schedule="cosine",
            step_every="epoch",
            min_lr=0.0,
            warmup_epochs=0,
            warmup_ratio=0.0,
            milestones=(),
        )


def _rate(
    updates: Updates,
    epoch: int,
    fraction: float,
    epochs: int,
    *,
    by_batch: bool = False,
    warm: float = 0.0,
    min_lr: float = 0.0,
    factor: float = 0.1,
) -> float:
    """Return the learning rate of a schedule that moves per epoch or `by_batch`; it begins after `warm` epochs."""
    lr, first = updates.lr, updates.warmup_epochs
    if epoch < first:
        return updates.warmup_lr + (epoch + 1) / first * (lr - updates.warmup_lr)
    if updates.schedule == "steps":
        return lr * factor ** sum(epoch >= m for m in updates.milestones)
    if updates.schedule == "onecycle":
        return lr * _onecycle((epoch + fraction) / max(1, epochs))
    if updates.schedule == "constant":
        return lr
    warm = warm or first
    done = epoch - warm + (fraction if by_batch else 0)
    if updates.schedule == "linear":
        return min_lr + (lr - min_lr) * max(0.0, 1 - done / max(1, epochs - warm))
    return min_lr + (lr - min_lr) * 0.5 * (1 + math.cos(math.pi * done / max(1, epochs - warm)))


RECIPES: dict[str, Recipe] = {
    # the paper's, with the settings of its authors' code where the text is silent
    "resnet18": Recipe(
        epochs=100, lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4, schedule="cosine", batch_size=128
    ),
    "swin-t": Recipe(
        epochs=200, optimizer="adamw", lr=3e-4, weight_decay=0.05, decay="weights", schedule="cosine",
        warmup_epochs=10, label_smoothing=0.1, batch_size=128,
    ),
    # for narrow models and a few thousand images on two cores
    "resnet18-small": Recipe(
        epochs=30, lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4, schedule="onecycle", batch_size=64
    ),
    "swin-small": Recipe(
        epochs=40, optimizer="adamw", lr=1e-3, weight_decay=0.05, decay="weights", schedule="cosine",
        warmup_epochs=3, label_smoothing=0.1, batch_size=64,
    ),
    "digits": Recipe(epochs=40, lr=0.05, momentum=0.9, nesterov=True, schedule="cosine", batch_size=64),
}  # fmt: skip


def assumed_recipe(examples: int) -> Recipe:
    """Return the recipe that is assumed for a model whose training is unknown, for training on so many examples.

    AdamW trains most architectures without tuning; its weight decay is PyTorch's default, 0.01. Batches hold 64
    examples, or an eighth of a small set, so that an epoch has several steps.
    """
    batch = min(64, max(8, examples // 8))
    return Recipe(epochs=40, batch_size=batch, optimizer="adamw", lr=1e-3, weight_decay=0.01, schedule="cosine")


def shorten(recipe: Recipe, share: float, at_least: int = 1) -> Recipe:
    """Return the recipe with `share` of its epochs, or `at_least`; warm-up and milestones shrink with them.

    >>> short = shorten(RECIPES["swin-t"], 0.25)
    >>> short.epochs, short.warmup_epochs
    (50, 2)
    """
    epochs = min(recipe.epochs, max(at_least, round(share * recipe.epochs)))
    scale = epochs / max(1, recipe.epochs)
    return replace(
        recipe,
        epochs=epochs,
        warmup_epochs=min(max(0, epochs - 1), round(scale * recipe.warmup_epochs)),
        milestones=tuple(round(scale * m) for m in recipe.milestones),
    )


def resolve_precision(precision: str, device: torch.device) -> str:
    """Return the precision; `auto` is bf16 on an accelerator that has it, else fp32 (bf16 is slow on most CPUs)."""
    if precision != "auto":
        return precision
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


def build_optimizer(model: nn.Module, recipe: Updates) -> torch.optim.Optimizer:
    """Return the optimizer over all trainable parameters; with decay="weights", biases and norms are not decayed."""
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    if not named:
        raise SettingsError(["every parameter of the model is frozen; let some of them require gradients."])
    half = next((p.dtype for _, p in named if p.dtype in (torch.float16, torch.bfloat16)), None)
    if half is not None:
        raise SettingsError(
            [
                f"the model's weights are {half}, in which small updates are rounded away; train it in float32 "
                f"(regun.training.job.private_copy makes such a copy, or model.float()) and convert it afterwards."
            ]
        )
    exempt = {n for n, _ in named if recipe.decay == "weights" and (n.endswith(".bias") or "norm" in n.lower())}
    groups = [
        {"params": [p for n, p in named if n not in exempt], "weight_decay": recipe.weight_decay},
        {"params": [p for n, p in named if n in exempt], "weight_decay": 0.0},
    ]
    groups = [g for g in groups if g["params"]]
    if recipe.optimizer in ("adam", "adamw"):
        kind = torch.optim.AdamW if recipe.optimizer == "adamw" else torch.optim.Adam
        return kind(groups, lr=recipe.lr, betas=(recipe.beta1, recipe.beta2), fused=True)
    return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.nesterov, fused=True)


def _onecycle(progress: float, warm: float = 0.3, start: float = 1 / 25, end: float = 1e-5) -> float:
    """Return a cosine from `start` up to 1 over the first `warm` of the run, then a cosine down to `end`."""
    if progress < warm:
        return start + (1 - start) * 0.5 * (1 - math.cos(math.pi * progress / warm))
    return end + (1 - end) * 0.5 * (1 + math.cos(math.pi * (progress - warm) / (1 - warm)))


def read_recipe(text: str) -> Recipe:
    """Return the recipe of `name,key=value,...`."""
    name, values = parse_spec(text)
    if name not in RECIPES:
        problems = [unknown("recipe", name, RECIPES)]
        try:
            bind(Recipe, values, "recipe")
        except SettingsError as fault:
            problems += fault.problems
        raise SettingsError(problems)
    return bind(Recipe, values, "recipe", RECIPES[name])


def as_recipe(recipe: Recipe | Mapping[str, Any] | str, required: Sequence[str] = ("epochs", "lr")) -> Recipe:
    """Return a recipe as it is, from its settings, or from text as on the command line (`resnet18,epochs=30`).

    Settings must name those in `required`: no default could stand for them.
    """
    if isinstance(recipe, Recipe):
        return recipe
    if isinstance(recipe, str):
        return read_recipe(recipe)
    problems: list[str] = []
    missing = " and ".join(name for name in required if name not in recipe)
    if missing:
        example = ", ".join(f"{name!r}: ..." for name in required)
        problems.append(
            f"the recipe {shown(dict(recipe))} lacks {missing}; give {{{example}}} with whatever else differs from the "
            f"defaults (optimizer, batch_size, momentum, weight_decay, schedule, ...), or name a recipe: "
            f"{', '.join(RECIPES)}."
        )
    try:
        made = bind(Recipe, recipe, "recipe")
    except SettingsError as fault:
        raise SettingsError([*fault.problems, *problems]) from None
    if problems:
        raise SettingsError(problems)
    return made
