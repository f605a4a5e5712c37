"""The prepared table of a project in its requests: which version is current, what it predicts, and erasing records.

The version of an accepted request lies in its folder, so that one ledger line commits the model and the table. Older
versions are removed. What the table predicted for erased records, the log-probability of the true label, stays in
out_models.safetensors as evidence of the audit; later requests judge these records by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch

from regun.auditing.predictions import FloatArray
from regun.data.views import Selected
from regun.deletion.folder import OUT_MODELS, PREPARED, Folder
from regun.deletion.ledger import LedgerLine
from regun.deletion.project import OpenedProject
from regun.deletion.pseudonyms import Pseudonyms
from regun.errors import DataError
from regun.prepared import Prepared, record_keys
from regun.types import Indices

REFRESH_AFTER = 0.1
"""Share of erased training records from which on the table should be prepared again."""
KEYS = "keys"


@dataclass(frozen=True)
class CurrentTable:
    """The newest version of a table, and what the table predicted for records that earlier requests erased."""

    opened: OpenedProject
    prepared: Prepared
    pseudonyms: Pseudonyms
    evidence: Mapping[bytes, FloatArray]
    """Log-probability of the true label per repeat, by the record's written key."""

    def check(self, trained: Indices, remaining: Mapping[str, Indices]) -> None:
        """Raise unless the table has these training records and all unseen records that are left."""
        for name, rows in {"train": trained, **remaining}.items():
            if len(rows):
                self.prepared.rows(*self._records(name, rows), name)

    def true_log_probs(self, name: str, rows: Indices) -> FloatArray | None:
        """Return the log-probability of the true label (repeats, records); None if a record was erased unseen."""
        examples, ids = self._records(name, rows)
        places = self.prepared.find(examples, ids, name)
        values = np.empty((len(self.prepared.log_probs), len(rows)))
        stored = places >= 0
        for repeat, predictions in enumerate(self.prepared.predictions(places[stored])):
            values[repeat, stored] = predictions.true_log_prob
        erased = np.flatnonzero(~stored)
        for number, key in zip(erased, self.written_keys(name, rows[erased]), strict=True) if len(erased) else ():
            evidence = self.evidence.get(key.tobytes())
            if evidence is None or len(evidence) != len(values):
                return None
            values[:, number] = evidence
        return values

    def written_keys(self, name: str, rows: Indices) -> Any:
        """Return one key of 32 bytes per record, under the salt if there is one."""
        examples, ids = self._records(name, rows)
        keys = record_keys(examples, ids if self.prepared.about["keyed_by"][name] == "ids" else None)
        digests = (bytes.fromhex(self.pseudonyms.digest(key.tobytes().hex().ljust(64, "0"))) for key in keys)
        return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, 32)

    def without(self, forgotten: Mapping[str, Indices]) -> Prepared:
        """Return the table without the forgotten records of each set; itself if it has none of them."""
        table, erased = self.prepared, list[Indices]()
        for name, rows in forgotten.items():
            if name not in table.about["keyed_by"] or not len(rows):
                continue
            places = table.find(*self._records(name, rows), name)
            for row, count in zip(*np.unique(places[places >= 0], return_counts=True), strict=True):
                same = np.array([row])
                if count > 1:  # records of equal content share a key
                    same = np.flatnonzero((table.sets == table.sets[row]) & (table.keys == table.keys[row]).all(axis=1))
                erased.append(same[:count])
        return table.without(np.concatenate(erased)) if erased else table

    def _records(self, name: str, rows: Indices) -> tuple[Selected, list[str] | None]:
        """Return the records and their ids, where the project has ids."""
        opened = self.opened
        has_ids = name in opened.ids and (name != "train" or opened.project.ids is not None)
        ids = [opened.ids[name][int(row)] for row in rows] if has_ids else None
        return Selected(opened.sets[name], rows), ids


def current_table(
    opened: OpenedProject, folder: Folder, lines: Sequence[LedgerLine], pseudonyms: Pseudonyms
) -> CurrentTable | None:
    """Return the newest table: that of the last accepted request or, if the project's was prepared since, that one."""
    accepted = [line for line in reversed(lines) if line.accepted]
    table, line = opened.prepared, next((line for line in accepted if PREPARED in line.files), None)
    if line is not None:
        folder.read(line, PREPARED)  # raises if it was altered
        newest = Prepared.load(folder.place(line.number) / PREPARED)
        if table is None or table.first_digest == newest.first_digest:
            table = newest
    if table is None:
        return None
    check_classes_and_sets(table, opened)
    evidence: dict[bytes, FloatArray] = {}
    for line in (line for line in accepted if OUT_MODELS in line.files):
        tensors = safetensors.torch.load(folder.read(line, OUT_MODELS))
        if KEYS in tensors:
            repeats = [tensors[f"{number}.forget"].numpy() for number in range(sum(".forget" in n for n in tensors))]
            keys = tensors[KEYS].numpy()
            evidence = {key.tobytes(): values for key, values in zip(keys, np.stack(repeats).T, strict=True)}
            break
    return CurrentTable(opened, table, pseudonyms, evidence)


def check_classes_and_sets(prepared: Prepared, opened: OpenedProject) -> None:
    """Raise unless the table was made for so many classes and holds every set of the project."""
    classes = opened.sets["train"].num_classes
    if prepared.num_classes != classes:
        raise DataError(
            f"the prepared table has {prepared.num_classes} classes and the project's model {classes}; give the table "
            f"that was made for this model."
        )
    lacks = [name for name in opened.sets if name not in prepared.about["keyed_by"]]
    if lacks:
        raise DataError(
            f"the prepared table holds no {' and no '.join(lacks)} records, and requests are judged by them. Prepare "
            f"again with all sets of the project: regun prepare --project ... --refresh."
        )


def update_file(path: Path, newest: Prepared) -> bool:
    """Replace an older version of the table in the project's file; return True if it was replaced."""
    stored = Prepared.load(path)
    if stored.first_digest != newest.first_digest or stored.about["version"] >= newest.about["version"]:
        return False
    newest.save(path)
    return True
