"""The transaction: who plays which part in a sequence of requests, what is accepted, and what is written."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from small_project import EASY, ERASE, HALVE, QUICK, SIZES, Memory, data, ids, network, project, weights
from torch.utils.data import DataLoader, Dataset, TensorDataset

import regun
import regun.deletion.attempt
from regun.artifacts import state_digest
from regun.deletion import Options, Pseudonyms, history, prepare, verify_audit, verify_folder
from regun.deletion.folder import opened
from regun.errors import DataError, RegunError, SettingsError, StoreError

FIRST, SECOND = ids()[:20], ids()[15:40]
LENIENT = Options(accept=EASY, accept_untestable=True)


def run(out: Path, wanted, options: Options = LENIENT, **changes):
    return regun.forget(project(**{"method": QUICK, **changes}), regun.deletion_request(wanted), out, options)


def receipt_of(out: Path, number: int) -> dict:
    return json.loads((out / f"requests/{number:04d}/receipt.json").read_text())


def files(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """What every unlearning run was given: the starting weights and the inputs of each set."""
    seen: list[dict] = []
    real = regun.unlearn

    def spy(model, **given):
        sets = {name: given[name] for name in ("forget", "retain", "heldout", "val") if given[name] is not None}
        rows = {name: some.fetch(np.arange(len(some.labels))).x for name, some in sets.items()}
        seen.append({"start": state_digest(model.state_dict()), **rows})
        return real(model, **given)

    monkeypatch.setattr(regun.deletion.attempt, "unlearn", spy)
    return seen


def rows(x: torch.Tensor) -> set[tuple]:
    return {tuple(row.tolist()) for row in x}


def test_a_sequence_forgets_the_union_and_nothing_comes_back(tmp_path: Path, parts: list[dict]) -> None:
    x = data()["train"][0]
    run(tmp_path, FIRST)
    done = run(tmp_path, [*SECOND, *ids("heldout")[:5], *ids("val")[:2]])
    assert done.plan.matched.already == tuple(ids()[15:20])
    first, second = parts
    assert rows(first["forget"]) == rows(x[:20])
    assert rows(first["retain"]) == rows(x[20:])
    assert rows(second["forget"]) == rows(x[:40])
    assert rows(second["retain"]) == rows(x[40:])
    assert rows(second["heldout"]) == rows(data()["heldout"][0][5:])
    assert rows(second["val"]) == rows(data()["val"][0][2:])
    assert second["start"] == receipt_of(tmp_path, 1)["model"]["after"] != first["start"]
    run(tmp_path, ids()[100:101])
    assert rows(parts[2]["heldout"]) == rows(data()["heldout"][0][5:]), "what was asked for stays out of every set"


def test_the_audit_covers_what_is_new_and_all_that_is_forgotten(tmp_path: Path) -> None:
    run(tmp_path, FIRST)
    run(tmp_path, SECOND)
    assert set(receipt_of(tmp_path, 1)["audit"]["scopes"]) == {"all"}
    audit, found = receipt_of(tmp_path, 2)["audit"]["scopes"], receipt_of(tmp_path, 2)["data"]
    assert set(audit) == {"all", "new"}
    assert (found["sets"]["forget"]["examples"], found["newly_forgotten_examples"]) == (40, 20)
    own = network()
    own.load_state_dict(safetensors.torch.load_file(tmp_path / "requests/0002/model.safetensors"))
    parts, (x, y) = data(), data()["train"]
    unseen = {name: parts[name] for name in ("heldout", "val", "test")}
    for scope, forget in (("all", slice(0, 40)), ("new", slice(20, 40))):
        report = regun.audit(own, forget=(x[forget], y[forget]), retain=(x[40:], y[40:]), **unseen)
        ours = audit[scope]["after"]["numbers"]
        assert {name: number.to_json() for name, number in report.numbers.items()} == ours


def test_the_same_request_twice_does_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, FIRST).folder is not None
    before = files(tmp_path)
    for wanted in (FIRST, FIRST[::-1], FIRST[:3]):
        done = run(tmp_path, wanted)
        assert (done.folder, done.receipt, done.accepted, done.plan.empty) == (None, None, True, True)
    assert files(tmp_path) == before


def test_a_request_made_again_elsewhere_gives_the_same_model(tmp_path: Path) -> None:
    weights_of = [run(tmp_path / name, FIRST).receipt["model"]["after"] for name in ("a", "b")]
    assert weights_of[0] == weights_of[1]
    assert (
        run(tmp_path / "c", FIRST, Options(accept=EASY, accept_untestable=True, seed=1)).receipt["model"]["after"]
        != weights_of[0]
    )


def test_the_default_rule_accepts_what_forgets_and_rejects_what_does_not(tmp_path: Path) -> None:
    """On a model that remembers by construction: forgotten, an example looks like unseen ones, exactly."""
    given = {"model": Memory(), "rebuild": lambda seed: Memory(0.0, seed), "accept": None}
    half = run(tmp_path / "half", FIRST, Options(), method=HALVE, **given)
    erased = run(tmp_path / "erased", FIRST, Options(fallback=ERASE), method=HALVE, **given)
    assert [one.receipt["acceptance"]["rule"] for one in (half, erased)] == ["forgotten, val_drop<7.7"] * 2
    assert (half.status, erased.status) == ("rejected", "accepted")
    assert [one["answer"] for one in erased.receipt["method"]["attempts"]] == ["rejected", "accepted"]
    shares = [one.receipt["audit"]["influence"]["all"]["share"][0] for one in (half, erased)]
    assert 30 < shares[0] < 100
    assert abs(shares[1]) < 20
    assert erased.receipt["audit"]["drops"]["val_drop"] == 0


def test_what_is_rejected_changes_nothing_that_counts(tmp_path: Path, parts: list[dict]) -> None:
    done = run(tmp_path, FIRST, Options(accept="smia_auc<0"))
    assert not done.accepted
    assert [entry.status for entry in history(tmp_path)] == ["rejected"]
    assert receipt_of(tmp_path, 1)["acceptance"]["status"] == "rejected"
    assert "REJECTED" in (tmp_path / "requests/0001/receipt.html").read_text().upper()
    again = run(tmp_path, FIRST)
    assert again.accepted
    assert parts[1]["start"] == parts[0]["start"] == project_digest()
    assert again.receipt["model"]["before"] == project_digest()
    run(tmp_path, SECOND)
    assert parts[2]["start"] == again.receipt["model"]["after"]
    assert all(check.fine is not False for _, some in verify_folder(tmp_path) for check in some)


def project_digest() -> str:
    return state_digest(weights())


def test_the_fallback_retrains_and_says_so(tmp_path: Path, parts: list[dict]) -> None:
    notes: list[str] = []
    options = Options(accept="smia_auc<0, val_drop<=100", fallback="retrain")
    done = regun.forget(project(method=QUICK), regun.deletion_request(FIRST), tmp_path, options, on_note=notes.append)
    tried = done.receipt["method"]["attempts"]
    assert [(one["method"], one["answer"]) for one in tried] == [("regun", "rejected"), ("retrain", "accepted")]
    assert tried[1]["settings"]["epochs"] == 20
    assert len(parts) == 2
    assert notes[0].startswith(f"{QUICK} is rejected (smia_auc<0: ")
    assert notes[0].endswith("; going on with retrain")
    why = done.receipt["acceptance"]["findings"][0]["why"]
    assert why.endswith("(by construction: trained anew without these records)")
    assert "trained anew on the retained records only" in done.receipt["limits"][0]
    utility = Options(accept="smia_auc<0, val_drop<-100", fallback="retrain")
    assert not run(tmp_path / "strict", FIRST, utility).accepted, "utility still counts"


def test_a_run_that_diverges_is_rejected(tmp_path: Path) -> None:
    done = run(tmp_path, FIRST, LENIENT, method="regun,lr=1e30,epochs=2,batch_size=8")
    assert not done.accepted
    assert "not finite" in done.receipt["acceptance"]["findings"][0]["why"]
    assert "diverged" in (tmp_path / "requests/0001/receipt.html").read_text()
    assert all(check.fine is not False for _, some in verify_folder(tmp_path) for check in some)


def test_one_record_alone(tmp_path: Path) -> None:
    """Its place among unseen records; a record known by heart has a place near 100."""
    done = run(tmp_path, ids()[3:4], Options(accept="smia_auc~50"))
    value, low, high = done.receipt["audit"]["scopes"]["all"]["after"]["numbers"]["smia_auc"]
    assert low <= max(0.0, value - 47.5)
    assert high >= min(100.0, value + 47.5)
    assert any("Only 1 forgotten example could" in limit for limit in done.receipt["limits"])
    risks = (tmp_path / "requests/0001/risks.csv").read_text().splitlines()
    assert risks[0] == "id,request,test_percentile_before,test_percentile_after"
    assert risks[1].startswith("train-3,this,")
    assert float(risks[1].split(",")[3]) == round(value, 3)


def test_an_id_may_stand_for_several_examples(tmp_path: Path, parts: list[dict]) -> None:
    people = [n // 10 for n in range(SIZES["train"])]
    done = run(tmp_path, [3, 5], ids=np.array(people), unseen_ids={})
    assert len(done.plan.new) == 20
    x = data()["train"][0]
    assert rows(parts[0]["forget"]) == rows(torch.cat([x[30:40], x[50:60]]))


def test_records_deleted_from_the_data_stay_forgotten(tmp_path: Path, parts: list[dict]) -> None:
    run(tmp_path, FIRST)
    x, y = data()["train"]
    shrunk = {"train": (x[10:], y[10:]), "ids": ids()[10:]}
    done = run(tmp_path, [ids()[2], *SECOND], **shrunk)
    assert done.plan.gone == 10
    assert done.plan.matched.already == (ids()[2], *ids()[15:20])
    assert rows(parts[1]["forget"]) == rows(x[10:40])
    assert any(
        "10 ids forgotten by earlier requests can no longer be tested" in limit for limit in done.receipt["limits"]
    )
    without = {"train": (x, y), "ids": None, "unseen_ids": {}}
    run(tmp_path / "positions", [0, 1, 2], **without)
    with pytest.raises(RegunError, match="have changed since the last request and have no ids"):
        run(tmp_path / "positions", [5], **{**without, "train": (x[3:], y[3:])})


def test_the_deployed_model_may_be_the_current_one(tmp_path: Path) -> None:
    run(tmp_path, FIRST)
    current = network()
    current.load_state_dict(safetensors.torch.load_file(tmp_path / "requests/0001/model.safetensors"))
    done = run(tmp_path, SECOND, model=current)
    assert done.receipt["model"]["base"] == project_digest()
    assert "val_drop_total" not in done.receipt["audit"]["drops"]
    with pytest.raises(RegunError, match="is neither the one that .*ledger.jsonl starts from"):
        run(tmp_path, ids()[50:60], model=network(3))


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
    found = set()
    for name, shape in shapes.items():
        sets = {which: shape(data()[which]) for which in SIZES}
        done = run(tmp_path / name, FIRST, method="finetune,epochs=1", **sets)
        found.add(done.receipt["model"]["after"])
    assert len(found) == 1


def test_retrained_models_give_gaps_a_floor_and_a_rule_by_them(tmp_path: Path) -> None:
    x, y = data()["train"]

    def retrained(forgotten: frozenset[str]):
        assert forgotten == frozenset(FIRST)
        recipe = {"epochs": 20, "lr": 0.05, "batch_size": 16}
        return [
            regun.unlearn(
                network(), forget=(x[:20], y[:20]), retain=(x[20:], y[20:]), method="retrain", settings=recipe, seed=s
            ).model
            for s in range(4)
        ]

    options = Options(accept="gap_rftp<=floor", fallback="retrain")
    done = regun.forget(project(retrained=retrained), regun.deletion_request(FIRST), tmp_path, options)
    after = done.receipt["audit"]["scopes"]["all"]["after"]
    assert after["gaps"]["gap_rftp"]["floor_limit"] is not None
    assert "rmia_auc" in after["numbers"]
    assert "noise floor" in (tmp_path / "requests/0001/receipt.html").read_text()


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heldout": None}, "ReGUn needs a held-out set"),
        ({"heldout": None, "val": None, "test": None, "unseen_ids": {}}, "it needs train and at least one of heldout"),
        ({"ids": ids()[:5]}, r"ids\['train'\] has 5 ids for 160 examples; give one for each."),
        ({"unseen_ids": {"heldout": ids()[:60]}}, "train and heldout share 60 examples"),
        ({"method": "regnu"}, "unknown method 'regnu'. Did you mean 'regun'"),
        ({"method": "regun,ww=3"}, "unknown setting of regun 'ww'"),
        ({"accept": "smia_auc"}, "a condition is forgotten, NAME~50"),
        ({"accept": "smia_acu~50"}, "unknown number in the acceptance rule 'smia_acu'"),
        ({"model": 3}, "the project's model is a int"),
    ],
)
def test_what_cannot_work_is_said_and_nothing_counts(tmp_path: Path, changes: dict, message: str) -> None:
    if changes.get("heldout", 0) is None and "unseen_ids" not in changes:
        changes = {**changes, "unseen_ids": {}}
    with pytest.raises(RegunError, match=message):
        regun.forget(project(**{"accept": EASY, **changes}), regun.deletion_request(FIRST), tmp_path / "out")
    assert not history(tmp_path / "out")


def test_unknown_ids_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2 of the 3 ids are unknown \(the first: 'ghost', 'train-99999'\)"):
        run(tmp_path / "out", ["ghost", ids()[0], "train-99999"])
    assert not (tmp_path / "out").exists()
    done = run(tmp_path / "out", ["ghost", ids()[0]], Options(accept=EASY, accept_untestable=True, ignore_unknown=True))
    assert done.receipt["request"]["left_out"]["unknown"] == 1


def test_everything_cannot_be_forgotten(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing would be left to retain"):
        run(tmp_path / "out", ids())
    assert not (tmp_path / "out").exists()


def test_overlap_is_found_by_content_when_asked(tmp_path: Path) -> None:
    x, y = data()["test"]
    mixed = (torch.cat([x, data()["train"][0][7:8]]), torch.cat([y, data()["train"][1][7:8]]))
    changes = {"test": mixed, "unseen_ids": {}}
    assert run(tmp_path / "a", FIRST, **changes).accepted
    with pytest.raises(
        DataError, match=r"train and test share 1 examples \(by content; counted in test, by position; the first is 60"
    ):
        run(tmp_path / "b", FIRST, Options(accept=EASY, accept_untestable=True, check_content=True), **changes)


def test_copies_of_forgotten_records_are_remarked_on_and_refused_when_asked(tmp_path: Path) -> None:
    """What is forgotten under one id must not be learned again under another."""
    x, y = data()["train"]
    twice = {"train": (torch.cat([x, x[:2]]), torch.cat([y, y[:2]])), "ids": [*ids(), "copy-a", "copy-b"]}
    notes: list[str] = []
    done = regun.forget(
        project(method=QUICK, **twice), regun.deletion_request(FIRST), tmp_path / "a", LENIENT, on_note=notes.append
    )
    assert "train holds 2 copies of these records under other ids (the first: 'copy-a', 'copy-b')" in notes[0]
    warning = done.receipt["method"]["attempts"][0]["warnings"][0]
    assert "train holds 2 copies of forgotten records under other ids (the first: 'copy-a', 'copy-b')" in warning
    assert "Equal to forgotten records in content: 2 retained records" in " ".join(done.receipt["limits"])
    with pytest.raises(DataError, match=r"2 copies of forgotten records, under other ids \(the first: 'copy-a', "):
        run(tmp_path / "b", FIRST, replace(LENIENT, check_content=True), **twice)
    assert not (tmp_path / "b").exists()
    done = run(tmp_path / "b", [*FIRST, "copy-a", "copy-b"], replace(LENIENT, check_content=True), **twice)
    assert "Equal to forgotten" not in " ".join(done.receipt["limits"])


def test_a_model_trained_anew_on_copies_is_not_said_to_have_never_seen_them(tmp_path: Path) -> None:
    options = Options(accept=f"forgotten, {EASY}", bootstrap=20)
    given = {"method": "retrain,epochs=1"}
    x, y = data()["train"]
    twice = {"train": (torch.cat([x, x[:2]]), torch.cat([y, y[:2]])), "ids": [*ids(), "copy-a", "copy-b"], **given}
    clean = run(tmp_path / "clean", FIRST, options, **given)
    assert clean.accepted
    assert "has never seen them" in clean.receipt["letter"]["text"]
    assert clean.receipt["data"]["copies_that_stay"] == {"all": 0, "new": 0, "first_ids": []}
    done = run(tmp_path / "out", FIRST, options, **twice)
    assert done.status == "inconclusive"
    why = "trained anew without these records, but on 2 identical ones under other ids"
    assert [f["why"] for f in done.receipt["acceptance"]["findings"] if f["condition"] == "forgotten"] == [why]
    taken = run(tmp_path / "out", FIRST, replace(options, accept_untestable=True), **twice)
    letter, page = taken.receipt["letter"]["text"], (tmp_path / "out/requests/0002/receipt.html").read_text()
    assert taken.status == "accepted untestable"
    assert "never seen" not in letter
    assert "But 2 records with the same content as some of yours stay in the training data under other ids" in letter
    assert "it cannot know the forgotten ones" not in taken.receipt["limits"][0]
    assert "Of these, 2 are identical to forgotten ones" in taken.receipt["limits"][0]
    assert "trained anew without the records, but on 2 identical ones under other ids" in page
    assert taken.receipt["data"]["copies_that_stay"] == {"all": 2, "new": 2, "first_ids": ["copy-a", "copy-b"]}
    checks = verify_audit(tmp_path / "out/requests/0002/receipt.json", project(**twice), Pseudonyms())
    assert all(check.fine for check in checks), checks
    later = run(tmp_path / "out", ids()[30:40], options, **twice).receipt
    assert {(f["scope"], f["answer"]) for f in later["acceptance"]["findings"] if f["condition"] == "forgotten"} == {
        ("all", "inconclusive"),
        ("new", "passed"),
    }
    assert "yours" not in later["letter"]["text"]


def test_copies_are_named_under_the_salt_only(tmp_path: Path) -> None:
    x, y = data()["train"]
    twice = {"train": (torch.cat([x, x[:1]]), torch.cat([y, y[:1]])), "ids": [*ids(), "copy-of-ann"]}
    naming = Pseudonyms(b"sixteen bytes and more")
    run(tmp_path, FIRST, replace(LENIENT, naming=naming), **twice)
    everything = b"".join(files(tmp_path).values())
    assert b"copy-of-ann" not in everything
    assert naming.of(["copy-of-ann"])[0] in " ".join(receipt_of(tmp_path, 1)["method"]["attempts"][0]["warnings"])


def test_the_settings_shown_are_those_that_were_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """auto has trained anew by the project's recipe."""
    monkeypatch.setattr("regun.methods._baseline_comparison.BaselineComparison.collapsed", lambda *_: False)
    quick = Options(accept=EASY, bootstrap=20)
    receipt = run(tmp_path / "a", FIRST, quick, method="auto").receipt
    attempt, page = receipt["method"]["attempts"][0], (tmp_path / "a/requests/0001/receipt.html").read_text()
    assert attempt["from_scratch"]
    assert {name: attempt["settings"][name] for name in ("epochs", "lr", "batch_size")} == {
        "epochs": 20,
        "lr": 0.05,
        "batch_size": 16,
    }
    assert "retain_batch" not in page
    assert "epochs=20" in page
    assert "that is short" in page


