"""The only room that writes models and results to disk.

<root>/artefacts/<kind>/<key>/manifest.json, *.safetensors     finished, immutable
<root>/partial/<key>/                                          snapshots of unfinished runs
<root>/locks/<key>.lock, <root>/tmp/                           who is writing, and what
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from regun.errors import StoreError
from regun.seeds import canonical_json, digest
from regun.training.fit import Snapshot

FORMAT = 1
KINDS = ("model", "signals", "floor", "evaluation", "score", "tuning")


@dataclass(frozen=True)
class Made:
    """What a maker hands to the store: groups of tensors (one file each) and information as JSON."""

    tensors: Mapping[str, Mapping[str, Tensor]]
    info: Mapping[str, Any]


@dataclass(frozen=True)
class Artefact:
    """A finished entry: its manifest is checked when it is opened, each file when it is read."""

    path: Path
    manifest: Mapping[str, Any]

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
        content = _read_checked(self.path / name, self.manifest["files"][name])
        return safetensors.torch.load(content)


@dataclass
class Findings:
    """What `verify` or `gc` found."""

    checked: int = 0
    problems: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    freed: int = 0


class Store:
    """A directory of artefacts named by their content.

    >>> store = Store(tmp_path)                                         # doctest: +SKIP
    >>> made = store.make("model", inputs, lambda checkpoint: Made(...))  # doctest: +SKIP
    """

    def __init__(self, root: str | Path, *, snapshot_seconds: float = 20.0) -> None:
        self.root = Path(root).resolve()
        self.snapshot_seconds = snapshot_seconds
        if not snapshot_seconds >= 0:
            raise StoreError(f"the time between snapshots is {snapshot_seconds} seconds; give 0 or more.")
        try:
            for name in ("artefacts", "partial", "locks", "tmp"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise StoreError(
                f"cannot use {self.root} as a store ({fault.strerror or fault}); name a directory you may write to."
            ) from None

    @staticmethod
    def key(kind: str, inputs: Mapping[str, Any]) -> str:
        """The name of the artefact that these inputs make."""
        return digest({"format": FORMAT, "kind": kind, "inputs": inputs})

    def path(self, kind: str, key: str) -> Path:
        return self.root / "artefacts" / kind / key

    def has(self, kind: str, key: str) -> bool:
        return (self.path(kind, key) / "manifest.json").is_file()

    def load(self, kind: str, key: str) -> Artefact:
        """The finished artefact of this key; refuses a damaged manifest or a name that does not fit its content."""
        path = self.path(kind, key)
        if not self.has(kind, key):
            if path.is_dir():
                raise StoreError(f"{path} is damaged: it has no manifest.json. Delete it and run the command again.")
            raise StoreError(f"the store {self.root} has no {kind} {key[:12]}; `regun store list` shows what it has.")
        manifest = _read_manifest(path / "manifest.json")
        if manifest["key"] != key or self.key(kind, manifest["inputs"]) != key:
            raise StoreError(f"{path / 'manifest.json'} describes another artefact than its name; delete {path}.")
        return Artefact(path, manifest)

    def find(self, prefix: str, kind: str | None = None) -> Artefact:
        """The one artefact whose key starts with `prefix`."""
        kinds = [kind] if kind else KINDS
        hits = [(k, p.name) for k in kinds for p in self._entries(k) if p.name.startswith(prefix)]
        if len(hits) != 1:
            what = f"{kind or 'artefact'} whose key starts with {prefix!r}"
            raise StoreError(
                f"the store {self.root} has {len(hits)} {what}; `regun store list` shows what it has."
                + (" Give more digits." if hits else "")
            )
        return self.load(*hits[0])

    def make(self, kind: str, inputs: Mapping[str, Any], maker: Callable[["Slot"], Made]) -> Artefact:
        """The artefact of these inputs: loaded if it is there, otherwise made once, under a lock, and saved whole."""
        key = self.key(kind, inputs)
        if self.has(kind, key):
            return self.load(kind, key)
        with self.lock(key):
            if not self.has(kind, key):
                slot = Slot(self.root / "partial" / key, self.snapshot_seconds)
                self._write(kind, key, inputs, maker(slot))
                slot.clear()
        return self.load(kind, key)

    @contextmanager
    def lock(self, key: str) -> Generator[None]:
        """Hold the right to write `key`; waits for another process and is released when this one dies."""
        try:
            held = FileLock(self.root / "locks" / f"{key}.lock").acquire()
        except OSError as fault:
            raise StoreError(f"cannot write to the store {self.root}: {fault.strerror or fault}.") from None
        with held:
            yield

    def artefacts(self, *kinds: str) -> list[Artefact]:
        """Every finished artefact (of these kinds), newest last."""
        found = [self.load(kind, path.name) for kind in kinds or KINDS for path in self._entries(kind)]
        return sorted(found, key=lambda a: a.manifest["created"])

    def verify(self) -> Findings:
        """Read everything and report what is damaged; changes nothing."""
        findings = Findings()
        for kind in KINDS:
            for path in self._entries(kind):
                findings.checked += 1
                try:
                    artefact = self.load(kind, path.name)
                    for name, expected in artefact.manifest["files"].items():
                        _read_checked(path / name, expected)
                except StoreError as fault:
                    findings.problems.append(str(fault))
        return findings

    def gc(self, *, dry_run: bool = False, partial_days: float | None = None) -> Findings:
        """Remove what no run will use: temporary files, snapshots of finished runs, snapshots older than some days."""
        findings = Findings()
        for path in [*(self.root / "tmp").iterdir(), *(self.root / "partial").iterdir()]:
            findings.checked += 1
            key = path.name.split(".")[0]
            try:
                if path.parent.name == "partial" and not (self._finished(key) or _older(path, partial_days)):
                    continue
                with FileLock(self.root / "locks" / f"{key}.lock", timeout=0):
                    size = sum(f.stat().st_size for f in [path, *path.rglob("*")] if f.is_file())
                    if not dry_run:
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                    findings.removed.append(str(path))
                    findings.freed += size
            except Timeout:
                findings.problems.append(f"{path} is in use by another process; left alone.")
            except FileNotFoundError:  # its run has ended meanwhile and cleaned up itself
                continue
            except OSError as fault:
                findings.problems.append(f"{path} cannot be removed ({fault.strerror or fault}); left alone.")
        return findings

    def _finished(self, key: str) -> bool:
        return any(self.has(kind, key) for kind in KINDS)

    def _entries(self, kind: str) -> list[Path]:
        folder = self.root / "artefacts" / kind
        return sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []

    def _write(self, kind: str, key: str, inputs: Mapping[str, Any], made: Made) -> None:
        try:
            temporary = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=self.root / "tmp"))
            try:
                files = {
                    f"{g}.safetensors": _write_tensors(temporary / f"{g}.safetensors", t)
                    for g, t in made.tensors.items()
                }
                manifest = {
                    "format": FORMAT, "kind": kind, "key": key, "inputs": inputs, "files": files,
                    "info": made.info, "created": datetime.now(UTC).isoformat(), "versions": versions(),
                    "machine": machine(),
                }  # fmt: skip
                _write_bytes(temporary / "manifest.json", _sealed(manifest))
                self.path(kind, key).parent.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(self.path(kind, key), ignore_errors=True)  # only ever a folder that lost its manifest
                os.replace(temporary, self.path(kind, key))
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        except OSError as fault:
            raise StoreError(
                f"cannot write to the store {self.root}: {fault.strerror or fault}. Nothing was kept."
            ) from None
        except (TypeError, ValueError) as fault:
            raise StoreError(
                f"the {kind} {key[:12]} cannot be described in JSON: {fault}. Nothing was kept; give plain and finite "
                f"values."
            ) from None


class Slot:
    """Where one unfinished run keeps its latest snapshot; a `train.Checkpoint`."""

    def __init__(self, folder: Path, every_seconds: float) -> None:
        self.folder, self.every_seconds = folder, every_seconds
        self._saved = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self._saved >= self.every_seconds

    def load(self) -> Snapshot | None:
        pointer = self.folder / "snapshot.json"
        if not pointer.is_file():
            return None
        meta = _read_manifest(pointer)
        content = _read_checked(self.folder / meta["file"], meta["sha256"])
        return Snapshot(safetensors.torch.load(content), meta["meta"])

    def save(self, snapshot: Snapshot) -> None:
        """Write the tensors under a new name, then point to them: a kill leaves the old snapshot or the new one."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            name = f"{time.time_ns()}.safetensors"
            sha = _write_tensors(self.folder / name, snapshot.tensors)
            pointer = {"format": FORMAT, "file": name, "sha256": sha, "meta": snapshot.meta}
            _write_bytes(self.folder / "snapshot.json.new", _sealed(pointer))
            os.replace(self.folder / "snapshot.json.new", self.folder / "snapshot.json")
            for old in self.folder.glob("*.safetensors"):
                if old.name != name:
                    old.unlink()
        except OSError as fault:
            raise StoreError(f"cannot save a snapshot in {self.folder}: {fault.strerror or fault}.") from None
        self._saved = time.monotonic()

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


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
    temporary = Path(f"{path}.new")
    try:
        try:
            _write_tensors(temporary, tensors)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as fault:
        raise StoreError(f"cannot write {path}: {fault.strerror or fault}. Name a file you may write.") from None


