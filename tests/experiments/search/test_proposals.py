"""What is tried next, on scores that cost nothing: repeatable, a short search the beginning of a long one, and quiet."""

import logging
import random

import numpy as np
import pytest
import torch

import regun.experiments.search.proposals as proposals_module
from expect import error
from regun.errors import RegunError
from regun.experiments.search import Space, Trial
from regun.experiments.search.proposals import Proposer, run_trials
from regun.methods import Choice, Range

optuna = pytest.importorskip("optuna")

MIXED = Space({"lr": Choice((0.1, 0.05, 0.01)), "w": Range(0.1, 0.9), "g": Range(1e-4, 1e-1, log=True)},
              {"lr": 0.01, "w": 0.5, "g": 1e-3})  # fmt: skip
FINITE = Space({"lr": Choice((0.1, 0.05, 0.01)), "on": Choice((True, False))}, {"lr": 0.05, "on": False})


def bowl(number, values) -> Trial:
    distance = (values["w"] - 0.7) ** 2 + (values["lr"] - 0.05) ** 2 + (np.log10(values["g"]) + 2) ** 2
    sides = {"forgetting": float(abs(values["w"] - 0.7)), "utility": float(abs(values["lr"] - 0.1))}
    return Trial(number=number, values=values, score=float(distance), **sides)


def flat(number, values) -> Trial:
    return Trial(number=number, values=values, score=0.0, forgetting=0.0, utility=0.0)


def told(trials) -> list:
    return [(t.number, t.values, t.score) for t in trials]


def test_one_seed_gives_the_same_trials_and_another_seed_others() -> None:
    first, second, other = (run_trials(Proposer(space=MIXED, seed=seed), 14, bowl) for seed in (0, 0, 1))
    assert told(first) == told(second)
    assert first[0].values == other[0].values == dict(MIXED.start)
    assert [t.values for t in first[1:]] != [t.values for t in other[1:]]
    assert [t.number for t in first] == list(range(14))


def test_a_short_search_is_the_beginning_of_a_long_one() -> None:
    proposer = Proposer(space=MIXED)
    assert told(run_trials(proposer, 8, bowl)) == told(run_trials(proposer, 16, bowl))[:8]


def test_a_trial_is_a_function_of_the_seed_and_of_the_trials_before_it() -> None:
    """Nothing is remembered in between: asked at any point, in any order, the same is proposed."""
    proposer = Proposer(space=MIXED, seed=3)
    done = run_trials(proposer, 10, bowl)
    for number in (9, 0, 6, 3, 6):
        assert Proposer(space=MIXED, seed=3).propose(done[:number]) == done[number].values


def test_what_is_proposed_follows_the_scores() -> None:
    """With other scores the spread stays, and what the estimator proposes differs."""

    def other(number, values) -> Trial:
        return Trial(number=number, values=values, score=values["w"], forgetting=0.0, utility=0.0)

    one, two = (run_trials(Proposer(space=MIXED), 12, attempt) for attempt in (bowl, other))
    assert [t.values for t in one[:6]] == [t.values for t in two[:6]]
    assert [t.values for t in one[6:]] != [t.values for t in two[6:]]


def test_it_learns_from_its_trials() -> None:
    """Better than the same number of evenly spread trials, over several seeds."""

    def best(spread: int) -> float:
        searches = [run_trials(Proposer(space=MIXED, seed=s, spread=spread), 30, bowl) for s in range(6)]
        return float(np.mean([min(t.score for t in trials) for trials in searches]))

    assert best(6) < 0.7 * best(99)


def test_every_proposal_lies_inside_the_space() -> None:
    for trial in run_trials(Proposer(space=MIXED, seed=7), 20, bowl):
        assert trial.values["lr"] in (0.1, 0.05, 0.01)
        assert 0.1 <= trial.values["w"] <= 0.9
        assert 1e-4 <= trial.values["g"] <= 1e-1


def test_a_finite_space_is_tried_without_repeats_and_then_ends() -> None:
    found = run_trials(Proposer(space=FINITE), 20, flat)
    assert len(found) == 6
    assert len({tuple(t.values.items()) for t in found}) == 6
    assert found[0].values == dict(FINITE.start)
    assert told(run_trials(Proposer(space=FINITE), 4, flat)) == told(found)[:4]


def test_a_space_of_one_point_is_the_start_alone() -> None:
    assert [t.values for t in run_trials(Proposer(space=Space({}, {})), 9, flat)] == [{}]


def test_nothing_global_is_seeded_read_or_left_changed(capfd: pytest.CaptureFixture[str]) -> None:
    def state():
        return (np.random.get_state()[1].tolist(), random.getstate(), torch.get_rng_state().tolist())  # noqa: NPY002

    before, verbosity = state(), optuna.logging.get_verbosity()
    handlers = list(logging.getLogger("optuna").handlers)
    run_trials(Proposer(space=MIXED), 9, bowl)
    assert state() == before
    assert optuna.logging.get_verbosity() == verbosity
    assert logging.getLogger("optuna").handlers == handlers
    assert capfd.readouterr() == ("", "")


def test_trials_are_told_as_they_end() -> None:
    seen: list[int] = []
    run_trials(Proposer(space=FINITE), 3, flat, lambda t: seen.append(t.number))
    assert seen == [0, 1, 2]


def test_an_error_of_a_trial_reaches_the_caller() -> None:
    def broken(number, values) -> Trial:
        raise RegunError("the method cannot run")

    with error(RegunError, "method"):
        run_trials(Proposer(space=FINITE), 3, broken)


def test_without_optuna_the_way_out_is_said_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals_module.importlib.util, "find_spec", lambda name: None)
    with error(RegunError, "Optuna", "tune"):
        run_trials(Proposer(space=MIXED), 2, lambda number, values: pytest.fail("a trial was run"))
    assert len(run_trials(Proposer(space=FINITE), 2, flat)) == 2  # combinations need no estimator