def test_a_run_that_was_stopped_while_it_was_judged_is_not_done_again(
    tmp_path: Path, parts: list[dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    options = Options(accept=f"forgotten, {EASY}", bootstrap=20, accept_untestable=True, out_models=1)
    whole = run(tmp_path / "whole", FIRST, options).receipt
    with monkeypatch.context() as patched:
        patched.setattr("regun.deletion.assess.train_out_models", stop)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "out", FIRST, options)
    assert len(parts) == 2
    done = run(tmp_path / "out", FIRST, options).receipt
    assert len(parts) == 2, "the method did not run again"
    assert done["model"]["after"] == whole["model"]["after"]
    told = [{**receipt_of(tmp_path / out, 1)["method"]["attempts"][0], "cost": None} for out in ("out", "whole")]
    assert told[0] == told[1]
    assert not list((tmp_path / "out").glob(".regun-work-*"))
    with monkeypatch.context() as patched:
        patched.setattr("regun.deletion.assess.train_out_models", stop)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "out", SECOND, options)
    run(tmp_path / "out", SECOND, replace(options, seed=1))
    assert len(parts) == 4, "another seed is another run"


def test_a_rebuild_that_returns_the_trained_weights_is_refused(tmp_path: Path) -> None:
    trained = project().model
    with pytest.raises(RegunError, match="rebuild returned the model's own trained weights"):
        run(tmp_path / "out", FIRST, method="retrain", rebuild=lambda seed: copy.deepcopy(trained))


