"""A directory of artifacts.

<root>/.regun-store                                            marks the directory as a store
<root>/artifacts/<kind>/<key>/manifest.json, *.safetensors     finished, immutable
<root>/.regun-partial/<key>/                                   snapshots of unfinished runs
<root>/.regun-locks/<key>.lock, <root>/.regun-tmp/             what is being written
"""

import os
import re
import shlex
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from regun import files
from regun.artifacts.artifact import FORMAT, TENSORS, Artifact, Contents, machine, read_manifest, versions
from regun.artifacts.snapshots import SNAPSHOT_FILES, SnapshotFolder
from regun.artifacts.weights import UNFINISHED, check_file, write_tensors
from regun.errors import StoreError
from regun.hashing import digest
from regun.parallel import current, is_writer

KINDS = (
    "model",
    "predictions",
    "floor",
    "evaluation",
    "relearned",
    "selection",
    "out_model",
    "fold",
    "out_of_fold",
    "score",
    "tuning",
)
MARKER = ".regun-store"
MARKER_TEXT = b"This directory is a store of regun. regun made everything in it and may clean it up.\n"
PARTIAL, LOCKS, TMP = ".regun-partial", ".regun-locks", ".regun-tmp"

_KEY = re.compile("[0-9a-f]{64}")
_ARTIFACT_FILES = re.compile(rf"manifest\.json|{TENSORS.pattern}|{UNFINISHED}", re.ASCII)
_LEFTOVERS = {
    TMP: (re.compile(rf"({_KEY.pattern})\.[a-z0-9_]{{8}}"), _ARTIFACT_FILES),
    PARTIAL: (re.compile(f"({_KEY.pattern})"), SNAPSHOT_FILES),
}
"""Names of folders that `gc` may remove, and of the only files that they may hold."""


@dataclass
class StoreReport:
    """Result of `verify` or `gc`."""

    checked: int = 0
    problems: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    freed: int = 0


