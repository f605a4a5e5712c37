"""The audit over the store: retrained models look alike, a base model does not; nothing runs twice."""

import csv
import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from expect import assert_names, error
from regun.artifacts import Artifact, Store
from regun.artifacts import audits as auditing
from regun.artifacts.audits import Auditing, audit_model, model_before, split_predictions
from regun.artifacts.trainings import find_retrained
from regun.cli import main
from regun.errors import AuditError
from regun.forget_spec import ForgetSpec
from regun.splits import make_splits


@dataclass(frozen=True)
class World:
    """A store with a base model, six retrained ones and an unlearned one, made by the command line."""

    root: str
    store: Store
    base: Artifact
    retrained: list[Artifact]
    unlearned: Artifact

    def setup(self):
        from regun.data.registry import DataSpec, load_data
        from regun.splits import reserve

        data = load_data(DataSpec("digits"), "digits")
        return data, make_splits(data.train.labels, ForgetSpec.random(0.1), reserve(data.train.labels, 0))


def call(capsys, *words: str) -> dict:
    assert main([*words, "--json", "--quiet", "--threads", "1"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    root = str(tmp_path_factory.mktemp("store"))
    common = ["--store", root, "--recipe", "digits,epochs=20", "--quiet", "--threads", "1"]
    assert main(["train", *common]) == 0
    for seed in range(6):
        assert main(["train", *common, "--without", "0.1", "--seed", str(seed)]) == 0
    store = Store(root)
    by_role = {role: [a for a in store.artifacts() if a.info.get("role") == role] for role in ("base", "retrain")}
    key = by_role["base"][0].key
    method = ["--method", "regun,w=0.9,lr=0.01,batch_size=16"]
    assert (
        main(["unlearn", "--base", key, "--forget", "0.1", "--store", root, "--quiet", "--threads", "1", *method]) == 0
    )
    unlearned = next(a for a in store.artifacts() if a.info.get("role") == "unlearned")
    return World(root, store, by_role["base"][0], sorted(by_role["retrain"], key=lambda a: a.inputs["seed"]), unlearned)


def test_retrained_models_look_alike_and_the_base_remembers_more(world: World) -> None:
    data, splits = world.setup()
    assert find_retrained(world.store, world.base, splits.retain) == world.retrained
    called, aucs = [], []
    for number, target in enumerate(world.retrained):  # each in turn is judged by the five others
        retrain, *others = [a for k, a in enumerate(world.retrained) if k != number]
        again = audit_model(
            Auditing(
                target=target,
                before=world.base,
                retrain=retrain,
                references=tuple(others),
                data=data,
                splits=splits,
                bootstrap=0,
            ),
            world.store,
        )
        called.append(again.verdict != "failed")
        aucs.append(again.numbers["rmia_auc"].value)
    assert sum(called) >= 4  # the limit lets one retrained model in some twenty be called outside
    retrain, *others, _ = world.retrained
    base = audit_model(
        Auditing(
            target=world.base,
            before=model_before(world.base, splits, world.store),
            retrain=retrain,
            references=tuple(others),
            data=data,
            splits=splits,
            bootstrap=200,
        ),
        world.store,
    )
    assert base.numbers["rmia_auc"].value > max(aucs)  # it remembers, more than any that never saw them
    assert base.gaps["gap_rftp"].value > base.gaps["gap_rftp"].floor_mean
    assert base.verdict != "passed"  # a model that forgot nothing is never greeted
    assert base.influence is not None
    assert base.influence.verdict != "forgotten"


def test_the_model_before_is_found_and_decides_the_key(world: World) -> None:
    data, splits = world.setup()
    assert model_before(world.unlearned, splits, world.store).key == world.base.key
    assert model_before(world.base, splits, world.store).key == world.base.key  # nothing was forgotten yet
    assert model_before(world.retrained[0], splits, world.store) is None
    known = Auditing(target=world.unlearned, before=world.base, data=data, splits=splits, bootstrap=0)
    assert known.inputs() != replace(known, before=None).inputs()
    assert known.floor_inputs() == replace(known, before=None).floor_inputs()  # which serves every model
    found = audit_model(known, world.store)
    assert found.before["forget_acc"].value == 100.0
    assert known.judged == ("test", "val")  # ReGUn trained towards the held-out set
    assert replace(known, target=world.base).judged == ("test", "heldout", "val")


def test_signals_and_evaluations_are_computed_once(world: World, monkeypatch) -> None:
    data, splits = world.setup()
    audit = Auditing(
        target=world.unlearned,
        retrain=world.retrained[0],
        references=tuple(world.retrained[1:4]),
        data=data,
        splits=splits,
        bootstrap=50,
    )
    first = audit_model(audit, world.store)
    monkeypatch.setattr(auditing, "predict", lambda *_: pytest.fail("a model ran again"))
    assert set(split_predictions(world.unlearned, data, splits, world.store)) == {
        "retain",
        "forget",
        "test",
        "val",
        "heldout",
    }
    monkeypatch.setattr(auditing, "evaluate", lambda *_, **__: pytest.fail("evaluated again"))
    assert audit_model(audit, world.store) == first


def test_references_that_saw_the_forget_set_are_refused(world: World) -> None:
    data, splits = world.setup()
    with error(AuditError, "129", "--without"):
        audit_model(Auditing(target=world.unlearned, retrain=world.base, data=data, splits=splits), world.store)
    with error(AuditError, "retrained"):
        audit_model(Auditing(target=world.base, retrain=world.unlearned, data=data, splits=splits), world.store)


def test_the_command_finds_the_retrained_models_and_explains_every_number(world: World, capsys, tmp_path) -> None:
    risks = tmp_path / "risks.csv"
    words = [
        "audit",
        world.unlearned.key[:12],
        "--store",
        world.root,
        "--bootstrap",
        "100",
        "--risks",
        str(risks),
        "--threads",
        "1",
    ]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert_names(shown.err, world.retrained[0].key[:12])
    for part in (
        "Gap RFTP",
        "noise floor",
        "Good: Retrain's value",
        "Verdict: ",
        "tests, together at an error rate of 5 %",
    ):
        assert part in shown.out
    rows = list(csv.DictReader(risks.read_text().splitlines()))
    forgotten = [row for row in rows if row["split"] == "forget"]
    assert len(forgotten) == 129
    assert all(row["before"] for row in rows)
    assert {row["split"] for row in rows} <= {"forget", "retain"}
    scores = [float(r["score"]) for r in forgotten]
    assert scores == sorted(scores, reverse=True)
    assert main([*words[:-4], "--risks", str(tmp_path / "risks.txt"), "--threads", "1"]) == 2
    assert "ends in .csv or .json" in capsys.readouterr().err


def test_without_retrained_models_the_claims_say_so(world: World, capsys) -> None:
    found = call(
        capsys, "audit", world.unlearned.key, "--store", world.root, "--retrained", "none", "--bootstrap", "100"
    )
    assert found["models"]["retrain"] is None
    assert "rmia_auc" not in found["numbers"]
    assert found["numbers"]["smia_auc_heldout"][1] is not None
    assert any("retrained" in limit for limit in found["limits"])


def test_a_file_and_a_function_can_be_audited(world: World, capsys, tmp_path, monkeypatch) -> None:
    stored = call(
        capsys,
        "audit",
        world.base.key,
        "--forget",
        "0.1",
        "--store",
        world.root,
        "--retrained",
        "none",
        "--bootstrap",
        "0",
    )
    weights = tmp_path / "model.safetensors"
    save_file({k: v.contiguous() for k, v in world.base.tensors("weights").items()}, weights)
    there = ["--forget", "0.1", "--store", world.root, "--retrained", "none", "--bootstrap", "0"]
    from_file = call(capsys, "audit", str(weights), "--data", "digits", "--model", "cnn", *there)
    assert from_file["numbers"] == stored["numbers"]
    (tmp_path / "mine.py").write_text(
        "from safetensors.torch import load_file\nfrom regun.models import ModelSpec, build_model\n"
        "def trained(num_classes):\n    model = build_model(ModelSpec('cnn'), num_classes, (1, 8, 8), 0)\n"
        f"    model.load_state_dict(load_file({str(weights)!r}))\n    return model\n"
    )
    from_function = call(capsys, "audit", f"{tmp_path / 'mine.py'}:trained", "--data", "digits", *there)
    assert from_function["numbers"] == stored["numbers"]


def test_what_is_missing_is_named(world: World, capsys) -> None:
    assert main(["audit", world.base.key, "--store", world.root]) == 2
    assert_names(capsys.readouterr().err, "--forget")
    assert main(["audit", "ffff", "--store", world.root]) == 2
    assert_names(capsys.readouterr().err, "model", "'ffff'", "--store")
    assert main(["audit", world.unlearned.key, "--store", world.root, "--attacks", "rmai"]) == 2
    assert "Did you mean 'rmia'?" in capsys.readouterr().err


def test_unlearned_signals_are_those_of_the_model(world: World) -> None:
    from regun.artifacts.trainings import load_model
    from regun.training.forward import eval_logits

    data, splits = world.setup()
    logits = eval_logits(load_model(world.unlearned), data.train, splits.forget).double()
    found = split_predictions(world.unlearned, data, splits, world.store)["forget"]
    assert np.allclose(found.log_probs, torch.log_softmax(logits, 1).numpy(), atol=1e-9)


def test_one_example_and_short_trainings_in_place_of_retrained_models(world: World, capsys, tmp_path) -> None:
    """A request of one record, as `regun forget` takes it: its place, and what is left of its influence."""
    (tmp_path / "one.txt").write_text("17\n")
    asked = ["--forget", f"ids:{tmp_path / 'one.txt'}", "--store", world.root, "--threads", "1"]
    assert main(["audit", world.base.key, *asked, "--out-models", "1", "--bootstrap", "20"]) == 0
    shown = capsys.readouterr()
    assert_names(shown.err, "short", "retain")
    assert_names(shown.out.splitlines()[2], "1", "forgotten", "record")
    assert "Rank: the example looks more like a member than " in shown.out
    assert "influence, against all unseen records" in shown.out
    found = call(capsys, "audit", world.base.key, *asked[:-2], "--out-models", "1", "--bootstrap", "20")
    assert found["influence"]["records"] == 1
    assert found["influence"]["verdict"] != "forgotten"
    assert [part["against"] for part in found["influence"]["parts"]] == ["unseen", "test", "heldout", "val"]
    assert len(found["models"]["out_models"]) == 1
    low, high = found["numbers"]["smia_auc"][1:]
    assert low == 0.0 or high == 100.0


def test_stored_predictions_are_enough_to_check_a_number_by_hand(world: World) -> None:
    """Log-probabilities, labels and record ids lie in one file: accuracy and attack follow from it without the data."""
    data, splits = world.setup()
    found = split_predictions(world.base, data, splits, world.store)
    audit = audit_model(Auditing(target=world.base, data=data, splits=splits, bootstrap=0), world.store)
    read = {}
    for artifact in world.store.artifacts("predictions"):
        if artifact.info["model"] == world.base.key:
            tensors = load_file(artifact.path / "predictions.safetensors")
            assert set(tensors) == {"log_probs", "labels", "indices"}
            read[len(tensors["labels"]), tuple(tensors["indices"][:3].tolist())] = tensors
    forget, test = (read[len(found[n]), tuple(found[n].indices[:3].tolist())] for n in ("forget", "test"))
    assert torch.equal(forget["indices"], torch.from_numpy(splits.forget))
    np.testing.assert_array_equal(forget["labels"], data.train.labels[splits.forget])
    right = (forget["log_probs"].argmax(1) == forget["labels"]).double().mean() * 100
    assert audit.numbers["forget_acc"].value == pytest.approx(right.item())
    ours, theirs = (t["log_probs"].gather(1, t["labels"][:, None]) for t in (forget, test))
    wins = (ours > theirs.T).double().mean() + (ours == theirs.T).double().mean() / 2
    assert audit.numbers["smia_auc"].value == pytest.approx(100 * wins.item())
