"""Tensors as safetensors files: a digest of their values, files of the user's, and files that a manifest knows."""

import hashlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

import regun.store.files as files
from regun.errors import StoreError
from regun.seeds import canonical_json


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
    return safetensors.torch.save({n: t.detach().cpu().contiguous().clone() for n, t in tensors.items()})


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write tensors; what the manifest says of the file."""
    content = weights_bytes(tensors)
    files.write_new(path, content)
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def read_tensors(path: Path, expected: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file, after checking its size and digest."""
    with _naming(path):
        _compare(path, expected, files.size_of(path))
        content = files.read_plain(path, expected["bytes"])
        _compare(path, expected, len(content), hashlib.sha256(content).hexdigest())
        return safetensors.torch.load(content)


def check_file(path: Path, expected: Mapping[str, Any], *, quick: bool) -> None:
    """Refuse a file of another size or, unless `quick`, of another content than its manifest says."""
    with _naming(path):
        _compare(path, expected, files.size_of(path), None if quick else files.file_sha256(path))


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
