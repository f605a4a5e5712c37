"""The store: names that never lie, entries whole or absent, damage always found, one maker at a time."""

import hashlib
import json
import multiprocessing
import os
import random
import shutil
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from expect import error
from regun import files
from regun.artifacts import (
    Artifact,
    Contents,
    SnapshotFolder,
    Store,
    read_weights,
    state_digest,
    write_weights,
)
from regun.artifacts import (
    artifact as artifact_module,
)
from regun.artifacts import snapshots as slot_module
from regun.artifacts import store as directory
from regun.cli import main
from regun.errors import StoreError
from regun.training.snapshots import Snapshot

INPUTS = {"data": "abc", "recipe": {"lr": 0.1, "epochs": 3}, "seed": 0}


def made(_: object = None) -> Contents:
    weights = {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(3), "half": torch.ones(2, dtype=torch.bfloat16)}
    return Contents({"weights": weights, "trained_on": {"indices": torch.arange(4)}}, {"role": "base", "lr": 1e-05})


def everything_below(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def artifact(store: Store) -> Artifact:
    return store.make("model", INPUTS, made)


# ------------------------------------------------------------------------------------------------------------- names


def test_the_same_inputs_have_the_same_key_whatever_their_order() -> None:
    turned = {"seed": 0, "recipe": {"epochs": 3, "lr": 0.1}, "data": "abc"}
    assert Store.key("model", INPUTS) == Store.key("model", turned)
    text = b'{"format":2,"inputs":{"data":"abc","recipe":{"epochs":3,"lr":0.1},"seed":0},"kind":"model"}'
    assert Store.key("model", INPUTS) == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    "changed",
    [
        {**INPUTS, "data": "abd"},
        {**INPUTS, "seed": 1},
        {**INPUTS, "seed": "0"},
        {**INPUTS, "recipe": {"lr": 0.1, "epochs": 4}},
        {**INPUTS, "recipe": {"lr": 0.1 + 1e-16 * 1.5, "epochs": 3}},
        {**INPUTS, "more": None},
        {k: v for k, v in INPUTS.items() if k != "seed"},
    ],
)
def test_any_other_input_has_another_key(changed: dict) -> None:
    assert Store.key("model", changed) != Store.key("model", INPUTS)


def test_kind_and_format_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {Store.key(kind, INPUTS) for kind in ("model", "predictions", "evaluation")}
    monkeypatch.setattr(directory, "FORMAT", 3)
    assert len(keys | {Store.key("model", INPUTS)}) == 4


def test_inputs_with_numbers_as_keys_keep_their_name_when_stored(store: Store) -> None:
    inputs, info = {"fractions": {2: 0.5, 10: 0.1}}, {"counts": {3: 1, 20: 2}}
    key = store.make("model", inputs, lambda _: Contents({}, info)).key
    assert store.load("model", key).inputs == {"fractions": {"2": 0.5, "10": 0.1}}
    assert store.verify().problems == []


# ------------------------------------------------------------------------------------------------ making and loading


def test_an_artifact_is_made_once_and_comes_back_as_it_was(store: Store, artifact: Artifact) -> None:
    again = store.make("model", INPUTS, lambda _: pytest.fail("made a second time"))
    assert again == artifact == store.load("model", artifact.key) == store.find(artifact.key[:8])
    assert again.inputs == INPUTS
    assert again.info == {"role": "base", "lr": 1e-05}
    assert set(again.manifest["versions"]) == {"regun", "torch", "numpy", "safetensors"}
    for group, tensors in made().tensors.items():
        loaded = again.tensors(group)
        assert loaded.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert loaded[name].dtype == tensor.dtype
            assert torch.equal(loaded[name], tensor)


def test_a_missing_artifact_and_a_missing_group_are_named(store: Store, artifact: Artifact) -> None:
    with error(StoreError, "0" * 12, "--store"):
        store.load("model", "0" * 64)
    with error(StoreError, "optimizer.safetensors", "weights.safetensors", "trained_on.safetensors"):
        artifact.tensors("optimizer")