def weights_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as the content of a safetensors file; shared storage is written out once per name."""
    return safetensors.torch.save({n: t.detach().cpu().contiguous().clone() for n, t in tensors.items()})


def versions() -> dict[str, str]:
    """The software that made an artefact."""
    return {name: importlib.metadata.version(name) for name in ("regun", "torch", "numpy", "safetensors")}


def machine() -> dict[str, Any]:
    """What made an artefact besides software: other instruction sets and numbers of threads round sums differently."""
    return {
        "processor": platform.processor() or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors and return the file's SHA-256."""
    content = weights_bytes(tensors)
    _write_bytes(path, content)
    return hashlib.sha256(content).hexdigest()


def _write_bytes(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _read_checked(path: Path, expected: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as fault:
        raise StoreError(
            f"{path} cannot be read ({fault.strerror or fault}); delete its folder and make it again."
        ) from None
    got = hashlib.sha256(content).hexdigest()
    if got != expected:
        raise StoreError(
            f"{path} is damaged: its SHA-256 is {got[:12]}, its manifest says {expected[:12]}. It was not loaded; "
            f"delete {path.parent} and run the command again."
        )
    return content


def _older(path: Path, days: float | None) -> bool:
    return days is not None and time.time() - path.stat().st_mtime > days * 86400


def _sealed(content: Mapping[str, Any]) -> bytes:
    """JSON that ends with the digest of the rest."""
    return json.dumps({**content, "seal": digest(content)}, indent=1, allow_nan=False).encode()


def _read_manifest(path: Path) -> dict[str, Any]:
    """A sealed JSON file, refused unless every byte is as it was written (1e-5 and 1E-5 are the same to a parser)."""
    try:
        text = path.read_bytes()
        manifest: dict[str, Any] = dict(json.loads(text))
        del manifest["seal"]
        intact = _sealed(manifest) == text
    except (OSError, ValueError, KeyError, TypeError):
        intact, manifest = False, {}
    if not intact:
        raise StoreError(f"{path} is damaged; it was not loaded. Delete {path.parent} and run the command again.")
    if manifest["format"] != FORMAT:
        got = manifest["format"]
        raise StoreError(f"{path} has store format {got}; this version reads format {FORMAT}. Use another directory.")
    return manifest
