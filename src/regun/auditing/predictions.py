"""Predictions of a model on a split: the type every number of the audit is computed from."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from regun.errors import AuditError, NotFiniteError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
T = TypeVar("T", bound=np.generic)

SPLITS = ("retain", "forget", "test", "val", "heldout")
UNSEEN = ("test", "heldout", "val")
"""Splits whose examples no model trained on; attack numbers against the first carry no suffix."""

LOG_FLOOR = -1e6
"""Stands in for log 0 where a finite number is needed; no finite logits of a real model come near it."""

IN_MEMORY = 1 << 22
"""Bytes of log-probabilities of one split that are held in memory; more lie in a file."""

PER_EXAMPLE = ("true_log_prob", "predicted", "true_logit", "modified_entropy", "entropy")
"""Values per example from which accuracies, attacks and intervals are computed."""

_BLOCK = 1 << 15  # elements worked on at a time: 256 kB of fp64, so that a handful of temporaries stay in cache
_MAPPED = 1 << 25  # bytes of each file that a pass keeps mapped: bounds the memory of the process


@dataclass(frozen=True, eq=False)
class Predictions:
    """fp64 log-probabilities (n, K) and labels (n,) of one model on one split, plus example ids (n,).

    Log-probabilities may be -inf (a probability of 0). NaN, rows that do not sum to 1 and labels outside 0..K-1 raise
    an `AuditError`. The arrays are read-only views.
    """

    log_probs: FloatArray
    labels: IntArray
    indices: IntArray

    def __post_init__(self) -> None:
        log_probs = _frozen(np.asarray(self.log_probs, dtype=np.float64))
        labels, indices = _integers(self.labels, "labels"), _integers(self.indices, "indices")
        _check(log_probs, labels, indices)
        for name, value in (("log_probs", log_probs), ("labels", labels), ("indices", indices)):
            object.__setattr__(self, name, value)

    @classmethod
    def from_logits(cls, logits: npt.ArrayLike, labels: npt.ArrayLike, indices: npt.ArrayLike) -> Predictions:
        """Return predictions from raw logits (n, K), by a log-softmax in fp64.

        >>> Predictions.from_logits([[1e4, 1e4]], [0], [7]).true_log_prob.round(4)
        array([-0.6931])
        """
        raw = np.asarray(logits)
        if raw.ndim != 2 or raw.shape[1] == 0:
            return cls(raw, np.asarray(labels), np.asarray(indices))
        log_probs = LogProbs(*raw.shape)
        log_probs.add(raw)
        return log_probs.predictions(labels, indices)

    @classmethod
    def join(cls, parts: Sequence[Predictions]) -> Predictions:
        """Return several splits of one model end to end; log-probabilities are copied only when they are read."""
        return _Joined(parts)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def complete(self) -> bool:
        """True if log-probabilities of all classes were kept."""
        return True

    @property
    def num_classes(self) -> int:
        return self.log_probs.shape[1]

    @cached_property
    def true_log_prob(self) -> FloatArray:
        """log p_y of every example, (n,)."""
        log_prob = np.empty(len(self))
        for rows in row_blocks(self.log_probs):
            block = self.log_probs[rows]
            log_prob[rows] = block[np.arange(len(block)), self.labels[rows]]
        return log_prob

    @cached_property
    def predicted(self) -> IntArray:
        """The most likely class of every example, (n,); the lowest class among equals."""
        top = np.empty(len(self), np.int64)
        for rows in row_blocks(self.log_probs):  # NumPy copies what is read-only
            self.log_probs[rows].argmax(axis=1, out=top[rows])
        return top

    @cached_property
    def true_logit(self) -> FloatArray:
        """phi = log p_y - log sum_{k != y} p_k of every example, (n,); limited to +-1e6 where a side is 0."""
        rest = np.empty(len(self))
        for rows in row_blocks(self.log_probs):
            others = self.log_probs[rows].copy()
            others[np.arange(len(others)), self.labels[rows]] = -np.inf
            rest[rows] = log_sum_exp(others, axis=1)
        return np.maximum(self.true_log_prob, LOG_FLOOR) - np.maximum(rest, LOG_FLOOR)

    @cached_property
    def modified_entropy(self) -> FloatArray:
        """-(1 - p_y) log p_y - sum_{k != y} p_k log(1 - p_k) of every example, (n,): 0 if certain and right."""
        entropy = np.empty(len(self))
        for rows in row_blocks(self.log_probs):
            logs = self.log_probs[rows]
            at_label = np.arange(len(logs)), self.labels[rows]
            probs = np.exp(logs)
            terms = probs * np.maximum(_log_complement(logs, probs), LOG_FLOOR)
            terms[at_label] = 0.0
            probs[at_label] = 0.0
            log_p = np.maximum(logs[at_label], LOG_FLOOR)
            entropy[rows] = -(probs.sum(axis=1) * log_p + terms.sum(axis=1))
        return entropy

    @cached_property
    def entropy(self) -> FloatArray:
        """-sum_k p_k log p_k of every example, (n,), in nats; 0 log 0 = 0."""
        entropy = np.empty(len(self))
        for rows in row_blocks(self.log_probs):
            block = self.log_probs[rows]
            entropy[rows] = -np.einsum("ij,ij->i", np.exp(block), np.maximum(block, LOG_FLOOR))
        return np.maximum(entropy, 0.0)


class LogProbs:
    """fp64 log-probabilities (n, K) that are filled batch by batch from logits.

    Large ones are in an unnamed file in the system's temporary folder, which is deleted with the last array that uses
    it. Only a few MB of the file are mapped at a time: the process needs little memory, the system caches the rest.
    """

    def __init__(self, examples: int, classes: int) -> None:
        self.values = _allocate((examples, classes))
        self._filled = 0
        self._mapped = 0

    def add(self, logits: npt.NDArray[np.generic]) -> None:
        """Append rows, by a log-softmax in fp64; raise if logits are not finite, too many or of other classes."""
        if logits.shape[1] != self.values.shape[1] or self._filled + len(logits) > len(self.values):
            raise self._mismatch(f"{self._filled + len(logits)} rows of {logits.shape[1]} logits")
        for rows in row_blocks(logits):
            block = np.array(logits[rows], dtype=np.float64)
            _check_bad_logits(block, self._filled)
            _log_softmax(block)
            self.values[self._filled : self._filled + len(block)] = block
            self._filled += len(block)
            self._mapped += block.nbytes
            if self._mapped >= _MAPPED:
                _unmap(self.values)
                self._mapped = 0

    def predictions(self, labels: npt.ArrayLike, indices: npt.ArrayLike) -> Predictions:
        """Return the predictions, once all rows are there."""
        if self._filled != len(self.values):
            raise self._mismatch(f"{self._filled} rows")
        return Predictions(self.values, np.asarray(labels), np.asarray(indices))

    def _mismatch(self, got: str) -> AuditError:
        rows, classes = self.values.shape
        return AuditError(
            f"the model returned {got} for {rows} examples of {classes} classes; it must return one row per example, "
            "always of the same classes."
        )


class PerExampleValues(Predictions):
    """Predictions of which only values per example are kept, for more than a disk holds; `log_probs` raises.

    The values are those of `Predictions`, bit for bit.
    """

    def __init__(
        self, values: Mapping[str, npt.NDArray[Any]], labels: npt.ArrayLike, indices: npt.ArrayLike, classes: int
    ) -> None:
        arrays = {name: _frozen(np.asarray(values[name])) for name in PER_EXAMPLE}
        arrays |= {"labels": _integers(labels, "labels"), "indices": _integers(indices, "indices")}
        for name, value in arrays.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "classes", classes)

    @property
    def complete(self) -> bool:
        return False

    @property
    def num_classes(self) -> int:
        return cast(int, vars(self)["classes"])

    @property
    def log_probs(self) -> FloatArray:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise AuditError(
            f"the log-probabilities of {len(self):,} examples with {self.num_classes:,} classes were not kept, since "
            f"they take {8e-9 * len(self) * self.num_classes:.1f} GB. Divergences need them: audit fewer examples."
        )


class PerExampleCollector:
    """Values per example, computed batch by batch from logits that are then dropped."""

    def __init__(self, classes: int, labels: IntArray) -> None:
        self.classes, self.labels, self._filled = classes, labels, 0
        self.values = {name: np.empty(len(labels), np.int64 if name == "predicted" else float) for name in PER_EXAMPLE}

    def add(self, logits: npt.NDArray[np.generic]) -> None:
        """Append rows; raise if logits are not finite."""
        rows = slice(self._filled, self._filled + len(logits))
        try:
            part = Predictions.from_logits(logits, self.labels[rows], np.arange(rows.start, rows.stop))
        except NotFiniteError as fault:
            raise NotFiniteError(f"rows {rows.start} to {rows.stop - 1}: {fault}") from None
        for name, values in self.values.items():
            values[rows] = getattr(part, name)
        self._filled = rows.stop

    def predictions(self, labels: npt.ArrayLike, indices: npt.ArrayLike) -> Predictions:
        """Return the predictions, once all rows are there."""
        return PerExampleValues(self.values, labels, indices, self.classes)


class _Joined(Predictions):
    """Splits end to end: values per example come from the parts, which cache them."""

    parts: tuple[Predictions, ...]

    def __init__(self, parts: Sequence[Predictions]) -> None:
        object.__setattr__(self, "parts", tuple(parts))
        for name in ("labels", "indices"):
            object.__setattr__(self, name, _frozen(np.concatenate([getattr(part, name) for part in parts])))

    @property
    def complete(self) -> bool:
        return all(part.complete for part in self.parts)

    @cached_property
    def log_probs(self) -> FloatArray:  # pyright: ignore[reportIncompatibleVariableOverride]
        return _frozen(np.concatenate([part.log_probs for part in self.parts]))

    @property
    def num_classes(self) -> int:
        return self.parts[0].num_classes

    @cached_property
    def true_log_prob(self) -> FloatArray:
        return np.concatenate([part.true_log_prob for part in self.parts])

    @cached_property
    def predicted(self) -> IntArray:
        return np.concatenate([part.predicted for part in self.parts])

    @cached_property
    def true_logit(self) -> FloatArray:
        return np.concatenate([part.true_logit for part in self.parts])

    @cached_property
    def modified_entropy(self) -> FloatArray:
        return np.concatenate([part.modified_entropy for part in self.parts])

    @cached_property
    def entropy(self) -> FloatArray:
        return np.concatenate([part.entropy for part in self.parts])


SplitPredictions = Mapping[str, Predictions]
"""Predictions of one model, by split."""


def same_examples(ours: Predictions, theirs: Predictions, who: str) -> None:
    """Raise unless both are of the same examples, in the same order, with the same labels and classes."""
    if ours.num_classes != theirs.num_classes:
        raise AuditError(
            f"{who} differ in their label space: {ours.num_classes} and {theirs.num_classes} classes; "
            "compare models with the same outputs."
        )
    for name, left, right in (("ids", ours.indices, theirs.indices), ("labels", ours.labels, theirs.labels)):
        if not np.array_equal(left, right):
            where = f"{len(left)} and {len(right)} examples"
            if len(left) == len(right):
                row = int((left != right).argmax())
                where = f"first in row {row}: {left[row]} and {right[row]}"
            raise AuditError(f"{who} have different {name} ({where}); run both on the same split, in the same order.")


def log_sum_exp(values: FloatArray, axis: int) -> FloatArray:
    """Return log sum exp(values) along `axis`; -inf for a sum of zeros."""
    top = np.maximum(values.max(axis=axis, keepdims=True), LOG_FLOOR)
    total: FloatArray = np.exp(values - top).sum(axis=axis)
    with np.errstate(divide="ignore"):
        return np.log(total) + np.squeeze(top, axis=axis)


def _log_complement(log_probs: FloatArray, probs: FloatArray) -> FloatArray:
    """Return log(1 - p_k), from the sum of the other classes where p_k is large and 1 - p_k would lose its digits."""
    with np.errstate(divide="ignore"):
        complement = np.log1p(-np.minimum(probs, 1.0))
    rows, columns = np.nonzero(probs > 0.5)  # at most one a row
    others = log_probs[rows]
    others[np.arange(len(rows)), columns] = -np.inf
    if len(rows):
        complement[rows, columns] = log_sum_exp(others, axis=1)
    return complement


def _log_softmax(block: FloatArray) -> None:
    """Take the log-softmax in place: log p = x - max - log(1 + sum of exp(x_k - max) over the other classes).

    Leaving the largest term, which is 1, to log1p keeps the digits of log p near 0: confident answers do not tie.
    """
    top = block.argmax(axis=1)[:, None]
    block -= np.take_along_axis(block, top, axis=1)
    terms = np.exp(block)
    np.put_along_axis(terms, top, 0.0, axis=1)
    block -= np.log1p(terms.sum(axis=1, keepdims=True))


class _ScratchFile(mmap.mmap):
    """A file of our own, mapped shared: unlike a private map of a user's, it loses nothing when it is unmapped."""


