"""The directory that holds a ledger and its requests.

<root>/ledger.jsonl          the only word on what has happened; its last line is the commit
<root>/requests/0001/        receipt.json, receipt.html, request.json, risks.csv, model.safetensors, outs.safetensors
<root>/.regun-lock           who is writing
<root>/.regun-new-...        a request being written
<root>/.regun-work-...       what the request being worked on has made so far
<root>/.regun-aside-...      finished folders whose line never made it into the ledger

Nothing else is ever written, moved or removed, and only what regun can prove to have made is moved or removed.
"""

import hashlib
import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from regun.deletion.ledger import (
    LEDGER,
    Ledger,
    LedgerLine,
    add_bytes,
    append,
    check_damaged,
    drop_torn_line,
    read_ledger,
)
from regun.deletion.signing import changes, read_receipt
from regun.errors import RegunError, StoreError
from regun.files import remove_folder, sync_folder

MODEL, RECEIPT, PAGE, REQUEST, RISKS = "model.safetensors", "receipt.json", "receipt.html", "request.json", "risks.csv"
OUTS = "outs.safetensors"
FILES = (MODEL, RECEIPT, PAGE, REQUEST, RISKS, OUTS)
_NUMBER, _FILE = re.compile("[0-9]{4,}"), re.compile("|".join(map(re.escape, FILES)))
_WORK = re.compile("[0-9a-f]{32}-[0-9a-f]{32}")
"""A file of unfinished work: what decides it, and the digest of what it holds."""


@dataclass(frozen=True)
class Folder:
    """Paths below `root`; names come from request numbers only, never from anything a user wrote."""

    root: Path

    @property
    def ledger(self) -> Path:
        return self.root / LEDGER

    @property
    def requests(self) -> Path:
        return self.root / "requests"

    def request(self, number: int) -> Path:
        return self.requests / f"{number:04d}"

    def read(self, line: LedgerLine, name: str) -> bytes:
        """A file of a finished request, refused unless it is the one that the ledger names."""
        path = self.request(line.number) / name
        try:
            content = path.read_bytes()
        except OSError as fault:
            raise StoreError(f"{path} cannot be read ({fault.strerror or fault}); restore it from a copy.") from None
        if hashlib.sha256(content).hexdigest() != line.files.get(name):
            raise StoreError(f"{path} is not the file that line {line.number} of the ledger names; restore it.")
        return content

    def whole(self, line: LedgerLine) -> bool:
        """Whether every file that a line names is there, as it was written."""
        try:
            for name in line.files:
                self.read(line, name)
        except StoreError:
            return False
        return True

    def numbered(self) -> list[Path]:
        """What stands among the requests under a number."""
        found = self.requests.iterdir() if self.requests.is_dir() else ()
        return sorted((path for path in found if _NUMBER.fullmatch(path.name)), key=lambda path: int(path.name))

    def aside(self) -> list[Path]:
        """Finished requests that were put aside, since the ledger had no line for them."""
        return sorted(path.parent for path in self.root.glob(f".regun-aside-*/{RECEIPT}"))

    def kept(self, number: int, key: str) -> bytes | None:
        """What the unfinished request of this number has kept under a key, if it is as it was written."""
        place = self._work(number)
        for path in sorted(place.glob(f"{key[:32]}-*")) if _is_proven(place) else ():
            if path.is_file() and not path.is_symlink():
                content = path.read_bytes()
                if path.name == _work_name(key, content):
                    return content
        return None

    def keep(self, number: int, key: str, content: bytes) -> None:
        """Keep what a request has made so far: it outlives a killed run and goes with the commit."""
        place = self._work(number)
        with writing(self.root):
            place.mkdir(mode=0o700, exist_ok=True)
            if not _is_proven(place):
                raise OSError(f"{place.name} is a symbolic link")
            path = place / _work_name(key, content)
            path.unlink(missing_ok=True)  # left half written by a killed run
            _write(path, content)

    def _work(self, number: int) -> Path:
        return self.root / _proven(f".regun-work-{number:04d}")


@contextmanager
def opened(root: Path, into_existing: bool = False) -> Generator[tuple[Folder, Ledger, list[str]]]:
    """The folder, its checked ledger and what had to be cleared up; nobody else writes while it is open."""
    folder = Folder(root.resolve())
    check_foreign(folder, read_ledger(folder.ledger), into_existing)
    with writing(folder.root):
        folder.requests.mkdir(parents=True, exist_ok=True)
        try:
            held = FileLock(folder.root / ".regun-lock").acquire(timeout=0)
        except Timeout:
            raise RegunError(f"another regun forget is at work in {root}; wait until it has ended.") from None
    with held:
        with writing(folder.root):
            found = _recovered(folder)
        yield folder, *found


def check_foreign(folder: Folder, ledger: Ledger, into_existing: bool = False) -> None:
    """Raise where writing could meet something of the user's: links, a damaged ledger, a folder of other things."""
    root = folder.root
    if root.exists() and not root.is_dir():
        raise RegunError(
            f"{root} is a file; ledger and receipts go to a folder: name a new one, or that of earlier ones."
        )
    for path in (folder.ledger, folder.requests, root / ".regun-lock", folder.request(ledger.count + 1)):
        if path.is_symlink():
            raise RegunError(f"{path} is a symbolic link; regun writes into real files and folders only. Remove it.")
    check_damaged(ledger, folder.ledger)
    foreign = [] if ledger.lines or into_existing else _foreign(folder)
    if foreign:
        raise RegunError(
            f"{root} holds other things ({len(foreign):,}; the first is {min(foreign)!r}) and no ledger of regun's; "
            f"name a new or an empty folder, or say --into-existing to write beside them."
        )


