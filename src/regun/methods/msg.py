"""MSG: redraw the weights with the smallest gradients, then fine-tune on the retain set, holding the others back.

    g = sum over R' of grad CE - sum over D_f of grad CE,  R' a random part of D_r of D_f's size  (theta_0, eval mode)
    in every convolution the `rate` share of weights with the smallest |g| is redrawn (Kaiming normal, fan out)
    L = mean CE over B_r, with the gradients of those layers' kept weights multiplied by `damping`

Paper: masked small gradients, a finalist of the NeurIPS 2023 unlearning challenge, first of the DeepUnlearn comparison
(Cadet et al. 2024), whose settings are the defaults. `linear` takes linear layers in as well; a model without
convolutions needs it. Rates rise linearly over the first half of the epochs and fall linearly after (`triangle`).
Biases and normalisation layers are never redrawn nor held back; frozen layers stay as they are.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd  # pyright: ignore[reportPrivateUsage]

from regun.errors import RegunError
from regun.methods._contract import RESNET_LR, SWIN, SWIN_LR, Choice, Needs, Range, Ranges, Work, passes
from regun.methods._steer import gradients, steered
from regun.methods.finetune import retained
from regun.rng import isolated
from regun.settings import setting
from regun.training.fit import Fitted, fit
from regun.training.gradients import Named, summed_gradient, top_mask, trainable
from regun.training.job import Job, Step
from regun.training.recipes import Updates
from regun.training.streams import one_pass

TITLE = "MSG"
NEEDS = Needs()
SEARCH: Ranges = {
    "resnet": {"lr": Choice((*RESNET_LR.values, 1e-3)), "rate": Range(0.05, 0.6), "epochs": Choice((5, 10))},
    "swin": {"lr": SWIN_LR, "rate": Range(0.05, 0.6)},
}
PRESETS = {"swin": {**SWIN, "linear": True, "schedule": "constant"}}


@dataclass(frozen=True)
class Config(Updates):
    """Settings of MSG; the defaults are the challenge entry's."""

    epochs: int = setting(5, "passes over the retain set", low=0)
    batch_size: int = setting(64, "examples per batch", low=1)
    lr: float = setting(1e-3, "learning rate at its peak", low=0)
    weight_decay: float = setting(5e-4, "weight decay", low=0)
    schedule: str = setting(
        "triangle",
        "learning rate over time; triangle rises for half of the epochs and falls",
        choices=("triangle", "constant", "cosine", "onecycle", "steps"),
    )
    rate: float = setting(0.3, "share of each layer's weights that is redrawn", low=0, high=1)
    damping: float = setting(0.1, "factor on the gradients of the weights that those layers keep", low=0)
    linear: bool = setting(False, "linear layers too, not convolutions alone")

    def lr_at(self, epoch: int, fraction: float, epochs: int) -> float:
        """Return the learning rate in `epoch`; a triangle has its peak in epoch (E + 1) // 2 of E, counted from 1."""
        if self.schedule != "triangle":
            return super().lr_at(epoch, fraction, epochs)
        peak = (epochs + 1) // 2
        return self.lr * ((epoch + 1) / peak if epoch < peak else (epochs - epoch) / (epochs + 1 - peak))


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: gradients on as much of both sets as is forgotten, then epochs over the retain set."""
    read = forget + min(forget, retain) if config.rate else 0
    return Work(0, read) + passes(config.epochs, retain, config.batch_size)


def unlearn(job: Job, config: Config) -> Fitted:
    """Redraw the least moved weights, then fine-tune."""
    redrawn = redraw(job, config) if config.rate else {}
    parameters = trainable(job.model)
    scales = {name: torch.where(mask, 1.0, config.damping) for name, mask in redrawn.items()}

    def loss(step: Step) -> Tensor:
        value = functional.cross_entropy(job.logits(step.retain.x), step.retain.y)
        if not scales:
            return value
        by_name = dict(zip(parameters, gradients(value, list(parameters.values())), strict=True))
        return steered(value, parameters.values(), [g * scales[n] if n in scales else g for n, g in by_name.items()])

    fitted = fit(job, one_pass(job, "retain", job.indices("retain"), config.batch_size), loss, config)
    fitted.notes["reinitialised"] = sum(int(mask.sum()) for mask in redrawn.values())
    return fitted


def redraw(job: Job, config: Config) -> Named:
    """Redraw the chosen weights in place; return which weights of each layer those are."""
    kinds = (_ConvNd, nn.Linear) if config.linear else (_ConvNd,)
    weights = {id(layer.weight) for layer in job.model.modules() if isinstance(layer, kinds)}
    chosen = {name: p for name, p in trainable(job.model).items() if id(p) in weights}
    if not chosen:
        raise RegunError(
            f"MSG redraws weights of {'linear and convolution' if config.linear else 'convolution'} layers, and "
            f"{type(job.model).__name__} has none that may train; "
            f"{'use another method.' if config.linear else 'set msg.linear=true to take linear layers.'}"
        )
    retain_gradient = summed_gradient(job, retained(job, True), batch_size=config.batch_size)
    forget_gradient = summed_gradient(job, job.indices("forget"), batch_size=config.batch_size)
    masks: Named = {}
    with torch.no_grad(), isolated(job.derive("reinitialise")):
        for name, parameter in chosen.items():
            masks |= top_mask({name: -(retain_gradient[name] - forget_gradient[name]).abs()}, config.rate)
            fresh = torch.empty_like(parameter, device="cpu")  # whose generator is seeded
            nn.init.kaiming_normal_(fresh, mode="fan_out", nonlinearity="relu")
            parameter.copy_(torch.where(masks[name], fresh.to(parameter.device), parameter))
    return masks
