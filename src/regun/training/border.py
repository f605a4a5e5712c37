"""A user's model and data as they come: what cannot work is refused before any work, what looks wrong is said."""

import copy
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from regun.data.dataset import DatasetExamples
from regun.data.examples import Batch, Examples, named
from regun.data.views import Selected
from regun.errors import DataError, RegunError
from regun.models.adapters import OutputAdapter, ReadLogits, binary, wrap
from regun.models.forward import counting, logits_of
from regun.rng import generator
from regun.training.forward import eval_logits, in_eval_mode
from regun.training.job import device_of, uncompiled
from regun.types import Indices

LOOKED_AT = 128
"""Retain examples that are looked at before the work begins."""
FETCHED_TWICE = 4
"""Examples of a set that are fetched twice to see whether they come out the same."""


def taken(model: nn.Module, logits: ReadLogits | None) -> nn.Module:
    """The model to work with: as it was before torch.compile, and returning logits."""
    plain = uncompiled(model)
    if (
        getattr(plain, "_compiled_call_impl", None) is not None
    ):  # by model.compile(): a view of the same weights without it
        plain = copy.copy(plain)
    return plain if logits is None else wrap(plain, logits)


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own module of one that was taken."""
    return model.model if isinstance(model, OutputAdapter) else model


def given_back(made: nn.Module, model: nn.Module) -> nn.Module:
    """What was made of a model that was taken, as the kind of model that was given: its own output and precision."""
    plain = unwrapped(made)
    kinds = [[value.dtype for value in one.state_dict().values()] for one in (plain, uncompiled(model))]
    if kinds[0] == kinds[1]:
        return plain
    twin = copy.deepcopy(uncompiled(model)).to(device_of(plain))
    twin.load_state_dict(plain.state_dict())
    return twin.eval()


def count_classes(model: nn.Module, examples: Examples, name: str) -> int:
    """How many classes the model tells apart, from its answers to an example or two; refused if they are no logits."""
    if not len(examples):
        raise RegunError(f"the {name} set is empty; give at least one example.")
    batch = examples.fetch(np.arange(min(2, len(examples))), device=device_of(model))
    logits = _answers(model, batch, name)
    if logits.ndim == 1 or logits.shape[1:] == (1,):
        raise RegunError(
            "the model gives one number an example, as one trained with binary cross-entropy does; write "
            "logits=regun.models.binary, which makes the logits of two classes of it."
        )
    if logits.ndim != 2 or len(logits) != len(batch):
        raise RegunError(
            f"the model gives logits of shape {tuple(logits.shape)} for {len(batch)} examples; a classifier gives "
            f"(examples, classes). Write logits=lambda output: ..., a function that makes such of its output."
        )
    if _are_probabilities(logits) and not (isinstance(model, OutputAdapter) and model.logits is binary):
        raise RegunError(
            "what logits=... returns are probabilities, not logits. Leave the softmax out of that function, or take "
            "the logarithm of what it returns: .clamp_min(1e-12).log()."
            if isinstance(model, OutputAdapter)
            else "the model's outputs are probabilities, not logits: it ends in a softmax. Take that layer off, or "
            "write logits=lambda p: p.clamp_min(1e-12).log()."
        )
    return int(logits.shape[1])


def check_frozen(model: nn.Module) -> None:
    """Raise if there is nothing that could change."""
    if not any(p.requires_grad for p in model.parameters()):
        raise RegunError(
            "every parameter of the model is frozen, so nothing can be unlearned; let those that were trained require "
            "gradients: for p in model.parameters(): p.requires_grad_(True)."
        )


def check_augmented(sets: Mapping[str, Examples]) -> None:
    """Raise if a set gives another input each time an example is fetched: what a model says of it means little."""
    for name, examples in sets.items():
        rows = np.arange(min(FETCHED_TWICE, len(examples)))
        first, second = (named(examples.fetch(rows, generator=generator(time)).x) for time in ("once", "again"))
        for part, values in first.items():
            if values.shape != second[part].shape or not torch.equal(values, second[part]):
                raise DataError(
                    f"{name} gives other inputs each time the same example is fetched ({part!r} of the first "
                    f"{len(rows)}): it augments at random. Give the same data with the transforms of test time."
                )


def look(
    model: nn.Module, sets: Mapping[str, Examples], device: torch.device, *, trained: bool, heldout: bool
) -> list[str]:
    """What looks wrong but may be meant, a sentence each.

    `trained`: what the model has learned matters to the method; `heldout`: the method learns from that set.
    """
    found = [_misfit(model, sets["retain"], device)] if trained and "retain" in sets else []
    if heldout and "heldout" in sets:
        found.append(_lacking(sets["heldout"], sets["forget"]))
    return [remark for remark in found if remark]


def _misfit(model: nn.Module, retain: Examples, device: torch.device) -> str:
    """Empty, or that the model does not know what it was trained on."""
    rows = np.unique(np.linspace(0, len(retain) - 1, LOOKED_AT).astype(np.int64))
    with counting(None):
        guesses = eval_logits(model, retain, rows, device).argmax(1).numpy()
    labels = retain.labels_at(rows)
    right, usual = float((guesses == labels).mean()), float(np.bincount(labels).max() / len(labels))
    if len(rows) < 20 or right > usual + 3 * (usual * (1 - usual) / len(rows)) ** 0.5:
        return ""
    renumbered = _best_renumbering(guesses, labels)
    hint = f"; with its classes numbered otherwise it would be {renumbered:.0%}" if renumbered > usual + 0.2 else ""
    return (
        f"the model is right about {right:.0%} of {len(rows)} retain examples, and would be about {usual:.0%} by "
        f"always naming the same class{hint}: are these the data it was trained on, with the same order of classes and "
        f"the same preprocessing?"
    )


def _best_renumbering(guesses: npt.NDArray[np.int64], labels: Indices) -> float:
    """How often the model would be right if each guess meant its most usual label; 0 where that says little."""
    seen = np.unique(guesses)
    if len(labels) < 5 * len(seen) or len(seen) < 2:
        return 0.0
    return float(sum(np.bincount(labels[guesses == guess]).max() for guess in seen) / len(labels))


def _lacking(heldout: Examples, forget: Examples) -> str:
    """Empty, or which forgotten classes the held-out set has no example of."""
    unseen, asked = _known_labels(heldout), _known_labels(forget)
    if unseen is None or asked is None:
        return ""  # the run will meet them, and count the draws it could not make
    missing = np.setdiff1d(asked, unseen)
    if not len(missing):
        return ""
    return (
        f"heldout has no example of {'class' if len(missing) == 1 else 'classes'} {', '.join(map(str, missing[:5]))}"
        f"{', ...' if len(missing) > 5 else ''}, of which {int(np.isin(asked, missing).sum())} examples are to be "
        f"forgotten: examples of other classes will stand for them. Add some of the same classes to heldout."
    )


def _known_labels(examples: Examples) -> Indices | None:
    """Labels that are known without reading any example."""
    if isinstance(examples, DatasetExamples):
        return examples.stated_labels
    if isinstance(examples, Selected):
        known = _known_labels(examples.examples)
        return None if known is None else known[examples.rows]
    return examples.labels


def _answers(model: nn.Module, batch: Batch, name: str) -> Tensor:
    try:
        with in_eval_mode(model), torch.no_grad(), counting(None):
            return logits_of(model, batch.x)
    except (RuntimeError, TypeError, ValueError) as fault:
        raise RegunError(_mixture(model, batch, name) or _cannot_run(model, batch, name, fault)) from fault


def _mixture(model: nn.Module, batch: Batch, name: str) -> str:
    """Empty, or that model and data are of different precision."""
    weights = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    for part, values in named(batch.x).items():
        if weights is not None and values.is_floating_point() and values.dtype != weights:
            return (
                f"the model's weights are {_kind(weights)} and input {part!r} of {name} is {_kind(values.dtype)}; give "
                f"both one precision: x.to(torch.{_kind(weights)}), or model.to(torch.{_kind(values.dtype)})."
            )
    return ""


def _cannot_run(model: nn.Module, batch: Batch, name: str, fault: Exception) -> str:
    inputs = ", ".join(f"{part} {tuple(values.shape)} {_kind(values.dtype)}" for part, values in named(batch.x).items())
    reason = str(fault).strip().split("\n")[0]
    return (
        f"{type(model).__name__} cannot be run on examples of {name} ({inputs}): {type(fault).__name__}: {reason}. "
        f"A tensor is given as it is, items (a, b, ..., y) by position, a mapping by the names of its arguments."
    )


def _are_probabilities(logits: Tensor) -> bool:
    return not logits.is_meta and bool((logits >= 0).all()) and bool(((logits.double().sum(1) - 1).abs() < 1e-2).all())


def _kind(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
