"""From folds to a table: which records a fold's model sees and predicts, and how their rows are put together."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from regun.crossfit.fold_files import FoldFiles, Rows, pack_fold, unpack_fold
from regun.crossfit.fold_models import Fold, FoldTraining, function_digest
from regun.folds import assign_folds, canonical_order
from regun.hashing import code_digest, digest
from regun.parallel import Processes, alone, current
from regun.prepared import FORMAT, SETS, Keys, Prepared, keys_digest
from regun.progress import ProgressLine
from regun.rng import derive
from regun.settings import to_json
from regun.training.job import Cost

Folds = npt.NDArray[np.int32]
"""The fold of every record of a set."""


@dataclass(frozen=True)
class Records:
    """Keys and labels of all records by set, and the group of every training record."""

    keys: Mapping[str, Keys]
    labels: Mapping[str, npt.NDArray[np.int64]]
    groups: npt.NDArray[np.int64]
    keyed_by: Mapping[str, str]
    """By set, `ids` or `content`."""

    def together(self, arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return one array per set as one array, in the order of the table's rows."""
        return np.concatenate([arrays[name] for name in self.keys])


@dataclass
class CrossFit:
    """All trainings of one table."""

    training: FoldTraining
    records: Records
    folds: int
    repeats: int
    seed: int
    top: int | None
    line: ProgressLine | None
    cost: Cost = field(default_factory=Cost)

    def call_digest(self) -> str:
        """Return the digest of all that decides the table."""
        records = self.records
        sets = [[digest(keys), digest(records.labels[name])] for name, keys in records.keys.items()]
        return digest([self._decides(), sets, digest(records.groups), self.top])

    def table(self, *, pool: Executor | None = None, files: FoldFiles | None = None) -> Prepared:
        """Train the folds, or read those that `files` has, and return the table."""
        folds, trained_on, values = list[Folds](), list[list[str]](), list[npt.NDArray[np.float32]]()
        for repeat in range(self.repeats):
            places, planned = self._plan(repeat)
            values.append(self._joined(places, self._all_rows(planned, pool, files)))
            folds.append(self.records.together(places))
            trained_on.append([keys_digest(self.records.keys["train"][fold.rows]) for fold in planned])
        return self._prepared(np.stack(values), np.stack(folds).astype(np.int32), trained_on)

    def _plan(self, repeat: int) -> tuple[dict[str, Folds], list[Fold]]:
        """Return the fold of every record, by set, and all folds; unseen records are dealt to the folds at random."""
        keys, labels = self.records.keys, self.records.labels
        seed = derive(self.seed, "crossfit", repeat)
        places = {"train": assign_folds(keys["train"], labels["train"], self.folds, seed, self.records.groups)}
        for name in keys:
            if name != "train":
                places[name] = assign_folds(keys[name], labels[name], self.folds, derive(seed, name))
        order = canonical_order(keys["train"], seed)  # of training, too: the order of the user's data decides nothing
        folds: list[Fold] = []
        for number in range(self.folds):
            rows = order[places["train"][order] != number]
            wanted = {name: np.flatnonzero(place == number) for name, place in places.items()}
            folds.append(Fold(repeat, number, rows, wanted, derive(seed, "fold", number)))
        return places, folds

    def _joined(self, places: Mapping[str, Folds], folds: list[Rows]) -> npt.NDArray[np.float32]:
        """Return the log-probabilities of all records from those of each fold's."""
        values: dict[str, npt.NDArray[np.float32]] = {}
        for name, place in places.items():
            values[name] = np.empty((len(place), folds[0][name].shape[1]), dtype=np.float32)
            for number, rows in enumerate(folds):
                values[name][place == number] = rows[name]
        return self.records.together(values)

    def _prepared(self, values: npt.NDArray[np.float32], folds: Folds, trained_on: list[list[str]]) -> Prepared:
        records = self.records
        labels = records.together(records.labels)
        log_probs, classes = _largest(values, labels, self.top)
        about = {
            **self._decides(),
            "format": FORMAT,
            "version": 1,
            "erased": 0,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "num_classes": int(values.shape[2]),
            "keyed_by": dict(records.keyed_by),
            "top": self.top,
            "trained_on": trained_on,
            "cost": vars(self.cost),
        }
        sets = {name: np.full(len(keys), SETS.index(name), dtype=np.uint8) for name, keys in records.keys.items()}
        return Prepared(
            log_probs=log_probs,
            classes=classes,
            folds=folds,
            keys=records.together(records.keys),
            labels=labels,
            sets=records.together(sets),
            about=about,
        )

    def _decides(self) -> dict[str, Any]:
        """Return what decides the table, as the file states it."""
        training = self.training
        return {
            "folds": self.folds,
            "repeats": self.repeats,
            "seed": self.seed,
            "trained_by": training.trained_by,
            "recipe": to_json(training.recipe) if training.recipe is not None else None,
            "code": function_digest(training.train or training.rebuild, training.trained_by),
            "regun_code": code_digest("regun.training.scratch", "regun.folds"),
        }

    def _all_rows(self, folds: list[Fold], pool: Executor | None, files: FoldFiles | None) -> list[Rows]:
        """Return the rows of every fold; folds that another process works on are left to it, then waited for."""
        processes = current()
        if processes is not None:
            return self._in_turn(folds, processes)
        missing = [fold for fold in folds if files is None or not files.path(fold.name).exists()]
        futures: dict[str, Future[tuple[Rows, Cost]]] = {}
        if pool is not None:
            futures = {fold.name: pool.submit(self.training.predictions, fold) for fold in missing}
        rows: dict[str, Rows] = {}
        for wait in (False, True):
            for fold in (fold for fold in folds if fold.name not in rows):
                made = self._rows(fold, futures.get(fold.name), files, wait=wait)
                if made is not None:
                    rows[fold.name] = made
        return [rows[fold.name] for fold in folds]

    def _rows(
        self, fold: Fold, ahead: "Future[tuple[Rows, Cost]] | None", files: FoldFiles | None, *, wait: bool
    ) -> Rows | None:
        """Return a fold's rows; None if another process is at it and this one does not `wait`."""

        def make() -> tuple[Rows, Cost]:
            self._show(fold)
            return ahead.result() if ahead is not None else self.training.predictions(fold)

        made = make() if files is None else files.made(fold.name, make, wait=wait)
        if made is None:
            return None
        rows, cost = made
        self.cost.add(**vars(cost))
        return rows

    def _show(self, fold: Fold) -> None:
        if self.line is not None:
            trained = f"training on {len(fold.rows):,} records"
            self.line.show(f"fold {fold.number + 1} of {self.folds}: {trained}", last=True)

    def _in_turn(self, folds: list[Fold], processes: Processes) -> list[Rows]:
        """Return the rows of every fold, of which each process trains some, one after the other and alone."""

        def trained_here() -> Iterator[dict[str, torch.Tensor]]:
            for fold in folds[processes.rank :: processes.world_size]:
                self._show(fold)
                with alone():
                    made = self.training.predictions(fold)
                yield pack_fold(*made)

        every: list[Rows] = []
        for tensors in processes.in_turn(trained_here(), self.folds):
            rows, cost = unpack_fold(tensors)
            self.cost.add(**vars(cost))
            every.append(rows)
        return every


def _largest(
    log_probs: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], top: int | None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32] | None]:
    """Return the label's and the `top` largest other log-probabilities with their classes; or all of them."""
    if top is None or top + 1 >= log_probs.shape[2]:
        return log_probs, None
    masked = log_probs.copy()
    at_label = np.broadcast_to(labels[None, :, None], (*log_probs.shape[:2], 1))
    np.put_along_axis(masked, at_label, np.inf, axis=2)  # the label comes first
    classes = np.argpartition(-masked, top, axis=2)[:, :, : top + 1]
    return np.take_along_axis(log_probs, classes, axis=2), classes.astype(np.int32)