def test_finding_by_the_first_digits(store: Store) -> None:
    keys = [store.make(kind, {"n": n}, made).key for n in range(10) for kind in ("model", "predictions")]
    for key in keys:
        assert store.find(key).key == key
    by_first = {key[0]: [k for k in keys if k[0] == key[0]] for key in keys}
    twice = next(first for first, hits in by_first.items() if len(hits) > 1)
    with error(StoreError, len(by_first[twice]), repr(twice)):
        store.find(twice)
    with error(StoreError, "model", "'xyz'", "--store"):
        store.find("xyz", "model")
    model = keys[0]
    assert store.find(model, "model").kind == "model"
    with error(StoreError, "predictions", repr(model)):
        store.find(model, "predictions")


def test_artifacts_are_listed_oldest_first(store: Store) -> None:
    keys = [store.make("model", {"n": n}, made).key for n in range(5)]
    assert [a.key for a in store.artifacts()] == keys


def test_a_maker_that_raises_leaves_nothing_behind_and_may_try_again(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        store.make("model", INPUTS, lambda _: 1 / 0)
    assert everything_below(store.root / "artifacts") == everything_below(store.root / ".regun-tmp") == {}
    assert not store.has("model", store.key("model", INPUTS))
    assert store.make("model", INPUTS, made).info["role"] == "base"


def test_a_folder_that_lost_its_manifest_is_not_loaded_but_made_again(store: Store, artifact: Artifact) -> None:
    (artifact.path / "manifest.json").unlink()
    with error(StoreError, "manifest.json", "delete"):
        store.load("model", artifact.key)
    assert len(store.verify().problems) == 1
    assert store.make("model", INPUTS, made).path == artifact.path
    assert store.verify().problems == []


@pytest.mark.parametrize("info", [{"loss": float("nan")}, {"a": [float("inf")]}, {"a": object()}, {"a": {1, 2}}])
def test_what_json_cannot_say_is_refused_and_nothing_is_kept(store: Store, info: dict) -> None:
    with error(StoreError, "model", "JSON"):
        store.make("model", INPUTS, lambda _: Contents(made().tensors, info))
    assert everything_below(store.root / "artifacts") == everything_below(store.root / ".regun-tmp") == {}


def test_a_full_disk_is_said_and_nothing_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with error(StoreError, "space", "store"):
        store.make("model", INPUTS, made)
    with error(StoreError, "space", "snapshot"):
        store.make("model", INPUTS, lambda slot: slot.save(Snapshot({}, {})))
    with error(StoreError, "out.safetensors", "space"):
        write_weights(store.root / "out.safetensors", {"w": torch.ones(1)})
    assert everything_below(store.root / "artifacts") == everything_below(store.root / ".regun-tmp") == {}
    assert not list(store.root.glob("out*"))


def test_a_store_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with error(StoreError, tmp_path / "file" / "store", "directory"):
        Store(tmp_path / "file" / "store")
    store = Store(tmp_path / "store")
    (tmp_path / "store/.regun-locks").write_text("")
    with error(StoreError, "store"):
        store.make("model", INPUTS, made)


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_the_time_between_snapshots_must_make_sense(tmp_path: Path, seconds: float) -> None:
    with error(StoreError, seconds, "0"):
        Store(tmp_path, snapshot_seconds=seconds)


# ------------------------------------------------------------------------------------------------------------ damage


def damage(content: bytes, draw: random.Random) -> list[bytes]:
    """The same file with one bit, one byte or its end gone wrong, at many places."""
    places = sorted({0, 1, 7, 8, len(content) - 1, *(draw.randrange(len(content)) for _ in range(40))})
    flipped = [content[:i] + bytes([content[i] ^ 1 << draw.randrange(8)]) + content[i + 1 :] for i in places]
    zeroed = [content[:i] + b"\0" + content[i + 1 :] for i in places if content[i]]
    cut = [content[:i] for i in (0, 1, 8, len(content) // 2, len(content) - 1)]
    return [*flipped, *zeroed, *cut, content + b"\0", content + b"\n", content[:8] + content[9:]]


def read_all(store: Store, key: str) -> None:
    artifact = store.make("model", INPUTS, lambda _: pytest.fail("made again over a damaged one"))
    for name in artifact.manifest["files"]:
        artifact.tensors(name.removesuffix(".safetensors"))


@pytest.mark.parametrize("name", ["manifest.json", "weights.safetensors", "trained_on.safetensors"])
def test_every_damaged_byte_is_found_named_and_never_loaded(store: Store, artifact: Artifact, name: str) -> None:
    path = artifact.path / name
    whole = path.read_bytes()
    for broken in damage(whole, random.Random(0)):
        path.write_bytes(broken)
        with pytest.raises(StoreError) as caught:
            read_all(store, artifact.key)
        (problem,) = store.verify().problems
        assert str(path) in problem == str(caught.value)
        assert "is damaged" in problem
        assert "Delete" in problem or "delete" in problem
    path.write_bytes(whole)
    read_all(store, artifact.key)
    assert store.verify().problems == []


def test_changes_that_mean_the_same_to_a_json_parser_are_found_too(store: Store, artifact: Artifact) -> None:
    path = artifact.path / "manifest.json"
    whole = path.read_bytes()
    assert b"1e-05" in whole
    same = [whole.replace(b"1e-05", b"1E-05"), whole.replace(b"\n", b"\r", 1), whole + b" ", b"\t" + whole]
    for text in same:
        assert json.loads(text) == json.loads(whole)
        path.write_bytes(text)
        with error(StoreError, "manifest.json"):
            store.load("model", artifact.key)


@pytest.mark.parametrize("name", ["weights.safetensors", "trained_on.safetensors"])
def test_a_lost_file_is_named(store: Store, artifact: Artifact, name: str) -> None:
    (artifact.path / name).unlink()
    with error(StoreError, name):
        read_all(store, artifact.key)
    assert name in store.verify().problems[0]


def test_files_of_two_artifacts_swapped_are_found(store: Store, artifact: Artifact) -> None:
    zeros = {name: torch.zeros_like(tensor) for name, tensor in made().tensors["weights"].items()}
    other = store.make("model", {"seed": 1}, lambda _: Contents({"weights": zeros}, {}))
    shutil.copy(other.path / "weights.safetensors", artifact.path / "weights.safetensors")
    with error(StoreError, "SHA-256"):
        artifact.tensors("weights")
    shutil.copy(other.path / "manifest.json", artifact.path / "weights.safetensors")
    with error(StoreError, "bytes", "212"):
        artifact.tensors("weights")


def test_an_artifact_under_another_name_is_refused(store: Store, artifact: Artifact) -> None:
    other = store.key("model", {"seed": 1})
    shutil.copytree(artifact.path, store.path("model", other))
    with error(StoreError, "manifest.json", "delete"):
        store.make("model", {"seed": 1}, made)
    (problem,) = store.verify().problems
    assert other in problem
    shutil.rmtree(store.path("model", other))
    shutil.copytree(artifact.path, store.path("predictions", artifact.key))
    with error(StoreError, "manifest.json"):
        store.load("predictions", artifact.key)


def test_an_artifact_of_a_later_format_is_refused(
    store: Store, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_module, "FORMAT", 3)
    with error(StoreError, "2", "3"):
        store.load("model", artifact.key)


def test_verify_on_the_command_line_names_the_damaged_one_and_fails(
    store: Store, artifact: Artifact, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = store.make("model", {"seed": 1}, made)
    assert main(["store", "verify", "--store", str(store.root)]) == 0
    assert capsys.readouterr().out == "2 artifacts checked, 0 damaged.\n"
    path = artifact.path / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["store", "verify", "--store", str(store.root)]) == 1
    shown = capsys.readouterr().out
    assert f"DAMAGED  {path} is damaged" in shown
    assert sound.key not in shown
    assert shown.endswith("2 artifacts checked, 1 damaged.\n")
    assert main(["store", "verify", "--store", str(store.root), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["checked"] == 2
    assert str(path) in report["problems"][0]


# --------------------------------------------------------------------------------------------------------- snapshots


def snapshot(step: int) -> Snapshot:
    return Snapshot({"model.w": torch.full((3,), float(step))}, {"epoch": 1, "step": step})


def test_a_newer_snapshot_replaces_the_older(tmp_path: Path) -> None:
    slot = SnapshotFolder(tmp_path / "slot", 0)
    assert slot.load() is None
    for step in range(3):
        slot.save(snapshot(step))
        found = SnapshotFolder(tmp_path / "slot", 0).load()
        assert found is not None
        assert found.meta == {"epoch": 1, "step": step}
        assert torch.equal(found.tensors["model.w"], torch.full((3,), float(step)))
    assert len(list((tmp_path / "slot").iterdir())) == 2
    slot.clear()
    assert not (tmp_path / "slot").exists()


@pytest.mark.parametrize("name", ["snapshot.json", "tensors"])
def test_a_damaged_snapshot_is_refused_and_named(tmp_path: Path, name: str) -> None:
    slot = SnapshotFolder(tmp_path / "slot", 0)
    slot.save(snapshot(1))
    path = tmp_path / "slot/snapshot.json" if name == "snapshot.json" else next((tmp_path / "slot").glob("*.safe*"))
    for broken in damage(path.read_bytes(), random.Random(1)):
        path.write_bytes(broken)
        with pytest.raises(StoreError) as caught:
            slot.load()
        assert str(path) in str(caught.value)
        assert "is damaged" in str(caught.value)


@pytest.mark.parametrize("moment", ["sync_file", "write_new"])
def test_a_run_killed_while_saving_a_snapshot_has_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The first write is that of the tensors, the second that of the pointer to them."""
    slot = SnapshotFolder(tmp_path / "slot", 0)
    slot.save(snapshot(1))

    def dying(path: Path, content: bytes | None = None) -> None:
        half = path.read_bytes() if content is None else content
        path.write_bytes(half[: len(half) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(files, moment, dying)
    with pytest.raises(KeyboardInterrupt):
        slot.save(snapshot(2))
    monkeypatch.undo()
    found = slot.load()
    assert found is not None
    assert found.meta["step"] == 1
    slot.save(snapshot(3))
    assert len(list((tmp_path / "slot").glob("*.safetensors"))) == 1


def test_snapshots_are_due_after_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(slot_module.time, "monotonic", lambda: now[0])
    slot = SnapshotFolder(tmp_path / "slot", 20)
    assert not slot.due()
    now[0] += 20
    assert slot.due()
    slot.save(snapshot(0))
    assert not slot.due()
    assert SnapshotFolder(tmp_path / "slot", 0).due()


def test_a_finished_run_has_no_snapshot_and_an_interrupted_one_keeps_its_own(store: Store) -> None:
    def interrupted(slot: SnapshotFolder) -> Contents:
        slot.save(snapshot(4))
        raise KeyboardInterrupt

    def resumed(slot: SnapshotFolder) -> Contents:
        found = slot.load()
        return Contents({"weights": {} if found is None else found.tensors}, {"step": found and found.meta["step"]})

    with pytest.raises(KeyboardInterrupt):
        store.make("model", INPUTS, interrupted)
    assert store.make("model", {"seed": 9}, resumed).info["step"] is None
    assert store.make("model", INPUTS, resumed).info["step"] == 4
    assert list((store.root / ".regun-partial").iterdir()) == []


# -------------------------------------------------------------------------------------------------------- collecting


@pytest.fixture
def littered(store: Store) -> dict[str, Path]:
    """A store with every kind of leftover."""
    finished, unfinished = store.make("model", INPUTS, made).key, store.key("model", {"seed": 1})
    places = {
        "finished": store.root / ".regun-partial" / finished,
        "unfinished": store.root / ".regun-partial" / unfinished,
        "temporary": store.root / ".regun-tmp" / f"{unfinished}.abcdefg_",
        "stray": store.root / ".regun-tmp" / "stray",
    }
    for name in ("finished", "unfinished"):
        SnapshotFolder(places[name], 0).save(snapshot(1))
    places["temporary"].mkdir()
    (places["temporary"] / "weights.safetensors").write_bytes(b"12345")
    places["stray"].write_bytes(b"1234567")
    return places


def test_gc_removes_leftovers_and_keeps_what_a_run_may_need(store: Store, littered: dict[str, Path]) -> None:
    before = everything_below(store.root / "artifacts")
    size = sum(len(c) for c in everything_below(littered["finished"]).values())
    found = store.gc(dry_run=True)
    expected = {str(littered[name]) for name in ("finished", "temporary")}
    left = [f"{littered['stray']} was not made by regun; left alone."]
    assert (set(found.removed), found.freed, found.problems) == (expected, size + 5, left)
    assert all(path.exists() for path in littered.values())
    found = store.gc()
    assert (set(found.removed), found.freed, found.problems) == (expected, size + 5, left)
    assert [name for name, path in littered.items() if path.exists()] == ["unfinished", "stray"]
    assert everything_below(store.root / "artifacts") == before
    assert store.gc().removed == []


def test_gc_leaves_what_a_running_process_holds(store: Store, littered: dict[str, Path]) -> None:
    with store.lock(littered["unfinished"].name):
        found = store.gc(partial_days=0)
    assert {f"{littered[n]} is in use by another process; left alone." for n in ("unfinished", "temporary")} < {
        *found.problems
    }
    assert [name for name, path in littered.items() if path.exists()] == ["unfinished", "temporary", "stray"]


def test_gc_drops_old_snapshots_when_asked(store: Store, littered: dict[str, Path]) -> None:
    store.gc(partial_days=1)
    assert littered["unfinished"].exists()
    os.utime(littered["unfinished"], (0, 0))
    assert store.gc(partial_days=1).removed == [str(littered["unfinished"])]
    assert not littered["unfinished"].exists()


def test_gc_on_the_command_line(store: Store, littered: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "gc", "--dry-run", "--store", str(store.root)]) == 0
    shown = capsys.readouterr().out
    assert f"would remove {littered['temporary']}" in shown
    assert shown.endswith("would remove 2 leftovers, 0.0 MB.\n")
    with store.lock(littered["finished"].name):
        assert main(["store", "gc", "--store", str(store.root)]) == 0
    shown = capsys.readouterr().out
    assert f"{littered['finished']} is in use by another process; left alone." in shown
    assert shown.endswith("removed 1 leftover, 0.0 MB.\n")
    assert main(["store", "gc", "--store", str(store.root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == [str(littered["finished"])]


# --------------------------------------------------------------------------------------------------------- processes


def make_slowly(root: Path, log: Path, start) -> None:
    """In another process: make the artifact, noting who did it."""

    def maker(_: SnapshotFolder) -> Contents:
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.3)
        return made()

    start.wait()
    assert Store(root).make("model", INPUTS, maker).info["role"] == "base"


def test_processes_that_want_the_same_at_once_make_it_once(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(3)
    workers = [fork.Process(target=make_slowly, args=(tmp_path / "s", tmp_path / "log", barrier)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len((tmp_path / "log").read_text().split()) == 1
    assert Store(tmp_path / "s").verify().checked == 1


def die_at_write(root: Path, number: int) -> None:
    """In another process: make the artifact, but die in the middle of one of its files, or before the last rename."""
    write, left = files.write_new, [number]

    def dying(path: Path, content: bytes) -> None:
        left[0] -= 1
        write(path, content[: len(content) // 2] if left[0] == 0 else content)
        if left[0] == 0:
            os._exit(9)

    files.write_new = dying
    os.replace = lambda *_: os._exit(9)
    Store(root).make("model", INPUTS, made)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_process_killed_at_any_write_leaves_no_artifact(store: Store, number: int) -> None:
    process = multiprocessing.get_context("fork").Process(target=die_at_write, args=(store.root, number))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    assert store.artifacts() == []
    assert len(list((store.root / ".regun-tmp").iterdir())) == 1
    assert store.make("model", INPUTS, made).info["role"] == "base"
    assert store.verify().problems == []
    assert len(store.gc().removed) == 1


def die_while_making(root: Path) -> None:
    def maker(slot: SnapshotFolder) -> Contents:
        slot.save(snapshot(2))
        os._exit(9)

    Store(root).make("model", INPUTS, maker)


def test_a_process_that_dies_gives_its_lock_back(store: Store) -> None:
    process = multiprocessing.get_context("fork").Process(target=die_while_making, args=(store.root,))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    seen = []

    def maker(slot: SnapshotFolder) -> Contents:
        seen.append(slot.load())
        return made()

    store.make("model", INPUTS, maker)
    assert seen[0].meta["step"] == 2


# ------------------------------------------------------------------------------------------------------------ digests


def test_a_state_s_digest_ignores_memory_layout_and_order_of_names() -> None:
    weight, bias = torch.randn(4, 3, 5, 5), torch.randn(4)
    plain = state_digest({"weight": weight, "bias": bias})
    assert state_digest({"bias": bias, "weight": weight.to(memory_format=torch.channels_last)}) == plain
    assert state_digest({"weight": nn.Parameter(weight), "bias": torch.stack([bias, bias], 1)[:, 0]}) == plain


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 23), st.integers(0, 31))
def test_a_state_s_digest_sees_every_bit(place: int, bit: int) -> None:
    weight = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    other = weight.clone()
    bits = other.view(torch.int32).view(-1)
    bits[place] ^= torch.tensor(1 << bit if bit < 31 else -(1 << 31), dtype=torch.int32)
    assert state_digest({"w": weight}) != state_digest({"w": other})


def test_a_state_s_digest_sees_names_types_and_shapes() -> None:
    weight = torch.zeros(2, 3)
    states = [
        {"w": weight},
        {"v": weight},
        {"w": weight.half()},
        {"w": weight.T},
        {"w": weight.reshape(6)},
        {"w": weight, "v": weight},
        {"w": -weight},
        {},
    ]
    assert len({state_digest(state) for state in states}) == len(states)


def test_tied_weights_and_views_are_stored_and_come_back(store: Store) -> None:
    embedding, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = embedding.weight
    state = nn.ModuleDict({"embedding": embedding, "head": head}).state_dict()
    state["row"] = state["head.weight"][1]
    loaded = store.make("model", INPUTS, lambda _: Contents({"weights": state}, {})).tensors("weights")
    assert state_digest(loaded) == state_digest(state)


# -------------------------------------------------------------------------------------------- files of the user's own


def test_weights_go_out_and_come_in(tmp_path: Path) -> None:
    tensors = {"w": torch.randn(2, 3).to(torch.bfloat16), "steps": torch.tensor(4)}
    write_weights(tmp_path / "out.safetensors", tensors)
    assert state_digest(read_weights(tmp_path / "out.safetensors")) == state_digest(tensors)
    assert state_digest(safetensors.torch.load_file(tmp_path / "out.safetensors")) == state_digest(tensors)


@pytest.mark.parametrize("content", [b"", b"1234567", b"\x80\x04pickle", b'{"a": 1}' * 5])
def test_what_is_not_safetensors_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.safetensors").write_bytes(content)
    with error(StoreError, "w.safetensors", "safetensors.torch.save_file"):
        read_weights(tmp_path / "w.safetensors")


def test_weights_that_cannot_be_written_leave_nothing(tmp_path: Path) -> None:
    with error(StoreError, tmp_path / "nowhere/w.safetensors"):
        write_weights(tmp_path / "nowhere/w.safetensors", {"w": torch.ones(1)})
    (tmp_path / "folder").mkdir()
    with error(StoreError, "folder", "directory"):
        write_weights(tmp_path / "folder", {"w": torch.ones(1)})
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
