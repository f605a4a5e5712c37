"""Evidence that can say no: what changed nothing is refused, what cannot be told is not accepted, and how it is told."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_project import EASY, ERASE, HALVE, KEEP, QUICK, Memory, data, ids, network, project, weights
from torch import nn

import regun
import regun.deletion.assess
import regun.deletion.out_models
from regun.auditing import Predictions
from regun.deletion import Options, history, reaudit_receipt, verify_folder
from regun.deletion.attempt import change, fair_sets
from regun.deletion.options import chosen
from regun.deletion.rule import Facts, read_rule

MEMORY = {"model": Memory(), "rebuild": lambda seed: Memory(0.0, seed)}
"""A model of which it is known what it remembers, and how to make one that remembers nothing."""
FORGET = sys.modules["regun.deletion.forget"]  # the module: `regun.deletion.forget` is the function
SHORT = {"retrain": {"epochs": 8, "lr": 0.05, "batch_size": 32}}


def run(out: Path, wanted, options: Options | None = None, **changes):
    return regun.forget(
        project(**{**SHORT, **changes}), regun.DeletionRequest.of(wanted), out, options or Options(bootstrap=20)
    )


def findings(done) -> dict[str, str]:
    return {one["condition"]: one["answer"] for one in done.receipt["acceptance"]["findings"]}


def fine(out: Path, **changes) -> bool:
    checks = [check for _, some in verify_folder(out) for check in some]
    for path in sorted(out.glob("requests/*/receipt.json")):
        checks += reaudit_receipt(path, project(**{**SHORT, **changes}))
    return all(check.passed is not False for check in checks)


def test_a_letter_does_not_say_forgotten_where_the_audit_found_the_opposite(tmp_path: Path) -> None:
    """A rule that asks for something else may accept; the person concerned is told what was found."""
    given = {**MEMORY, "retrained": lambda forgotten: [Memory(0.0, seed) for seed in range(1, 6)]}
    seen = run(tmp_path / "try", ids()[:40], method=HALVE, **given).receipt["audit"]["scopes"]["all"]["after"][
        "numbers"
    ]
    rule = Options(accept=f"forgotten, smia_auc<={seen['smia_auc'][0]}", bootstrap=20)
    less = replace(rule, accept=rule.accept.removeprefix("forgotten, "))
    for method, asks, accepted in ((HALVE, rule, False), (HALVE, less, True), (ERASE, rule, True)):
        done = run(tmp_path / f"{accepted} {method[-5:]}", ids()[:40], asks, method=method, **given)
        text, left = done.receipt["letter"]["text"], done.receipt["audit"]["influence"]["all"]
        assert done.accepted is accepted
        assert ("can no longer be told apart" in text) == (accepted and method == ERASE)
        assert ("still finds an influence" in text) == (accepted and method == HALVE), left


def test_an_audit_cannot_be_done_again_once_the_model_before_is_gone(tmp_path: Path) -> None:
    """An owner who deploys the accepted model has not tampered with anything."""
    options = Options(accept=EASY, accept_inconclusive=True, bootstrap=20)
    first = run(tmp_path, ids()[:5], options, method=QUICK)
    run(tmp_path, ids()[5:9], options, method=QUICK)
    deployed = project().model
    deployed.load_state_dict(load_file(first.folder / "model.safetensors"))
    for number, missing in ((1, "before"), (2, "base")):
        path = tmp_path / f"requests/{number:04d}/receipt.json"
        assert all(check.passed for check in reaudit_receipt(path, project(**SHORT)))
        checks = reaudit_receipt(path, project(**SHORT, model=deployed))
        assert [check.name for check in checks if check.passed is False] == []
        digest = json.loads(path.read_text())["model"][missing]
        assert f"the project's model is not {digest[:12]}" in checks[-1].note


# ------------------------------------------------------------------------------------------------- no change, no thanks


@pytest.mark.parametrize("method", ["finetune,lr=0,epochs=1", "finetune,lr=1e-9,epochs=1", "finetune,epochs=0", KEEP])
@pytest.mark.parametrize("rule", [None, "smia_auc~50, val_drop<1"])
@pytest.mark.parametrize("records", [1, 3])
def test_what_changes_nothing_is_never_accepted(tmp_path: Path, method: str, rule: str | None, records: int) -> None:
    """However few the records, and although the operator would accept what cannot be tested."""
    options = Options(accept=rule, accept_inconclusive=True, bootstrap=20)
    done = run(tmp_path, ids()[30 : 30 + records], options, method=method)
    assert (done.status, done.accepted) == ("rejected", False)
    assert done.receipt["model"]["before"] == done.receipt["model"]["after"]
    assert findings(done)["changed"] == "failed"
    page = (tmp_path / "requests/0001/receipt.html").read_text()
    for text in (done.receipt["limits"][0], done.receipt["method"]["attempts"][0]["done"], page):
        assert "the model was not changed: its weights are as they were" in text
    whose = "The record in your request has" if records == 1 else "The records in your request have"
    assert f"{whose} not been removed from the model in use yet" in done.receipt["letter"]["text"]
    assert fine(tmp_path)


def said(model: nn.Module) -> dict[str, Predictions]:
    x, y = data()["train"]
    return {"forget": Predictions.from_logits(model(x).detach().numpy(), y.numpy(), np.arange(len(y)))}


def trained() -> nn.Module:
    model = network()
    model.load_state_dict(weights())
    return model


def test_rounding_is_no_change() -> None:
    for step, moves in ((0.0, False), (1e-9, False), (3e-7, False), (1e-4, True)):
        after = trained()
        with torch.no_grad():
            for parameter in after.parameters():
                parameter.mul_(1 + step)
        found = change(trained(), after, 7, (said(trained()), said(after)))
        assert (found.moved > 0) is moves, step
        assert bool(found.nothing) is not moves


def test_units_that_swap_places_are_no_change() -> None:
    after, turn = trained(), torch.arange(63, -1, -1)
    with torch.no_grad():
        after[0].weight.copy_(after[0].weight[turn])
        after[0].bias.copy_(after[0].bias[turn])
        after[2].weight.copy_(after[2].weight[:, turn])
    found = change(trained(), after, 7, (said(trained()), said(after)))
    assert found.moved > 500
    assert "its answers to the forgotten records are as they were" in found.nothing


def test_statistics_of_a_normalisation_layer_are_no_change() -> None:
    before, after = (nn.Sequential(nn.Linear(8, 3), nn.BatchNorm1d(3)) for _ in range(2))
    after.load_state_dict(before.state_dict())
    after(data()["train"][0])
    signals = said(before.eval()), said(after.eval())
    assert "weights are as they were" in change(before, after, 9, signals).nothing
    with torch.no_grad():
        after[0].weight[0, 0] += 0.5
    assert not change(before, after, 9, (signals[0], said(after))).nothing


# ---------------------------------------------------------------------------------------------------- can it be told


@pytest.mark.parametrize("records", [1, 3, 20])
def test_on_known_truth_the_default_rule_is_right_or_says_that_it_cannot_tell(tmp_path: Path, records: int) -> None:
    """Of one record among so few unseen ones it may not be able to tell."""
    wanted = ids()[40 : 40 + records]
    for method, status in ((HALVE, "rejected"), (ERASE, "accepted")):
        done = run(tmp_path / status, wanted, method=method, **MEMORY)
        assert done.status in {status, "inconclusive" if records == 1 else status}


@pytest.mark.parametrize("records", [2, 3, 5, 10, 20])
def test_no_rule_on_an_attack_accepts_the_model_as_it_was(records: int) -> None:
    """The measured fault: with few records an attack's interval contains 50 for the untouched model too."""
    rng, rule = np.random.default_rng(records), read_rule("smia_auc~50, smia_auc_val~50, smia_auc<70")
    answers, contained = list[str](), 0
    for _ in range(20):
        draws = rng.permutation(160)[:records]
        (x, y), unseen = data()["train"], {name: data()[name] for name in ("test", "val")}
        found = regun.audit(trained(), forget=(x[draws], y[draws]), **unseen, bootstrap=0)
        contained += found.numbers["smia_auc"].low <= 50 <= found.numbers["smia_auc"].high
        facts = Facts(found.numbers, {}, {})
        answers += [f.answer for f in rule.judge({"all": Facts(found.numbers, {}, {}, before=facts)})]
    assert "passed" not in answers
    assert contained or records >= 5, "the fault is there to be seen"


