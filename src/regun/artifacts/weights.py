"""Tensors as safetensors files: their digest, files of the user, and files that a manifest lists."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from regun import files
from regun.errors import StoreError
from regun.hashing import canonical_json

UNFINISHED = r"\.tmp[A-Za-z0-9]{6}"
"""Names under which safetensors writes a file until it is complete; a killed process leaves one behind."""


def state_digest(state: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a state dict: names, types, shapes and values, whatever the memory layout and device."""
    sha = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        sha.update(canonical_json([name, str(tensor.dtype), list(tensor.shape)]).encode())
        sha.update(safetensors.torch.save({"": tensor}))
    return sha.hexdigest()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a user's safetensors file."""
    try:
        return safetensors.torch.load(path.read_bytes())
    except (OSError, safetensors.SafetensorError) as fault:
        raise StoreError(
            f"{path} cannot be read as safetensors: {fault}. Save weights with safetensors.torch.save_file."
        ) from None


def write_weights(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file atomically, for use elsewhere."""
    files.write_file(path, weights_bytes(tensors))


def weights_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the content of a safetensors file; shared storage is written once per name."""
    return safetensors.torch.save(_without_sharing(tensors))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write tensors to a new file, synced to the disk, without copying them; return the file's manifest entry."""
    try:
        safetensors.torch.save_file(_without_sharing(tensors), path)
        files.sync_file(path)
    except (OSError, safetensors.SafetensorError) as fault:
        path.unlink(missing_ok=True)
        code = re.search(r"\(os error (\d+)\)", str(fault))  # safetensors wraps the system's errors, such as ENOSPC
        if isinstance(fault, safetensors.SafetensorError) and code:
            raise OSError(int(code[1]), os.strerror(int(code[1]))) from None
        raise
    return {"sha256": files.file_sha256(path), "bytes": files.size_of(path)}


def read_tensors(path: Path, expected: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a file after checking its size and digest; they are memory-mapped."""
    check_file(path, expected, quick=False)
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as fault:
        raise files.unreadable(path, fault) from None


def check_file(path: Path, expected: Mapping[str, Any], *, quick: bool) -> None:
    """Raise if a file's size or, unless `quick`, its digest differs from its manifest."""
    try:
        size = files.size_of(path)
        sha256 = expected["sha256"] if quick else files.file_sha256(path)
    except OSError as fault:
        raise files.unreadable(path, fault) from None
    if size != expected["bytes"]:
        what = f"it has {size:,} bytes, its manifest says {expected['bytes']:,}"
    elif sha256 != expected["sha256"]:
        what = f"its SHA-256 is {sha256[:12]}, its manifest says {expected['sha256'][:12]}"
    else:
        return
    raise StoreError(f"{path} is damaged: {what}. It was not loaded; delete {path.parent} and run the command again.")


def _without_sharing(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors, each with its own memory: safetensors rejects shared storage."""
    used: set[int] = set()
    separate: dict[str, Tensor] = {}
    for name, original in tensors.items():
        tensor = original.detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        if storage.nbytes() != tensor.nbytes or storage.data_ptr() in used:
            tensor = tensor.clone()
        used.add(tensor.untyped_storage().data_ptr())
        separate[name] = tensor
    return separate
