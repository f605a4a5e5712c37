"""Requests that follow others: ids that change their meaning, records the model never saw, what a plan refuses."""

import json
from pathlib import Path

import pytest
import torch
from small_project import EASY, QUICK, SIZES, data, ids, network, project, weights
from torch import nn

import regun
from regun.deletion import Options, Pseudonyms, history, prepare, reaudit_receipt, verify_folder
from regun.deletion.assess import rehearsal
from regun.errors import DataError, RegunError, SettingsError

LENIENT = Options(accept=EASY, accept_inconclusive=True, bootstrap=20)
NO_IDS = {"ids": None, "unseen_ids": {}}


def run(out: Path, wanted, options: Options = LENIENT, **changes):
    return regun.forget(project(**{"method": QUICK, **changes}), regun.DeletionRequest.of(wanted), out, options)


def all_fine(out: Path) -> bool:
    return all(check.passed is not False for _, some in verify_folder(out) for check in some)


# ------------------------------------------------------------------------------------------- ids that mean other things


@pytest.mark.parametrize("first", [NO_IDS, {}])
def test_positions_and_given_ids_do_not_follow_each_other(tmp_path: Path, first: dict) -> None:
    then = {} if first else NO_IDS
    run(tmp_path, [0, 1] if first else ids()[:2], **first)
    kinds = ("positions", "given") if first else ("given", "positions")
    message = f"the ids of request 1 are {kinds[0]}, and the project's are {kinds[1]}: one cannot be translated"
    with pytest.raises(RegunError, match=message):
        run(tmp_path, ids()[5:7] if first else [5, 6], **then)
    with pytest.raises(RegunError, match=message):
        reaudit_receipt(tmp_path / "requests/0001/receipt.json", project(**then))
    assert [line.ids for line in history(tmp_path)] == [kinds[0]]
    assert json.loads((tmp_path / "requests/0001/request.json").read_text())["ids_are"] == kinds[0]


def test_renamed_ids_of_the_same_data_are_refused(tmp_path: Path) -> None:
    run(tmp_path, ids()[:3])
    renamed = [f"user-{n}" for n in range(SIZES["train"])]
    with pytest.raises(RegunError, match="ids that it has forgotten are no longer among the project's"):
        run(tmp_path, renamed[5:7], ids=renamed)
    x, y = data()["train"]
    assert run(tmp_path, ids()[5:7], train=(x[3:], y[3:]), ids=ids()[3:]).plan.gone == 3, "deleted records may go"


def test_changed_data_without_ids_say_that_positions_cannot_be_translated(tmp_path: Path) -> None:
    run(tmp_path, [0], **NO_IDS)
    x, y = data()["train"]
    with pytest.raises(RegunError, match="cannot be translated; use the data as they were then, or start a new --out"):
        run(tmp_path, [5], train=(x[1:], y[1:]), **NO_IDS)


def test_the_salt_of_a_rejected_request_counts_too(tmp_path: Path) -> None:
    salted = Options(accept="smia_auc<0", bootstrap=20, pseudonyms=Pseudonyms(b"sixteen bytes and more"))
    assert not run(tmp_path, ids()[:3], salted).accepted
    with pytest.raises(RegunError, match="and no salt was given"):
        run(tmp_path, ids()[:3])


# -------------------------------------------------------------------------------------------------- never trained on


def test_a_request_for_unseen_records_is_recorded_and_they_stay_out(tmp_path: Path) -> None:
    wanted = [*ids("heldout")[:5], *ids("test")[:2]]
    done = run(tmp_path, wanted)
    (line,) = history(tmp_path)
    assert (line.status, line.before == line.after == line.base) == ("accepted", True)
    assert done.receipt["request"]["never_trained_on"] == {"heldout": 5, "test": 2}
    assert "stays as it is" in (tmp_path / "requests/0001/receipt.html").read_text()
    assert run(tmp_path, wanted).plan.empty
    later = run(tmp_path, ids()[:3])
    assert {name: len(rows) for name, rows in later.plan.remaining.items()} == {"heldout": 55, "val": 60, "test": 58}
    assert all_fine(tmp_path)
    for number in (1, 2):
        checks = reaudit_receipt(tmp_path / f"requests/000{number}/receipt.json", project())
        assert [check for check in checks if check.passed is False] == []


