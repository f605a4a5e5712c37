"""Tables of out-of-fold predictions as artifacts: for every record of a training set, what a model without it predicts.

A table depends on the training set, the model and the recipe alone. So one table serves every request and every
training seed of a split. Each fold is an artifact of its own: a stopped run continues with the folds that are missing,
and several processes share them. The models themselves are not stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regun.artifacts.artifact import Artifact, Contents
from regun.artifacts.snapshots import SnapshotFolder
from regun.artifacts.store import Store
from regun.artifacts.trainings import Training, fit_from_scratch
from regun.artifacts.weights import state_digest
from regun.data.overlap import in_memory
from regun.data.registry import Data
from regun.data.views import Selected
from regun.devices import describe_device
from regun.errors import StoreError
from regun.folds import assign_folds, merge_groups
from regun.hashing import code_digest, digest
from regun.parallel import alone, current
from regun.predict import predict
from regun.prepared import Prepared, record_keys
from regun.rng import derive, rng_key
from regun.training.job import Callbacks, Cost
from regun.training.recipes import shorten
from regun.types import Indices

FOLDS, REPEATS, SHARE = 4, 1, 0.25
"""Folds and repeats of a table, and the share of the base's epochs that a fold's model is trained for."""


@dataclass(frozen=True, kw_only=True)
class CrossFitting:
    """Everything that decides a table; its `inputs()` are the content key. `training` is that of the base model."""

    training: Training
    folds: int = FOLDS
    repeats: int = REPEATS
    share: float = SHARE

    @property
    def short(self) -> Training:
        """The training of the base for `share` of its epochs."""
        return replace(self.training, recipe=shorten(self.training.recipe, self.share))

    def inputs(self, device: torch.device) -> dict[str, Any]:
        return {**self._decides(device), "repeats": self.repeats}

    def fold_inputs(self, repeat: int, fold: int, device: torch.device) -> dict[str, Any]:
        """Return what decides one fold; it does not depend on the number of repeats."""
        return {**self._decides(device), "repeat": repeat, "fold": fold}

    def assigned(self, repeat: int, device: torch.device) -> npt.NDArray[np.int32]:
        """Return the fold of every record of `rows`; equal records of data in memory share a fold."""
        examples = Selected(self.training.data.train, self.rows)
        groups = merge_groups(len(self.rows), record_keys(examples)) if in_memory(examples) else None
        labels = np.asarray(examples.labels, dtype=np.int64)
        seed = derive(rng_key(self._decides(device)), "crossfit", repeat)
        return assign_folds(record_keys(examples, self.rows.tolist()), labels, self.folds, seed, groups)

    @cached_property
    def rows(self) -> Indices:
        """The records of the table: the training set of the base, by index."""
        return np.sort(self.training.trained_on)

    def _decides(self, device: torch.device) -> dict[str, Any]:
        code = code_digest("regun.training.scratch", "regun.predict", "regun.folds")
        return {**self.short.inputs(device), "code": code, "folds": self.folds}


def cross_fit(
    fitting: CrossFitting,
    store: Store,
    device: torch.device,
    *,
    about: Mapping[str, Any] | None = None,
    watch: Callbacks | None = None,
) -> Artifact:
    """Return the table, from the store or made now from its folds; `about` is written to its manifest."""

    def make(_: SnapshotFolder) -> Contents:
        processes = current()
        if processes is not None:  # each process trains whole folds, so that the table is that of one process
            parts = [(repeat, fold) for repeat in range(fitting.repeats) for fold in range(fitting.folds)]
            with alone():
                for repeat, fold in parts[processes.rank :: processes.world_size]:
                    fit_fold(fitting, repeat, fold, store, device, watch=watch)
            processes.barrier()
        cost, log_probs, folds = Cost(), list[Tensor](), list[Tensor]()
        for repeat in range(fitting.repeats):
            place = fitting.assigned(repeat, device)
            values = torch.empty((len(place), fitting.training.data.train.num_classes))
            for fold in range(fitting.folds):
                part = fit_fold(fitting, repeat, fold, store, device, watch=watch)
                values[torch.from_numpy(place == fold)] = part.tensors("predictions")["log_probs"]
                cost.add(**part.info["cost"])
            log_probs.append(values)
            folds.append(torch.from_numpy(place))
        table = {
            "log_probs": torch.stack(log_probs),
            "folds": torch.stack(folds),
            "rows": torch.from_numpy(fitting.rows),
        }
        info = {
            **(about or {}),
            "role": "out-of-fold predictions",
            "examples": len(fitting.rows),
            "share": fitting.share,
            "cost": vars(cost),
            "digest": state_digest(table),
        }
        return Contents({"table": table}, info)

    return store.make("out_of_fold", fitting.inputs(device), make)


def fit_fold(
    fitting: CrossFitting,
    repeat: int,
    fold: int,
    store: Store,
    device: torch.device,
    *,
    watch: Callbacks | None = None,
) -> Artifact:
    """Return what a short model without one fold predicts for that fold, from the store or trained now."""
    training, inputs = fitting.short, fitting.fold_inputs(repeat, fold, device)
    examples = training.data.train

    def make(snapshots: SnapshotFolder) -> Contents:
        place = fitting.assigned(repeat, device)
        trained_on, out = fitting.rows[place != fold], fitting.rows[place == fold]
        job, _ = fit_from_scratch(training, trained_on, rng_key(inputs), device, watch or Callbacks(), snapshots)
        log_probs = predict(job.model.eval(), examples, out, device, whole=True).log_probs.astype(np.float32)
        tensors = {
            "log_probs": torch.from_numpy(log_probs),
            "rows": torch.from_numpy(out),
            "trained_on": torch.from_numpy(trained_on),
        }
        info = {"role": "fold", "examples": len(trained_on), "cost": vars(job.cost), "device": describe_device(device)}
        return Contents({"predictions": tensors}, info)

    return store.make("fold", inputs, make)


def stored_table(prepared: Prepared, base: Artifact, data: Data, store: Store) -> Artifact:
    """Return the predictions of a prepared table (`regun prepare --base`) for the base's training examples."""
    rows = np.sort(base.tensors("trained_on")["indices"].numpy())
    ids = rows.tolist() if prepared.about["keyed_by"]["train"] == "ids" else None
    if prepared.num_classes != data.train.num_classes:
        raise StoreError(
            f"the prepared table has {prepared.num_classes} classes and the data {data.train.num_classes}; give the "
            "table that was made for this model."
        )
    places = prepared.find(Selected(data.train, rows), ids)
    recorded = places >= 0  # records of accepted requests are erased
    inputs = {
        "prepared": prepared.digest,
        "rows": digest(rows[recorded]),
        "folds": prepared.about["folds"],
        "repeats": prepared.about["repeats"],
    }

    def make(_: SnapshotFolder) -> Contents:
        log_probs = [one.log_probs for one in prepared.predictions(places[recorded])]
        table = {
            "log_probs": torch.from_numpy(np.stack(log_probs).astype(np.float32)),
            "folds": torch.from_numpy(prepared.folds[:, places[recorded]].copy()),
            "rows": torch.from_numpy(rows[recorded]),
        }
        info = {
            "role": "out-of-fold predictions",
            "examples": int(recorded.sum()),
            "share": SHARE,
            "cost": prepared.about["cost"],
            "digest": state_digest(table),
        }
        return Contents({"table": table}, info)

    return store.make("out_of_fold", inputs, make)


def out_of_fold_probabilities(table: Artifact, rows: Indices) -> Tensor:
    """Return the mean out-of-fold probabilities (len(rows), classes) over the repeats; raise if a record has none."""
    tensors = table.tensors("table")
    recorded = tensors["rows"].numpy()
    places = np.minimum(np.searchsorted(recorded, rows), len(recorded) - 1)
    missing = int((recorded[places] != rows).sum())
    if missing:
        raise StoreError(
            f"{missing:,} of {len(rows):,} examples to forget are not in the table {table.key[:12]} of out-of-fold "
            f"predictions; it was made for another training set."
        )
    probabilities = tensors["log_probs"][:, torch.from_numpy(places)].double().exp().mean(dim=0)
    return (probabilities / probabilities.sum(dim=1, keepdim=True)).float()