def _allocate(shape: tuple[int, int]) -> FloatArray:
    """Return an array to fill; a large one is in an unnamed file."""
    size = 8 * shape[0] * shape[1]
    if size < IN_MEMORY:
        return np.empty(shape)
    try:
        with tempfile.TemporaryFile() as file:
            file.truncate(size)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error now, not a signal later
            return np.ndarray(shape, np.float64, buffer=_ScratchFile(file.fileno(), size))
    except OSError as fault:
        raise AuditError(
            f"predictions of {shape[0]:,} examples with {shape[1]:,} classes need {size / 1e9:.1f} GB in "
            f"{tempfile.gettempdir()}: {fault.strerror or fault}. Set TMPDIR to a folder with more space."
        ) from None


def row_blocks(values: npt.NDArray[np.generic], *others: npt.NDArray[np.generic]) -> Iterator[slice]:
    """Yield slices of rows that cover `values` (n, K), each of a bounded number of elements.

    `others` are read by the same rows. Where an array is in a file, pages that were read are unmapped on the way.
    """
    rows, classes = values.shape
    step = max(1, _BLOCK // max(1, classes))
    steps_mapped = max(1, _MAPPED // (8 * step * max(1, classes)))
    for number, start in enumerate(range(0, rows, step), start=1):
        yield slice(start, min(start + step, rows))
        if number % steps_mapped == 0 or start + step >= rows:
            for array in (values, *others):
                _unmap(array)


def _unmap(values: npt.NDArray[np.generic]) -> None:
    """Release the memory of an array that `_allocate` put into a file; its contents stay in the file."""
    base: Any = values
    while isinstance(base, np.ndarray):
        base = cast(Any, base).base
    if isinstance(base, _ScratchFile) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def _frozen(values: npt.NDArray[T]) -> npt.NDArray[T]:
    view = values.view()
    view.flags.writeable = False
    return view


def _integers(values: npt.ArrayLike, name: str) -> IntArray:
    array = np.asarray(values)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise AuditError(f"{name} have dtype {array.dtype}; give integers (int64).")
    return _frozen(array.astype(np.int64, copy=False))


def _check(log_probs: FloatArray, labels: IntArray, indices: IntArray) -> None:
    """Raise unless shapes fit, labels name classes and every row of probabilities sums to 1."""
    n = len(log_probs) if log_probs.ndim else 0
    fits = log_probs.ndim == 2 and labels.shape == (n,) and indices.shape == (n,)
    if not fits or n < 1 or log_probs.shape[1] < 2:
        shapes = f"log_probs {log_probs.shape}, labels {labels.shape}, indices {indices.shape}"
        raise AuditError(
            f"predictions have shapes {shapes}; give (n, K), (n,), (n,) with n >= 1 examples and K >= 2 classes."
        )
    classes = log_probs.shape[1]
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        row = int(outside.argmax())
        raise AuditError(
            f"label {labels[row]} in row {row} is outside 0..{classes - 1}; the model has {classes} outputs."
        )
    for rows in row_blocks(log_probs):
        with np.errstate(over="ignore"):
            sums = np.exp(log_probs[rows]).sum(axis=1)
        wrong = ~(np.abs(sums - 1.0) <= 1e-3)
        if wrong.any():
            row = int(wrong.argmax())
            _check_bad_logits(log_probs[rows][row : row + 1], rows.start + row)
            raise AuditError(
                f"the probabilities of row {rows.start + row} sum to {sums[row]:.6g}, not 1; "
                "give log-probabilities, or logits through Predictions.from_logits."
            )


def _check_bad_logits(block: FloatArray, first_row: int) -> None:
    top = block.max(axis=1)  # NaN if the row holds one
    if np.isfinite(top).all():
        return
    row = int((~np.isfinite(top)).argmax())
    what = "NaN" if np.isnan(top[row]) else "+inf" if top[row] > 0 else "-inf in every class"
    raise NotFiniteError(
        f"the model's output holds {what} in row {first_row + row}; its probabilities are undefined. "
        "A diverged model cannot be audited: check its weights and inputs."
    )
