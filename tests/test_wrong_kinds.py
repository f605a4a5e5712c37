"""Values of a kind that cannot be meant, given in Python: a sentence that names them, before any work."""

import copy
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import regun
from regun.auditing import ATTACKS
from regun.errors import RegunError, SettingsError
from toys import blobs, mlp, same_state

ROOT = Path(__file__).parent.parent
NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")


def parts() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    examples = blobs(n=120, seed=1)
    x, y = examples.x, torch.from_numpy(examples.labels)
    cuts = {"forget": slice(0, 20), "retain": slice(20, 80), "test": slice(80, 120)}
    return {name: (x[cut], y[cut]) for name, cut in cuts.items()}


def unlearn(**changes) -> regun.Outcome:
    data = parts()
    usual = {"model": mlp(), "forget": data["forget"], "retain": data["retain"], "method": "finetune,epochs=1"}
    return regun.unlearn(**{**usual, **changes})


def audit(**changes) -> regun.Evaluation:
    return regun.audit(**{"model": mlp(), "bootstrap": 20, **parts(), **changes})


def relearn(**changes):
    return regun.relearn(**{"model": mlp(), "settings": {"epochs": 1}, **parts(), **changes})


# ------------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize("call", [unlearn, audit, relearn])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"forget": None}, "forget is a NoneType; give a torch Dataset, a DataLoader or a pair of tensors"),
        (
            {"model": mlp().state_dict()},
            "the model is a OrderedDict; give a torch.nn.Module. Of a state dict, make one",
        ),
        ({"model": None}, "the model is a NoneType; give a torch.nn.Module."),
        ({"device": "gpu"}, r"device 'gpu' cannot be used \(Expected one of cpu, cuda"),
        ({"device": 1.5}, "device '1.5' cannot be used"),
        pytest.param(
            {"device": "cuda"}, r"device 'cuda' cannot be used \(.*; use cpu, or leave it out.", marks=NO_CUDA
        ),
        ({"num_classes": 0}, "num_classes is 0, but the model tells 3 classes apart; give at least 2."),
        ({"num_classes": 4}, "num_classes is 4, but the model tells 3 classes apart; give at most 3."),
        ({"num_classes": "3"}, "num_classes is '3'; give a whole number"),
        ({"seed": None}, "seed is None; give a whole number."),
        ({"logits": 3}, "logits is 3; give a function from what the model returns to its logits."),
        ({"ids": [1, 2]}, "ids is a list; give a mapping from names of sets to ids"),
    ],
)
def test_what_all_of_them_take(call, changes: dict, message: str) -> None:
    with pytest.raises(RegunError, match=message):
        call(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": None}, r"method is None; give text as on the command line \('regun,lr=0.02'\) or a function"),
        ({"settings": [("lr", 1)]}, "settings is a list; give a mapping: {'lr': 0.02}."),
        ({"preset": 3}, "preset is 3; give text."),
        ({"budget": 10}, r"budget is 10; give regun.Budget\(steps=N\) or regun.Budget\(samples=N\)."),
        ({"keep": None}, "keep is None; give text."),
        ({"criterion": 1}, "criterion is 1; give text."),
        ({"recipe": [1]}, r"recipe is a list; give a mapping \({'epochs': 30, 'lr': 0.1}\) or text"),
        ({"on_epoch": "loud"}, "on_epoch is 'loud'; give a function"),
        ({"tune": "8"}, "tune is '8'; give a whole number of settings to try."),
        ({"tune": True}, "tune is True; give a whole number"),
        ({"rebuild": "mlp"}, "rebuild is 'mlp'; give a function of a seed that returns a new, untrained model"),
    ],
)
def test_what_unlearning_takes(changes: dict, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        unlearn(**changes)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        unlearn(method=None, budget=10, tune="8")
    assert [problem.split()[0] for problem in caught.value.problems] == ["method", "budget", "tune"]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (None, "what rebuild returned is a NoneType; give a torch.nn.Module."),
        (mlp(features=7), r"what rebuild returned does not fit the model: 0.weight has shape \(16, 7\), expected \(16, 6\)"),
        (nn.Linear(6, 3), r"does not fit the model: it lacks \d tensors .* it has 2 others \(the first is 'bias'\)"),
    ],
)  # fmt: skip
def test_what_rebuild_returns_is_a_model_of_the_same_kind(made: nn.Module | None, message: str) -> None:
    with pytest.raises(RegunError, match=message):
        unlearn(method="retrain,epochs=1,lr=0.1", rebuild=lambda seed: made)


def test_a_rebuild_that_fails_is_named() -> None:
    with pytest.raises(RegunError, match=r"^rebuild failed: TypeError: .*takes 0 positional arguments but 1 was given"):
        unlearn(method="retrain,epochs=1,lr=0.1", rebuild=lambda: mlp())


