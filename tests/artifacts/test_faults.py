"""Hostile and unlucky surroundings of a store: forged manifests, foreign files, full disks, lost rights, odd clocks."""

import errno
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch

from expect import error
from regun import files
from regun.artifacts import Artifact, Contents, SnapshotFolder, Store, write_weights
from regun.artifacts import store as directory
from regun.cli import main
from regun.errors import StoreError
from regun.files import write_file
from regun.training.snapshots import Snapshot

INPUTS = {"data": "abc", "seed": 0}
ROOT = os.geteuid() == 0
FORK = multiprocessing.get_context("fork")


def made(_: object = None) -> Contents:
    return Contents({"weights": {"w": torch.arange(6.0)}}, {"role": "base"})


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Something of the user's that nobody may touch or name for deletion."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "thesis.tex").write_text("\\documentclass{book}")
    return folder


def forge(store: Store, **changed: object) -> Path:
    """An artifact with a valid seal and key, whose manifest says what an attacker likes."""
    manifest = {
        "format": directory.FORMAT,
        "kind": "model",
        "inputs": {"n": len(list(store.root.rglob("manifest.json")))},
        "files": {},
        "info": {},
        "created": "2026-01-01T00:00:00+00:00",
        **changed,
    }
    manifest.setdefault("key", store.key("model", manifest["inputs"]))
    folder = store.root / "artifacts" / "model" / manifest["key"]
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(files.sealed(manifest))
    return folder


# ------------------------------------------------------------------------------------------- what is not regun's


@pytest.mark.parametrize(
    "place",
    [
        "tmp/thesis.tex",
        "partial/thesis.tex",
        "locks/thesis.tex",
        "thesis.tex",
        ".regun-tmp/thesis.tex",
        ".regun-partial/thesis.tex",
        ".regun-locks/thesis.tex",
        ".regun-tmp/{key}.abcdefgh/thesis.tex",
        ".regun-tmp/{key}.abcdefgh/deep/weights.safetensors",
        ".regun-tmp/{key}/weights.safetensors",
        ".regun-partial/{key}/thesis.tex",
        ".regun-partial/{key}/deep/snapshot.json",
        "artifacts/model/thesis.tex",
    ],
)
def test_gc_leaves_what_it_cannot_prove_to_be_its_own(store: Store, place: str) -> None:
    key = store.make("model", INPUTS, made).key
    thesis = store.root / place.format(key=key)
    thesis.parent.mkdir(parents=True, exist_ok=True)
    thesis.write_text("three years of work")
    assert main(["store", "gc", "--partial-days", "0", "--store", str(store.root)]) == 0
    assert thesis.read_text() == "three years of work"
    assert store.gc(partial_days=0).removed == []


@pytest.mark.parametrize("name", [".regun-tmp", ".regun-partial", ".regun-locks", "artifacts", "artifacts/model"])
def test_links_in_the_place_of_regun_s_own_folders_are_refused(store: Store, outside: Path, name: str) -> None:
    (store.root / name).parent.mkdir(exist_ok=True)
    (store.root / name).symlink_to(outside, target_is_directory=True)
    with error(StoreError, store.root, name, "link"):
        Store(store.root)
    assert main(["store", "gc", "--store", str(store.root)]) == 2
    assert content(outside) == {"thesis.tex": b"\\documentclass{book}"}


