"""The facts that reports state about one forget request: leaders, ties, power, what differs most, who over-forgets."""

from dataclasses import replace

import pytest

from regun.auditing import Gap, Judgement
from regun.experiments.study.results import Row, block_of
from regun.experiments.study.summary import (
    Summary,
    attack_label,
    limits,
    not_distinguishable,
    summarize,
    unanimous,
    unmarked,
)
from report_samples import block, evaluated, found, hand_made, judged, method, results, run, study


def facts(*methods, **more) -> Summary:
    return summarize(block(*methods, **more))


def titles(rows: tuple[Row, ...]) -> list[str]:
    return [row.title for row in rows]


def test_the_leader_is_the_closest_by_more_than_the_noise_floor() -> None:
    found_ = facts(method("A", 1.5), method("B", 4.0))
    assert (found_.gap, found_.ranked, titles(found_.leaders), found_.base_gap) == ("gap_rftp", 2, ["A"], 9.0)
    tied = facts(method("A", 2.5), method("B", 1.5), method("C", 9.0))
    assert titles(tied.leaders) == ["B", "A"]


def test_without_a_noise_floor_the_smallest_gap_leads_alone() -> None:
    bare = {"floor": None}
    found_ = facts(method("A", 3.5, **bare), method("B", 3.6, **bare), **bare)
    assert titles(found_.leaders) == ["A"]
    assert not found_.outside_by_part


def test_a_row_without_all_its_runs_never_leads() -> None:
    few = method("Few", 0.1, planned=2)
    found_ = facts(few, method("A", 3.0, 3.0), method("B", 9.0, 9.0), seeds=2)
    assert (titles(found_.leaders), found_.ranked) == (["A"], 2)
    assert facts(few, method("A", 3.0, planned=2), seeds=2).leaders == ()


def test_diverged_rows_are_not_ranked() -> None:
    lost, kept = found("lost", run(None, diverged="NaN")), found("kept", run(hand_made(0.1), diverged="NaN"))
    found_ = facts(method("A", 1.0), method("B", 3.0), lost, kept)
    assert (titles(found_.leaders), found_.ranked) == (["A"], 2)


def test_outside_by_a_part_although_the_mean_is_small() -> None:
    inside, apart = method("A", 1.5), method("B", 9.0)
    assert not facts(inside, apart).outside_by_part
    (one,) = inside.runs
    by_part = replace(one.evaluation, gaps={"gap_rftp": Gap(1.5, 1.0, 2.0, 3.0, "failed")})
    assert facts(found("a", replace(one, evaluation=by_part)), apart).outside_by_part
    assert not facts(method("A", 4.0), apart).outside_by_part, "its mean is outside as well"


def test_who_else_is_inside_and_who_is_no_closer_than_base() -> None:
    found_ = facts(method("A", 0.1), method("B", 1.8), method("C", 5.0), base=3.5)
    assert titles(found_.inside) == ["B"]
    assert titles(found_.no_closer_than_base) == ["C"]
    assert titles(facts(method("A", 0.8), method("B", 2.0), base=0.5).no_closer_than_base) == ["A", "B"]
    assert facts(method("A", 0.8), method("B", 2.0), base=None).no_closer_than_base == ()


def test_a_test_that_does_not_flag_base_has_no_power() -> None:
    assert titles(facts(method("A", 0.8), base=2.5).no_power) == ["Base"]
    assert facts(method("A", 0.8), base=3.5).no_power == ()


def test_the_part_that_differs_most_is_named_with_its_rows() -> None:
    away = replace(
        judged({"rmia_auc": 60.0}), judgement=Judgement("failed", "noise floor", "A reason.", worst="rmia_auc")
    )
    found_ = facts(found("a", away), found("b", away), method("C", 1.0))
    assert found_.most_visible == {"rmia_auc": ("A", "B")}


def test_over_forgetting_counts_runs_by_attack() -> None:
    whole, _ = evaluated()
    (first,) = whole.blocks[0].row("m1").runs
    assert first.evaluation is not None
    attack = replace(first.evaluation.attacks["rmia"], over_forgetting=True)
    flagged = replace(first, evaluation=replace(first.evaluation, attacks={"rmia": attack, "rmia_val": attack}))
    assert facts(found("x", flagged)).over_forgetting == {"X": {"RMIA": 1}}
    assert facts(found("x", flagged, hand_made(1.0)), seeds=2).over_forgetting == {"X": {"RMIA": 1}}


def test_nothing_to_compare() -> None:
    assert facts().leaders == ()
    blind = replace(hand_made(1.0), numbers={}, gaps={})
    assert facts(found("x", blind)).gap is None
    assert facts(found("lost", run(None, diverged="NaN"))).gap is None


def test_columns_without_a_mark_say_who_can_be_compared() -> None:
    tied = study(found("a", judged({"test_acc": 92.0})), found("b", judged({"test_acc": 88.0}))).blocks[0]
    assert not_distinguishable(tied, ["test_acc", "test_acc", "steps"]) == {("A", "B"): ["test_acc"]}
    assert unmarked(tied, ["test_acc"]) == {}
    bare = block(method("A", 1.0, floor=None), method("B", 9.0, floor=None), floor=None)
    assert unmarked(bare, ["gap_rftp"]) == {("A", "B"): ["gap_rftp"]}
    late = found("b", judged(), planned=3)
    assert unmarked(study(found("a", judged()), late).blocks[0], ["test_acc"]) == {("A",): ["test_acc"]}
    assert unmarked(study(replace(late, name="a"), late).blocks[0], ["test_acc"]) == {(): ["test_acc"]}
    assert unmarked(study(late).blocks[0], ["test_acc"]) == {}, "one method has nothing to lead over"


def test_limits_have_the_rows_they_hold_for() -> None:
    rows = [found(n, replace(hand_made(5.0), limits=texts)) for n, texts in (("a", ("x", "y")), ("b", ("x",)))]
    made = limits(results(block_of("0.1", "10 %", {}, rows)))
    assert made == {"x": (("A", "B"), ()), "y": (("A",), ("B",))}


@pytest.mark.parametrize(("name", "label"), [("rmia", "RMIA"), ("rmia_val", "RMIA"), ("my_own", "my own")])
def test_labels_of_attacks(name: str, label: str) -> None:
    assert attack_label(name) == label


def test_a_verdict_that_all_runs_share() -> None:
    assert unanimous({"passed": 2, "failed": 0}) == "passed"
    assert unanimous({"passed": 2, "failed": 1}) is None
    assert unanimous({}) is None
