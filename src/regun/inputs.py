"""Checks of a user's model and data before any work, with warnings about likely mistakes."""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from regun.arguments import REBUILD, InputOptions, as_model
from regun.data.dataset import DatasetExamples
from regun.data.examples import Batch, Examples, named, to_device
from regun.data.overlap import check_overlap
from regun.data.sources import Source, as_examples
from regun.data.views import Selected
from regun.devices import as_device
from regun.errors import LabelError, RegunError, see
from regun.models.adapters import OutputAdapter, ReadLogits, binary, wrap
from regun.models.forward import counting, logits_of
from regun.plugins import user_code
from regun.training.forward import eval_logits, in_eval_mode
from regun.training.job import copied, device_of, uncompiled
from regun.training.weights import broken_weights, misfits
from regun.types import Indices, Inputs

LOGITS = "Outputs that are not logits"
"""The section of docs/troubleshooting.md that messages about outputs name."""
UNKNOWN_CLASSES = 2**31
"""Number of classes that labels are checked against until the real one is determined."""
PROBED = 2
"""Examples of the forget set that the model is called on."""
ACCURACY_ON = 128
"""Retain examples on which the model's accuracy is measured before the work."""
RTOL, ATOL = 1e-3, 1e-4
"""Differences of logits up to these are rounding."""


@dataclass(frozen=True)
class CheckedInputs:
    """Models that return logits, examples by set name, a small `batch` of the forget set, and warnings."""

    models: dict[str, nn.Module]
    sets: dict[str, Examples]
    num_classes: int
    device: torch.device
    batch: Batch
    warnings: list[str]

    @property
    def model(self) -> nn.Module:
        """The first model."""
        return next(iter(self.models.values()))


def inspect_inputs(
    models: Mapping[str, nn.Module],
    sources: Mapping[str, Source | None],
    options: InputOptions | None,
    needed: Iterable[str] = ("forget",),
) -> CheckedInputs:
    """Check what the models return, what the sets hold, and that the sets do not overlap.

    The first of `models` decides the number of classes; no other model may have fewer.
    """
    options = options or InputOptions()
    wrapped = {name: wrap_model(as_model(name, model), options.logits) for name, model in models.items()}
    first = next(iter(wrapped.values()))
    device = device_of(first) if options.device is None else as_device(options.device)
    present = {name: source for name, source in sources.items() if source is not None or name in needed}
    batch = _probe(present["forget"], "forget", device_of(first))
    logits = {name: _logits(name, model, batch, "forget") for name, model in wrapped.items()}
    outputs = {name: part.shape[1] for name, part in logits.items()}
    name, most = next(iter(outputs.items()))
    for other, count in outputs.items():
        if count < most:
            raise RegunError(
                f"{other} has {count} classes, but {name} has {most}; use the same classes, in the same order."
            )
    num_classes = _declared_classes(options.num_classes, most)
    try:
        sets = {name: as_examples(source, num_classes, name) for name, source in present.items()}
    except LabelError as fault:
        origin = "num_classes" if options.num_classes is not None else "the model's outputs"
        raise LabelError(f"{fault} (The number {num_classes} comes from {origin}.)") from None
    warnings = check_overlap(present, sets, options.ids, options.check_content)
    for name, model in wrapped.items():
        warnings += _unstable(name, model, batch, logits[name])
    return CheckedInputs(wrapped, sets, num_classes, device, batch, warnings)


def count_classes(model: nn.Module, source: Source, name: str, declared: int | None = None) -> int:
    """Return the number of classes from one forward pass; `declared` may be smaller."""
    batch = _probe(source, name, device_of(model))
    return _declared_classes(declared, _logits("model", model, batch, name).shape[1])


# ------------------------------------------------------------------------------------------------------------ the model