@pytest.mark.parametrize(
    ("returned", "what"), [(5, r"5 \(type int\)"), ("done", r"'done' \(type str\)"), (mlp(), "a Sequential")]
)
def test_what_a_method_returns_is_a_record_of_its_run_or_nothing(returned: object, what: str) -> None:
    with pytest.raises(RegunError, match=rf"the method .* returned {what}; return a regun.training.fit.Fitted or noth"):
        unlearn(method=lambda job: returned)


@pytest.mark.parametrize("call", [audit, relearn])
@pytest.mark.parametrize(
    ("references", "message"),
    [
        (mlp(seed=1), r"references is a Sequential; give a list of models, also of one: \[model\]."),
        (None, "references is None; give a list of models."),
        ([mlp(seed=1), None], r"references\[1\] is a NoneType; give a torch.nn.Module."),
    ],
)
def test_references_are_a_list_of_models(call, references, message: str) -> None:
    with pytest.raises(RegunError, match=message):
        call(retrain=mlp(seed=2), references=references)


def test_other_models_are_models_too() -> None:
    with pytest.raises(RegunError, match="outs is a Sequential; give a list of models"):
        audit(before=mlp(seed=3), outs=mlp(seed=1))
    with pytest.raises(RegunError, match="before is a str; give a torch.nn.Module."):
        audit(before="yesterday")
    with pytest.raises(RegunError, match="retrain is a OrderedDict; give a torch.nn.Module. Of a state dict"):
        relearn(retrain=mlp().state_dict())
    with pytest.raises(RegunError, match="retain is a NoneType; give a torch Dataset"):
        relearn(retain=None)


def test_a_list_is_a_list() -> None:
    with pytest.raises(SettingsError, match="attacks is 3; give a list of names or functions."):
        audit(attacks=3)
    with pytest.raises(SettingsError, match="metrics is None; give a list of names or functions."):
        audit(metrics=None)
    with pytest.raises(SettingsError, match="bootstrap is '20'; give a whole number."):
        audit(bootstrap="20")


# --------------------------------------------------------------------------------------------------------------- taken


def margin(evidence) -> np.ndarray:
    return np.sort(evidence.target.log_probs, axis=1)[:, -1]


def retained(splits, retrain) -> float:
    return float(len(splits["retain"]))


@pytest.mark.parametrize("attack", ["smia", ATTACKS["smia"], margin])
def test_one_attack_metric_or_set_alone_is_a_list_of_one(attack) -> None:
    alone = audit(attacks=attack, metrics=retained, unseen="test")
    listed = audit(attacks=[attack], metrics=[retained], unseen=["test"])
    assert alone.to_json() == listed.to_json()
    assert len(alone.attacks) == 1
    with pytest.raises(RegunError, match="unknown attack 'simia'. Did you mean 'smia'"):
        audit(attacks="simia")


def test_numbers_of_numpy_are_numbers() -> None:
    ours = unlearn(seed=np.int64(3), num_classes=np.int64(3), device=torch.device("cpu"))
    assert same_state(ours.model, unlearn(seed=3, num_classes=3).model)


# ------------------------------------------------------------------------------------------------------------ in place


def overflow(job: regun.Job) -> None:
    with torch.no_grad():
        next(job.model.parameters()).fill_(float("inf"))


@pytest.mark.parametrize("method", ["finetune,lr=1e30,epochs=3", overflow])
def test_a_run_that_diverged_leaves_the_given_model_as_it_was(method) -> None:
    model = mlp()
    before = copy.deepcopy(model)
    outcome = unlearn(model=model, method=method, inplace=True)
    assert outcome.diverged is not None
    assert same_state(model, before)
    assert outcome.model is not model
    assert "the model that was given is left as it was, although inplace=True" in outcome.warnings[-1]


def test_a_method_that_leaves_no_numbers_has_diverged() -> None:
    outcome = unlearn(method=overflow, logits=lambda output: output)
    assert outcome.diverged == "the weights 0.weight are not finite numbers"
    assert not any("Lower lr" in sentence for sentence in outcome.warnings)


# --------------------------------------------------------------------------------------------------------------- rooms

TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ADDRESSES = {
    name for text in TEXTS for name in re.findall(r"\bregun((?:\.[a-z_]+)+(?:\.[A-Za-z_]+)+)", text.read_text())
}
ROOMS = sorted({name.split(".")[1] for name in ADDRESSES})
CHILD = "import operator, sys, regun; [operator.attrgetter(name[1:])(regun) for name in sys.argv[1:]]"


@pytest.mark.parametrize("room", ROOMS)
def test_what_the_docs_name_is_there_after_import_regun_alone(room: str) -> None:
    asked = sorted(name for name in ADDRESSES if name.split(".")[1] == room)
    done = subprocess.run([sys.executable, "-c", CHILD, *asked], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_regun_imports_nothing_else() -> None:
    child = "import sys, regun; print(sorted(name for name in sys.modules if name.startswith(('regun.', 'torch'))))"
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
    assert {"experiments", "models", "data"} <= set(ROOMS)
