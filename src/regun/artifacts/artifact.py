"""Finished entries of a store and what their manifests say."""

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

FORMAT = 2
TENSORS = re.compile(r"\w[\w.-]*\.safetensors", re.ASCII)
"""Names of files that a manifest or a snapshot may have: plain ones, in its own folder."""


@dataclass(frozen=True)
class Made:
    """What a maker hands to the store: groups of tensors (one file each) and information as JSON."""

    tensors: Mapping[str, Mapping[str, Tensor]]
    info: Mapping[str, Any]


@dataclass(frozen=True)
class Artifact:
    """A finished entry: its manifest is checked when it is opened, each file when it is read."""

    path: Path
    manifest: Mapping[str, Any]
    trusted: tuple[str, ...] = ()
    """Code of the user's that may run where the manifest names the same (`plugins.trusted_name`)."""

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
        """The tensors of one group, after checking the file's digest."""
        name = f"{group}.safetensors"
        if name not in self.manifest["files"]:
            raise StoreError(f"{self.path} has no {name}; it has {', '.join(self.manifest['files']) or 'no files'}.")
        return read_tensors(self.path / name, self.manifest["files"][name])


@contextmanager
def reading(artifact: Artifact) -> Generator[None]:
    """What a manifest says is put to use in here: what cannot be understood is the artifact's fault."""
    try:
        yield
    except RegunError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError) as fault:
        raise StoreError(
            f"{artifact.path} says something that cannot be understood ({type(fault).__name__}: {fault}); it was not "
            f"made by this version of regun."
        ) from fault


class _Facts(dict[str, Any]):
    """What a manifest says; an entry that should be there and is not makes the artifact useless, not the program."""

    def __missing__(self, name: str) -> Any:
        raise StoreError(f"an artifact of the store does not say {name!r}; it was not made by this version of regun.")


def versions() -> dict[str, str]:
    """The software that made an artifact."""
    return {name: importlib.metadata.version(name) for name in ("regun", "torch", "numpy", "safetensors")}


def machine() -> dict[str, Any]:
    """What made an artifact besides software: other instruction sets and numbers of threads round sums differently."""
    return {
        "processor": platform.processor() or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def read_sealed(path: Path) -> dict[str, Any]:
    """A sealed JSON file, refused unless every byte is as it was written (1e-5 and 1E-5 are the same to a parser)."""
    try:
        found = files.unsealed(files.read_plain(path))
    except OSError as fault:
        raise files.unreadable(path, fault) from None
    except ValueError:
        raise StoreError(
            f"{path} is damaged; it was not loaded. Delete {path.parent} and run the command again."
        ) from None
    if found.get("format") != FORMAT:
        got = str(found.get("format"))[:20]
        raise StoreError(f"{path} has store format {got}; this version reads format {FORMAT}. Use another directory.")
    return found


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of an artifact, every part of the kind it should be and every file in the artifact's own folder."""
    found = read_sealed(path)
    kinds = {"kind": str, "key": str, "created": str, "inputs": dict, "info": dict, "files": dict}
    wrong = [name for name, kind in kinds.items() if not isinstance(found.get(name), kind)]
    if not wrong:
        named: dict[str, Any] = found["files"]
        wrong = [f"files, {name[:80]!r}" for name, about in named.items() if not is_file_entry(name, about)]
    if wrong:
        raise StoreError(
            f"{path} is damaged: {wrong[0]} is not as regun writes it. It was not loaded; delete {path.parent}."
        )
    return {**found, "inputs": _facts(found["inputs"]), "info": _facts(found["info"])}


def is_file_entry(name: str, about: Any) -> bool:
    """A plain name, a digest and a size."""
    entry = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
    return bool(TENSORS.fullmatch(name)) and isinstance(entry.get("sha256"), str) and type(entry.get("bytes")) is int


def _facts(values: dict[str, Any]) -> _Facts:
    return _Facts({k: _Facts(cast("dict[str, Any]", v)) if isinstance(v, dict) else v for k, v in values.items()})
