"""Finished folds as files next to the table: a killed run goes on, and several processes share the folds."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from filelock import FileLock, Timeout

from regun import files
from regun.errors import DataError
from regun.prepared import Prepared

Rows = dict[str, npt.NDArray[np.float32]]
"""Log-probabilities of one fold's records, by set."""


class TableFinishedError(Exception):
    """Another process has written the table of the same call."""

    def __init__(self, table: Prepared) -> None:
        super().__init__()
        self.table = table


class FoldFiles:
    """The folds of the table that a call of `regun.prepare` makes; `call` is the digest of what decides it."""

    def __init__(self, table: Path, call: str) -> None:
        self.table, self.call = table, call
        self.folder = Path(f"{table}.parts")

    def path(self, name: str) -> Path:
        """Return the file of a finished fold."""
        return self.folder / f"{self.call[:24]}-{name}.safetensors"

    def made(self, name: str, make: Callable[[], Rows], *, wait: bool) -> Rows | None:
        """Return the rows of a fold; None if another process makes it and this one does not `wait`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(name)
        try:
            with FileLock(path.with_suffix(".lock"), timeout=-1 if wait else 0):
                if not path.exists():
                    self._stop_if_finished()
                    tensors = {key: torch.from_numpy(value) for key, value in make().items()}
                    files.write_file(path, safetensors.torch.save(tensors))
                content = path.read_bytes()
                return {key: tensor.numpy() for key, tensor in safetensors.torch.load(content).items()}
        except Timeout:
            return None
        except FileNotFoundError:  # the process that finished first removes all of them
            self._stop_if_finished()
            raise

    def _stop_if_finished(self) -> None:
        if not self.table.exists():
            return
        try:
            table = Prepared.load(self.table)
        except DataError:  # another file, which the finished table replaces
            return
        if table.about.get("call") == self.call and table.about["version"] == 1:
            self.remove()
            raise TableFinishedError(table)

    def remove(self) -> None:
        """Remove the files of finished folds, and the folder if nothing else is in it."""
        for path in [*self.folder.glob("*-*-*.safetensors"), *self.folder.glob("*-*-*.lock")]:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # it holds other files, or another process uses it
            self.folder.rmdir()
