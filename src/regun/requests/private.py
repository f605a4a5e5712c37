"""Files and folders of regun's own inside a folder of the user's: names that prove who made them, whole files, and what
a request has made before it is finished."""

import hashlib
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from regun.errors import StoreError

_WORK = re.compile("[0-9a-f]{32}-[0-9a-f]{32}")
"""A file of unfinished work: what decides it, and the digest of what it holds."""


def proven(start: str) -> str:
    """A name that ends in the digest of its beginning: nobody else has given such a name."""
    return f"{start}-{hashlib.sha256(start.encode()).hexdigest()[:16]}"


def is_proven(path: Path) -> bool:
    """Whether this is a folder of regun's own."""
    return proven(path.name.rpartition("-")[0]) == path.name and path.is_dir() and not path.is_symlink()


def removed(path: Path, ours: Callable[[str], bool]) -> bool:
    """Remove a folder of regun's own, by the names that regun writes; one that holds anything else stays."""
    children = list(path.iterdir())
    if any(not ours(child.name) or child.is_symlink() or not child.is_file() for child in children):
        return False
    for child in children:
        child.unlink()
    path.rmdir()
    return True


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


def write_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    """A new file, on disk; what names people is for its owner alone from the first moment."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(folder: Path) -> None:
    """Make renames and new names in a folder survive a power cut, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@dataclass(frozen=True)
class Workplace:
    """What a request has made so far, by keys that decide it; it outlives a killed run and goes with the commit."""

    root: Path
    name: str

    def read(self, key: str) -> bytes | None:
        """What was kept under this key, if it is as it was written."""
        place = self.root / self.name
        for path in sorted(place.glob(f"{key[:32]}-*")) if is_proven(place) else ():
            if path.is_file() and not path.is_symlink():
                content = path.read_bytes()
                if path.name == _work_name(key, content):
                    return content
        return None

    def write(self, key: str, content: bytes) -> None:
        place = self.root / self.name
        with writing(self.root):
            place.mkdir(mode=0o700, exist_ok=True)
            if not is_proven(place):
                raise OSError(f"{self.name} is a symbolic link")
            path = place / _work_name(key, content)
            path.unlink(missing_ok=True)  # left half written by a killed run
            write_private(path, content)


def clear_work(root: Path) -> None:
    """Remove what finished requests have left; where that fails, the next one tries again."""
    for path in root.glob(".regun-work-*"):
        with suppress(OSError):
            if is_proven(path):
                removed(path, lambda name: _WORK.fullmatch(name) is not None)


def _work_name(key: str, content: bytes) -> str:
    return f"{key[:32]}-{hashlib.sha256(content).hexdigest()[:32]}"