def wrap_model(model: nn.Module, logits: ReadLogits | None) -> nn.Module:
    """Return a module with the same weights that returns logits and is not compiled."""
    plain = uncompiled(model)
    meta = next((name for name, p in plain.named_parameters() if p.is_meta), None)
    if meta is not None:
        raise RegunError(
            f"the parameter {meta!r} of {type(plain).__name__} is on the meta device and holds no numbers; load the "
            f"weights first (model.to_empty(device='cpu'), model.load_state_dict(...))."
        )
    if getattr(plain, "_compiled_call_impl", None) is not None:
        plain = copy.copy(plain)  # compiled by model.compile(): a shallow copy shares the weights and is not
    return plain if logits is None else wrap(plain, logits)


def unwrap(model: nn.Module) -> nn.Module:
    """Return the user's module inside one that `wrap_model` made."""
    return model.model if isinstance(model, OutputAdapter) else model


def restore_dtype(made: nn.Module, model: nn.Module) -> nn.Module:
    """Return `made`, unwrapped, with the precision of the user's `model`."""
    plain = unwrap(made)
    types = [[value.dtype for value in module.state_dict().values()] for module in (plain, uncompiled(model))]
    if types[0] == types[1]:
        return plain
    twin = copied(uncompiled(model)).to(device_of(plain))
    twin.load_state_dict(plain.state_dict())
    return twin.eval()


def check_finite_weights(model: nn.Module) -> None:
    """Raise if a weight is NaN or infinite."""
    broken = broken_weights(uncompiled(model))
    if broken is not None:
        raise RegunError(
            f"the model's weights hold NaN or infinity, first in {broken!r}; give a model whose training did not "
            f"diverge."
        )


def check_trainable(model: nn.Module, batch: Batch | None = None) -> None:
    """Raise if no parameter can be trained: all frozen, complex, in TorchScript, or without gradients to the logits."""
    if isinstance(unwrap(model), torch.jit.ScriptModule):
        raise RegunError(
            "the model is a TorchScript module, which can be audited but not unlearned; give the torch.nn.Module that "
            "it was made from."
        )
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not trained:
        raise RegunError(
            "every parameter of the model is frozen, so nothing can be unlearned; unfreeze those that were trained: "
            "for p in model.parameters(): p.requires_grad_(True)."
        )
    other = next((name for name, p in trained.items() if p.is_complex()), None)
    if other is not None:
        raise RegunError(
            f"the parameter {other!r} is {_dtype(trained[other].dtype)}; unlearning supports real parameters only. "
            f"Store the real and the imaginary part (torch.view_as_real)."
        )
    if batch is None:
        return
    with in_eval_mode(model), counting(None), torch.enable_grad():
        differentiable = logits_of(model, _on(batch.x, model)).requires_grad
    if not differentiable:
        raise RegunError(
            f"the logits of {type(unwrap(model)).__name__} have no gradient; take no_grad, inference_mode and detach "
            f"out of its forward."
        )


def as_compatible_model(name: str, made: object, model: nn.Module) -> nn.Module:
    """Return a model that is to replace `model`; raise unless names and shapes of its state are the same."""
    replacement = as_model(name, made)
    wrong = misfits(_tensors(replacement), _tensors(model))
    if wrong:
        raise RegunError(f"{name} does not fit the model: {'; '.join(wrong[:3])}. Give {REBUILD[1]}.")
    return replacement


def call_rebuild(rebuild: Callable[[int], object], seed: int, model: nn.Module) -> nn.Module:
    """Return the model that a user's `rebuild` makes from a seed; name `rebuild` in its errors."""
    with user_code("rebuild"):
        return as_compatible_model("what rebuild returned", rebuild(seed), model)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    state: Mapping[str, object] = uncompiled(model).state_dict()
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


# ----------------------------------------------------------------------------------------------- what the model returns


