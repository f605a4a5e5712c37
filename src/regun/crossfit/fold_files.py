"""Finished folds as files next to the table: a killed run goes on, and several processes share the folds."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from regun import files
from regun.errors import DataError
from regun.prepared import Prepared
from regun.training.job import Cost

Rows = dict[str, npt.NDArray[np.float32]]
"""Log-probabilities of one fold's records, by set."""


def pack_fold(rows: Rows, cost: Cost) -> dict[str, Tensor]:
    """Return a fold's rows and what its training cost as tensors, for a file or another process."""
    numbers = [cost.steps, cost.forward, cost.backward, cost.seconds]
    tensors = {f"rows {name}": torch.from_numpy(values) for name, values in rows.items()}
    return {**tensors, "cost": torch.tensor(numbers, dtype=torch.float64)}


def unpack_fold(tensors: Mapping[str, Tensor]) -> tuple[Rows, Cost]:
    """Return the rows and the cost that `pack_fold` made tensors of."""
    steps, forward, backward, seconds = cast("list[float]", tensors["cost"].tolist())
    rows = {name.removeprefix("rows "): values.numpy() for name, values in tensors.items() if name != "cost"}
    return rows, Cost(int(steps), int(forward), int(backward), seconds)


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

    def made(self, name: str, make: Callable[[], tuple[Rows, Cost]], *, wait: bool) -> tuple[Rows, Cost] | None:
        """Return a fold's rows and cost; None if another process makes it and this one does not `wait`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(name)
        try:
            with FileLock(path.with_suffix(".lock"), timeout=-1 if wait else 0):
                if not path.exists():
                    self._stop_if_finished()
                    files.write_file(path, safetensors.torch.save(pack_fold(*make())))
                return unpack_fold(safetensors.torch.load(path.read_bytes()))
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