def test_what_cannot_be_told_is_not_accepted_and_changes_nothing(tmp_path: Path) -> None:
    """Without models that never saw the records nobody can tell; the model is kept apart, as if rejected."""
    for number, (options, why) in enumerate(
        ((Options(out_models=0, bootstrap=20), "out_models=0"), (Options(accept=EASY, bootstrap=20), "no condition")), 1
    ):
        done = run(tmp_path, ids()[:5], options, method=ERASE, **MEMORY)
        assert (done.status, done.accepted, done.plan.number) == ("inconclusive", False, number)
        assert why in next(one["why"] for one in done.receipt["acceptance"]["findings"] if one["answer"] != "passed")
        assert "the tests cannot tell whether the model made on " in done.receipt["letter"]["text"]
        assert "inconclusive" in (tmp_path / f"requests/{number:04d}/receipt.html").read_text()
    done = run(tmp_path, ids()[:5], method=ERASE, **MEMORY)
    assert (done.status, done.plan.number) == ("accepted", 3)
    assert done.receipt["model"]["before"] == done.receipt["model"]["base"], "it starts from the model that stayed"
    assert done.receipt["request"]["tried_before"] == {"inconclusive": 2}
    assert [line.status for line in history(tmp_path)] == ["inconclusive", "inconclusive", "accepted"]
    assert fine(tmp_path, **MEMORY)