class Store:
    """A directory of artifacts named by their content. The directory must be empty, new, or a store already.

    `trusted` names the user's code (`file.py:function`) that models of the store may be built with. `on_damage` is
    called for each damaged artifact that a list leaves out.

    >>> store = Store(tmp_path)                                         # doctest: +SKIP
    >>> artifact = store.make("model", inputs, lambda snapshots: Contents(...))  # doctest: +SKIP
    """

    def __init__(
        self,
        root: str | Path,
        *,
        snapshot_seconds: float = 20.0,
        trusted: tuple[str, ...] = (),
        on_damage: Callable[[str], None] = warnings.warn,
    ) -> None:
        if not snapshot_seconds >= 0:
            raise StoreError(f"the time between snapshots is {snapshot_seconds} seconds; give 0 or more.")
        self.snapshot_seconds, self.trusted, self.on_damage = snapshot_seconds, trusted, on_damage
        try:
            self.root = Path(root).expanduser().resolve()
            _open_root(self.root)
        except OSError as fault:
            raise StoreError(
                f"cannot use {root} as a store ({files.reason(fault)}); name a new or empty directory that you may "
                f"write to."
            ) from None

    @classmethod
    def existing(cls, root: str | Path, **options: Any) -> "Store":
        """Return the store at `root`, opened with `options`; raise if there is none."""
        if not (Path(root).expanduser() / MARKER).is_file():
            raise StoreError(f"there is no store at {root}; name one with store=, or train a model first.")
        return cls(root, **options)

    @staticmethod
    def key(kind: str, inputs: Mapping[str, Any]) -> str:
        """Return the key of the artifact that these inputs make."""
        return digest({"format": FORMAT, "kind": kind, "inputs": inputs})

    def path(self, kind: str, key: str) -> Path:
        if kind not in KINDS or not _KEY.fullmatch(str(key)):  # a manifest may name anything
            raise StoreError(f"{str(key)[:80]!r} is not the key of a {str(kind)[:20]}; keys are 64 digits 0 to f.")
        return self.root / "artifacts" / kind / key

    def has(self, kind: str, key: str) -> bool:
        path = self.path(kind, key)
        try:
            return not path.is_symlink() and files.size_of(path / "manifest.json") >= 0
        except OSError:
            return False

    def load(self, kind: str, key: str) -> Artifact:
        """Return the finished artifact of this key; raise if its manifest is damaged or does not match the key."""
        path = self.path(kind, key)
        if not os.path.lexists(path):
            raise StoreError(f"the store {self.root} has no {kind} {key[:12]}; {self._hint()}")
        if path.is_symlink():
            raise StoreError(f"{path} is a symbolic link, which regun does not follow; delete it.")
        manifest = read_manifest(path / "manifest.json")
        if not manifest["key"] == self.key(kind, manifest["inputs"]) == key:
            raise StoreError(f"{path / 'manifest.json'} describes another artifact than its name; delete {path}.")
        return Artifact(path, manifest, self.trusted)

    def find(self, prefix: str, kind: str | None = None) -> Artifact:
        """Return the one artifact whose key starts with `prefix`."""
        hits = [(k, key) for k, key in self._entries(*([kind] if kind else KINDS)) if key.startswith(prefix)]
        if not hits:
            kinds = kind or "artifact"
            raise StoreError(
                f"the store {self.root} has no {kinds} whose key starts with {prefix[:64]!r}; {self._hint()}"
            )
        if len(hits) > 1:
            raise StoreError(
                f"the store {self.root} has {len(hits)} keys that start with {prefix[:64]!r}; give more digits. "
                f"{self._hint()}"
            )
        return self.load(*hits[0])

    def _hint(self) -> str:
        return f"`regun store list --store {shlex.quote(str(self.root))}` lists its content."

    def make(self, kind: str, inputs: Mapping[str, Any], maker: Callable[[SnapshotFolder], Contents]) -> Artifact:
        """Return the artifact of these inputs, loaded or made now: once, under a lock, saved atomically.

        Processes that share a run make it together, and one of them reads and writes the store.
        """
        key, processes = self.key(kind, inputs), current()
        if processes is None and self.has(kind, key):
            return self.load(kind, key)
        with self.lock(key) if is_writer() else nullcontext():
            made = self.has(kind, key) if processes is None else processes.broadcast(self.has(kind, key))[0]
            if not made:
                snapshots = SnapshotFolder(self.root / PARTIAL / key, self.snapshot_seconds)
                contents = maker(snapshots)
                if is_writer():
                    self._write(kind, key, inputs, contents)
                    snapshots.clear()
            if processes is not None:
                processes.barrier()
        return self.load(kind, key)

    @contextmanager
    def lock(self, key: str, *, wait: bool = True) -> Generator[None]:
        """Hold the lock of `key`; waits for another process, or raises `Timeout`. A killed process releases it.

        The lock file is removed while it is held; a waiting process notices that and takes a new one.
        """
        path = self.root / LOCKS / f"{key}.lock"
        try:
            path.parent.mkdir(exist_ok=True)
            lock = FileLock(path, timeout=-1 if wait else 0).acquire()
        except Timeout:
            raise
        except OSError as fault:
            raise StoreError(f"cannot write to the store {self.root}: {files.reason(fault)}.") from None
        with lock:
            try:
                yield
            finally:
                with suppress(OSError):
                    path.unlink()

    def artifacts(self, *kinds: str) -> list[Artifact]:
        """Return every finished artifact (of these kinds), oldest first; damaged ones go to `on_damage`."""
        artifacts: list[Artifact] = []
        for kind, key in self._entries(*(kinds or KINDS)):
            try:
                artifacts.append(self.load(kind, key))
            except StoreError as fault:
                self.on_damage(str(fault))
        return sorted(artifacts, key=lambda a: a.manifest["created"])

    def verify(self, *, quick: bool = False) -> StoreReport:
        """Report damage, from every byte or, if `quick`, from manifests and sizes; change nothing."""
        report = StoreReport()
        for kind, key in self._entries(*KINDS):
            report.checked += 1
            try:
                artifact = self.load(kind, key)
                for name, expected in artifact.manifest["files"].items():
                    check_file(artifact.path / name, expected, quick=quick)
            except StoreError as fault:
                report.problems.append(str(fault))
        return report

    def gc(self, *, dry_run: bool = False, partial_days: float | None = None) -> StoreReport:
        """Remove what no run will use: temporary files, snapshots of finished runs, and old snapshots.

        Only folders with names that regun uses are removed, and only if they hold nothing but its files.
        """
        report = StoreReport()
        for path in [*self._inside(TMP), *self._inside(PARTIAL)]:
            report.checked += 1
            place = path.parent.name
            named = _LEFTOVERS[place][0].fullmatch(path.name)
            if not named:
                report.problems.append(f"{path} was not made by regun; left alone.")
            elif place == TMP or any(self.has(kind, named[1]) for kind in KINDS) or _older(path, partial_days):
                self._collect(path, named[1], report, dry_run)
        for path in self._inside(LOCKS):
            key = path.name.removesuffix(".lock")
            if not dry_run and _KEY.fullmatch(key):
                with suppress(Timeout, StoreError), self.lock(key, wait=False):
                    pass  # a killed process left it; taking it removes it
        return report

    def _collect(self, path: Path, key: str, report: StoreReport, dry_run: bool) -> None:
        try:
            with self.lock(key, wait=False):
                report.freed += files.remove_folder(path, _LEFTOVERS[path.parent.name][1], dry_run=dry_run)
            report.removed.append(str(path))
        except Timeout:
            report.problems.append(f"{path} is in use by another process; left alone.")
        except FileNotFoundError:  # its run has ended meanwhile and cleaned up
            return
        except (OSError, StoreError) as fault:
            why = files.reason(fault) if isinstance(fault, OSError) else str(fault).rstrip(".")
            report.problems.append(f"{path} cannot be removed ({why}); left alone.")

    def _entries(self, *kinds: str) -> list[tuple[str, str]]:
        """Return kind and key of every artifact, damaged or not."""
        return [
            (kind, path.name)
            for kind in kinds
            for path in self._inside(f"artifacts/{kind}")
            if _KEY.fullmatch(path.name)
        ]

    def _inside(self, place: str) -> list[Path]:
        try:
            return sorted((self.root / place).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as fault:
            raise StoreError(f"cannot read {self.root / place}: {files.reason(fault)}.") from None

    def _write(self, kind: str, key: str, inputs: Mapping[str, Any], contents: Contents) -> None:
        try:
            (self.root / TMP).mkdir(exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=self.root / TMP))
            try:
                written = {
                    f"{g}.safetensors": write_tensors(temporary / f"{g}.safetensors", t)
                    for g, t in contents.tensors.items()
                }
                manifest = {
                    "format": FORMAT, "kind": kind, "key": key, "inputs": inputs, "files": written,
                    "info": contents.info, "created": datetime.now(UTC).isoformat(), "versions": versions(),
                    "machine": machine(),
                }  # fmt: skip
                files.write_new(temporary / "manifest.json", files.sealed(manifest))
                self._publish(temporary, kind, key)
            finally:
                with suppress(OSError):
                    files.remove_folder(temporary, _ARTIFACT_FILES)
        except OSError as fault:
            raise StoreError(
                f"cannot write to the store {self.root}: {files.reason(fault)}. Nothing was stored."
            ) from None
        except (TypeError, ValueError) as fault:
            raise StoreError(
                f"the {kind} {key[:12]} cannot be written as JSON: {fault}. Nothing was stored; give finite numbers, "
                f"text, lists and dicts."
            ) from None

    def _publish(self, temporary: Path, kind: str, key: str) -> None:
        """Move a finished folder to its place; if another process was faster (no working locks), keep its result."""
        target = self.path(kind, key)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() and not self.has(kind, key):  # it has lost its manifest
            files.remove_folder(target, _ARTIFACT_FILES)
        try:
            os.replace(temporary, target)
        except OSError:
            if not self.has(kind, key):
                raise
        files.sync_folder(target.parent)


def _open_root(root: Path) -> None:
    """Make a new store, or check that this is one: nothing is ever written among other files."""
    root.mkdir(parents=True, exist_ok=True)
    if not (root / MARKER).is_file():
        entries = [name for name in os.listdir(root) if not name.startswith(".regun-")]
        if entries:
            raise OSError(f"it holds {entries[0]!r} and is not a store of regun's")
        with suppress(FileExistsError):
            files.write_new(root / MARKER, MARKER_TEXT)
    for name in (MARKER, "artifacts", *(f"artifacts/{kind}" for kind in KINDS), PARTIAL, LOCKS, TMP):
        if (root / name).is_symlink():
            raise OSError(f"{name} in it is a symbolic link")


def _older(path: Path, days: float | None) -> bool:
    return days is not None and time.time() - path.lstat().st_mtime > days * 86400
