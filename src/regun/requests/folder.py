"""The directory that holds a ledger and its requests.

<root>/ledger.jsonl          the only word on what has happened; its last line is the commit
<root>/requests/0001/        receipt.json, receipt.html, request.json, risks.csv, model.safetensors
<root>/tmp/, <root>/.lock    a request being written, and who is writing
<root>/leftover/             finished folders whose line never made it into the ledger
"""

import hashlib
import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from regun.errors import RegunError, StoreError
from regun.requests.ledger import Entry, Ledger, append, drop_torn_line, end_line, read_ledger, refuse_damaged

MODEL, RECEIPT, PAGE, REQUEST, RISKS = (
    "model.safetensors",
    "receipt.json",
    "receipt.html",
    "request.json",
    "risks.csv",
)


@dataclass(frozen=True)
class Folder:
    """Paths below `root`; names come from request numbers only, never from anything a user wrote."""

    root: Path

    @property
    def ledger(self) -> Path:
        return self.root / "ledger.jsonl"

    def request(self, number: int) -> Path:
        return self.root / "requests" / f"{number:04d}"

    def read(self, entry: Entry, name: str) -> bytes:
        """A file of a finished request, refused unless it is the one that the ledger names."""
        path = self.request(entry.number) / name
        try:
            content = path.read_bytes()
        except OSError as fault:
            raise StoreError(f"{path} cannot be read ({fault.strerror or fault}); restore it from a copy.") from None
        if hashlib.sha256(content).hexdigest() != entry.files.get(name):
            raise StoreError(f"{path} is not the file that line {entry.number} of the ledger names; restore it.")
        return content

    def whole(self, entry: Entry) -> bool:
        """Whether every file that an entry names is there, as it was written."""
        try:
            for name in entry.files:
                self.read(entry, name)
        except StoreError:
            return False
        return True


@contextmanager
def opened(root: Path) -> Generator[tuple[Folder, Ledger, list[str]]]:
    """The folder, its checked ledger and what had to be cleared up; nobody else writes while it is open."""
    folder = Folder(root.resolve())
    with _writing(folder):
        for path in (folder.root / "requests", folder.root / "tmp"):
            path.mkdir(parents=True, exist_ok=True)
        try:
            held = FileLock(folder.root / ".lock").acquire(timeout=0)
        except Timeout:
            raise RegunError(f"another regun forget is at work in {root}; wait until it has ended.") from None
    with held:
        with _writing(folder):
            found = _recovered(folder)
        yield folder, *found


def commit(folder: Folder, entry: Entry, files: Mapping[str, bytes]) -> Path:
    """Write a request's folder whole, put it in place, then add its line: with the line it has happened, not before."""
    temporary, place = folder.root / "tmp" / f"{entry.number:04d}", folder.request(entry.number)
    with _writing(folder):
        temporary.mkdir()
        for name, content in files.items():
            with (temporary / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        _sync(temporary)
        folder.ledger.touch()  # from now on, finished folders beside no ledger mean that it was lost
        _sync(folder.root)
        os.replace(temporary, place)
        _sync(place.parent)
        append(folder.ledger, entry)
        _sync(folder.root)
    return place


@contextmanager
def _writing(folder: Folder) -> Generator[None]:
    try:
        yield
    except OSError as fault:
        raise StoreError(
            f"cannot write in {folder.root}: {fault.strerror or fault}. What the ledger says still holds; name a "
            f"folder you may write to."
        ) from None


def _recovered(folder: Folder) -> tuple[Ledger, list[str]]:
    """The ledger after what a killed run left behind was put away, and what that was."""
    ledger, notes = read_ledger(folder.ledger), list[str]()
    refuse_damaged(ledger, folder.ledger)
    if ledger.unended is not None and folder.whole(ledger.unended):
        end_line(folder.ledger)
        ledger = read_ledger(folder.ledger)
        notes.append(f"line {len(ledger.entries)} of the ledger lacked only its newline; it is added, the line counts")
    _refuse_lost_lines(folder, ledger)
    if ledger.torn:
        drop_torn_line(folder.ledger, ledger.torn)
        notes.append("an earlier run was stopped while adding its line to the ledger; the unfinished line is removed")
    for path in (folder.root / "tmp").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        notes.append("an earlier run was stopped before it had written its results; they are removed")
    for path in without_line(folder, ledger):
        place = folder.root / "leftover" / f"{path.name}-{os.urandom(4).hex()}"
        place.parent.mkdir(exist_ok=True)
        os.replace(path, place)
        notes.append(f"requests/{path.name} has no line in the ledger and never took effect; it is now {place}")
    return ledger, notes


def without_line(folder: Folder, ledger: Ledger) -> list[Path]:
    """What stands among the requests and has no line in the ledger."""
    known, place = {folder.request(entry.number).name for entry in ledger.entries}, folder.root / "requests"
    return sorted(path for path in place.iterdir() if path.name not in known) if place.is_dir() else []


def _refuse_lost_lines(folder: Folder, ledger: Ledger) -> None:
    """A killed run leaves at most the next request without a line, beside a ledger; anything else is a lost line."""
    following = folder.request(len(ledger.entries) + 1).name if folder.ledger.exists() else ""
    lost = [path for path in without_line(folder, ledger) if path.is_dir() and path.name != following]
    if lost:
        raise RegunError(
            f"{lost[-1]} is a finished request and the ledger {folder.ledger} has no line for it: the ledger was lost "
            f"or cut short after {len(ledger.entries)} lines. Nothing was done; restore the ledger from a copy."
        )


def _sync(folder: Path) -> None:
    """Make renames and new names in a folder survive a power cut, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