def test_weights_that_training_anew_kept_are_told(tmp_path: Path) -> None:
    frozen = project().model
    frozen[0].requires_grad_(False)
    for model, kept in ((frozen, True), (project().model, False)):
        receipt = run(tmp_path / str(kept), FIRST, method="retrain", model=model).receipt
        done = receipt["method"]["attempts"][0]["done"]
        assert ("576 frozen weights of 771 kept as they were" in done) == kept
        assert ("is the operator's word" in receipt["limits"][0]) == kept
        assert ("a part that was learned elsewhere was kept" in receipt["letter"]["text"]) == kept


def broken() -> torch.nn.Module:
    model = project().model
    with torch.no_grad():
        model[0].weight[0] = float("nan")
    return model


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": broken()}, "NaN"),
        ({"model": project().model.requires_grad_(False)}, "every parameter of the model is frozen"),
        ({"rebuild": lambda: network()}, "the project's rebuild failed: TypeError"),
        ({"rebuild": lambda seed: torch.nn.Linear(3, 3)}, "what the project's rebuild returned does not fit the model"),
        (
            {"heldout": tuple(part.clone() for part in data()["train"]), "unseen_ids": {}},
            "share 20 examples .*look alike, give the project ids, and unseen_ids for these sets",
        ),
    ],
)
def test_what_a_run_would_refuse_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict, message: str
) -> None:
    given = project(**{"method": QUICK, **changes})
    for call in (prepare, regun.forget):
        with pytest.raises(RegunError, match=message):
            call(given, regun.deletion_request(FIRST), tmp_path / "out", LENIENT)
    assert not (tmp_path / "out").exists()