def _logits(name: str, model: nn.Module, batch: Batch, set_name: str) -> Tensor:
    """Return the model's logits (N, K) for a batch; raise if it does not run or returns something else."""
    x = _on(batch.x, model)
    try:
        with in_eval_mode(model), torch.no_grad(), counting(None):
            logits = logits_of(model, x)
    except RegunError:
        raise
    except Exception as fault:
        raise RegunError(_forward_error(model, x, set_name, fault)) from fault
    kind = type(unwrap(model)).__name__
    if logits.ndim == 1 or logits.shape[1:] == (1,):
        raise RegunError(
            f"{name} ({kind}) returns one number per example, as models trained with binary cross-entropy do; pass "
            f"inputs=regun.InputOptions(logits=regun.models.binary), which turns it into two logits. {see(LOGITS)}"
        )
    if logits.ndim != 2 or len(logits) != len(batch):
        raise RegunError(
            f"{name} ({kind}) returns logits of shape {tuple(logits.shape)} for {len(batch)} examples; a classifier "
            f"returns (examples, classes). Pass inputs=regun.InputOptions(logits=lambda output: ...). "
            f"{see(LOGITS)}"
        )
    if not logits.is_floating_point():
        raise RegunError(
            f"{name} ({kind}) returns {_dtype(logits.dtype)} numbers; logits are floating-point. Return the outputs of "
            f"the last layer, before any argmax or rounding."
        )
    sums_to_one = bool((logits >= 0).all()) and bool(((logits.double().sum(1) - 1).abs() < 1e-2).all())
    if sums_to_one and not (isinstance(model, OutputAdapter) and model.logits is binary):
        raise RegunError(
            f"what inputs.logits returns for {name} ({kind}) are probabilities, not logits. Leave out the softmax, or "
            f"return the logarithm: .clamp_min(1e-12).log(). {see(LOGITS)}"
            if isinstance(model, OutputAdapter)
            else f"the outputs of {name} ({kind}) are probabilities, not logits: it ends in a softmax. Remove that "
            f"layer, or pass inputs=regun.InputOptions(logits=lambda p: p.clamp_min(1e-12).log()). "
            f"{see(LOGITS)}"
        )
    return logits


def _unstable(name: str, model: nn.Module, batch: Batch, logits: Tensor) -> list[str]:
    """Return a warning if evaluation logits are random, or depend on the other examples of the batch."""
    x = _on(batch.x, model)

    def only(row: int) -> Inputs:
        """Return a batch that holds this example in every place."""
        rows = torch.full((len(batch),), row, dtype=torch.long, device=device_of(model))
        return x[rows] if isinstance(x, Tensor) else {part: values[rows] for part, values in x.items()}

    ends = (0, len(batch) - 1)
    with in_eval_mode(model), torch.no_grad(), counting(None):
        second, repeated = logits_of(model, x), torch.stack([logits_of(model, only(row))[row] for row in ends])
    if not torch.allclose(logits, second, rtol=RTOL, atol=ATOL, equal_nan=True):
        return [
            f"{name} returns different logits each time for the same examples, also in eval mode: every number of an "
            f"audit is then partly random. Turn off what is random in eval mode (dropout, sampling, added noise)."
        ]
    if not torch.allclose(torch.stack([logits[row] for row in ends]), repeated, rtol=RTOL, atol=ATOL, equal_nan=True):
        return [
            f"{name} returns different logits for an example if the rest of its batch changes, also in eval mode: "
            f"numbers of an audit then depend on the order of the data. Normalize by running statistics, not by the "
            f"batch."
        ]
    return []


def _declared_classes(declared: int | None, outputs: int) -> int:
    if declared is None:
        return outputs
    if not 2 <= declared <= outputs:
        raise RegunError(f"num_classes is {declared} and the model has {outputs} outputs; give 2 to {outputs}.")
    return int(declared)


