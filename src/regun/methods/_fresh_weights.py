"""Fresh weights: models of the job's architecture that have seen no data, and a start moved towards them."""

import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from regun.errors import RegunError
from regun.rng import generator, isolated
from regun.training.job import Job, copied, device_of, uncompiled

LOG = logging.getLogger("regun.auto")


def fresh_model(job: Job, *purpose: int | str) -> nn.Module:
    """Return a copy of the job's model, on its device and frozen where it is, with weights that follow from `purpose`.

    They come from `job.rebuild` where there is one; otherwise every trainable layer draws its own. Frozen layers keep
    the job's weights either way: nothing that is frozen was learned with the rest.
    """
    seed = job.derive(*purpose)
    fresh = uncompiled(job.rebuild(seed) if job.rebuild is not None else reset(job.model, seed))
    trained = {name: p for name, p in job.model.named_parameters() if p.requires_grad}
    new = dict(fresh.named_parameters())
    if trained and all(n in new and torch.equal(new[n].detach().to(p), p.detach()) for n, p in trained.items()):
        raise RegunError(
            "rebuild returned the model's own trained weights: a model that starts from these has seen what is to be "
            "forgotten. Let rebuild(seed) return a new, untrained model (or the pretrained one it was made from)."
        )
    twin = copied(job.model)
    twin.load_state_dict(fresh.state_dict())
    with torch.no_grad():
        for (_, value), (_, trained_value) in zip(_frozen(twin), _frozen(job.model), strict=True):
            value.copy_(trained_value)
    return twin


def reset(model: nn.Module, seed: int) -> nn.Module:
    """Return a copy with fresh weights that depend on `seed` only, on any device; raise if a layer cannot draw its own.

    Frozen layers keep their weights. All weights are drawn on the CPU: the seed of one device says nothing of another.
    """
    fresh = copied(model).cpu()
    frozen = dict(_frozen(fresh))
    saved = {name: value.clone() for name, value in frozen.items()}
    values = dict([*fresh.named_parameters(), *fresh.named_buffers()])
    values = {n: v for n, v in values.items() if n not in frozen and (v.is_floating_point() or v.is_complex())}
    with torch.no_grad():
        for value in values.values():
            value.fill_(math.nan)  # shows which values no layer has drawn
    with isolated(seed):
        reset_parameters(fresh)
    with torch.no_grad():
        for name, value in saved.items():
            frozen[name].copy_(value)
    left = [name for name, value in values.items() if value.isnan().any()]
    if left:
        raise RegunError(
            f"the model cannot make fresh weights for {len(left)} parameters or buffers (the first is {left[0]!r}); "
            f"give rebuild=a function that returns a new, untrained model."
        )
    return fresh.to(device_of(model))


def with_fresh_weights(job: Job) -> tuple[Job, bool]:
    """Return the job, and whether its model can draw fresh weights; if not, `rebuild` shuffles the base's."""
    try:
        fresh_model(job, "fresh")
    except RegunError as fault:
        LOG.info("%s Until then, weights that no layer can draw are the base's, shuffled.", fault)

        def rebuild(seed: int) -> nn.Module:
            return shuffled(job.model, seed)

        return replace(job, rebuild=rebuild), False
    return job, True


def shuffled(model: nn.Module, seed: int) -> nn.Module:
    """Return a copy with fresh weights; a tensor that no layer can draw has its numbers permuted.

    What a tensor has learned is in the order of its numbers; their spread is that of weights which can be trained.
    """
    fresh = copied(model).cpu()
    draw = generator(seed, "shuffled")
    with torch.no_grad():
        for parameter in (p for p in fresh.parameters() if p.requires_grad):
            flat = parameter.detach().flatten()
            parameter.copy_(flat[torch.randperm(len(flat), generator=draw)].view_as(parameter))
    frozen = {name: p.detach().clone() for name, p in fresh.named_parameters() if not p.requires_grad}
    with isolated(seed):
        reset_parameters(fresh)
    with torch.no_grad():
        for name, value in frozen.items():
            fresh.get_parameter(name).copy_(value)
    return fresh.to(device_of(model))


def shrink_towards(model: nn.Module, fresh: nn.Module, share: float) -> None:
    """Set theta <- (1 - share) theta + share fresh, for trainable weights other than those of normalisation layers."""
    layers = {prefix: layer for prefix, layer in _layers(model) if is_norm(layer)}
    norms = {f"{prefix}.{name}" for prefix, layer in layers.items() for name, _ in layer.named_parameters()}
    new = dict(fresh.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and name not in norms:
                parameter.lerp_(new[name].to(parameter), share)


def is_norm(layer: nn.Module) -> bool:
    """Return True if a layer normalizes; by its name, since models bring their own kinds (RMSNorm and the like)."""
    return "norm" in type(layer).__name__.lower() and not list(layer.children())


def reset_parameters(model: nn.Module) -> None:
    """Let every layer draw its weights as when it was made; then whole models that have rules of their own."""
    for layer in model.modules():
        reset_layer = getattr(layer, "reset_parameters", None)
        if callable(reset_layer):
            reset_layer()
    # Models of the package transformers draw other weights than their layers would: embeddings fifty times smaller.
    done: set[nn.Module] = set()
    for whole in model.modules():
        rule = getattr(whole, "_init_weights", None)
        if not callable(rule) or whole in done:
            continue
        parts = list(whole.modules())
        for part in reversed(parts):
            for marked in (part, *part.parameters(recurse=False), *part.buffers(recurse=False)):
                if hasattr(marked, "_is_hf_initialized"):  # the rule would not draw it again
                    delattr(marked, "_is_hf_initialized")
            rule(part)
        done.update(parts)
    # Adapters of the package peft start by changing nothing: their layers alone would draw noise.
    for layer in model.modules():
        reset_lora = getattr(layer, "reset_lora_parameters", None)
        if callable(reset_lora):
            for name in getattr(layer, "active_adapters", ()):
                reset_lora(name, True)


def _frozen(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield frozen parameters, and the buffers of layers all of whose own parameters are frozen."""
    for prefix, layer in _layers(model):
        parameters = dict(layer.named_parameters(recurse=False))
        frozen = {name: p for name, p in parameters.items() if not p.requires_grad}
        if frozen and len(frozen) == len(parameters):
            frozen |= dict(layer.named_buffers(recurse=False))
        yield from ((f"{prefix}.{name}".lstrip("."), value) for name, value in frozen.items())


def _layers(model: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    return cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
