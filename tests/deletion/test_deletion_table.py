"""Requests with a prepared table: no other training, the same guarantees, and erasure with the commit."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from small_project import (
    ERASE,
    HALVE,
    KEEP,
    LENIENT,
    Memory,
    data,
    failed,
    forge,
    forget,
    ids,
    network,
    project,
    receipt_of,
    receipt_path,
)

import regun
import regun.artifacts.out_models
import regun.deletion.folder as folder_module
import regun.methods._from_scratch
import regun.methods._teacher
import regun.methods.retrain
from expect import assert_names, error
from regun.deletion import Options, Pseudonyms, history, plan_request, reaudit_receipt, verify_folder, verify_receipt
from regun.deletion.project import open_project
from regun.deletion.table import current_table
from regun.errors import DataError, RegunError, StoreError
from regun.prepared import Prepared

QUICKLY = Options(bootstrap=20)
UPDATE = "auto,from_scratch=never,steps=40"
SETS = ("heldout", "val", "test")


@lru_cache
def table(repeats: int = 1, by_ids: bool = True, seed: int = 0) -> regun.Prepared:
    """Folds whose models know no training record; each has an opinion of its own."""
    parts = data()
    return regun.prepare(
        lambda dataset, seed: Memory(0.0, seed % 1000),
        parts["train"],
        **{name: parts[name] for name in SETS},
        ids={name: ids(name) for name in ("train", *SETS)} if by_ids else None,
        repeats=repeats,
        seed=seed,
    )


def memory(prepared: regun.Prepared | str | Path | None = None, **changes) -> dict:
    return {"model": Memory(), "prepared": prepared or table(), "rebuild": lambda seed: Memory(0.0, seed), **changes}


def newest(out: Path) -> regun.Prepared:
    """The table of the last accepted request."""
    number = next(line.number for line in reversed(history(out)) if line.accepted)
    return regun.Prepared.load(out / f"requests/{number:04d}/prepared.safetensors")


def has(prepared: regun.Prepared, wanted: list[str], which: str = "train") -> list[bool]:
    opened = open_project(project())
    examples = opened.sets[which]
    return [bool(row >= 0) for row in prepared.find(examples, ids(which), which)[[ids(which).index(w) for w in wanted]]]


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The trainings from scratch that were started."""
    started: list[str] = []
    real = regun.artifacts.out_models.train_from_scratch

    def spy(*args, **more):
        started.append("training")
        return real(*args, **more)

    for module in (
        regun.artifacts.out_models,
        regun.methods._teacher,
        regun.methods._from_scratch,
        regun.methods.retrain,
    ):
        monkeypatch.setattr(module, "train_from_scratch", spy)
    return started


def test_nothing_but_the_update_is_trained(tmp_path: Path, trainings: list[str]) -> None:
    done = forget(tmp_path, ids()[:20], QUICKLY, method=UPDATE, prepared=table())
    assert trainings == []
    attempt, about = done.receipt["method"]["attempts"][-1], done.receipt["audit"]["out_models"]
    assert (attempt["notes"]["price"]["branch"], attempt["cost"]["steps"]) == ("cross-fitted", 40)
    assert (about["kind"], about["models"]) == ("prepared", 1)
    assert_names(done.plan.judging, "prepared", 4)
    forget(tmp_path, ids()[:20], QUICKLY, method=UPDATE)
    assert trainings, "without a table there are others"


@pytest.mark.parametrize(("method", "status"), [(ERASE, "accepted"), (HALVE, "rejected"), (KEEP, "rejected")])
def test_the_table_judges(tmp_path: Path, method: str, status: str, trainings: list[str]) -> None:
    done = forget(tmp_path, ids()[:40], QUICKLY, **memory(table(2), method=method))
    left = done.receipt["audit"]["influence"]["all"]
    assert (done.status, left["out_models"], trainings) == (status, 2, [])
    assert failed(verify_folder(tmp_path)) == []
    assert failed(reaudit_receipt(receipt_path(tmp_path), project(**memory(method=method)))) == []


def test_a_model_that_never_knew_the_records_is_inconclusive(tmp_path: Path) -> None:
    done = forget(tmp_path, ids()[:20], QUICKLY, **memory(model=Memory(0.001), method=ERASE))
    assert done.status == "inconclusive"


def test_rows_are_erased_after_acceptance_and_only_then(tmp_path: Path) -> None:
    wanted = ids()[:20]
    assert forget(tmp_path, wanted, QUICKLY, **memory(method=HALVE)).status == "rejected"
    assert not (tmp_path / "requests/0001/prepared.safetensors").exists()
    assert receipt_of(tmp_path)["prepared"]["digest_after"] is None
    assert forget(tmp_path, wanted, QUICKLY, **memory(method=ERASE)).status == "accepted"
    left, facts = newest(tmp_path), receipt_of(tmp_path, 2)["prepared"]
    assert has(left, ids()) == [one not in wanted for one in ids()]
    assert (facts["digest"], facts["digest_after"], facts["records_erased"]) == (table().digest, left.digest, 20)
    assert facts["erased_share"] == 20 / 160
    text = " ".join(receipt_of(tmp_path, 2)["limits"])
    assert_names(text, table().about["created"][:10], "12.5", "--refresh")
    assert left.digest[:12] in (tmp_path / "requests/0002/receipt.html").read_text()
    assert "prepared.safetensors" in history(tmp_path)[1].files


