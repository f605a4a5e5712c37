"""Tensors as safetensors files: a digest of their values, files of the user's, and files that a manifest knows."""

import hashlib
import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from regun import files
from regun.errors import StoreError
from regun.hashing import canonical_json

UNFINISHED = r"\.tmp[A-Za-z0-9]{6}"
"""Names under which safetensors writes a file until it is whole; who is killed leaves one behind."""


def state_digest(state: Mapping[str, Tensor]) -> str:
    """SHA-256 of a state dict's names, types, shapes and values; independent of memory layout and device."""
    sha = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        sha.update(canonical_json([name, str(tensor.dtype), list(tensor.shape)]).encode())
        sha.update(safetensors.torch.save({"": tensor}))
    return sha.hexdigest()


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file of the user's."""
    try:
        return safetensors.torch.load(path.read_bytes())
    except (OSError, safetensors.SafetensorError) as fault:
        raise StoreError(
            f"{path} cannot be read as safetensors: {fault}. Save weights with safetensors.torch.save_file."
        ) from None


def write_weights(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file for use elsewhere, whole or not at all."""
    files.write_file(path, weights_bytes(tensors))


def weights_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as the content of a safetensors file; shared storage is written out once per name."""
    return safetensors.torch.save(_apart(tensors))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write tensors to a new file, down to the disk, without a copy of them; what the manifest says of the file."""
    try:
        safetensors.torch.save_file(_apart(tensors), path)
        files.sync_file(path)
    except safetensors.SafetensorError as fault:
        path.unlink(missing_ok=True)
        raise _of_the_system(fault) from None
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return {"sha256": files.file_sha256(path), "bytes": files.size_of(path)}


def read_tensors(path: Path, expected: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file, after checking its size and digest; they stay in the file until they are used."""
    check_file(path, expected, quick=False)
    with _naming(path):
        return safetensors.torch.load_file(path)


def check_file(path: Path, expected: Mapping[str, Any], *, quick: bool) -> None:
    """Refuse a file of another size or, unless `quick`, of another content than its manifest says."""
    with _naming(path):
        _compare(path, expected, files.size_of(path), None if quick else files.file_sha256(path))


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, each with memory of its own: shared storage is written out once per name."""
    taken: set[int] = set()
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        mine = tensor.detach().cpu().contiguous()
        storage = mine.untyped_storage()
        if storage.nbytes() != mine.nbytes or storage.data_ptr() in taken:
            mine = mine.clone()
        taken.add(mine.untyped_storage().data_ptr())
        found[name] = mine
    return found


def _of_the_system(fault: safetensors.SafetensorError) -> Exception:
    """The system's error that safetensors tells in its own words: a full disk is no fault of the tensors."""
    number = re.search(r"\(os error (\d+)\)", str(fault))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else fault


@contextmanager
def _naming(path: Path) -> Generator[None]:
    try:
        yield
    except (OSError, safetensors.SafetensorError) as fault:
        raise files.unreadable(path, fault) from None


def _compare(path: Path, expected: Mapping[str, Any], size: int, sha256: str | None = None) -> None:
    if size != expected["bytes"]:
        what = f"it has {size:,} bytes, its manifest says {expected['bytes']:,}"
    elif sha256 not in (None, expected["sha256"]):
        what = f"its SHA-256 is {sha256[:12]}, its manifest says {expected['sha256'][:12]}"
    else:
        return
    raise StoreError(f"{path} is damaged: {what}. It was not loaded; delete {path.parent} and run the command again.")