@pytest.mark.parametrize("place", [".regun-tmp/{key}.abcdefgh", ".regun-partial/{key}"])
def test_gc_follows_no_link(store: Store, outside: Path, place: str) -> None:
    key = store.make("model", INPUTS, made).key
    (outside / "thesis.tex").rename(outside / "snapshot.json")
    link = store.root / place.format(key=key)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside, target_is_directory=True)
    found = store.gc(partial_days=0)
    assert found.removed == []
    assert found.problems == [f"{link} cannot be removed (it is a symbolic link); left alone."]
    assert list(content(outside)) == ["snapshot.json"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["train"], "cannot use {} as a store (it holds 'thesis.tex' and is not a store of regun's); name a new or"),
        (["audit", "abc"], "there is no store at {}; name one with --store"),
        (["unlearn", "--base", "a", "--forget", "0.1"], "there is no store at {}; name one with --store"),
    ],
)
def test_a_directory_with_other_things_is_no_store(
    command: list[str], said: str, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--store", str(outside), "--quiet"]) == 2
    assert said.format(outside) in capsys.readouterr().err
    assert list(content(outside)) == ["thesis.tex"]
    assert [p.name for p in outside.iterdir()] == ["thesis.tex"]


def test_a_new_and_an_empty_directory_become_stores_and_stay_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new/and/deep"):
        made_in = Store(tmp_path / name)
        (made_in.root / "studies").mkdir()
        (made_in.root / "studies/notes.txt").write_text("mine")
        assert Store(tmp_path / name).root == made_in.root
        assert (made_in.root / ".regun-store").read_text().startswith("This directory is a store of regun")


def test_weights_written_for_the_user_replace_that_file_only(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors.new").write_text("mine")
    (tmp_path / "w.safetensors").write_text("older")
    write_weights(tmp_path / "w.safetensors", {"w": torch.ones(2)})
    write_file(tmp_path / "risks.csv", b"a,b")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["risks.csv", "w.safetensors", "w.safetensors.new"]
    assert (tmp_path / "w.safetensors.new").read_text() == "mine"


# ------------------------------------------------------------------------------------------------ forged manifests

SHA = "0" * 64


@pytest.mark.parametrize(
    "name",
    [
        "../../../../../../../../etc/passwd",
        "/etc/passwd",
        "/dev/zero",
        "/dev/zero.safetensors",
        "deep/weights.safetensors",
        "..",
        "",
        "manifest.json",
        ".hidden.safetensors",
        "a\nb.safetensors",
        "größe.safetensors",
    ],
)
def test_a_manifest_names_plain_files_of_its_own_folder_or_is_refused(
    store: Store, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = forge(store, files={name: {"sha256": SHA, "bytes": 10}})
    for command in (["verify"], ["verify", "--quick"], ["list"], ["show", folder.name]):
        assert main(["store", *command, "--store", str(store.root)]) in (1, 2)
        shown = capsys.readouterr()
        said = shown.out + shown.err
        assert "is damaged: files, " in said
        assert f"delete {folder}." in said
        assert "delete /etc" not in said
        assert "delete /dev" not in said


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "folder link"])
@pytest.mark.parametrize("which", ["weights.safetensors", "manifest.json"])
def test_what_is_not_a_regular_file_is_never_read(store: Store, outside: Path, kind: str, which: str) -> None:
    kept = store.make("model", INPUTS, made)
    if kind == "folder link":
        shutil.move(kept.path, outside / "moved")
        kept.path.symlink_to(outside / "moved", target_is_directory=True)
    else:
        path = kept.path / which
        shutil.move(path, outside / which)
        {
            "link": lambda: path.symlink_to(outside / which),
            "pipe": lambda: os.mkfifo(path),
            "folder": lambda: path.mkdir(),
        }[kind]()
    (problem,) = store.verify().problems
    assert str(kept.path) in problem
    assert str(outside) not in problem
    assert store.verify(quick=True).problems == [problem]


@pytest.mark.parametrize(
    "changed",
    [
        {"inputs": []},
        {"info": "text"},
        {"files": ["weights.safetensors"]},
        {"files": {"weights.safetensors": SHA}},
        {"files": {"weights.safetensors": {"sha256": 3, "bytes": 4}}},
        {"files": {"weights.safetensors": {"sha256": SHA, "bytes": True}}},
        {"created": 3},
        {"kind": None},
        {"key": "f" * 64},
        {"format": 10**30},
    ],
)
def test_a_manifest_of_another_shape_is_refused(store: Store, changed: dict) -> None:
    sound = store.make("model", INPUTS, made)
    folder = forge(store, **({"key": "e" * 64} if "inputs" in changed else {}), **changed)
    (problem,) = store.verify().problems
    assert folder.name in problem
    told: list[str] = []
    assert [a.key for a in Store(store.root, on_damage=told.append).artifacts()] == [sound.key]
    assert told == [problem]


@pytest.mark.parametrize("size", [10, 0, 10**6])
def test_a_manifest_that_is_nested_without_end_is_refused(store: Store, size: int) -> None:
    folder = forge(store)
    body = b'{"format": 2, "info": ' + b"[" * size
    (folder / "manifest.json").write_bytes(
        body + files._SEAL + files.hashlib.sha256(body).hexdigest().encode() + b'"\n}'
    )
    (problem,) = store.verify().problems
    assert "manifest.json is damaged; it was not loaded." in problem


def test_safetensors_that_are_none_are_refused_although_their_digest_fits(store: Store) -> None:
    text = b"\xff" * 100
    folder = forge(
        store, files={"weights.safetensors": {"sha256": files.hashlib.sha256(text).hexdigest(), "bytes": 100}}
    )
    (folder / "weights.safetensors").write_bytes(text)
    assert store.verify().problems == []
    with error(StoreError, "weights.safetensors", "delete"):
        store.find(folder.name).tensors("weights")


@pytest.mark.parametrize("key", ["../../../etc", "x" * 64, "", "A" * 64, 3, None, "0" * 63])
def test_keys_that_a_manifest_names_are_keys(store: Store, key: object) -> None:
    with error(StoreError, "key", "model", "64"):
        store.load("model", key)
    with error(StoreError, "../secret"):
        store.load("../secret", "0" * 64)


def test_what_a_manifest_does_not_say_is_an_error_in_words(store: Store) -> None:
    artifact = store.find(forge(store, inputs={"model": {}}).name)
    for part, name in ((artifact.info, "data_name"), (artifact.inputs, "recipe"), (artifact.inputs["model"], "name")):
        with error(StoreError, repr(name)):
            part[name]


# ----------------------------------------------------------------------------------------- one damaged among many


def test_a_damaged_manifest_is_named_and_the_others_are_listed(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = [store.make("model", {"n": n}, made) for n in range(5)]
    broken = kept[2].path / "manifest.json"
    broken.write_bytes(broken.read_bytes().replace(b"base", b"bose"))
    assert main(["store", "list", "--store", str(store.root)]) == 1
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2 + 4
    assert shown.err.startswith(f"DAMAGED  {broken} is damaged")
    assert main(["store", "list", "--json", "--store", str(store.root)]) == 1
    assert [entry["key"] for entry in json.loads(capsys.readouterr().out)] == [a.key for a in kept if a is not kept[2]]
    assert main(["store", "show", kept[0].key, "--store", str(store.root)]) == 0
    with pytest.warns(UserWarning, match="manifest.json is damaged"):
        assert len(store.artifacts("model")) == 4


def read_all(store: Store, kind: str) -> None:
    found = store.make(kind, INPUTS, lambda _: pytest.fail("made again over a damaged one"))
    for name in found.manifest["files"]:
        found.tensors(name.removesuffix(".safetensors"))


@pytest.mark.parametrize("kind", directory.KINDS)
def test_every_kind_of_artifact_tells_a_flipped_bit(store: Store, kind: str) -> None:
    """Floors, evaluations, scores and searches have nothing but a manifest; signals and models have tensors too."""
    tensors = {"predictions": {"log_probs": torch.zeros(3)}} if kind in ("predictions", "model") else {}
    kept = store.make(kind, INPUTS, lambda _: Contents(tensors, {"numbers": [1.5, 2.25], "model": "abc"}))
    draw = random.Random(kind)
    for path in kept.path.iterdir():
        whole = path.read_bytes()
        for place in sorted({0, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(50))}):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :])
            assert len(store.verify().problems) == 1
            with pytest.raises(StoreError):
                read_all(store, kind)
        path.write_bytes(whole)
    assert store.verify().problems == []