def test_later_requests_use_the_newest_table(tmp_path: Path, trainings: list[str]) -> None:
    first, second = ids()[:20], ids()[20:50]
    known = memory(method=ERASE)
    forget(tmp_path, first, QUICKLY, **known)
    done = forget(tmp_path, second, QUICKLY, **known)
    assert (done.status, trainings) == ("accepted", [])
    assert set(done.receipt["audit"]["influence"]) == {"all", "new"}
    assert done.receipt["audit"]["influence"]["all"]["records"] == 50
    assert has(newest(tmp_path), ids()) == [one not in first + second for one in ids()]
    assert not (tmp_path / "requests/0001/prepared.safetensors").exists(), "it holds records forgotten since"
    assert failed(verify_folder(tmp_path)) == []
    assert failed(verify_receipt(receipt_path(tmp_path))) == []
    for number in (1, 2):
        assert failed(reaudit_receipt(receipt_path(tmp_path, number), project(**known))) == []
    third = forget(tmp_path, [*ids()[50:55], ids("val")[0]], LENIENT, **memory(method=ERASE, prepared=None))
    assert third.plan.table is not None, "the folder has it"
    assert has(newest(tmp_path), ids("val")[:2], "val") == [False, True]


def test_the_update_with_a_table_gets_the_new_records_only(tmp_path: Path) -> None:
    for wanted in (ids()[:10], ids()[10:15]):
        done = forget(tmp_path, wanted, LENIENT, method=UPDATE, prepared=table())
        assert done.accepted
    assert done.receipt["data"]["sets"]["forget"]["examples"] == 15


def test_a_table_that_was_prepared_again_takes_over(tmp_path: Path) -> None:
    forget(tmp_path, ids()[:20], QUICKLY, **memory(method=ERASE))
    done = forget(tmp_path, ids()[20:40], QUICKLY, **memory(table(seed=1), method=ERASE))
    assert done.receipt["prepared"]["digest"] == table(seed=1).digest
    assert has(newest(tmp_path), ids()) == [one not in ids()[:40] for one in ids()]
    assert done.status == "accepted"


def test_without_the_evidence_of_earlier_requests_short_models_judge(tmp_path: Path, trainings: list[str]) -> None:
    notes: list[str] = []
    forget(tmp_path, ids()[:20], QUICKLY, **memory(method=ERASE))
    done = forget(tmp_path, ids()[20:40], QUICKLY, notes.append, **memory(table_without(ids()[:20]), method=ERASE))
    assert trainings
    assert done.receipt["audit"]["out_models"]["kind"] == "short"
    assert_names(" ".join(notes), "prepared", "table")


def table_without(wanted: list[str]) -> regun.Prepared:
    """Another table, with two repeats, that does not have these records."""
    full = table(2)
    return full.without(np.array([ids().index(one) for one in wanted]))


def test_the_project_s_file_is_replaced_too(tmp_path: Path) -> None:
    path, out = tmp_path / "prepared.safetensors", tmp_path / "out"
    table().save(path)
    forget(out, ids()[:20], QUICKLY, **memory(path, method=ERASE))
    assert regun.Prepared.load(path).digest == newest(out).digest
    table().save(path)  # as if the process had been killed right after its commit
    forget(out, ids()[20:22], LENIENT, **memory(str(path), method=ERASE))
    assert has(regun.Prepared.load(path), ids()) == [one not in ids()[:22] for one in ids()]


def test_copies_are_erased_as_often_as_they_are_forgotten(tmp_path: Path) -> None:
    x, y = data()["train"]
    twice = (torch.cat([x, x[:2]]), torch.cat([y, y[:2]]))
    names = [*ids(), "copy-0", "copy-1"]
    by_content = regun.prepare(lambda d, seed: Memory(0.0, seed % 9), twice, **{n: data()[n] for n in SETS})
    changes = memory(by_content, train=twice, ids=names, method=ERASE)
    forget(tmp_path, ["train-0", "copy-0", "train-1"], LENIENT, **changes)
    left = newest(tmp_path)
    assert left.about["erased"] == 3
    opened = open_project(project(**changes))
    assert (left.find(opened.sets["train"])[[0, 1, 160, 161]] >= 0).tolist() == [False, True, False, True]


def test_under_a_salt_the_evidence_has_keyed_hashes(tmp_path: Path) -> None:
    salted = replace(QUICKLY, pseudonyms=Pseudonyms(b"0123456789abcdef"))
    forget(tmp_path, ids()[:20], salted, **memory(method=ERASE))
    assert forget(tmp_path, ids()[20:40], salted, **memory(method=ERASE)).status == "accepted"
    evidence = (tmp_path / "requests/0001/out_models.safetensors").read_bytes()
    assert not any(key.tobytes() in evidence for key in table().keys)