def _foreign(folder: Folder) -> list[str]:
    """Names in the folder that regun gives to nothing."""
    try:
        found = [path.name for path in folder.root.iterdir()] if folder.root.is_dir() else []
        inside = [path.name for path in folder.requests.iterdir()] if folder.requests.is_dir() else []
    except OSError as fault:
        raise RegunError(f"cannot look into {folder.root}: {fault.strerror or fault}. Name another folder.") from None
    own = (LEDGER, folder.requests.name)
    foreign = [name for name in found if name not in own and not name.startswith(".regun-")]
    return foreign + [f"requests/{name}" for name in inside if not _NUMBER.fullmatch(name)]


def commit(folder: Folder, line: LedgerLine, files: Mapping[str, bytes]) -> Path:
    """Write a request's folder whole, put it in place, then add its line: with the line it has happened, not before."""
    temporary, place = _private(folder, "new", line.number), folder.request(line.number)
    with writing(folder.root):
        temporary.mkdir()
        for name, content in files.items():
            _write(temporary / name, content, 0o666 if name == MODEL else 0o600)
        sync_folder(temporary)
        add_bytes(folder.ledger, b"")  # from now on, finished folders beside no ledger mean that it was lost
        sync_folder(folder.root)
        os.replace(temporary, place)
        sync_folder(place.parent)
        append(folder.ledger, line)
        sync_folder(folder.root)
    for path in folder.root.glob(".regun-work-*"):
        _removed(path, _WORK)  # where that fails, the next request tries again
    return place


def _recovered(folder: Folder) -> tuple[Ledger, list[str]]:
    """The ledger after what a killed run left behind was put away, and what that was; first all that is refused."""
    ledger, notes = read_ledger(folder.ledger), list[str]()
    check_damaged(ledger, folder.ledger)
    if ledger.unended is not None and folder.whole(ledger.unended):
        add_bytes(folder.ledger, b"\n")
        ledger = read_ledger(folder.ledger)
        notes.append(f"line {ledger.count} of the ledger lacked only its newline; it is added, the line counts")
    check_lost_lines(folder, ledger)
    unfinished = folder.request(ledger.count + 1)
    if unfinished.exists():
        place = _private(folder, "aside", ledger.count + 1)
        os.replace(unfinished, place)
        notes.append(f"requests/{unfinished.name} has no line in the ledger and never took effect; it is now {place}")
    if ledger.torn:
        drop_torn_line(folder.ledger, len(ledger.torn))
        notes.append("an earlier run was stopped while adding its line to the ledger; the unfinished line is removed")
    for path in folder.root.glob(".regun-new-*"):
        if _removed(path, _FILE):
            notes.append("an earlier run was stopped before it had written its results; they are removed")
    return ledger, notes


def check_lost_lines(folder: Folder, ledger: Ledger) -> None:
    """A killed run leaves at most the next request without a line, beside a ledger; anything else is a lost line."""
    following = folder.request(ledger.count + 1)
    known = {folder.request(number).name for number in range(1, ledger.count + 1)}
    without = [path for path in folder.numbered() if path.name not in known]
    for path in without:
        if not _is_request(path):
            raise RegunError(f"{path} is not a request that regun has written; move it away. Nothing was done.")
    lost = [path for path in without if path != following or not folder.ledger.exists()]
    if lost:
        raise RegunError(
            f"{lost[-1]} is a finished request and the ledger {folder.ledger} has no line for it: the ledger was lost "
            f"or cut short after {ledger.count} lines. Nothing was done; restore the ledger from a copy."
        )


def _is_request(path: Path) -> bool:
    """Whether regun wrote this folder: an intact receipt of this number, and no file of any other name."""
    try:
        names = {child.name for child in path.iterdir()} if not path.is_symlink() else {""}
        receipt, content = read_receipt(path / RECEIPT)
        numbered = f"{receipt['ledger']['number']:04d}" == path.name
    except (OSError, RegunError, TypeError, KeyError, ValueError):
        return False
    return names <= set(FILES) and numbered and not changes(receipt, content)


# ------------------------------------------------------------------------------------------------------ files and names


@contextmanager
def writing(root: Path) -> Generator[None]:
    """Around everything that writes below `root`: what fails is said in one sentence."""
    try:
        yield
    except OSError as fault:
        raise StoreError(
            f"cannot write in {root}: {fault.strerror or fault}. What the ledger says still holds; name a folder you "
            f"may write to."
        ) from None


def _write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """A new file, on disk; what names people is for its owner alone from the first moment."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _removed(path: Path, ours: re.Pattern[str]) -> bool:
    """Remove a folder of regun's own that holds nothing but files which regun names so; any other stays."""
    with suppress(OSError):
        if _is_proven(path):
            remove_folder(path, ours)
            return True
    return False


def _private(folder: Folder, what: str, number: int) -> Path:
    """A new name of regun's own."""
    return folder.root / _proven(f".regun-{what}-{number:04d}-{os.urandom(8).hex()}")


def _proven(start: str) -> str:
    """A name that ends in the digest of its beginning: nobody else has given such a name."""
    return f"{start}-{hashlib.sha256(start.encode()).hexdigest()[:16]}"


def _is_proven(path: Path) -> bool:
    """Whether this is a folder of regun's own."""
    return _proven(path.name.rpartition("-")[0]) == path.name and path.is_dir() and not path.is_symlink()


def _work_name(key: str, content: bytes) -> str:
    return f"{key[:32]}-{hashlib.sha256(content).hexdigest()[:32]}"