def test_a_damaged_snapshot_stops_a_run_until_it_is_removed_as_the_message_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--data", "digits,limit=400,test_limit=50", "--recipe", "digits,epochs=2", "--threads", "1"]
    words += ["--quiet", "--snapshot-seconds", "0", "--store", str(tmp_path / "store")]
    save = SnapshotFolder.save

    def interrupted(slot: SnapshotFolder, snapshot: Snapshot) -> None:
        save(slot, snapshot)
        raise KeyboardInterrupt

    monkeypatch.setattr(SnapshotFolder, "save", interrupted)
    assert main(words) == 130
    monkeypatch.undo()
    (path,) = tmp_path.glob("store/.regun-partial/*/*.safetensors")
    whole = path.read_bytes()
    path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:])
    assert main(words) == 2
    assert f"delete {path.parent} and run the command again." in capsys.readouterr().err
    shutil.rmtree(path.parent)
    assert main(words) == 0
    assert list((tmp_path / "store/.regun-partial").iterdir()) == []


# ------------------------------------------------------------------------------------------------- disks and rights


def full_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full from this write on."""
    sync, left = os.fsync, [calls]

    def fsync(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("calls", range(3))
def test_a_disk_that_fills_up_at_any_write_leaves_nothing(
    store: Store, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, manifest, and the list of names: what is not down on the disk is not kept, or is whole."""
    full_after(calls, monkeypatch)
    with error(StoreError, "store", "space"):
        store.make("model", INPUTS, made)
    monkeypatch.undo()
    assert content(store.root / ".regun-tmp") == {}
    assert store.verify().problems == []
    assert store.make("model", INPUTS, made).info["role"] == "base"


