"""The directory of a ledger and its requests.

<root>/ledger.jsonl       one line per request; appending the line is the commit
<root>/requests/0001/     the files of a request
<root>/current.safetensors   the current model: a link to that of the last accepted request; a copy where links fail
<root>/.regun-new/        a request that is being written; it gets its number once its line is in the ledger
<root>/.regun-work/       a store: what the unfinished request has made so far, so that a killed run can go on
<root>/.regun-lock        held by the process that writes
"""

import hashlib
import os
import re
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from regun.artifacts.store import MARKER
from regun.deletion.ledger import LEDGER, Ledger, LedgerLine, append, check_intact, read_ledger, write_end
from regun.errors import RegunError, StoreError
from regun.files import file_sha256, remove_folder, sync_folder

MODEL, RECEIPT, PAGE, REQUEST, RISKS = "model.safetensors", "receipt.json", "receipt.html", "request.json", "risks.csv"
OUT_MODELS, PREPARED, SIGNATURE = "out_models.safetensors", "prepared.safetensors", "signature.json"
CURRENT = "current.safetensors"
FILES = (MODEL, RECEIPT, PAGE, REQUEST, RISKS, OUT_MODELS, PREPARED)
"""What a ledger line may name; a signature signs the line."""
_NAMES = re.compile("|".join(map(re.escape, (*FILES, SIGNATURE))))