def test_what_cannot_be_told_is_taken_if_the_operator_says_so_and_that_is_written(tmp_path: Path) -> None:
    done = run(
        tmp_path, ids()[:5], Options(out_models=0, accept_inconclusive=True, bootstrap=20), method=ERASE, **MEMORY
    )
    assert (done.status, done.accepted) == ("accepted inconclusive", True)
    assert done.receipt["acceptance"]["answer"] == "inconclusive"
    assert "accepted, untestable" in (tmp_path / "requests/0001/receipt.html").read_text()
    assert "The operator has decided to take the changed model all the same" in done.receipt["letter"]["text"]
    (line,) = history(tmp_path)
    assert (line.status, line.accepted) == ("accepted inconclusive", True)
    after = run(tmp_path, ids()[5:9], method=ERASE, **MEMORY)
    assert after.receipt["model"]["before"] == done.receipt["model"]["after"]
    assert fine(tmp_path, **MEMORY)


def test_an_operator_who_accepts_what_cannot_be_told_does_not_accept_what_failed(tmp_path: Path) -> None:
    options = Options(accept_inconclusive=True, bootstrap=20)
    assert run(tmp_path / "half", ids()[:5], options, method=HALVE, **MEMORY).status == "rejected"
    strict = Options(accept="forgotten, val_drop<-100", accept_inconclusive=True, out_models=0, bootstrap=20)
    assert run(tmp_path / "strict", ids()[:5], strict, method=ERASE, **MEMORY).status == "rejected"


def test_the_fallback_is_tried_where_nobody_can_tell(tmp_path: Path) -> None:
    notes: list[str] = []
    options = Options(accept=EASY, fallback="retrain,epochs=1", bootstrap=20)
    given = project(method=QUICK, **SHORT)
    done = regun.forget(given, regun.DeletionRequest.of(ids()[:5]), tmp_path, options, on_note=notes.append)
    assert [one["answer"] for one in done.receipt["method"]["attempts"]] == ["inconclusive", "accepted"]
    assert "cannot be told to have forgotten ((forgetting): no condition" in notes[0]
    settled = Options(accept=EASY, fallback="retrain,epochs=1", accept_inconclusive=True, bootstrap=20)
    assert len(run(tmp_path / "b", ids()[:5], settled, method=QUICK).receipt["method"]["attempts"]) == 1


def test_a_part_that_is_retrained_is_no_retrained_model(tmp_path: Path) -> None:
    """EU-k keeps the first layers, which remember: the tests count."""
    options = Options(accept="smia_auc<0", bootstrap=20)
    done = run(tmp_path, ids()[:5], options, method="retrain,epochs=1,layers=last:1")
    assert (done.status, done.receipt["method"]["claim"]) == ("rejected", "empirical")
    assert run(tmp_path, ids()[:5], options, method="retrain,epochs=1").receipt["method"]["claim"] == "retrained"


@pytest.mark.parametrize(
    ("spec", "sets", "fair"),
    [
        ("finetune", ("test", "heldout", "val"), ["test", "heldout", "val"]),
        ("regun", ("test", "heldout", "val"), ["test", "val"]),
        ("regun", ("heldout",), ["heldout"]),
    ],
)
def test_all_unseen_sets_count_but_what_the_method_trained_towards(spec: str, sets: tuple, fair: list[str]) -> None:
    assert fair_sets(chosen(spec, project()), sets) == fair