@pytest.mark.parametrize("calls", range(2))
def test_a_disk_that_fills_up_keeps_the_snapshot_before(
    tmp_path: Path, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = SnapshotFolder(tmp_path / "slot", 0)
    slot.save(Snapshot({"w": torch.ones(3)}, {"step": 1}))
    full_after(calls, monkeypatch)
    with error(StoreError, "snapshot", "space"):
        slot.save(Snapshot({"w": torch.zeros(3)}, {"step": 2}))
    monkeypatch.undo()
    found = slot.load()
    assert found is not None
    assert found.meta == {"step": 1}
    slot.save(Snapshot({"w": torch.zeros(3)}, {"step": 3}))
    assert len(list((tmp_path / "slot").iterdir())) == 2


def make_in_little_room(root: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    try:
        Store(root).make("model", INPUTS, lambda _: Contents({"weights": {"w": torch.zeros(10_000)}}, {}))
    except StoreError as fault:
        os._exit(7 if os.strerror(errno.EFBIG) in str(fault) else 8)
    os._exit(0)


def test_a_quota_that_is_used_up_in_the_middle_of_a_file_leaves_nothing(store: Store) -> None:
    assert in_child(make_in_little_room, store.root) == 7
    assert content(store.root / "artifacts") == content(store.root / ".regun-tmp") == {}
    assert store.make("model", INPUTS, made).info["role"] == "base"


KEY = "0" * 64


def die_in_the_middle_of_a_file(root: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # which kills
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    SnapshotFolder(root / ".regun-partial" / KEY, 0).save(Snapshot({"w": torch.zeros(10_000)}, {}))


def die_in_the_middle_of_an_artifact(root: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    Store(root).make("model", INPUTS, lambda _: Contents({"weights": {"w": torch.zeros(10_000)}}, {}))


@pytest.mark.parametrize("work", [die_in_the_middle_of_an_artifact, die_in_the_middle_of_a_file])
def test_what_a_kill_leaves_in_the_middle_of_a_file_is_ours_and_goes(
    store: Store, work: Callable[[Path], None]
) -> None:
    assert in_child(work, store.root) == -signal.SIGXFSZ
    left = [path for path in store.root.rglob("*") if path.name.startswith(".tmp")]
    assert left, "it was killed while it wrote"
    assert store.gc(partial_days=0).problems == []
    assert not [path for path in left if path.exists()]
    assert store.make("model", INPUTS, made).info["role"] == "base"


def fill(store: Store) -> None:
    for n in range(50):
        store.make("model", {"n": n}, lambda _: Contents({"weights": {"w": torch.zeros(10_000)}}, {}))


@pytest.mark.skipif(not ROOT, reason="only root may mount")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", tmp_path / "disk"], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine does not let us mount")
    try:
        store = Store(tmp_path / "disk/store")
        with error(StoreError, "space"):
            fill(store)
        assert 1 <= len(store.artifacts()) == store.verify().checked < 50
        assert store.verify().problems == []
        assert content(store.root / ".regun-tmp") == {}
        with error(StoreError, "space"):
            write_file(tmp_path / "disk/out", b"0" * 10**6)
        assert not (tmp_path / "disk/out").exists()
    finally:
        subprocess.run(["umount", tmp_path / "disk"], check=True)


def in_child(work: Callable[[Path], None], root: Path, uid: int | None = None) -> int | None:
    def run() -> None:
        if uid is not None:
            os.setgid(uid)
            os.setuid(uid)
        work(root)

    process = FORK.Process(target=run)
    process.start()
    process.join(60)
    return process.exitcode


def said_by(call: Callable[[], object]) -> str:
    try:
        call()
    except StoreError as fault:
        return str(fault)
    return ""


def look_as_other(root: Path) -> None:
    """May look, may not write: reading works as far as the rights go, writing says so."""
    told: list[str] = []
    nothing = Store(root, on_damage=told.append).artifacts()
    said = said_by(lambda: Store(root).make("model", {"other": 1}, made))
    denied = told[0].endswith("manifest.json cannot be read (Permission denied).")
    fine = (
        nothing == []
        and len(told) == 1
        and denied
        and "cannot write to the store" in said
        and "Permission denied" in said
    )
    os._exit(7 if fine else 8)


def open_as_other(root: Path) -> None:
    os._exit(7 if "as a store (Permission denied)" in said_by(lambda: Store(root)) else 8)


@pytest.mark.skipif(not ROOT, reason="only root may become someone else")
def test_a_store_of_someone_else_s() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        store = Store(Path(folder) / "store")
        key = store.make("model", INPUTS, made).key
        assert in_child(look_as_other, store.root, 65534) == 7
        (Path(folder) / "closed").mkdir(mode=0o700)
        assert in_child(open_as_other, Path(folder) / "closed/store", 65534) == 7
        assert [a.key for a in store.artifacts()] == [key]


@pytest.mark.skipif(ROOT, reason="root may write anywhere")
def test_a_read_only_directory_is_said(store: Store) -> None:
    kept = store.make("model", INPUTS, made)
    for folder in (store.root, *(p for p in store.root.rglob("*") if p.is_dir())):
        folder.chmod(0o555)
    try:
        assert Store(store.root).load("model", kept.key).info["role"] == "base"
        with error(StoreError, "Permission"):
            store.make("model", {"n": 1}, made)
    finally:
        for folder in (store.root, *(p for p in store.root.rglob("*") if p.is_dir())):
            folder.chmod(0o755)


@pytest.mark.parametrize(
    "name", ["with spaces", "größe und ölstand", "日本語", "x" * 200, "a'b\"c;d&e", "new\nline", "-rf"]
)
def test_paths_may_have_any_name(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path / name)
    key = store.make("model", INPUTS, made).key
    store.gc()
    assert main(["store", "list", f"--store={tmp_path / name}"]) == 0
    assert key[:12] in capsys.readouterr().out
    write_weights(tmp_path / name / f"{name[:150]}.safetensors", {"w": torch.ones(1)})
    assert Store(tmp_path / name).verify().problems == []


# ---------------------------------------------------------------------------------------------- clocks and processes


def test_a_clock_that_goes_back_loses_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.time() - 100 * 86_400]

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            now[0] -= 86_400
            return datetime.fromtimestamp(now[0], UTC)

    monkeypatch.setattr(directory, "datetime", Clock)
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "time_ns", lambda: int(now[0]) * 10**9)
    keys = {store.make("model", {"n": n}, made).key for n in range(4)}
    assert {a.key for a in store.artifacts()} == keys
    slot = SnapshotFolder(store.root / ".regun-partial" / store.key("model", {"n": 9}), 0)
    for step in range(3):
        slot.save(Snapshot({"w": torch.ones(1)}, {"step": step}))
        found = slot.load()
        assert found is not None
        assert found.meta["step"] == step
    assert store.gc(partial_days=1).removed == []
    assert slot.load() is not None


def make_many(root: Path, log: Path) -> None:
    def maker(_: SnapshotFolder) -> Contents:
        with log.open("a") as file:
            file.write("made\n")
        return made()

    for n in range(40):
        Store(root).make("model", {"n": n}, maker)
    os._exit(0)


def test_many_processes_make_each_of_many_artifacts_once_and_leave_no_locks(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    processes = [FORK.Process(target=make_many, args=(root, log)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert log.read_text().count("made") == 40
    assert Store(root).verify().checked == 40
    assert list((root / ".regun-locks").iterdir()) == list((root / ".regun-tmp").iterdir()) == []


def hold_and_die(root: Path) -> None:
    with Store(root).lock(Store.key("model", INPUTS)):
        os._exit(9)


def test_a_lock_whose_owner_died_is_taken_and_gc_removes_it(store: Store) -> None:
    lock = store.root / ".regun-locks" / f"{store.key('model', INPUTS)}.lock"
    assert in_child(hold_and_die, store.root) == 9
    assert lock.exists()
    assert store.gc(dry_run=True).problems == []
    assert lock.exists()
    store.gc()
    assert not lock.exists()
    assert in_child(hold_and_die, store.root) == 9
    assert store.make("model", INPUTS, made).info["role"] == "base"
    assert not lock.exists()


def test_a_lock_is_gone_also_after_a_maker_that_raised(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt):
        store.make("model", INPUTS, lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    assert list((store.root / ".regun-locks").iterdir()) == []


def test_where_locks_do_not_work_the_first_to_finish_stays(store: Store) -> None:
    """Two makers of one artifact, as on a file system without locks: neither spoils the other's."""

    def maker(_: SnapshotFolder) -> Contents:
        store._write("model", store.key("model", INPUTS), INPUTS, made())
        first.append(content(store.root / "artifacts"))
        return made()

    first: list[dict[str, bytes]] = []
    store.make("model", INPUTS, maker)
    assert content(store.root / "artifacts") == first[0]
    assert list((store.root / ".regun-tmp").iterdir()) == []


def test_looking_reads_no_tensors(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists, searches and quick checks of large stores stay quick."""
    keys = [store.make("model", {"n": n}, made).key for n in range(20)]
    monkeypatch.setattr(files, "file_sha256", lambda path: pytest.fail(f"hashed {path}"))
    read, seen = files.read_plain, []
    monkeypatch.setattr(files, "read_plain", lambda path, *more: (seen.append(path.name), read(path, *more))[1])
    assert len(store.artifacts()) == 20
    assert store.find(keys[3][:20]).key == keys[3]
    assert store.verify(quick=True).checked == 20
    store.gc()
    assert set(seen) == {"manifest.json"}


def test_a_quick_check_finds_lost_and_shortened_files(store: Store) -> None:
    kept: list[Artifact] = [store.make("model", {"n": n}, made) for n in range(3)]
    weights = [a.path / "weights.safetensors" for a in kept]
    weights[0].unlink()
    weights[1].write_bytes(weights[1].read_bytes()[:-1])
    weights[2].write_bytes(weights[2].read_bytes()[:-1] + b"\0")  # same size: only reading it tells
    assert len(store.verify(quick=True).problems) == 2
    assert main(["store", "verify", "--quick", "--store", str(store.root)]) == 1
    assert len(store.verify().problems) >= 2
