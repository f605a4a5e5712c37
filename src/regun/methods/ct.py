"""CT: transpose every convolution kernel, then fine-tune on the retain set.

    W[o, i, h, w] <- W[o, i, w, h]  for every square 2-d convolution;  then L = mean CE over B_r

Paper: a finalist of the NeurIPS 2023 unlearning challenge, second of the DeepUnlearn comparison (Cadet et al. 2024),
whose settings are the defaults. Transposing damages what depends on direction and keeps every weight's size; 1x1
kernels stay as they are. A model without square kernels larger than that is refused. Frozen kernels are left alone,
kernels that are not square as well, and are counted.
"""

from dataclasses import dataclass

import torch
from torch import nn

from regun.errors import RegunError
from regun.methods._contract import RESNET_LR, SWIN, SWIN_LR, Choice, Needs, Ranges, Work, passes
from regun.methods.finetune import retain_loss
from regun.settings import setting
from regun.training.fit import Fitted, fit
from regun.training.job import Job
from regun.training.recipes import Updates
from regun.training.streams import one_pass

TITLE = "CT"
NEEDS = Needs()
SEARCH: Ranges = {
    "resnet": {"lr": Choice((*RESNET_LR.values, 1e-3)), "epochs": Choice((3, 5, 10))},
    "swin": {"lr": SWIN_LR, "epochs": Choice((3, 10, 20))},
}
PRESETS = {"swin": SWIN}


@dataclass(frozen=True)
class Config(Updates):
    """Settings of CT; the defaults are the challenge entry's."""

    epochs: int = setting(3, "passes over the retain set", low=0)
    batch_size: int = setting(64, "examples per batch", low=1)
    lr: float = setting(1e-3, "learning rate at the start", low=0)
    weight_decay: float = setting(5e-4, "weight decay", low=0)
    schedule: str = setting("cosine", "learning rate over time", choices=("constant", "cosine", "onecycle", "steps"))


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: epochs over the retain set."""
    return passes(config.epochs, retain, config.batch_size)


def is_loss(config: Config) -> bool:
    """Return True if any loop can run the method (`regun.steps`)."""
    return True


def unlearn(job: Job, config: Config) -> Fitted:
    """Transpose, then fine-tune."""
    turned, uneven = transpose(job.model)
    stream = one_pass(job, "retain", job.indices("retain"), config.batch_size)
    fitted = fit(job, stream, lambda step: retain_loss(job, step), config)
    fitted.notes["transposed"] = turned
    if uneven:
        fitted.notes["kernels_not_square"] = uneven
    return fitted


def transpose(model: nn.Module) -> tuple[int, int]:
    """Swap height and width of every trainable square kernel, in place; how many were turned, how many are not square.

    Kernels of 1x1 count as neither: there is nothing to turn.
    """
    kernels = [m.weight for m in model.modules() if isinstance(m, nn.Conv2d) and m.weight.requires_grad]
    kernels = [w for w in kernels if w.shape[2:].numel() > 1]
    square = [w for w in kernels if w.shape[2] == w.shape[3]]
    if not square:
        raise RegunError(
            f"CT transposes the kernels of 2-d convolutions, and {type(model).__name__} has no trainable square one "
            f"larger than 1x1; use another method, msg,linear=true for one that is near."
        )
    with torch.no_grad():
        for weight in square:
            weight.copy_(weight.transpose(2, 3).clone())
    return len(square), len(kernels) - len(square)
