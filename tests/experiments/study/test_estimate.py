"""How long a plan takes: what is counted, and what is not."""

from pathlib import Path

import pytest

import mini
from regun.experiments.study.context import Location
from regun.experiments.study.estimate import TASK, Speed, measured_speed, seconds_left, speed_here
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.plan import labels_of_size, plan_study


def test_samples_evaluations_floors_and_every_task_take_their_time() -> None:
    plan = plan_study(mini.study(tune={"trials": 3}), labels_of_size(400), 100)
    slow, fast = Speed(100.0), Speed(200.0)
    samples = sum(task.work.samples for task in plan.tasks.values() if task.work)
    assert seconds_left(plan, set(), slow) - seconds_left(plan, set(), fast) == pytest.approx(samples / 200)
    counts, judged = plan.counts(), Speed(100.0, evaluation=2.0, floor=3.0)
    more = seconds_left(plan, set(), judged) - seconds_left(plan, set(), slow)
    assert more == pytest.approx(2.0 * counts["evaluate"] + 3.0 * counts["floor"])
    assert seconds_left(plan, set(), Speed(1e18)) >= TASK * (counts["train"] + counts["unlearn"] + counts["evaluate"])


def test_what_is_done_takes_nothing() -> None:
    plan, speed = plan_study(mini.study(), labels_of_size(400), 100), Speed(100.0, 1.0, 1.0)
    assert seconds_left(plan, set(plan.tasks), speed) == 0
    half = set(list(plan.tasks)[: len(plan.tasks) // 2])
    assert seconds_left(plan, half, speed) < seconds_left(plan, set(), speed)


def test_a_probe_keeps_nothing(tmp_path: Path) -> None:
    opened = OpenStudy(mini.study(), Location(str(tmp_path)))
    found = speed_here(opened, measured_speed(opened))
    assert found.samples > 0
    assert found.evaluation > 0
    assert found.floor > 0
    assert not list(opened.store.artifacts("model"))
    alone = OpenStudy(mini.study(references=0), Location(str(tmp_path)))
    assert speed_here(alone, 1.0).floor == 0