def test_the_influence_is_told_against_every_fair_set(tmp_path: Path) -> None:
    done = run(tmp_path, ids()[:5], method=ERASE, **MEMORY)
    parts = done.receipt["audit"]["influence"]["all"]["parts"]
    assert {"test", "heldout", "val"} <= {part["against"] for part in parts}
    assert done.receipt["audit"]["tried"][0]["against"] == "test, heldout and val"


def test_records_of_earlier_requests_are_compared_with_what_the_first_model_knew(tmp_path: Path) -> None:
    """The current model has forgotten them: compared with it, nobody could tell whether they stay forgotten."""
    run(tmp_path, ids()[:20], method=ERASE, **MEMORY)
    done = run(tmp_path, ids()[20:25], method=ERASE, **MEMORY)
    assert done.status == "accepted"
    found = [(one["condition"], one["scope"], one["answer"]) for one in done.receipt["acceptance"]["findings"]]
    assert found[:2] == [("forgotten", "all", "passed"), ("forgotten", "new", "passed")]
    assert done.receipt["audit"]["influence"]["all"]["records"] == 25
    assert fine(tmp_path, **MEMORY)


def test_the_model_before_is_audited_once_whatever_is_tried(tmp_path: Path, monkeypatch) -> None:
    resamples: list[int] = []
    real = regun.deletion.assess.evaluate

    def spy(*args, **more):
        resamples.append(more["bootstrap"])
        return real(*args, **more)

    monkeypatch.setattr(regun.deletion.assess, "evaluate", spy)
    done = run(tmp_path, ids()[:5], Options(fallback=ERASE, bootstrap=20), method=HALVE, **MEMORY)
    tried = len(done.receipt["method"]["attempts"])
    assert tried == 2
    assert resamples == [8, 20, *[20] * tried], "the rehearsal, the model before, each attempt"


# ------------------------------------------------------------------------------------------------------- out models


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the out models that were trained."""
    seeds: list[int] = []
    real = regun.deletion.out_models.unlearn_job

    def spy(job, *args, **more):
        seeds.append(job.seed)
        return real(job, *args, **more)

    monkeypatch.setattr(regun.deletion.out_models, "unlearn_job", spy)
    return seeds


def test_out_models_are_planned_shown_and_paid_for(tmp_path: Path, trainings: list[int]) -> None:
    plans: list[str] = []
    stages: list[str] = []
    given = project(method=QUICK, **SHORT)
    show = {"on_plan": lambda ready: plans.append(ready.judging), "on_stage": stages.append}
    done = regun.forget(
        given, regun.DeletionRequest.of(ids()[:20]), tmp_path, Options(out_models=3, bootstrap=20), **show
    )
    assert plans == ["3 short trainings on the retain set, 2 epochs or 10 steps each, unless the model is trained anew"]
    assert [stage.split(":")[0] for stage in stages[1:]] == [f"out model {n} of 3" for n in (1, 2, 3)]
    assert len(set(trainings)) == 3
    outs = done.receipt["audit"]["out_models"]
    assert (outs["kind"], outs["models"], outs["cost"]["steps"], outs["recipe"]["epochs"]) == ("short", 3, 30, 2)
    assert "3 short trainings without the records (30 steps" in (tmp_path / "requests/0001/receipt.html").read_text()
    assert fine(tmp_path)


def test_who_tries_again_is_judged_by_the_same_out_models(tmp_path: Path, trainings: list[int]) -> None:
    for seed in (0, 1):
        run(tmp_path, ids()[:5], Options(accept="forgotten, val_drop<-100", seed=seed, bootstrap=20), method=QUICK)
    assert trainings[:2] == trainings[2:]
    files = [(tmp_path / f"requests/000{n}/out_models.safetensors").read_bytes() for n in (1, 2)]
    assert files[0] == files[1]


class Stopped(BaseException):
    """Stands for a kill: nothing may catch it."""


def test_a_killed_request_keeps_its_out_models(tmp_path: Path, trainings: list[int], monkeypatch) -> None:
    whole = run(tmp_path / "whole", ids()[:5], method=QUICK).receipt["audit"]["influence"]
    out = tmp_path / "out"

    def die(*args, **more):
        raise Stopped

    for name in ("judged", "commit"):
        with monkeypatch.context() as patch:
            patch.setattr(FORGET, name, die)
            with pytest.raises(Stopped):
                run(out, ids()[:5], method=QUICK)
        assert len(trainings) == 4
    (work,) = out.glob(".regun-work-*")
    assert (work.stat().st_mode & 0o777, len(list(work.iterdir()))) == (0o700, 3)
    damaged = next(path for path in sorted(work.iterdir()) if not path.read_bytes().startswith(b"{"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    assert run(out, ids()[:5], method=QUICK).receipt["audit"]["influence"] == whole
    assert len(trainings) == 5, "the damaged one is made again, the other is not"
    assert list(out.glob(".regun-work-*")) == []


def test_other_data_or_another_recipe_do_not_find_the_out_models_of_a_killed_request(
    tmp_path: Path, trainings: list[int], monkeypatch
) -> None:
    def die(*args, **more):
        raise Stopped

    monkeypatch.setattr(FORGET, "judged", die)
    x, y = data()["test"]
    other = {"retrain": {**SHORT["retrain"], "lr": 0.04}}, {"test": (x + 1, y)}, {"rebuild": lambda seed: network(3)}
    for changes in ({}, *other, {}):
        with pytest.raises(Stopped):
            run(tmp_path, ids()[:5], method=QUICK, **changes)
    assert len(trainings) == 8


def test_what_is_not_regun_s_in_its_workplace_stays(tmp_path: Path, monkeypatch) -> None:
    def die(*args, **more):
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(FORGET, "judged", die)
        with pytest.raises(Stopped):
            run(tmp_path, ids()[:5], method=QUICK)
    (work,) = tmp_path.glob(".regun-work-*")
    (work / "thesis.tex").write_text("once upon a time")
    run(tmp_path, ids()[:5], method=QUICK)
    assert (work / "thesis.tex").read_text() == "once upon a time"


class Scaled(nn.Module):
    """A network that cannot draw all its weights anew."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = trained(), nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.inner(x)


