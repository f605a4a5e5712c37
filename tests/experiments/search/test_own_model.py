"""regun.tune on a user's own model."""

import copy
import dataclasses
import logging

import numpy as np
import pytest
import torch

import regun
from expect import error
from regun.data.tensors import TensorExamples
from regun.errors import RegunError, SettingsError
from regun.experiments.search import search_job
from regun.experiments.search.objectives import worst
from regun.methods import get_method
from regun.splits import Splits
from regun.training.fit import Fitted
from regun.training.job import Job
from toys import blobs, mlp, same_state

pytest.importorskip("optuna")


def trained(x, y):
    model = mlp(seed=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


@pytest.fixture(scope="module")
def parts():
    examples = blobs(n=300, seed=1)
    x, y = examples.x, torch.from_numpy(examples.labels)
    ends = {"forget": (0, 40), "retain": (40, 180), "heldout": (180, 240), "val": (240, 300)}
    return {name: (x[start:end], y[start:end]) for name, (start, end) in ends.items()}


@pytest.fixture(scope="module")
def model(parts):
    x, y = (torch.cat([parts["forget"][k], parts["retain"][k]]) for k in (0, 1))
    return trained(x, y)


SETTINGS = {"epochs": 2, "batch_size": 16}


def test_the_best_trial_is_returned_with_all_of_them(model, parts) -> None:
    before = copy.deepcopy(model.state_dict())
    outcome = regun.tune(model, **parts, method="regun", settings=SETTINGS, trials=8)
    scores = [trial["score"] for trial in outcome.trials]
    best = int(np.argmin(scores))
    assert len(outcome.trials) == 8
    assert outcome.trials[0]["values"] == {"lr": 0.01, "w": 0.5}
    assert {name: outcome.config[name] for name in ("lr", "w")} == outcome.trials[best]["values"]
    assert outcome.config["epochs"] == 2
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    again = regun.tune(model, **parts, method="regun", settings=SETTINGS, trials=8)
    assert same_state(outcome.model, again.model)
    assert [t["score"] for t in again.trials] == scores


def test_an_unlearning_has_no_trials(model, parts) -> None:
    assert regun.unlearn(model, **parts, method="regun", settings=SETTINGS).trials == []


def test_held_out_alone_is_enough_and_half_of_it_is_never_shown(model, parts) -> None:
    shown: list[Job] = []
    method = get_method("regun")

    def spy(job: Job, config) -> Fitted:
        shown.append(job)
        return method.unlearn(job, config)

    import regun.methods._registry as registry

    watched = dataclasses.replace(method, unlearn=spy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "get_method", lambda name: watched)
        given = {name: parts[name] for name in ("forget", "retain", "heldout")}
        outcome = regun.tune(model, **given, method="regun", settings=SETTINGS, trials=2)
    assert len(outcome.trials) == len(shown) == 2
    assert {len(job.indices("heldout")) for job in shown} == {30}
    assert len({id(job.model) for job in shown}) == 2


def test_unseen_examples_are_needed(model, parts) -> None:
    with error(RegunError, "heldout=", "val=", 0, 2):
        regun.tune(model, forget=parts["forget"], retain=parts["retain"], method="finetune", trials=2)
    one = tuple(part[:1] for part in parts["heldout"])
    with error(RegunError, "heldout=", "val=", 0, 2):
        regun.tune(model, forget=parts["forget"], retain=parts["retain"], heldout=one, method="finetune", trials=2)


def test_only_what_is_kept_is_talked_about(model, parts, caplog) -> None:
    with caplog.at_level(logging.WARNING, "regun"):
        outcome = regun.tune(model, **parts, method="finetune", settings=SETTINGS, trials=3)
    assert len(outcome.trials) == 3
    assert caplog.messages == list(outcome.warnings)


def test_diverged_trials_are_the_worst(model, parts) -> None:
    """The start blows up whatever the machine; the outcome is still that of the lowest score."""
    x, y = (torch.cat([part[k] for part in parts.values()]) for k in (0, 1))
    ends = np.cumsum([len(labels) for _, labels in parts.values()])
    rows = dict(zip(parts, np.split(np.arange(ends[-1]), ends[:-1]), strict=True))
    job = Job(
        model=copy.deepcopy(model),
        examples=TensorExamples(x, y.numpy(), 3),
        splits=Splits(**rows, total=int(ends[-1])),
        seed=0,
    )
    method = get_method("neggrad")
    outcome = search_job(job, method, method.configure({"lr": 1e37, "epochs": 9, "batch_size": 4}), trials=5)
    first, *others = outcome.trials
    assert first["diverged"]
    assert first["score"] == worst("reference", "").score
    assert all(t["score"] < first["score"] for t in others if not t["diverged"])
    best = min(outcome.trials, key=lambda t: (t["score"], t["number"]))
    assert (outcome.config["lr"], outcome.diverged) == (best["values"]["lr"], best["diverged"])


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"trials": 0}, ("trials", 0, 1)),
        ({"trials": "8"}, ("trials", "'8'", "integer")),
        ({"trials": 3, "method": "ssd"}, ("SSD",)),
        ({"trials": 3, "method": lambda job: None}, ()),
        ({"trials": 3, "method": "regun", "settings": {"lr": 0.1, "w": 0.2}}, ("ReGUn", "lr", "w")),
        ({"trials": 3, "method": "auto"}, ("Auto",)),
    ],
)
def test_what_cannot_be_searched(more, names: tuple, model, parts) -> None:
    with error(SettingsError, *names):
        regun.tune(model, **parts, **more)