# ------------------------------------------------------------------------------------------------------ bad input, kills


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"train": (data()["train"][0][:100], data()["train"][1][:100]), "ids": [f"x{n}" for n in range(100)]}, [100]),
        ({"train": (data()["train"][0], (data()["train"][1] + 1) % 3)}, ["label"]),
        ({"model": torch.nn.Linear(8, 4), "method": "finetune"}, [3, 4, "classes"]),
        ({"prepared": "nowhere.safetensors"}, ["nowhere.safetensors"]),
        ({"prepared": 7}, ["prepared"]),
        ({"prepared": "lacks test"}, ["test"]),
    ],
)
def test_a_table_that_does_not_fit_is_one_error(tmp_path: Path, changes: dict, names: list) -> None:
    if changes.get("prepared") == "lacks test":
        changes = {"prepared": regun.prepare(lambda d, seed: network(), data()["train"], val=data()["val"])}
    wanted = [(changes.get("ids") or ids())[0]]
    with error(RegunError, *names):
        forget(tmp_path / "out", wanted, QUICKLY, **{"prepared": table(), **changes})
    assert not (tmp_path / "out").exists()


def test_records_that_the_table_never_had_are_named_before_any_work(tmp_path: Path) -> None:
    x, y = data()["train"]
    more = {"train": (torch.cat([x, x[:1] + 1]), torch.cat([y, y[:1]])), "ids": [*ids(), "late"]}
    with error(DataError, 1, 161, "prepared"):
        plan_request(project(prepared=table(), **more), regun.DeletionRequest.of(["train-0"]), tmp_path / "out")


def test_crossfit_without_a_table_is_refused(tmp_path: Path) -> None:
    with error(RegunError, "prepared"):
        forget(tmp_path / "out", ids()[:3], method="crossfit")


def test_an_altered_table_is_noticed(tmp_path: Path) -> None:
    forget(tmp_path, ids()[:20], QUICKLY, **memory(method=ERASE))
    path = tmp_path / "requests/0001/prepared.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert failed(verify_folder(tmp_path)) == [path.name]
    with error(StoreError, path):
        forget(tmp_path, ids()[20:30], QUICKLY, **memory(method=ERASE))
    path.unlink()
    assert failed(verify_folder(tmp_path)) == [path.name]


def test_a_table_with_the_rows_put_back_is_noticed(tmp_path: Path) -> None:
    """Ledger and digests are made to fit again; the receipt still names the erased version."""
    forget(tmp_path, ids()[:20], QUICKLY, **memory(method=ERASE))
    table().save(tmp_path / "requests/0001/prepared.safetensors")
    forge(tmp_path)
    assert failed(verify_folder(tmp_path)) == ["table in prepared.safetensors"]


class Stopped(BaseException):
    """Stands for a kill: nothing may catch it."""


@pytest.mark.parametrize("place", ["append", "sync_folder"])
def test_killed_around_the_commit_table_and_model_go_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """`append` is the commit; the last `sync_folder` comes after it."""
    out, path = tmp_path / "out", tmp_path / "prepared.safetensors"
    table().save(path)
    known = memory(path, method=ERASE)
    forget(out, ids()[:20], QUICKLY, **known)
    calls: list[str] = []
    real = getattr(folder_module, place)

    def stop(*args: object) -> None:
        calls.append(place)
        if len(calls) == {"append": 1, "sync_folder": 4}[place]:
            raise Stopped
        real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, place, stop)
        with pytest.raises(Stopped):
            forget(out, ids()[20:40], QUICKLY, **known)
    happened = len(history(out)) == 2
    assert happened is (place == "sync_folder")
    gone = 40 if happened else 20
    folder = folder_module.Folder(out)
    current = current_table(open_project(project(**known)), folder, history(out), Pseudonyms())
    assert has(current.prepared, ids()) == [one not in ids()[:gone] for one in ids()]
    assert failed(verify_folder(out)) == []
    forget(out, ids()[40:60], QUICKLY, **known)
    gone += 20
    assert has(regun.Prepared.load(path), ids()) == [one not in [*ids()[: gone - 20], *ids()[40:60]] for one in ids()]
    assert len(list(out.glob("requests/*/prepared.safetensors"))) == 1
    assert failed(verify_folder(out)) == []


def test_killed_before_the_project_s_file_is_erased_the_same_request_erases_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, path = tmp_path / "out", tmp_path / "prepared.safetensors"
    table().save(path)

    def stop(*args: object) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(Prepared, "save", stop)
        with pytest.raises(Stopped):
            forget(out, ids()[:20], LENIENT, **memory(path, method=ERASE))
    assert len(history(out)) == 1
    assert has(regun.Prepared.load(path), ids()[:1]) == [True]
    forget(out, ids()[:20], LENIENT, **memory(path, method=ERASE))
    assert len(history(out)) == 1
    assert has(regun.Prepared.load(path), ids()) == [one not in ids()[:20] for one in ids()]