def test_a_model_that_cannot_be_made_anew_cannot_be_judged_and_that_is_said(tmp_path: Path) -> None:
    plans: list[str] = []
    given = project(model=Scaled(), method=QUICK)
    done = regun.forget(
        given,
        regun.DeletionRequest.of(ids()[:5]),
        tmp_path,
        Options(bootstrap=20),
        on_plan=lambda r: plans.append(r.judging),
    )
    assert plans[0].startswith("no models that never saw the records: the model cannot make fresh weights")
    assert done.status == "inconclusive"
    (why,) = [one["why"] for one in done.receipt["acceptance"]["findings"] if one["answer"] == "inconclusive"]
    assert "give rebuild=a function that returns a new, untrained model" in why


def test_retrained_models_are_the_out_models_where_there_are_some(tmp_path: Path, trainings: list[int]) -> None:
    given = {**MEMORY, "retrained": lambda forgotten: [Memory(0.0, 1), Memory(0.0, 2)]}
    done = run(tmp_path, ids()[:20], method=ERASE, **given)
    assert done.receipt["audit"]["out_models"]["kind"] == "retrained"
    assert done.status == "accepted"
    assert trainings == []
    assert "2 retrained models" in (tmp_path / "requests/0001/receipt.html").read_text()
    assert fine(tmp_path, **given)


def test_no_out_models_are_trained_for_a_model_that_is_trained_anew(tmp_path: Path, trainings: list[int]) -> None:
    done = run(tmp_path, ids()[:5], Options(accept="forgotten", bootstrap=20), method="retrain,epochs=1")
    assert (done.status, trainings) == ("accepted", [])
    assert fine(tmp_path)


def test_out_models_that_break_off_cannot_tell(tmp_path: Path) -> None:
    done = run(tmp_path, ids()[:5], method=QUICK, retrain={"epochs": 4, "lr": 1e30, "batch_size": 16})
    assert done.status == "inconclusive"
    assert "the training of a model without the records stopped" in done.receipt["audit"]["out_models"]["why"]


def test_what_out_models_said_is_part_of_what_is_verified(tmp_path: Path) -> None:
    run(tmp_path, ids()[:20], method=ERASE, **MEMORY)
    path = tmp_path / "requests/0001/out_models.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    found = [check.name for _, some in verify_folder(tmp_path) for check in some if check.passed is False]
    assert found == ["out_models.safetensors"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"out_models": -1}, "out_models is -1"), ({"role": "x" * 1001}, "the role has 1,001 char")],
)
def test_options_that_cannot_be_are_refused(options: dict, message: str) -> None:
    with pytest.raises(regun.errors.RegunError, match=message):
        Options(**options)


def test_the_receipt_is_json_of_finite_numbers(tmp_path: Path) -> None:
    run(tmp_path, ids()[:1], method=ERASE, **MEMORY)
    json.loads((tmp_path / "requests/0001/receipt.json").read_text(), parse_constant=pytest.fail)