def test_records_that_only_look_alike_are_told_apart_by_ids(tmp_path: Path) -> None:
    x, y = data()["heldout"]
    alike = {"heldout": (torch.cat([x[:-1], data()["train"][0][:1]]), y)}
    with pytest.raises(DataError, match="forget and heldout share 1 examples"):
        run(tmp_path / "a", FIRST, unseen_ids={}, **alike)
    assert run(tmp_path / "b", FIRST, **alike).accepted


def test_a_lost_ledger_and_a_damaged_model_are_found_by_a_plan(tmp_path: Path) -> None:
    run(tmp_path, FIRST)
    model, ledger = tmp_path / "requests/0001/model.safetensors", tmp_path / "ledger.jsonl"
    content, lines = model.read_bytes(), ledger.read_bytes()
    model.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StoreError, match="is not the file that line 1 of the ledger names"):
        prepare(project(), regun.deletion_request(SECOND), tmp_path)
    model.write_bytes(content)
    ledger.unlink()
    with pytest.raises(RegunError, match="is a finished request and the ledger .* has no line for it"):
        prepare(project(), regun.deletion_request(SECOND), tmp_path)
    ledger.write_bytes(lines)
    assert prepare(project(), regun.deletion_request(SECOND), tmp_path).number == 2


def test_a_folder_at_work_or_not_writable_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "out"), pytest.raises(RegunError, match="another regun forget is at work in"):
        run(tmp_path / "out", FIRST)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write in .*file/x: Not a directory"):
        run(tmp_path / "file/x", FIRST)


