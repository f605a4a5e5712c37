"""Snapshots of unfinished runs."""

import os
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path

from regun import files
from regun.artifacts.artifact import FORMAT, is_file_entry, read_sealed
from regun.artifacts.weights import UNFINISHED, read_tensors, write_tensors
from regun.errors import StoreError
from regun.training.snapshots import Snapshot

SNAPSHOT_FILES = re.compile(rf"snapshot\.json|\.regun-[0-9a-f]{{16}}|[0-9a-f]{{16}}\.safetensors|{UNFINISHED}")


class SnapshotFolder:
    """Keeps the latest snapshot of one unfinished run; a `training.fit.Checkpoint`."""

    def __init__(self, folder: Path, every_seconds: float) -> None:
        self.folder, self.every_seconds = folder, every_seconds
        self._saved = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self._saved >= self.every_seconds

    def load(self) -> Snapshot | None:
        pointer = self.folder / "snapshot.json"
        if not os.path.lexists(pointer):
            return None
        entry = read_sealed(pointer)
        name = str(entry.get("file"))
        if not is_file_entry(name, entry) or "meta" not in entry:
            raise StoreError(f"{pointer} is damaged; it was not loaded. Delete {self.folder} to start over.")
        return Snapshot(read_tensors(self.folder / name, entry), entry["meta"])

    def save(self, snapshot: Snapshot) -> None:
        """Write the tensors under a new name, then point to them: a kill leaves the old snapshot or the new one."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            name = f"{secrets.token_hex(8)}.safetensors"
            written = write_tensors(self.folder / name, snapshot.tensors)
            pointer = {"format": FORMAT, "file": name, **written, "meta": snapshot.meta}
            files.replace_file(self.folder / "snapshot.json", files.sealed(pointer))
            for old in self.folder.iterdir():
                if old.name not in (name, "snapshot.json") and SNAPSHOT_FILES.fullmatch(old.name):
                    old.unlink()
        except OSError as fault:
            raise StoreError(f"cannot save a snapshot in {self.folder}: {files.reason(fault)}.") from None
        self._saved = time.monotonic()

    def clear(self) -> None:
        with suppress(OSError):
            files.remove_folder(self.folder, SNAPSHOT_FILES)
