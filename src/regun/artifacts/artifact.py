"""Finished entries of a store and their manifests."""

import importlib.metadata
import platform
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from regun import files
from regun.artifacts.weights import read_tensors
from regun.errors import RegunError, StoreError
from regun.parallel import current

FORMAT = 2
TENSORS = re.compile(r"\w[\w.-]*\.safetensors", re.ASCII)
"""File names that a manifest or a snapshot may list: plain ones, in its own folder."""


@dataclass(frozen=True)
class Contents:
    """What an artifact consists of: groups of tensors (one file each) and information as JSON."""

    tensors: Mapping[str, Mapping[str, Tensor]]
    info: Mapping[str, Any]


@dataclass(frozen=True)
class Artifact:
    """A finished entry: its manifest is checked when it is opened, each file when it is read."""

    path: Path
    manifest: Mapping[str, Any]
    trusted: tuple[str, ...] = ()
    """The user's code that may run if the manifest names it too (`plugins.trusted_name`)."""

    @property
    def key(self) -> str:
        return self.manifest["key"]

    @property
    def kind(self) -> str:
        return self.manifest["kind"]

    @property
    def inputs(self) -> Mapping[str, Any]:
        return self.manifest["inputs"]

    @property
    def info(self) -> Mapping[str, Any]:
        return self.manifest["info"]

    def tensors(self, group: str) -> dict[str, Tensor]:
        """Return the tensors of one group, after checking the file's digest."""
        name = f"{group}.safetensors"
        if name not in self.manifest["files"]:
            raise StoreError(f"{self.path} has no {name}; it has {', '.join(self.manifest['files']) or 'no files'}.")
        return read_tensors(self.path / name, self.manifest["files"][name])


@contextmanager
def reading(artifact: Artifact) -> Generator[None]:
    """Turn errors in the use of a manifest's values into a `StoreError` that names the artifact."""
    try:
        yield
    except RegunError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError) as fault:
        raise StoreError(
            f"the manifest of {artifact.path} cannot be used ({type(fault).__name__}: {fault}); another version of "
            f"regun wrote it, or it was changed."
        ) from fault


class _ManifestDict(dict[str, Any]):
    """A part of a manifest; a missing entry is a `StoreError`, not a `KeyError`."""

    def __missing__(self, name: str) -> Any:
        raise StoreError(f"the manifest of an artifact has no {name!r}; another version of regun wrote it.")


def versions() -> dict[str, str]:
    """Return the versions of the software that makes artifacts."""
    return {name: importlib.metadata.version(name) for name in ("regun", "torch", "numpy", "safetensors")}


def machine() -> dict[str, Any]:
    """Return what else affects results: sums round differently by instruction set, threads and processes."""
    processes = current()
    return {
        "processor": platform.processor() or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "processes": processes.world_size if processes is not None else 1,
        "system": platform.system(),
        "python": platform.python_version(),
    }


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file that ends with its own digest; raise if any byte has changed."""
    try:
        content = files.unsealed(files.read_plain(path))
    except OSError as fault:
        raise files.unreadable(path, fault) from None
    except ValueError:
        raise StoreError(
            f"{path} is damaged; it was not loaded. Delete {path.parent} and run the command again."
        ) from None
    if content.get("format") != FORMAT:
        got = str(content.get("format"))[:20]
        raise StoreError(f"{path} has store format {got}; this version reads format {FORMAT}. Use another directory.")
    return content


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of an artifact, after checking its types and that its files are in its own folder."""
    manifest = read_sealed(path)
    types = {"kind": str, "key": str, "created": str, "inputs": dict, "info": dict, "files": dict}
    wrong = [name for name, kind in types.items() if not isinstance(manifest.get(name), kind)]
    if not wrong:
        listed: dict[str, Any] = manifest["files"]
        wrong = [f"files, {name[:80]!r}" for name, entry in listed.items() if not is_file_entry(name, entry)]
    if wrong:
        raise StoreError(f"{path} is damaged: {wrong[0]} is wrong. It was not loaded; delete {path.parent}.")
    for name in ("inputs", "info"):
        values: dict[str, Any] = manifest[name]
        nested = {k: _ManifestDict(cast("dict[str, Any]", v)) if isinstance(v, dict) else v for k, v in values.items()}
        manifest[name] = _ManifestDict(nested)
    return manifest


def is_file_entry(name: str, entry: Any) -> bool:
    """Return True for a plain file name with a digest and a size."""
    values = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    return bool(TENSORS.fullmatch(name)) and isinstance(values.get("sha256"), str) and type(values.get("bytes")) is int