def test_a_damaged_ledger_or_model_stops_the_next_request(tmp_path: Path) -> None:
    run(tmp_path, FIRST)
    model = tmp_path / "requests/0001/model.safetensors"
    content = model.read_bytes()
    model.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StoreError, match="model.safetensors is not the file that line 1 of the ledger names"):
        run(tmp_path, SECOND)
    model.write_bytes(content)
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace("accepted", "rejected"))
    with pytest.raises(RegunError, match="is not as it was written: ledger.jsonl line 1 was changed"):
        run(tmp_path, SECOND)
    assert len(list((tmp_path / "requests").iterdir())) == 1


def test_a_plan_writes_nothing_and_the_model_is_left_alone(tmp_path: Path) -> None:
    given = project(method=QUICK, accept=EASY)
    before = {name: tensor.clone() for name, tensor in given.model.state_dict().items()}
    plan = prepare(given, regun.deletion_request(FIRST), tmp_path / "out")
    assert (len(plan.new), plan.rule.text) == (20, EASY)
    assert not (tmp_path / "out").exists()
    regun.forget(given, regun.deletion_request(FIRST), tmp_path / "out")
    assert all(torch.equal(tensor, before[name]) for name, tensor in given.model.state_dict().items())
    assert given.model.training


# -------------------------------------------------------------------------------------------------------------- names