def _forward_error(model: nn.Module, x: Inputs, set_name: str, fault: Exception) -> str:
    """Return the message for a forward pass that failed: different precision, or the model's error."""
    weights = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    for part, values in named(x).items():
        if weights is not None and values.is_floating_point() and values.dtype != weights:
            return (
                f"the model's weights are {_dtype(weights)} and input {part!r} of {set_name} is "
                f"{_dtype(values.dtype)}; use one precision: x.to(torch.{_dtype(weights)}), or "
                f"model.to(torch.{_dtype(values.dtype)})."
            )
    inputs = ", ".join(f"{part} {tuple(values.shape)} {_dtype(values.dtype)}" for part, values in named(x).items())
    reason = (str(fault).strip().splitlines() or [""])[0]
    return (
        f"{type(unwrap(model)).__name__} cannot run on examples of {set_name} ({inputs}): {type(fault).__name__}: "
        f"{reason}. A tensor is passed as it is, items (a, b, ..., y) by position, a mapping by argument names."
    )


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ------------------------------------------------------------------------------------------------------------- the data


def _probe(source: Source, name: str, device: torch.device) -> Batch:
    """Return the first examples of a set."""
    examples = as_examples(source, UNKNOWN_CLASSES, name)
    return examples.fetch(np.arange(min(PROBED, len(examples))), device=device)


def data_warnings(checked: CheckedInputs, *, uses_model: bool, uses_heldout: bool) -> list[str]:
    """Return warnings about the data of an unlearning.

    `uses_model`: the method starts from the trained weights; `uses_heldout`: it trains on held-out examples.
    """
    sets, warnings = checked.sets, list[str]()
    low_accuracy = _low_accuracy(checked.model, sets["retain"]) if uses_model and "retain" in sets else ""
    if low_accuracy:
        warnings.append(low_accuracy)
    if not uses_heldout or "heldout" not in sets:
        return warnings
    unseen, forgotten = _listed_labels(sets["heldout"]), _listed_labels(sets["forget"])
    if unseen is None or forgotten is None:  # the run reads them, and warns then
        return warnings
    missing = np.setdiff1d(forgotten, unseen)
    if len(missing):
        classes = f"{', '.join(map(str, missing[:5]))}{', ...' if len(missing) > 5 else ''}"
        warnings.append(
            f"heldout has no example of class {classes}, but {int(np.isin(forgotten, missing).sum())} examples of it "
            f"are to be forgotten; examples of other classes are used instead. Add examples of the same classes to "
            f"heldout."
        )
    return warnings


def _low_accuracy(model: nn.Module, retain: Examples) -> str:
    """Return a warning if the model is no better on retain examples than one that always predicts the same class."""
    rows = np.unique(np.linspace(0, len(retain) - 1, ACCURACY_ON).astype(np.int64))
    with counting(None):
        predicted = eval_logits(model, retain, rows, device_of(model)).argmax(1).numpy()
    labels = retain.labels_at(rows)
    accuracy, majority = float((predicted == labels).mean()), float(np.bincount(labels).max() / len(labels))
    if len(rows) < 20 or accuracy > majority + 3 * (majority * (1 - majority) / len(rows)) ** 0.5:
        return ""
    classes = np.unique(predicted)
    hint = ""
    if len(classes) >= 2 and len(labels) >= 5 * len(classes):
        permuted = sum(np.bincount(labels[predicted == c]).max() for c in classes) / len(labels)
        hint = f" With its classes renumbered it would be {permuted:.0%}." if permuted > majority + 0.2 else ""
    return (
        f"the model's accuracy on {len(rows)} retain examples is {accuracy:.0%}; always predicting the same class "
        f"gives {majority:.0%}.{hint} Check that these are its training data, with the same order of classes and "
        f"the same preprocessing."
    )


def _listed_labels(examples: Examples) -> Indices | None:
    """Return the labels; None if examples would have to be read for them."""
    if isinstance(examples, DatasetExamples):
        return examples.listed_labels
    if isinstance(examples, Selected):
        labels = _listed_labels(examples.examples)
        return None if labels is None else labels[examples.rows]
    return examples.labels


def _on(x: Inputs, model: nn.Module) -> Inputs:
    """Return the inputs on the model's device."""
    return to_device(x, device_of(model))
