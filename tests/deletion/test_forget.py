"""Executing requests: who plays which part in a sequence, what is accepted, and what is written."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from small_project import (
    EASY,
    ERASE,
    HALVE,
    LENIENT,
    QUICK,
    SIZES,
    Memory,
    data,
    failed,
    forget,
    ids,
    network,
    project,
    receipt_of,
    receipt_path,
    weights,
)  # fmt: skip
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import regun
import regun.deletion.attempt
from expect import assert_names, error
from regun.artifacts import state_digest
from regun.deletion import Options, history, plan_request, reaudit_receipt, verify_folder
from regun.deletion.assess import dry_assessor
from regun.errors import DataError, RegunError, SettingsError

FIRST, SECOND = ids()[:20], ids()[15:40]
NO_IDS = {"ids": None, "unseen_ids": {}}


def files(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """What every unlearning run got: the starting weights and the inputs of each set."""
    seen: list[dict] = []
    real = regun.unlearn

    def spy(model, **given):
        sets = {name: given[name] for name in ("forget", "retain", "heldout", "val") if given[name] is not None}
        inputs = {name: some.fetch(np.arange(len(some.labels))).x for name, some in sets.items()}
        seen.append({"start": state_digest(model.state_dict()), **inputs})
        return real(model, **given)

    monkeypatch.setattr(regun.deletion.attempt, "unlearn", spy)
    return seen


def rows(x: torch.Tensor) -> set[tuple]:
    return {tuple(row.tolist()) for row in x}


# ------------------------------------------------------------------------------------------------------------ sequences


def test_a_sequence_forgets_the_union_and_nothing_comes_back(tmp_path: Path, parts: list[dict]) -> None:
    x = data()["train"][0]
    forget(tmp_path, FIRST)
    done = forget(tmp_path, [*SECOND, *ids("heldout")[:5], *ids("val")[:2]])
    assert done.plan.matched.already == tuple(ids()[15:20])
    first, second = parts
    assert rows(first["forget"]) == rows(x[:20])
    assert rows(first["retain"]) == rows(x[20:])
    assert rows(second["forget"]) == rows(x[:40])
    assert rows(second["retain"]) == rows(x[40:])
    assert rows(second["heldout"]) == rows(data()["heldout"][0][5:])
    assert rows(second["val"]) == rows(data()["val"][0][2:])
    assert second["start"] == receipt_of(tmp_path, 1)["ledger"]["after"] != first["start"]
    forget(tmp_path, ids()[100:101])
    assert rows(parts[2]["heldout"]) == rows(data()["heldout"][0][5:]), "forgotten ids stay out of every set"


def test_the_audit_covers_new_and_all_forgotten_records(original: Path) -> None:
    assert set(receipt_of(original, 1)["audit"]["scopes"]) == {"all"}
    audit, facts = receipt_of(original, 2)["audit"]["scopes"], receipt_of(original, 2)["data"]
    assert set(audit) == {"all", "new"}
    assert (facts["sets"]["forget"]["examples"], facts["newly_forgotten_examples"]) == (40, 20)
    model = network()
    model.load_state_dict(safetensors.torch.load_file(receipt_path(original, 2).parent / "model.safetensors"))
    sets, (x, y) = data(), data()["train"]
    unseen = {"heldout": sets["heldout"], "val": tuple(part[1:] for part in sets["val"]), "test": sets["test"]}
    for scope, rows in (("all", slice(0, 40)), ("new", slice(20, 40))):
        report = regun.audit(model, forget=(x[rows], y[rows]), retain=(x[40:], y[40:]), **unseen, bootstrap=20)
        expected = {name: number.to_json() for name, number in report.numbers.items()}
        assert expected == audit[scope]["after"]["numbers"]


def test_the_same_request_twice_does_nothing(out: Path) -> None:
    before = files(out)
    for wanted in (FIRST, FIRST[::-1], FIRST[:3]):
        done = forget(out, wanted)
        assert (done.folder, done.receipt, done.accepted, done.plan.empty) == (None, None, True, True)
    assert files(out) == before


def test_a_repeated_request_gives_the_same_model(original: Path, tmp_path: Path) -> None:
    first = receipt_of(original, 1)["ledger"]["after"]
    assert forget(tmp_path / "a", FIRST[::-1]).receipt["ledger"]["after"] == first
    assert forget(tmp_path / "b", FIRST, replace(LENIENT, seed=1)).receipt["ledger"]["after"] != first


def test_a_rejected_request_changes_nothing_that_counts(tmp_path: Path, parts: list[dict]) -> None:
    for _ in range(2):
        assert forget(tmp_path, FIRST, Options(accept="smia_auc<0", bootstrap=20)).status == "rejected"
    again = forget(tmp_path, FIRST[::-1])
    assert [line.status for line in history(tmp_path)] == ["rejected", "rejected", "accepted inconclusive"]
    assert {part["start"] for part in parts} == {state_digest(weights())}
    assert again.receipt["request"]["tried_before"] == {"rejected": 2}
    forget(tmp_path, SECOND)
    assert parts[3]["start"] == again.receipt["ledger"]["after"]
    assert failed(verify_folder(tmp_path)) == []


def test_records_deleted_from_the_data_stay_forgotten(out: Path, parts: list[dict]) -> None:
    x, y = data()["train"]
    done = forget(out, [ids()[2], *ids()[40:50]], train=(x[10:], y[10:]), ids=ids()[10:])
    assert done.plan.gone == done.receipt["data"]["earlier_ids_no_longer_in_data"] == 10
    assert done.plan.matched.already == (ids()[2],)
    assert rows(parts[0]["forget"]) == rows(x[10:50])


def test_the_project_may_hold_the_current_model(out: Path) -> None:
    current = network()
    current.load_state_dict(safetensors.torch.load_file(receipt_path(out, 2).parent / "model.safetensors"))
    done = forget(out, ids()[60:65], model=current)
    assert done.receipt["ledger"]["base"] == state_digest(weights())
    assert "val_drop_total" not in done.receipt["audit"]["drops"]
    with error(RegunError, state_digest(network(3).state_dict())[:12], state_digest(weights())[:12]):
        forget(out, ids()[70:75], model=network(3))


@pytest.mark.parametrize("first", [NO_IDS, {}])
def test_positions_and_given_ids_do_not_follow_each_other(tmp_path: Path, first: dict) -> None:
    forget(tmp_path, [0, 1] if first else ids()[:2], **first)
    with error(RegunError, "positions", "given", "out"):
        forget(tmp_path, ids()[5:7] if first else [5, 6], **({} if first else NO_IDS))


def test_renamed_ids_and_shifted_positions_are_refused(original: Path, tmp_path: Path) -> None:
    renamed = [f"user-{n}" for n in range(SIZES["train"])]
    with error(RegunError, "ids", "out"):
        forget(original, renamed[5:7], ids=renamed)
    x, y = data()["train"]
    forget(tmp_path, [0], **NO_IDS)
    with error(RegunError, "ids", "out"):
        forget(tmp_path, [5], train=(x[1:], y[1:]), **NO_IDS)


def test_a_request_for_unseen_records_is_recorded_and_they_stay_out(tmp_path: Path) -> None:
    wanted = [*ids("heldout")[:5], *ids("test")[:2]]
    done = forget(tmp_path, wanted)
    (line,) = history(tmp_path)
    assert (line.status, line.before == line.after == line.base) == ("accepted", True)
    assert done.receipt["request"]["never_trained_on"] == {"heldout": 5, "test": 2}
    assert done.receipt["method"]["claim"] == "none"
    assert forget(tmp_path, wanted).plan.empty
    later = forget(tmp_path, ids()[:3])
    assert {name: len(some) for name, some in later.plan.remaining.items()} == {"heldout": 55, "val": 60, "test": 58}
    assert failed(verify_folder(tmp_path)) == []
    for number in (1, 2):
        assert failed(reaudit_receipt(receipt_path(tmp_path, number), project())) == []


def test_unseen_records_are_part_of_the_request(tmp_path: Path) -> None:
    requests = [
        plan_request(project(), regun.DeletionRequest.of([ids()[0], *more]), tmp_path).request
        for more in ([], ids("val")[:1], ids("val")[1:2])
    ]
    assert len(set(requests)) == 3


def test_an_id_may_stand_for_several_examples(tmp_path: Path, parts: list[dict]) -> None:
    people = [n // 10 for n in range(SIZES["train"])]
    done = forget(tmp_path, [3, 5], ids=np.array(people), unseen_ids={})
    assert len(done.plan.new) == 20
    x = data()["train"][0]
    assert rows(parts[0]["forget"]) == rows(torch.cat([x[30:40], x[50:60]]))


# ------------------------------------------------------------------------------------------------------------- verdicts


def test_the_default_rule_accepts_what_forgets_and_rejects_what_does_not(tmp_path: Path) -> None:
    """On a model that remembers by construction: forgotten, an example looks exactly like unseen ones."""
    given = {"model": Memory(), "rebuild": lambda seed: Memory(0.0, seed)}
    half = forget(tmp_path / "half", FIRST, Options(), method=HALVE, **given)
    notes: list[str] = []
    erased = forget(tmp_path / "erased", FIRST, Options(fallback=ERASE), method=HALVE, on_note=notes.append, **given)
    assert [one.receipt["acceptance"]["rule"] for one in (half, erased)] == ["forgotten, val_drop<7.7"] * 2
    assert (half.status, erased.status) == ("rejected", "accepted")
    assert [one["verdict"] for one in erased.receipt["method"]["attempts"]] == ["rejected", "accepted"]
    assert_names(notes[0], HALVE, "rejected", "forgotten", ERASE)
    shares = [one.receipt["audit"]["influence"]["all"]["share"][0] for one in (half, erased)]
    assert 30 < shares[0] < 100
    assert abs(shares[1]) < 20
    assert erased.receipt["audit"]["drops"]["val_drop"] == 0


def test_the_fallback_retrains_and_its_utility_still_counts(tmp_path: Path, parts: list[dict]) -> None:
    done = forget(tmp_path / "a", FIRST, Options(accept="smia_auc<0, val_drop<=100", fallback="retrain", bootstrap=20))
    attempts = done.receipt["method"]["attempts"]
    assert [(one["method"], one["verdict"]) for one in attempts] == [("regun", "rejected"), ("retrain", "accepted")]
    assert attempts[1]["settings"]["epochs"] == 20
    assert len(parts) == 2
    assert done.receipt["acceptance"]["findings"][0]["result"] == "passed", "by construction"
    strict = Options(accept="smia_auc<0, val_drop<-100", fallback="retrain,epochs=1", bootstrap=20)
    assert forget(tmp_path / "b", FIRST, strict).status == "rejected"


def test_a_run_that_diverges_is_rejected(tmp_path: Path) -> None:
    done = forget(tmp_path, FIRST, method="regun,lr=1e30,epochs=2,batch_size=8")
    assert done.status == "rejected"
    assert done.receipt["method"]["attempts"][0]["diverged"]
    assert done.receipt["audit"]["scopes"] == {}
    assert failed(verify_folder(tmp_path)) == []


def test_one_record_alone(tmp_path: Path) -> None:
    done = forget(tmp_path, ids()[3:4], Options(accept="smia_auc~50", bootstrap=20))
    value, low, high = done.receipt["audit"]["scopes"]["all"]["after"]["numbers"]["smia_auc"]
    assert 0 <= low <= value <= high <= 100
    risks = (tmp_path / "requests/0001/risks.csv").read_text().splitlines()
    assert risks[0] == "id,request,test_percentile_before,test_percentile_after"
    assert risks[1].startswith("train-3,this,")
    assert float(risks[1].split(",")[3]) == round(value, 3)


def test_retrained_models_give_gaps_a_floor_and_a_rule_by_them(tmp_path: Path) -> None:
    x, y = data()["train"]

    def retrained(forgotten: frozenset[str]):
        assert forgotten == frozenset(FIRST)
        sets = {"forget": (x[:20], y[:20]), "retain": (x[20:], y[20:])}
        recipe = {"epochs": 3, "lr": 0.05, "batch_size": 16}
        return [regun.unlearn(network(), **sets, method="retrain", settings=recipe, seed=s).model for s in range(4)]

    done = forget(tmp_path, FIRST, Options(accept="gap_rftp<=floor", bootstrap=20), retrained=retrained)
    after = done.receipt["audit"]["scopes"]["all"]["after"]
    assert after["gaps"]["gap_rftp"]["floor_limit"] is not None
    assert "rmia_auc" in after["numbers"]


# --------------------------------------------------------------------------------------------------------------- copies


def doubled(count: int) -> dict:
    """The first records stand in train twice, under other ids."""
    x, y = data()["train"]
    copies = [f"copy-{n}" for n in range(count)]
    return {"train": (torch.cat([x, x[:count]]), torch.cat([y, y[:count]])), "ids": [*ids(), *copies]}


def test_copies_of_forgotten_records_are_named_and_refused_on_request(tmp_path: Path) -> None:
    notes: list[str] = []
    done = forget(tmp_path / "a", FIRST, on_note=notes.append, **doubled(2))
    for text in (notes[0], done.receipt["method"]["attempts"][0]["warnings"][0]):
        assert_names(text, 2, "'copy-0'", "'copy-1'")
    assert done.receipt["data"]["copies_retained"] == {"all": 2, "new": 2, "first_ids": ["copy-0", "copy-1"]}
    with error(DataError, 2, "'copy-0'", "'copy-1'"):
        forget(tmp_path / "b", FIRST, replace(LENIENT, check_content=True), **doubled(2))
    assert not (tmp_path / "b").exists()
    done = forget(tmp_path / "b", [*FIRST, "copy-0", "copy-1"], replace(LENIENT, check_content=True), **doubled(2))
    assert done.receipt["data"]["copies_retained"]["all"] == 0


def test_a_model_retrained_on_copies_passes_nothing_by_construction(tmp_path: Path) -> None:
    options, given = Options(accept=f"forgotten, {EASY}", bootstrap=20), {"method": "retrain,epochs=1"}
    clean = forget(tmp_path / "clean", FIRST, options, **given)
    assert clean.accepted
    assert "never seen" in clean.receipt["letter"]
    done = forget(tmp_path / "out", FIRST, options, **doubled(2), **given)
    assert done.status == "inconclusive"
    taken = forget(tmp_path / "out", FIRST, replace(options, accept_inconclusive=True), **doubled(2), **given)
    assert taken.status == "accepted inconclusive"
    assert "never seen" not in taken.receipt["letter"]
    assert_names(taken.receipt["letter"], 2)
    assert_names(taken.receipt["limits"][0], 2)
    assert failed(reaudit_receipt(receipt_path(tmp_path / "out", 2), project(**doubled(2), **given))) == []
    later = forget(tmp_path / "out", ids()[30:40], options, **doubled(2), **given).receipt
    findings = {f["scope"]: f["result"] for f in later["acceptance"]["findings"] if f["condition"] == "forgotten"}
    assert findings == {"all": "inconclusive", "new": "passed"}


# ------------------------------------------------------------------------------------------------- killed on the way


def test_a_run_that_was_stopped_before_it_was_judged_is_not_repeated(
    tmp_path: Path, parts: list[dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    options = Options(accept=f"forgotten, {EASY}", bootstrap=20, accept_inconclusive=True, out_models=1)
    whole = forget(tmp_path / "whole", FIRST, options).receipt
    for wanted in (FIRST, SECOND):
        with monkeypatch.context() as patch:
            patch.setattr("regun.deletion.out_models.train_out_models", stop)
            with pytest.raises(KeyboardInterrupt):
                forget(tmp_path / "out", wanted, options)
        if wanted is FIRST:
            assert len(parts) == 2
            done = forget(tmp_path / "out", FIRST, options).receipt
            assert len(parts) == 2, "the method did not run again"
    without_time = [{**one["method"]["attempts"][0], "cost": None} for one in (done, whole)]
    assert without_time[0] == without_time[1]
    assert done["ledger"]["after"] == whole["ledger"]["after"]
    forget(tmp_path / "out", SECOND, replace(options, seed=1))
    assert len(parts) == 4, "another seed is another run"
    assert not (tmp_path / "out/.regun-work").exists()


# --------------------------------------------------------------------------------------------- refused before any work


class Scaled(nn.Module):
    """A network that cannot reset all its weights."""

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


def broken() -> nn.Module:
    model = project().model
    with torch.no_grad():
        model[0].weight[0] = float("nan")
    return model


@pytest.mark.parametrize(
    ("options", "changes", "names"),
    [
        (Options(), {"heldout": None, "unseen_ids": {}}, ["heldout", "ReGUn"]),
        (Options(), {"heldout": None, "val": None, "test": None, "unseen_ids": {}}, ["heldout", "val", "test"]),
        (Options(), {"ids": ids()[:5]}, [5, 160]),
        (Options(), {"unseen_ids": {"heldout": ids()[:60]}}, ["train", "heldout", 60]),
        (Options(), {"unseen_ids": {"heldout": ["a", "b", "c"]}}, [3, 60]),
        (Options(), {"ids": None, "unseen_ids": {"heldout": list(range(60))}}, ["unseen_ids", "ids"]),
        (Options(), {"method": "regnu"}, ["'regnu'", "'regun'"]),
        (Options(), {"method": "regun,ww=3"}, ["'ww'"]),
        (Options(method="regun@papr"), {}, ["'papr'"]),
        (Options(accept="smia_auc"), {}, ["'smia_auc'", "forgotten"]),
        (Options(accept="smia_acu~50"), {}, ["'smia_acu'", "'smia_auc'"]),
        (Options(accept="smia_auc~retrain"), {}, ["smia_auc~retrain"]),
        (Options(accept="val_drop~1"), {}, ["val_drop"]),
        (Options(accept="val_drop<1"), {"val": None, "unseen_ids": {}}, ["'val_drop'"]),
        (Options(), {"method": "retrain", "model": Scaled()}, ["'scale'"]),
        (Options(fallback="retrain"), {"model": Scaled()}, ["'scale'"]),
        (Options(), {"model": Noting()}, ["'_extra_state'", "dict"]),
        (LENIENT, {"model": broken()}, ["NaN"]),
        (LENIENT, {"model": project().model.requires_grad_(False)}, ["frozen"]),
        (LENIENT, {"rebuild": lambda: network()}, ["rebuild", "TypeError"]),
        (LENIENT, {"rebuild": lambda seed: nn.Linear(3, 3)}, ["rebuild"]),
        (LENIENT, {"heldout": tuple(p.clone() for p in data()["train"]), "unseen_ids": {}}, [20, "unseen_ids"]),
    ],
)
def test_what_would_fail_is_refused_before_anything_is_written(
    tmp_path: Path, options: Options, changes: dict, names: list
) -> None:
    given, request = project(**changes), regun.DeletionRequest.of(FIRST)
    for call in (plan_request, regun.forget):
        with error(RegunError, *names):
            call(given, request, tmp_path / "out", options)
    assert not (tmp_path / "out").exists()


def test_unknown_ids_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with error(DataError, 2, 3, "'ghost'", "'train-99999'", "ignore_unknown"):
        forget(tmp_path / "out", ["ghost", ids()[0], "train-99999"])
    assert not (tmp_path / "out").exists()
    done = forget(tmp_path / "out", ["ghost", ids()[0]], replace(LENIENT, ignore_unknown=True))
    assert done.receipt["request"]["left_out"]["unknown"] == 1


def test_all_records_cannot_be_forgotten(tmp_path: Path) -> None:
    with error(DataError, "retain"):
        forget(tmp_path / "out", ids())
    assert not (tmp_path / "out").exists()


def test_overlap_is_found_by_content_on_request(tmp_path: Path) -> None:
    x, y = data()["test"]
    mixed = (torch.cat([x, data()["train"][0][7:8]]), torch.cat([y, data()["train"][1][7:8]]))
    assert forget(tmp_path / "a", FIRST, test=mixed, unseen_ids={}).accepted
    with error(DataError, "train", "test", 1):
        forget(tmp_path / "b", FIRST, replace(LENIENT, check_content=True), test=mixed, unseen_ids={})


def test_records_that_only_look_alike_are_told_apart_by_ids(tmp_path: Path) -> None:
    x, y = data()["heldout"]
    alike = {"heldout": (torch.cat([x[:-1], data()["train"][0][:1]]), y)}
    with error(DataError, "forget", "heldout", 1):
        forget(tmp_path / "a", FIRST, unseen_ids={}, **alike)
    assert forget(tmp_path / "b", FIRST, **alike).accepted


def test_a_rebuild_that_returns_the_trained_weights_is_refused(tmp_path: Path) -> None:
    trained = project().model
    with error(RegunError, "rebuild"):
        forget(tmp_path / "out", FIRST, method="retrain", rebuild=lambda seed: copy.deepcopy(trained))


@pytest.mark.parametrize("options", [{"out_models": -1}, {"role": "x" * 1001}, {"bootstrap": 10**30}])
def test_options_out_of_range_are_refused(options: dict) -> None:
    with error(SettingsError, *options):
        Options(**options)


@pytest.mark.parametrize("wanted", [ids()[:1], ids()[:30]])
def test_a_plan_knows_the_numbers_of_the_audit(tmp_path: Path, wanted: list[str]) -> None:
    done = forget(tmp_path, wanted)
    dry = dry_assessor(plan_request(project(), regun.DeletionRequest.of(wanted), tmp_path / "other"))
    expected = {*done.receipt["audit"]["scopes"]["all"]["after"]["numbers"], *done.receipt["audit"]["drops"]}
    assert {*dry.audit_before["all"].numbers, *dry.drops(dry.before)} == expected


def test_a_plan_writes_nothing_and_the_model_is_not_changed(tmp_path: Path) -> None:
    given = project(method=QUICK, accept=EASY)
    before = {name: tensor.clone() for name, tensor in given.model.state_dict().items()}
    plan = plan_request(given, regun.DeletionRequest.of(FIRST), tmp_path / "out")
    assert (len(plan.new), plan.rule.text) == (20, EASY)
    assert not (tmp_path / "out").exists()
    regun.forget(given, regun.DeletionRequest.of(FIRST), tmp_path / "out")
    assert all(torch.equal(tensor, before[name]) for name, tensor in given.model.state_dict().items())
    assert given.model.training


# ------------------------------------------------------------------------------------------------ what a project may be


class Mapped(Dataset):
    def __init__(self, pair) -> None:
        self.pair = pair

    def __len__(self) -> int:
        return len(self.pair[1])

    def __getitem__(self, i: int):
        return {"input": self.pair[0][i], "labels": self.pair[1][i]}


def test_data_sets_loaders_and_mappings_give_the_same_model(tmp_path: Path) -> None:
    shapes = {"tensors": lambda p: p, "set": lambda p: TensorDataset(*p), "mapping": Mapped}
    shapes["loader"] = lambda p: DataLoader(TensorDataset(*p), batch_size=7, shuffle=True)
    models = set()
    for name, shape in shapes.items():
        sets = {which: shape(data()[which]) for which in SIZES}
        models.add(forget(tmp_path / name, FIRST, method="finetune,epochs=1", **sets).receipt["ledger"]["after"])
    assert len(models) == 1


def test_the_receipt_shows_the_settings_that_were_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """auto retrains by the project's recipe here."""
    monkeypatch.setattr("regun.methods._baseline_comparison.BaselineComparison.collapsed", lambda *_: False)
    attempt = forget(tmp_path, FIRST, Options(accept=EASY, bootstrap=20), method="auto").receipt["method"]["attempts"][
        0
    ]
    assert attempt["from_scratch"]
    settings = {name: attempt["settings"][name] for name in ("epochs", "lr", "batch_size")}
    assert settings == {"epochs": 20, "lr": 0.05, "batch_size": 16}


def test_frozen_weights_of_a_retrained_model_are_stated(tmp_path: Path) -> None:
    model = project().model
    model[0].requires_grad_(False)
    receipt = forget(tmp_path, FIRST, method="retrain,epochs=1", model=model).receipt
    assert receipt["method"]["attempts"][0]["change"]["frozen"] == 576
    assert_names(receipt["limits"][0], 576)
