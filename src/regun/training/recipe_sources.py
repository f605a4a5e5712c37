"""Recipes from what people have: the arguments of a Hugging Face Trainer, or a torch optimizer with its scheduler."""

import math
from collections.abc import Mapping
from typing import Any, cast

from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, LambdaLR, LRScheduler, MultiStepLR, StepLR

from regun.errors import SettingsError
from regun.training.recipes import Recipe

OWN_FUNCTION = "Pass your training as a function instead: method='retrain', train=(dataset, seed) -> model."
HF_OPTIMIZERS = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_hf": "adamw",
    "sgd": "sgd",
}
HF_SCHEDULES = {
    "linear": "linear",
    "cosine": "cosine",
    "constant": "constant",
    "constant_with_warmup": "constant",
}
LAMBDAS = {
    "_get_linear_schedule_with_warmup_lr_lambda": "linear",
    "_get_cosine_schedule_with_warmup_lr_lambda": "cosine",
    "_get_constant_schedule_with_warmup_lr_lambda": "constant",
    "_get_constant_lambda": "constant",
}
"""Functions of transformers' `get_..._schedule_with_warmup`."""


def recipe_from_training_arguments(arguments: Any, *, examples: int | None = None) -> Recipe:
    """Return the recipe of a Hugging Face `TrainingArguments`, with the Trainer's defaults.

    `examples` is the number of training records. It is needed where `max_steps` or `warmup_steps` count steps.

    >>> recipe = regun.recipe_from_training_arguments(trainer.args, examples=len(train_set))  # doctest: +SKIP
    """
    one = _Arguments(arguments)
    batch = int(one["per_device_train_batch_size"] * one["gradient_accumulation_steps"] * max(1, one["n_gpu"]))
    per_epoch = -(-examples // batch) if examples else None
    epochs = one["num_train_epochs"]
    if one["max_steps"] > 0:
        epochs = one["max_steps"] / _needed(per_epoch, "max_steps")
    if epochs < 1 or abs(epochs - round(epochs)) > 1e-6:
        one.problems.append(f"the training takes {epochs:g} epochs; a recipe has whole epochs.")
    warmup = float(one.optional("warmup_ratio") or 0.0)
    if one["warmup_steps"] >= 1:
        warmup = one["warmup_steps"] / (_needed(per_epoch, "warmup_steps") * max(1, epochs))
    elif one["warmup_steps"] > 0:
        warmup = float(one["warmup_steps"])
    optimizer, schedule = one.choice("optim", HF_OPTIMIZERS), one.choice("lr_scheduler_type", HF_SCHEDULES)
    one.equal("adam_epsilon", 1e-8)
    if one["fp16"]:
        one.problems.append("fp16 is true; recipes train in fp32 or bf16.")
    one.raise_problems()
    return Recipe(
        epochs=round(epochs),
        batch_size=batch,
        optimizer=optimizer,
        lr=float(one["learning_rate"]),
        momentum=0.0,
        beta1=float(one["adam_beta1"]),
        beta2=float(one["adam_beta2"]),
        weight_decay=float(one["weight_decay"]),
        decay="weights",
        schedule=schedule,
        step_every="batch",
        warmup_ratio=warmup,
        label_smoothing=float(one["label_smoothing_factor"]),
        clip_norm=float(one["max_grad_norm"]) or None,
        precision="bf16" if one["bf16"] else "auto",
    )


def recipe_from_torch(
    optimizer: Optimizer,
    scheduler: LRScheduler | None = None,
    *,
    epochs: int,
    batch_size: int,
    steps_per_epoch: int | None = None,
    clip_norm: float | None = None,
    label_smoothing: float = 0.0,
) -> Recipe:
    """Return the recipe of a training loop with this optimizer (SGD, Adam, AdamW) and scheduler.

    Pass them as they are before training. `steps_per_epoch` is needed where the scheduler moves with every batch.
    Parameter groups without decay are assumed to be biases and norms.

    >>> recipe = regun.recipe_from_torch(optimizer, scheduler, epochs=30, batch_size=128)  # doctest: +SKIP
    """
    groups = optimizer.param_groups
    problems: list[str] = []
    for name in ("lr", "momentum", "betas", "nesterov", "amsgrad", "dampening", "eps", "maximize"):
        if any(group.get(name) != groups[0].get(name) for group in groups):
            problems.append(f"the optimizer's groups differ in {name}; a recipe has one value.")
    decays = sorted({float(group["weight_decay"]) for group in groups})
    if len(decays) > 2 or (len(decays) == 2 and decays[0] > 0):
        problems.append(f"the optimizer's groups have the weight decays {decays}; a recipe has one, and 0 for some.")
    first = groups[0]
    for name, plain in (("amsgrad", False), ("dampening", 0), ("eps", 1e-8), ("maximize", False)):
        if first.get(name, plain) != plain:
            problems.append(f"the optimizer's {name} is {first[name]}; recipes have {plain}.")
    kinds: dict[type[Optimizer], str] = {SGD: "sgd", Adam: "adam", AdamW: "adamw"}
    if type(optimizer) not in kinds:
        problems.append(f"the optimizer is {type(optimizer).__name__}; recipes have SGD, Adam and AdamW.")
    over_time = _schedule(scheduler, epochs, steps_per_epoch, problems)
    _raise(problems)
    beta1, beta2 = first.get("betas", (0.9, 0.999))
    return Recipe(
        epochs=epochs,
        batch_size=batch_size,
        optimizer=kinds[type(optimizer)],
        lr=float(first.get("initial_lr", first["lr"])),
        momentum=float(first.get("momentum", 0.0)),
        nesterov=bool(first.get("nesterov", False)),
        beta1=float(beta1),
        beta2=float(beta2),
        weight_decay=decays[-1],
        decay="weights" if len(decays) == 2 else "all",
        clip_norm=clip_norm,
        label_smoothing=label_smoothing,
        **over_time,
    )


def _schedule(scheduler: Any, epochs: int, per_epoch: int | None, problems: list[str]) -> dict[str, Any]:
    """Return the settings of a scheduler, or note why a recipe cannot have it."""
    if scheduler is None:
        return {}
    if isinstance(scheduler, CosineAnnealingLR):
        every = _unit(int(scheduler.T_max), epochs, per_epoch)
        if every is None:
            problems.append(
                f"CosineAnnealingLR has T_max {scheduler.T_max}; recipes anneal over all epochs ({epochs}) or all "
                "steps (give steps_per_epoch)."
            )
        return {"schedule": "cosine", "step_every": every or "epoch", "min_lr": float(scheduler.eta_min)}
    if isinstance(scheduler, StepLR | ExponentialLR | MultiStepLR):
        if isinstance(scheduler, MultiStepLR):
            at = sorted(cast("Mapping[int, int]", scheduler.milestones))
        else:
            every = scheduler.step_size if isinstance(scheduler, StepLR) else 1
            at = list(range(every, epochs, every))
        return {"schedule": "steps", "milestones": tuple(at), "milestone_factor": float(scheduler.gamma)}
    if isinstance(scheduler, LambdaLR):
        function: Any = scheduler.lr_lambdas[0]
        name = getattr(getattr(function, "func", function), "__name__", "")
        values = cast("dict[str, Any]", getattr(function, "keywords", {}))
        total = int(values.get("num_training_steps", epochs * (per_epoch or 0)))
        if name in LAMBDAS and values.get("num_cycles", 0.5) == 0.5 and total and total == epochs * (per_epoch or 0):
            warmup = int(values.get("num_warmup_steps", 0)) / total
            return {"schedule": LAMBDAS[name], "step_every": "batch", "warmup_ratio": warmup}
        if name in LAMBDAS:
            problems.append(
                f"the scheduler runs over {total} steps, and epochs times steps_per_epoch is "
                f"{epochs * (per_epoch or 0)}; give steps_per_epoch so that they agree."
            )
            return {}
    problems.append(
        f"the scheduler is {type(scheduler).__name__}; recipes have CosineAnnealingLR, StepLR, MultiStepLR, "
        "ExponentialLR and transformers' linear, cosine and constant schedules with warm-up."
    )
    return {}


def _unit(total: int, epochs: int, per_epoch: int | None) -> str | None:
    """Return whether a scheduler of this length moves per epoch or per batch; None for another length."""
    if total == epochs:
        return "epoch"
    return "batch" if per_epoch is not None and total == epochs * per_epoch else None


class _Arguments:
    """The arguments of a Trainer, with what a recipe cannot have of them."""

    def __init__(self, arguments: Any) -> None:
        if not hasattr(arguments, "num_train_epochs"):
            raise SettingsError(
                [f"got a {type(arguments).__name__}; give the TrainingArguments of a Hugging Face Trainer."]
            )
        self.arguments = arguments
        self.problems: list[str] = []

    def __getitem__(self, name: str) -> Any:
        value = getattr(self.arguments, name)
        return value if value is not None else 0

    def optional(self, name: str) -> Any:
        """Return an argument that not every version has."""
        return getattr(self.arguments, name, None)

    def choice(self, name: str, known: Mapping[str, str]) -> str:
        value = self[name]
        text = str(getattr(value, "value", value))
        if text not in known:
            self.problems.append(f"{name} is {text}; recipes have {', '.join(known)}.")
        return known.get(text, "")

    def equal(self, name: str, value: float) -> None:
        if not math.isclose(float(self[name]), value, rel_tol=1e-9):
            self.problems.append(f"{name} is {self[name]}; recipes have {value}.")

    def raise_problems(self) -> None:
        _raise(self.problems)


def _needed(per_epoch: int | None, name: str) -> int:
    if per_epoch is None:
        raise SettingsError([f"{name} counts steps; give examples=, the number of training records."])
    return per_epoch


def _raise(problems: list[str]) -> None:
    if problems:
        raise SettingsError([*problems, OWN_FUNCTION])
