"""Out-of-fold predictions: for every record, what a model that never saw it predicts.

`regun.prepare` makes the table once, next to training. Deletion requests, `regun.unlearn` and `regun.audit` look their
records up in it, by id or by content, instead of training models without them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b, sha256
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from regun import files
from regun.auditing.predictions import Predictions, log_sum_exp
from regun.data.examples import Examples, Indices
from regun.data.overlap import content_hashes, id_texts
from regun.errors import DataError
from regun.folds import sort_keys
from regun.hashing import canonical_json, digest
from regun.settings import read_json

FORMAT = 1
SETS = ("train", "heldout", "val", "test")
"""Sets a table may hold; only records of `train` were in any fold model's training data."""
KEY_BYTES = 16
_TOLERANCE = 1e-3  # how far the probabilities of a row may be from 1 in single precision

Keys = npt.NDArray[np.uint8]
"""One digest of 16 bytes per record, of its id or of its content."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Out-of-fold log-probabilities of every record, per repeat, with the fold that each record was left out of.

    `log_probs` has shape (repeats, records, width). With `top`, the columns are the classes in `classes`: the label,
    then the most likely others; the rest of the probability belongs to the other classes in equal parts.

    >>> prepared = regun.prepare(train, (x, y), test=(x_t, y_t))  # doctest: +SKIP
    >>> prepared.save("prepared.safetensors")                     # doctest: +SKIP
    >>> prepared = regun.Prepared.load("prepared.safetensors")    # doctest: +SKIP
    """

    log_probs: npt.NDArray[np.float32]
    folds: npt.NDArray[np.int32]
    keys: Keys
    labels: npt.NDArray[np.int64]
    sets: npt.NDArray[np.uint8]
    about: Mapping[str, Any]
    classes: npt.NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        problem = next(chain(_shape_problems(self), _content_problems(self)), None)
        if problem is not None:
            raise DataError(f"the prepared table is not valid: {problem}. Prepare it again with regun.prepare.")

    def __len__(self) -> int:
        """Number of training records."""
        return int((self.sets == 0).sum())

    def __repr__(self) -> str:
        made = f"{self.about['folds']} folds x {self.about['repeats']} repeats, {self.num_classes} classes"
        return f"<Prepared: {len(self):,} training records, {made}>"

    @property
    def num_classes(self) -> int:
        return int(self.about["num_classes"])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that the table holds."""
        parts = {name: digest(np.ascontiguousarray(array)) for name, array in self._arrays().items()}
        return digest([canonical_json(dict(self.about)), parts])

    @property
    def first_digest(self) -> str:
        """Digest of the first version, which all versions with erased records share."""
        return str(self.about.get("first_digest", self.digest))

    def find(self, examples: Examples, ids: Sequence[Any] | None = None, which: str = "train") -> Indices:
        """Return the row of each example, or -1 where the table does not have it."""
        keyed_by = self.about["keyed_by"].get(which)
        if keyed_by is None:
            known = ", ".join(self.about["keyed_by"])
            raise DataError(f"the prepared table holds no {which} records (it has {known}); prepare with {which}=.")
        if keyed_by == "ids" and ids is None:
            raise DataError(f"the prepared table knows {which} records by id; give ids={{{which!r}: ...}}.")
        keys = record_keys(examples, ids if keyed_by == "ids" else None)
        places = self._places[which]
        return np.asarray([places.get(key, -1) for key in _texts(keys)], dtype=np.int64)

    def rows(self, examples: Examples, ids: Sequence[Any] | None = None, which: str = "train") -> Indices:
        """Return the row of each example; raise if the table was made from other data or lacks some of them."""
        rows = self.find(examples, ids, which)
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            keyed_by = self.about["keyed_by"][which]
            raise DataError(
                f"{len(missing):,} of {len(rows):,} {which} records are not in the prepared table (by {keyed_by}; the "
                f"first is number {missing[0]}). It was made from other data, or they were erased: prepare again."
            )
        labels = examples.labels
        wrong = np.flatnonzero(self.labels[rows] != labels)
        if len(wrong):
            raise DataError(
                f"{len(wrong):,} {which} records have another label in the prepared table (the first is number "
                f"{wrong[0]}: {self.labels[rows[wrong[0]]]} there, {labels[wrong[0]]} here). Prepare again."
            )
        return rows

    def probabilities(self, rows: Indices) -> Tensor:
        """Return the mean out-of-fold probabilities (len(rows), classes) over the repeats, in single precision."""
        return torch.from_numpy(np.mean([np.exp(part) for part in self._whole(rows)], axis=0)).float()

    def predictions(self, rows: Indices, indices: Indices | None = None) -> list[Predictions]:
        """Return per repeat what models that never saw the records predict for them, as an audit reads it."""
        places = np.arange(len(rows)) if indices is None else indices
        return [Predictions(part, self.labels[rows], places) for part in self._whole(rows)]

    def without(self, rows: Indices) -> "Prepared":
        """Return the table without these records: what remains after their deletion request was accepted."""
        gone = np.zeros(len(self.keys), dtype=bool)
        gone[rows] = True
        arrays = {name: value[~gone] if value.ndim == 1 or name == "keys" else value[:, ~gone]
                  for name, value in self._arrays().items()}  # fmt: skip
        left = replace(self, **arrays, about={**self.about, "trained_on": None})
        about = {
            **self.about,
            "erased": int(self.about["erased"]) + int((self.sets[gone] == 0).sum()),
            "version": int(self.about["version"]) + 1,
            "first_digest": self.first_digest,
            "trained_on": [[left.trained_on(r, f) for f in range(left.about["folds"])] for r in range(len(self.folds))],
        }
        return replace(left, about=about)

    @property
    def erased_share(self) -> float:
        """Share of the training records of the first version that were erased since."""
        erased = int(self.about["erased"])
        return erased / max(1, erased + len(self))

    def trained_on(self, repeat: int, fold: int) -> str:
        """Return the digest of the keys of the records that the model of this fold was trained on."""
        return keys_digest(self.keys[(self.sets == 0) & (self.folds[repeat] != fold)])

    def save(self, path: str | Path) -> None:
        """Write the table atomically, as one safetensors file."""
        files.write_file(Path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the content of the table's file."""
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in self._arrays().items()}
        about = canonical_json({**self.about, "digest": self.digest})
        return safetensors.torch.save(tensors, {"regun.prepared": about})

    @classmethod
    def load(cls, path: str | Path) -> "Prepared":
        """Read a table; raise if the file is damaged, truncated, or not a prepared table."""
        try:
            content = files.read_plain(Path(path), most=2**40)
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            text = header["__metadata__"]["regun.prepared"]
            tensors = safetensors.torch.load(content)
        except OSError as fault:
            raise DataError(f"cannot read the prepared table {path}: {files.reason(fault)}.") from None
        except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as fault:
            raise DataError(f"{path} is not a whole prepared table ({fault}); make it with regun.prepare.") from None
        about = read_json(text, str(path))
        stated = about.pop("digest", None)
        if about.get("format") != FORMAT:
            raise DataError(f"{path} has format {about.get('format')}; this version reads {FORMAT}. Prepare again.")
        try:
            table = cls(about=about, **{name: tensor.numpy() for name, tensor in tensors.items()})
        except TypeError as fault:
            raise DataError(f"{path} is not a prepared table ({fault}); make it with regun.prepare.") from None
        if table.digest != stated:
            raise DataError(f"{path} was altered: its content does not match its digest. Prepare again.")
        return table

    @cached_property
    def _places(self) -> dict[str, dict[bytes, int]]:
        row_of: dict[str, dict[bytes, int]] = {}
        for number, name in enumerate(SETS):
            rows = np.flatnonzero(self.sets == number)[::-1]  # of equal content the first row counts
            row_of[name] = dict(zip(_texts(self.keys[rows]), rows.tolist(), strict=True))
        return row_of

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays: dict[str, npt.NDArray[Any]] = {
            "log_probs": self.log_probs,
            "folds": self.folds,
            "keys": self.keys,
            "labels": self.labels,
            "sets": self.sets,
        }
        return arrays | ({"classes": self.classes} if self.classes is not None else {})

    def _whole(self, rows: Indices) -> list[npt.NDArray[np.float64]]:
        """Normalised log-probabilities over all classes in double precision, per repeat."""
        log_probs: list[npt.NDArray[np.float64]] = []
        for repeat in range(len(self.log_probs)):
            values = self.log_probs[repeat, rows].astype(np.float64)
            if self.classes is not None:
                columns = self.classes[repeat, rows]
                rest = np.log(np.maximum(-np.expm1(np.minimum(log_sum_exp(values, axis=1), 0.0)), 1e-30))
                others = self.num_classes - columns.shape[1]
                whole = np.repeat((rest - np.log(max(1, others)))[:, None], self.num_classes, axis=1)
                np.put_along_axis(whole, columns.astype(np.int64), values, axis=1)
                values = whole
            log_probs.append(values - log_sum_exp(values, axis=1)[:, None])
        return log_probs