def test_unseen_records_are_part_of_what_is_asked(tmp_path: Path) -> None:
    plans = [
        prepare(project(), regun.DeletionRequest.of([ids()[0], *more]), tmp_path).request
        for more in ([], ids("val")[:1], ids("val")[1:2])
    ]
    assert len(set(plans)) == 3


def test_ids_of_unseen_sets_without_training_ids_are_refused(tmp_path: Path) -> None:
    """Record 5 of train and the test record that is called 5 are not the same."""
    with pytest.raises(SettingsError, match="the project has unseen_ids without ids"):
        run(tmp_path, [0], ids=None, unseen_ids={"heldout": [str(n) for n in range(60)]})
    with pytest.raises(DataError, match=r"ids\['heldout'\] has 3 ids for 60 examples"):
        run(tmp_path, ids()[:1], unseen_ids={"heldout": ["a", "b", "c"]})


def test_earlier_rejections_are_counted(tmp_path: Path) -> None:
    for _ in range(2):
        assert not run(tmp_path, ids()[:3], Options(accept="smia_auc<0", bootstrap=20)).accepted
    assert not run(tmp_path, ids()[8:9], Options(accept="smia_auc<0", bootstrap=20)).accepted
    done = run(tmp_path, ids()[2::-1])
    assert (done.accepted, done.receipt["request"]["tried_before"]) == (True, {"rejected": 2})
    assert "2 times: rejected" in (tmp_path / "requests/0004/receipt.html").read_text()


# ------------------------------------------------------------------------------------------ refused before any work


class Scaled(nn.Module):
    """A network that cannot draw all its weights anew."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = network(), nn.Parameter(torch.ones(1))
        self.inner.load_state_dict(weights())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.inner(x)


class Noting(nn.Module):
    """A network with state that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def get_extra_state(self) -> dict[str, int]:
        return {"seen": 3}

    def set_extra_state(self, state: object) -> None:
        pass

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        (Options(), {"heldout": None, "unseen_ids": {}}, "ReGUn needs a held-out set"),
        (Options(), {"method": "retrain", "model": Scaled()}, "cannot make fresh weights .*'scale'"),
        (Options(fallback="retrain"), {"model": Scaled()}, "cannot make fresh weights"),
        (Options(accept="smia_acu~50"), {}, "unknown number in the acceptance rule 'smia_acu'"),
        (Options(accept="smia_auc~retrain"), {}, "needs a retrained model's smia_auc"),
        (Options(accept="val_drop~1"), {}, "val_drop has no interval"),
        (Options(accept="val_drop<1"), {"val": None, "unseen_ids": {}}, "unknown number in the acceptance rule"),
        (Options(), {"model": Noting()}, "state '_extra_state' is a dict .*tensors only"),
    ],
)
def test_a_plan_refuses_what_the_run_would(tmp_path: Path, options: Options, changes: dict, message: str) -> None:
    with pytest.raises((RegunError, SettingsError), match=message):
        prepare(project(**changes), regun.DeletionRequest.of(ids()[:3]), tmp_path / "out", options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wanted", [ids()[:1], ids()[:30]])
def test_a_plan_knows_the_numbers_of_the_audit(tmp_path: Path, wanted: list[str]) -> None:
    """What the rehearsal finds is what the audit of the model has, for one record and for many."""
    done = run(tmp_path, wanted)
    judge = rehearsal(prepare(project(), regun.DeletionRequest.of(wanted), tmp_path / "other"))
    expected = {*done.receipt["audit"]["scopes"]["all"]["after"]["numbers"], *done.receipt["audit"]["drops"]}
    assert {*judge.audited["all"].numbers, *judge.drops(judge.before)} == expected


def test_fresh_weights_that_can_be_made_are_no_obstacle(tmp_path: Path) -> None:
    given = project(model=Scaled(), rebuild=lambda seed: Scaled())
    assert prepare(given, regun.DeletionRequest.of(ids()[:3]), tmp_path, Options(fallback="retrain")).number == 1