def test_salted_ids_appear_nowhere_and_the_salt_is_needed(tmp_path: Path) -> None:
    naming = Pseudonyms(b"sixteen bytes and more")
    secret = [f"patient-{n}-of-ward-9" for n in range(SIZES["train"])]
    changes = {"ids": secret, "unseen_ids": {}}
    asked = regun.deletion_request(secret[:20], requester="Ticket-of-Ann", reason="asked")
    regun.forget(
        project(method=QUICK, **changes), asked, tmp_path, Options(accept=EASY, accept_untestable=True, naming=naming)
    )
    everything = b"".join(files(tmp_path).values())
    assert b"ward-9" not in everything
    assert b"Ticket-of-Ann" not in everything
    assert naming.of(secret[:1])[0].encode() in everything
    assert run(tmp_path, secret[:20], Options(accept=EASY, accept_untestable=True, naming=naming), **changes).plan.empty
    for other in (Pseudonyms(), Pseudonyms(b"another salt altogether")):
        with pytest.raises(RegunError, match="holds its ids as hmac-sha256 under salt .*give --salt"):
            run(tmp_path, secret[30:40], Options(accept=EASY, accept_untestable=True, naming=other), **changes)
    run(tmp_path / "plain", FIRST)
    with pytest.raises(RegunError, match="holds its ids in the clear; leave --salt out"):
        run(tmp_path / "plain", SECOND, Options(accept=EASY, accept_untestable=True, naming=naming))


def test_settings_of_the_project_are_used_and_can_be_overruled(tmp_path: Path) -> None:
    done = run(tmp_path, FIRST, Options(accept=EASY, accept_untestable=True, method="finetune,epochs=2"))
    assert done.receipt["method"]["attempts"][0]["method"] == "finetune"
    assert done.receipt["acceptance"]["rule"] == EASY
    with pytest.raises(SettingsError, match="unknown preset of regun 'papr'"):
        run(tmp_path, SECOND, Options(accept=EASY, accept_untestable=True, method="regun@papr"))