class Folder:
    """Paths below `root`; names come from request numbers only, never from a user's text."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).resolve()
        self.ledger, self.current = self.root / LEDGER, self.root / CURRENT
        self.requests, self.unfinished = self.root / "requests", self.root / ".regun-new"
        self.work, self.lock = self.root / ".regun-work", self.root / ".regun-lock"

    def read_ledger(self) -> Ledger:
        return read_ledger(self.ledger)

    def request(self, number: int) -> Path:
        return self.requests / f"{number:04d}"

    def place(self, number: int) -> Path:
        """Return the folder of a committed request; a run that was killed right after the commit has not moved it."""
        place = self.request(number)
        return place if place.exists() or not self.unfinished.exists() else self.unfinished

    def read(self, line: LedgerLine, name: str) -> bytes:
        """Return a file of a committed request; raise unless it is the one that the ledger names."""
        path = self.place(line.number) / name
        try:
            content = path.read_bytes()
        except OSError as fault:
            raise StoreError(f"{path} cannot be read ({fault.strerror or fault}); restore it from a copy.") from None
        if hashlib.sha256(content).hexdigest() != line.files.get(name):
            raise StoreError(f"{path} is not the file that line {line.number} of the ledger names; restore it.")
        return content

    def served(self, ledger: Ledger) -> LedgerLine | None:
        """Return the accepted request whose model current.safetensors is; raise if it is another file."""
        if not os.path.lexists(self.current):
            return None
        accepted = [line for line in reversed(ledger.lines) if line.accepted]
        if self.current.is_symlink():
            target = self.current.readlink()
            served = [line for line in accepted if target == _link_target(line)]
        else:
            sha256 = file_sha256(self.current) if self.current.is_file() else ""
            served = [line for line in accepted if line.files.get(MODEL) == sha256]
        if not served:
            raise RegunError(f"{self.current} is not the model of an accepted request; move it away.")
        return served[0]

    def unlisted(self, ledger: Ledger) -> list[Path]:
        """Return the folders of requests that have no line in the ledger."""
        listed = {self.request(line.number).name for line in ledger.lines}
        return sorted(path for path in self.requests.glob("*") if path.name.isdigit() and path.name not in listed)


def _link_target(line: LedgerLine) -> Path:
    return Path("requests", f"{line.number:04d}", MODEL)


def old_tables(ledger: Ledger) -> list[LedgerLine]:
    """Return the requests whose prepared table a later request has replaced."""
    return [line for line in ledger.lines if PREPARED in line.files][:-1]


def _remove_old_tables(folder: Folder, ledger: Ledger) -> None:
    """Remove every prepared table but the newest: older ones hold records that were forgotten since."""
    for line in old_tables(ledger):
        (folder.request(line.number) / PREPARED).unlink(missing_ok=True)


def open_history(out: Path | str) -> tuple[Folder, Ledger]:
    """Return a folder and its ledger; raise unless the ledger is intact and has requests."""
    folder = Folder(out)
    ledger = folder.read_ledger()
    check_intact(ledger, folder.ledger)
    if not ledger.lines:
        raise RegunError(f"{out} has no {LEDGER} with requests; name the folder that regun forget wrote.")
    return folder, ledger


def check_folder(folder: Folder, ledger: Ledger) -> None:
    """Raise where a request cannot be added: a file or link in the way, other content, a damaged or a cut ledger."""
    root = folder.root
    if root.exists() and not root.is_dir():
        raise RegunError(f"{root} is a file; ledger and receipts go to a folder: name another out=.")
    paths = (folder.ledger, folder.requests, folder.unfinished, folder.work, folder.lock)
    for path in paths:  # current.safetensors is a link, and is never written through
        if path.is_symlink():
            raise RegunError(f"{path} is a symbolic link; regun writes into real files and folders only. Remove it.")
    check_intact(ledger, folder.ledger)
    foreign = [path for path in root.glob("*") if path not in (*paths, folder.current)]
    if foreign and not folder.ledger.exists():
        raise RegunError(f"{root} holds {min(foreign).name!r} and no {LEDGER}; name a new folder, or an empty one.")
    unlisted = folder.unlisted(ledger)
    if unlisted:
        raise RegunError(
            f"{unlisted[-1]} has no line in {folder.ledger}, which has {len(ledger.lines)} lines: the ledger was lost "
            f"or cut. Nothing was done; restore the ledger from a copy, or move the folder away if it is not regun's."
        )
    folder.served(ledger)  # raises for another file in its place


@contextmanager
def opened(root: Path | str) -> Generator[tuple[Folder, Ledger, list[str]]]:
    """Lock the folder, recover what a killed run left, and yield folder, ledger and notes on what was recovered."""
    folder = Folder(root)
    check_folder(folder, folder.read_ledger())
    with writing(folder.root):
        folder.requests.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(folder.lock).acquire(timeout=0)
        except Timeout:
            raise RegunError(f"another regun forget is at work in {root}; wait until it has ended.") from None
    with lock:
        with writing(folder.root):
            notes = list(_recover(folder))
            ledger = folder.read_ledger()
            _remove_old_tables(folder, ledger)
        check_folder(folder, ledger)
        yield folder, ledger, notes


def _recover(folder: Folder) -> Generator[str]:
    """Finish or remove what a killed run left."""
    ledger = folder.read_ledger()
    check_intact(ledger, folder.ledger)
    if ledger.torn:
        write_end(folder.ledger, b"", at=folder.ledger.stat().st_size - len(ledger.torn))
        yield "an earlier run was killed while it added its line to the ledger; the partial line is removed"
    if not ledger.ended:
        write_end(folder.ledger, b"\n")
    if folder.work.exists() and not (folder.work / MARKER).is_file():  # killed while it was removed, after a commit
        shutil.rmtree(folder.work)
    if folder.unfinished.exists():
        last = folder.request(len(ledger.lines))
        if ledger.lines and not last.exists():
            os.replace(folder.unfinished, last)
            yield f"an earlier run was killed right after its commit; request {last.name} is complete"
        else:
            remove_folder(folder.unfinished, _NAMES)
            yield "an earlier run was killed before its commit; its partial results are removed"
    if ledger.current is not None and folder.served(ledger) != ledger.current:
        _switch_current(folder, ledger.current)
        yield f"{CURRENT} is the model of request {ledger.current.number} now"


def repair(root: Path | str) -> list[str]:
    """Recover what a killed run left in a folder, if anything; return notes on what was recovered."""
    folder = Folder(root)
    ledger = folder.read_ledger()
    whole = not ledger.torn and ledger.ended and not folder.unfinished.exists()
    if not ledger.lines or (whole and folder.served(ledger) == ledger.current):
        return []
    with opened(root) as (_, _, notes):
        return notes


def _switch_current(folder: Folder, line: LedgerLine) -> None:
    """Make current.safetensors the model of a request, in one step."""
    fresh = folder.root / ".regun-current"
    fresh.unlink(missing_ok=True)
    try:
        fresh.symlink_to(_link_target(line))
    except (OSError, NotImplementedError):  # a file system or a user without symbolic links
        _write(fresh, folder.read(line, MODEL), 0o666)
    os.replace(fresh, folder.current)
    sync_folder(folder.root)


def commit(folder: Folder, line: LedgerLine, files: Mapping[str, bytes]) -> Path:
    """Write a request's files, then its ledger line: with the line the request has happened. Then name the folder."""
    place = folder.request(line.number)
    with writing(folder.root):
        folder.unfinished.mkdir()
        for name, content in files.items():
            _write(folder.unfinished / name, content, 0o666 if name == MODEL else 0o600)
        sync_folder(folder.unfinished)
        sync_folder(folder.root)
        append(folder.ledger, line)
        sync_folder(folder.root)
        os.replace(folder.unfinished, place)
        sync_folder(place.parent)
        if line.accepted:
            _switch_current(folder, line)
        _remove_old_tables(folder, folder.read_ledger())
    shutil.rmtree(folder.work, ignore_errors=True)
    return place


@contextmanager
def writing(root: Path) -> Generator[None]:
    """Turn a failed write below `root` into one error."""
    try:
        yield
    except OSError as fault:
        raise StoreError(
            f"cannot write in {root}: {fault.strerror or fault}. The ledger is intact; name a folder you may write to."
        ) from None


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a new file down to the disk; what names people is readable by its owner only, from the first moment."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