def record_keys(examples: Examples, ids: Sequence[Any] | None = None) -> Keys:
    """Return one key per example: of its id, or of its content as the model sees it at test time."""
    if ids is None:
        return content_hashes(examples).view(np.uint8).reshape(-1, KEY_BYTES)
    if len(ids) != len(examples):
        raise DataError(f"ids has {len(ids):,} entries for {len(examples):,} records; give one for each.")
    texts = [blake2b(text.encode(), digest_size=KEY_BYTES, person=b"regun id").digest() for text in id_texts(ids)]
    if len(set(texts)) < len(texts):
        raise DataError("ids holds the same id twice; give each record an id of its own.")
    return np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(-1, KEY_BYTES)


def _texts(keys: Keys) -> list[bytes]:
    whole = np.ascontiguousarray(keys).tobytes()
    return [whole[at : at + KEY_BYTES] for at in range(0, len(whole), KEY_BYTES)]


def keys_digest(keys: Keys) -> str:
    """Return the SHA-256 of a set of keys, whatever their order."""
    return sha256(keys[sort_keys(keys)].tobytes()).hexdigest()


def _shape_problems(table: Prepared) -> Iterator[str]:
    """Yield what is wrong with the facts that a table states, and with the shapes and ranges of its arrays.

    Each check relies on those before it: only the first problem counts.
    """
    needed = {"format", "folds", "repeats", "num_classes", "keyed_by", "erased", "version", "trained_on"}
    missing = needed - table.about.keys()
    if missing:
        yield f"it does not state {', '.join(sorted(missing))}"
    n, repeats, classes = len(table.keys), int(table.about["repeats"]), int(table.about["num_classes"])
    shapes = {"folds": (repeats, n), "labels": (n,), "sets": (n,), "keys": (n, KEY_BYTES)}
    for name, shape in shapes.items():
        if cast("npt.NDArray[Any]", getattr(table, name)).shape != shape:
            yield f"{name} has shape {getattr(table, name).shape}, expected {shape}"
    if table.log_probs.ndim != 3 or table.log_probs.shape[:2] != (repeats, n):
        yield f"log_probs has shape {table.log_probs.shape}, expected ({repeats}, {n}, classes)"
    width = table.log_probs.shape[2]
    if table.classes is None and width != classes:
        yield f"log_probs has {width} columns for {classes} classes"
    if table.classes is not None and table.classes.shape != table.log_probs.shape:
        yield f"classes has shape {table.classes.shape}, log_probs {table.log_probs.shape}"
    ranges = {
        "classes": (table.classes, classes),
        "labels": (table.labels, classes),
        "folds": (table.folds, int(table.about["folds"])),
        "sets": (table.sets, len(SETS)),
    }
    for name, (values, end) in ranges.items():
        if values is not None and values.size and not 0 <= values.min() <= values.max() < end:
            yield f"{name} go beyond 0 to {end - 1}"


def _content_problems(table: Prepared) -> Iterator[str]:
    """Yield what is wrong with the probabilities, and with what the file states that each model was trained on."""
    if np.isnan(table.log_probs).any():
        yield "log_probs holds NaN"
    total = np.exp(table.log_probs.astype(np.float64)).sum(axis=2)
    if total.size and (total.max() > 1 + _TOLERANCE or (table.classes is None and total.min() < 1 - _TOLERANCE)):
        yield "the probabilities of a record do not sum to 1"
    stated, folds = table.about["trained_on"], int(table.about["folds"])
    if stated is None:  # while a version is made
        return
    if [len(repeat) for repeat in stated] != [folds] * len(table.folds):
        yield f"trained_on does not state {folds} folds for each of {len(table.folds)} repeats"
    for repeat in range(len(table.folds)):
        for fold in range(folds):
            if stated[repeat][fold] != table.trained_on(repeat, fold):
                yield f"fold {fold} of repeat {repeat} was not trained on exactly the records outside it"
