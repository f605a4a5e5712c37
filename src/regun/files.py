"""Files: read without following links, written atomically, sealed by a digest, removed only if regun made them."""

import errno
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regun.errors import RegunError, StoreError
from regun.settings import read_json

_PLAIN = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY", "O_CLOEXEC"))
_SEAL = b',\n "seal": "'
MANIFEST_BYTES = 2**28
"""Largest manifest that is read."""


def read_plain(path: Path, most: int = MANIFEST_BYTES) -> bytes:
    """Return the content of a regular file of at most `most` bytes; never follow a link or wait for a pipe."""
    with open(_open_plain(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
        return file.read()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a regular file of any size."""
    with open(_open_plain(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def size_of(path: Path) -> int:
    """Return the size of a regular file in bytes; raise `OSError` for anything else."""
    about = path.lstat()
    _check_special(about.st_mode)
    return about.st_size


def write_new(path: Path, content: bytes) -> None:
    """Write a new file and sync it to the disk; if that fails, remove it."""
    with path.open("xb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            path.unlink(missing_ok=True)
            raise


def sync_file(path: Path) -> None:
    """Sync a file that another library wrote to the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Write or replace a file atomically."""
    temporary = path.with_name(f".regun-{secrets.token_hex(8)}")
    try:
        write_new(temporary, content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Sync a folder's list of names to the disk, if the system can."""
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_folder(path: Path, ours: re.Pattern[str], *, dry_run: bool = False) -> int:
    """Remove a folder of regular files whose names match `ours`; return the bytes freed.

    If it holds anything else, or is a link, raise `OSError` and remove nothing.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link")
    files = sorted(path.iterdir())
    for file in files:
        if not ours.fullmatch(file.name) or not stat.S_ISREG(file.lstat().st_mode):
            raise OSError(errno.ENOTEMPTY, f"it holds {file.name!r}, which regun did not make")
    size = sum(file.lstat().st_size for file in files)
    if not dry_run:
        for file in files:
            file.unlink()
        path.rmdir()
    return size


def sealed(content: Mapping[str, Any]) -> bytes:
    """Return JSON whose last entry is the SHA-256 of every byte before it."""
    body = json.dumps(content, indent=1, allow_nan=False).encode()[:-2]
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode() + b'"\n}'


def unsealed(text: bytes) -> dict[str, Any]:
    """Return the content of sealed JSON; raise `ValueError` if a byte has changed."""
    body, _, _ = text.rpartition(_SEAL)
    if not body or text != body + _SEAL + hashlib.sha256(body).hexdigest().encode() + b'"\n}':
        raise ValueError("the seal does not fit")
    try:
        content: dict[str, Any] = read_json(text, "a sealed file")
    except RegunError as error:
        raise ValueError(str(error)) from None
    del content["seal"]
    return content


def write_file(path: Path, content: bytes) -> None:
    """Write a file that the user named, atomically."""
    try:
        replace_file(path, content)
    except (OSError, ValueError) as fault:
        why = reason(fault) if isinstance(fault, OSError) else str(fault)
        raise StoreError(f"cannot write {str(path)[:300]}: {why}. Name a file you may write.") from None


def reason(fault: OSError) -> str:
    """Return the system's text for an error."""
    return fault.strerror or str(fault)


def unreadable(path: Path, fault: Exception) -> StoreError:
    """Return the error for a file of an artifact that cannot be read, with advice."""
    why = reason(fault) if isinstance(fault, OSError) else str(fault)
    advice = "" if isinstance(fault, PermissionError) else f"; delete {path.parent} and run the command again"
    return StoreError(f"{path} cannot be read ({why}){advice}.")


def _open_plain(path: Path) -> int:
    if path.is_symlink():  # clearer than "too many levels of symbolic links"
        raise OSError(errno.ELOOP, "it is a symbolic link")
    descriptor = os.open(path, _PLAIN)
    try:
        _check_special(os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_special(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a symbolic link" if stat.S_ISLNK(mode) else "it is not a regular file")
