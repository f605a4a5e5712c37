"""LUR: re-initialise the weights most salient for the forget set, then ascend on it one retain step ahead.

    saliency s = |theta * sum over batches of |grad CE(B_f)||;  the top 1 - sparsity of eligible weights are redrawn
    theta' = theta - alpha grad CE(B_r; theta);   L = w CE(B_r; theta) - (1 - w) CE(B_f; theta')   (second order)

Paper: appendix of the ReGUn paper (LUR; its first step is that of Scissorhands, Wu & Harandi 2024). Eligible are the
weights and biases of linear and convolution layers of any architecture whose names match `layers`; normalisation
layers never are. Nothing eligible is an error. The ascent has no bound: see NegGrad.
"""

import fnmatch
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd  # pyright: ignore[reportPrivateUsage]

from regun.errors import RegunError
from regun.methods._contract import RESNET_LR, SWIN, SWIN_LR, Choice, Needs, Range, Ranges, Work, paired_passes
from regun.methods.finetune import retain_loss
from regun.models.forward import twice_differentiable
from regun.rng import derive, isolated
from regun.settings import setting
from regun.splits import sample
from regun.training.fit import Fitted, fit
from regun.training.gradients import logits_with, summed_gradient, top_mask, trainable
from regun.training.job import Job, Step
from regun.training.recipes import Updates
from regun.training.streams import paired

TITLE = "LUR"
NEEDS = Needs()
SEARCH: Ranges = {
    "resnet": {"lr": RESNET_LR, "w": Range(0.5, 0.99), "sparsity": Choice((0.85, 0.9, 0.95, 0.97, 0.99))},
    "swin": {"lr": SWIN_LR, "w": Range(0.5, 0.99), "sparsity": Choice((0.9, 0.95, 0.99, 0.999))},
}
PRESETS = {
    "swin": SWIN,
    "cifar10": {"sparsity": 0.97, "layers": ("layer3.*", "layer4.*", "fc.*")},
    "cifar100": {"sparsity": 0.99, "layers": ("layer4.*", "fc.*")},
    "cifar100_half": {"sparsity": 0.90, "layers": ("layer4.*", "fc.*")},
    "tiny_imagenet": {"sparsity": 0.95},
    "tiny_imagenet_half": {"sparsity": 0.85},
}


@dataclass(frozen=True)
class Config(Updates):
    """Settings of LUR."""

    w: float = setting(0.5, "weight of the retain loss; the ascent has 1 - w", low=0, high=1)
    alpha: float = setting(0.01, "length of the look-ahead step on the retain loss", low=0)
    sparsity: float = setting(0.97, "share of eligible weights that is NOT re-initialised", low=0, high=1)
    layers: tuple[str, ...] = setting(("*",), "names of eligible parameters (patterns, separated by /)")
    prune_batches: int = setting(1, "forget batches the saliency is measured on", low=1)


def work(config: Config, forget: int, retain: int) -> Work:
    """Return the work: epochs over both sets, the retain gradient of each step taken twice."""
    both = paired_passes(config.epochs, forget, retain, (config.batch_size, config.batch_size), "shorter")
    return both + Work(0, both.steps * min(retain, config.batch_size) + config.prune_batches * config.batch_size)


def unlearn(job: Job, config: Config) -> Fitted:
    """Re-initialise, then take look-ahead steps."""
    redrawn = reinitialise(job, config) if config.sparsity < 1 else 0
    parameters = trainable(job.model)

    def loss(step: Step) -> Tensor:
        retain = retain_loss(job, step)
        gradients = torch.autograd.grad(retain, list(parameters.values()), create_graph=True, materialize_grads=True)
        ahead = {n: p - config.alpha * g for (n, p), g in zip(parameters.items(), gradients, strict=True)}
        logits = logits_with(job.model, ahead, step.forget.x).float()
        forget = functional.cross_entropy(logits, step.forget.y)
        job.cost.add(backward=len(step.retain))
        return config.w * retain - (1 - config.w) * forget

    with twice_differentiable():
        fitted = fit(job, paired(job, config.batch_size, config.batch_size, epoch="shorter"), loss, config)
    fitted.notes["reinitialised"] = redrawn
    return fitted


def eligible(model: nn.Module, patterns: tuple[str, ...]) -> dict[str, nn.Parameter]:
    """Return weights and biases of linear and convolution layers whose names match one of the patterns."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | _ConvNd)]
    members = {id(p) for layer in layers for p in layer.parameters(recurse=False)}
    names = {name for name, p in trainable(model).items() if id(p) in members}
    matching = {
        n: p for n, p in trainable(model).items() if n in names and any(fnmatch.fnmatch(n, g) for g in patterns)
    }
    if not matching:
        raise RegunError(
            f"lur.layers is {'/'.join(patterns)!r}, which matches no linear or convolution layer of this model; "
            f"its layers are {', '.join(sorted(names)[:4])}, ... Use * for all of them."
        )
    return matching


def reinitialise(job: Job, config: Config) -> int:
    """Redraw the most salient eligible weights (Kaiming uniform, biases 0); return how many."""
    chosen = eligible(job.model, config.layers)
    examples = sample(job.indices("forget"), config.prune_batches * config.batch_size, job.seed, "saliency")
    gradient = summed_gradient(job, examples, batch_size=config.batch_size, absolute=True)
    mask = top_mask({n: (p.detach() * gradient[n]).abs() for n, p in chosen.items()}, 1 - config.sparsity)
    with torch.no_grad(), isolated(derive(job.seed, "reinitialise")):
        for name, parameter in chosen.items():
            fresh = torch.zeros_like(parameter, device="cpu")  # whose generator is seeded
            if parameter.ndim > 1:
                nn.init.kaiming_uniform_(fresh, a=math.sqrt(5))
            parameter.copy_(torch.where(mask[name], fresh.to(parameter.device), parameter))
    return sum(int(m.sum()) for m in mask.values())
