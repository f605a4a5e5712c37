"""The maths of a study's table, by examples computed by hand: means, deviations, gaps, marks, floors, missing runs."""

import math
from collections.abc import Mapping

import numpy as np
import pytest

from regun.errors import AuditError
from regun.evaluate import Evaluation, Gap, Number, Signals, evaluate
from regun.evaluate.metrics import GAPS, gap
from regun.study.layout import fixed, lines, verdict
from regun.study.rank import marks
from regun.study.results import Block, Entry, Kind, Results, Run
from regun.study.table import COLUMNS, Row, Table, make_table

FLOOR = (0.5, 1.0, 1.5)
TRUTH = {"retain_acc": 99.0, "forget_acc": 90.0, "test_acc": 90.0, "smia_auc": 51.0, "rmia_auc": 50.0}


def judged(
    values: Mapping[str, float],
    truth: Mapping[str, float] | None = None,
    floor: tuple[float, float, float] | None = FLOOR,
    half: float | None = 1.0,
) -> Evaluation:
    """An evaluation with these numbers: what is not given is Retrain's, gaps follow, intervals are ± half."""
    truth = TRUTH if truth is None else truth
    numbers = {**truth, "retain_div": 0.0, "test_div": 0.0, **values}
    numbers |= {name: gap(numbers, truth, terms) for name, terms in GAPS.items() if name in ("gap_rftp", "gap_tp")}
    found: dict[str, Gap] = {}
    for name, value in numbers.items():
        away = abs(value - truth.get(name, 0.0))
        word = floor and ("indistinguishable" if away <= floor[1] else "borderline" if away <= floor[2] else None)
        found[name] = Gap(away, *floor, word or "distinguishable") if floor else Gap(away)
    interval = {name: (v - half, v + half) if half and "gap" not in name else () for name, v in numbers.items()}
    made = {name: Number(v, *interval[name]) for name, v in numbers.items()}
    return Evaluation(made, {}, dict(truth), found, (), (), {"level": 0.95})


def alone(values: Mapping[str, float] | None = None) -> Evaluation:
    """Retrain's own evaluation: judged without a Retrain, so without gaps and divergences."""
    return Evaluation(
        {name: Number(v, v - 1, v + 1) for name, v in {**TRUTH, **(values or {})}.items()}, {}, {}, {}, (), (), {}
    )


def run(seed: int, evaluation: Evaluation | None, diverged: str | None = None, **cost: float) -> Run:
    usual = {"steps": 40.0, "forward": 200.0, "backward": 100.0, "seconds": 2.0}
    return Run(seed, f"key-{seed}", evaluation, usual | cost, settings={"lr": 0.1}, diverged=diverged)


def entry(name: str, *evaluations: Evaluation | None, kind: Kind = "method", title: str | None = None) -> Entry:
    return Entry(name, title or name.title(), kind, tuple(run(seed, e) for seed, e in enumerate(evaluations)))


def study(
    *entries: Entry, seeds: int = 1, forget: str = "0.1", name: str = "toy", title: str = "A toy study"
) -> Results:
    """Retrain, Base and these entries on one forget request."""
    first = (
        entry("retrain", *[alone()] * seeds, kind="retrain"),
        entry("base", *[judged({"forget_acc": 99.0, "rmia_auc": 60.0})] * seeds, kind="base"),
    )
    sizes = {"retain": 900, "forget": 100, "heldout": 50, "val": 100, "test": 1000}
    return Results(name, title, {"data": "toy"}, tuple(range(seeds)), (Block(forget, "10 %", sizes, first + entries),))


def row(table: Table, name: str) -> Row:
    return next(row for row in table.sections[0].rows if row.name == name)


def test_mean_and_sample_deviation_over_seeds():
    table = make_table(study(entry("a", *(judged({"test_acc": v}) for v in (88.0, 89.0, 93.0))), seeds=3))
    cell = row(table, "a").cells["test_acc"]
    assert cell.mean == 90.0
    assert cell.std == pytest.approx(math.sqrt(7.0))  # ((-2)^2 + (-1)^2 + 3^2) / (3 - 1)
    assert (cell.low, cell.high) == (89.0, 91.0)
    assert [seen.value for seen in cell.seen] == [88.0, 89.0, 93.0]


def test_one_seed_has_no_deviation_but_an_interval():
    cell = row(make_table(study(entry("a", judged({"test_acc": 88.0})))), "a").cells["test_acc"]
    assert (cell.mean, cell.std, cell.low, cell.high) == (88.0, None, 87.0, 89.0)


def test_an_interval_that_one_seed_lacks_is_left_out():
    table = make_table(study(entry("a", judged({}, half=1.0), judged({}, half=None)), seeds=2))
    cell = row(table, "a").cells["test_acc"]
    assert (cell.low, cell.high) == (None, None)
    assert cell.seen[0].low == 89.0


def test_gaps_are_taken_per_seed_and_then_averaged():
    """Test accuracy is off by +2 and by -2: no gap of the means, a gap of 1 in each seed."""
    table = make_table(study(entry("a", judged({"test_acc": 92.0}), judged({"test_acc": 88.0})), seeds=2))
    cells = row(table, "a").cells
    assert cells["test_acc"].distance == 0.0
    assert (cells["gap_tp"].mean, cells["gap_tp"].std) == (1.0, 0.0)
    assert (cells["gap_rftp"].mean, cells["gap_rftp"].std) == (0.5, 0.0)


def test_retrain_has_no_distance_to_itself_however_it_was_judged():
    for retrain in (alone(), judged({})):
        table = make_table(Results("s", "S", {}, (0,), (Block("0.1", "", {}, (entry("r", retrain, kind="retrain"),)),)))
        cells = table.sections[0].rows[0].cells
        distances = [name for name in table.columns if name.startswith("gap") or name.endswith("div")]
        assert [cells[name].mean for name in distances] == [0.0] * len(distances)
        assert cells["test_acc"].distance == 0.0
        assert table.sections[0].rows[0].verdicts == {}


def test_best_is_the_nearest_to_retrain_on_either_side_and_base_is_not_ranked():
    table = make_table(
        study(
            entry("above", judged({"rmia_auc": 53.0, "test_div": 3.0})),
            entry("below", judged({"rmia_auc": 48.0, "test_div": 1.0})),
            entry("far", judged({"rmia_auc": 40.0, "test_div": 2.0})),
        )
    )
    found = {r.name: (r.cells["rmia_auc"].mark, r.cells["test_div"].mark) for r in table.sections[0].rows}
    assert found == {
        "retrain": (None, None),
        "base": (None, None),
        "above": ("second", None),
        "below": ("best", "best"),
        "far": (None, "second"),
    }
    assert row(table, "above").cells["gap_tp"].mark == "second"  # 3 / 2 behind 2 / 2


def test_ranks_are_by_the_mean_and_not_by_single_seeds():
    """`swings` has Retrain's mean though no seed of it is near; its gap, taken per seed, is the worst."""
    table = make_table(
        study(
            entry("swings", judged({"test_acc": 95.0}), judged({"test_acc": 85.0})),
            entry("steady", judged({"test_acc": 91.0}), judged({"test_acc": 91.0})),
            seeds=2,
        )
    )
    assert row(table, "swings").cells["test_acc"].mark == "best"
    assert row(table, "swings").cells["gap_tp"].mark == "second"
    assert row(table, "steady").cells["gap_tp"].mark == "best"


def test_equal_distances_share_a_mark():
    assert marks({"a": 1.0, "b": 1.0 + 1e-12, "c": 2.0}) == {"a": "best", "b": "best"}
    assert marks({"a": 1.0, "b": 2.0, "c": 2.0, "d": 3.0}) == {"a": "best", "b": "second", "c": "second"}
    assert marks({"a": 1.0, "b": 1.001}) == {"a": "best", "b": "second"}
    assert marks({"a": 1.0}) == {}
    table = make_table(study(entry("a", judged({"test_acc": 92.0})), entry("b", judged({"test_acc": 88.0}))))
    assert {row(table, name).cells["test_acc"].mark for name in "ab"} == {"best"}


def test_a_diverged_row_is_shown_with_its_reason_and_not_ranked():
    lost = Entry("lost", "Lost", "method", (run(0, judged({})), run(1, None, "loss was nan at step 3")))
    kept = Entry("kept", "Kept", "method", (run(0, judged({})), run(1, judged({}), "stopped at a loss of inf")))
    others = [entry(name, *[judged({"test_acc": v})] * 2) for name, v in (("near", 89.0), ("far", 80.0))]
    table = make_table(study(lost, kept, *others, seeds=2))
    assert row(table, "lost").diverged == {1: "loss was nan at step 3 (not in the means)"}
    assert row(table, "lost").seeds == (0,)
    assert row(table, "kept").diverged == {1: "stopped at a loss of inf"}
    assert row(table, "kept").seeds == (0, 1)
    assert all(row(table, name).cells["test_acc"].mark is None for name in ("lost", "kept"))
    assert row(table, "near").cells["test_acc"].mark == "best"
    shown = {line.title: line for line in lines(table, table.sections[0], False)}
    assert shown["Lost †"].diverged
    assert shown["Lost †"].pieces[0].value == "1/2"


def test_a_row_with_a_missing_seed_is_not_ranked_and_compared_over_its_own_seeds():
    """Retrain's test accuracy is 90 and 80; a model of seed 1 alone, at 81, is 1 away and not 4."""
    other = TRUTH | {"test_acc": 80.0}
    late = Entry("late", "Late", "method", (run(1, judged({"test_acc": 81.0}, other)),))
    full = [
        entry(n, judged({"test_acc": 90 + d}), judged({"test_acc": 80 + d}, other)) for n, d in (("a", 2), ("b", 3))
    ]
    table = make_table(study(late, *full, seeds=2))
    assert row(table, "late").seeds == (1,)
    assert (row(table, "late").cells["test_acc"].distance, row(table, "late").cells["test_acc"].mark) == (1.0, None)
    assert row(table, "a").cells["test_acc"].mark == "best"
    assert row(table, "a").cells["test_acc"].retrain == 85.0


def test_rows_of_an_unfinished_study_are_ranked_once_they_share_their_seeds():
    results = study(entry("a", judged({"test_acc": 89.0})), entry("b", judged({"test_acc": 80.0})))
    half = Results(results.name, results.title, {}, (0, 1, 2), results.blocks, ("seed 1", "seed 2"))
    table = make_table(half)
    assert row(table, "a").cells["test_acc"].mark == "best"
    assert lines(table, table.sections[0], False)[-1].pieces[0].value == "1/3"


def test_the_floor_is_averaged_over_seeds_and_its_largest_kept():
    noisy = entry("a", judged({}, floor=(0.25, 0.5, 0.75)), judged({}, floor=(0.75, 1.5, 2.25)))
    table = make_table(Results("s", "S", {}, (0, 1), (Block("0.1", "10 %", {}, (noisy,)),)))
    floor = table.sections[0].floor["gap_rftp"]
    assert (floor.mean, floor.largest, floor.limit, floor.n) == (0.5, 1.5, 1.5, 2)


def test_verdicts_are_counted_over_seeds():
    tests = (90.0, 94.0, 95.2, 100.0)  # Gap RFTP is a quarter of the difference: 0, 1, 1.3 and 2.5
    table = make_table(study(entry("a", *(judged({"test_acc": v}) for v in tests)), seeds=4))
    found = row(table, "a").verdicts
    assert found == {"indistinguishable": 2, "borderline": 1, "distinguishable": 1}
    assert verdict(found) == "indistinguishable in 2 of 4 seeds, borderline in 1, distinguishable in 1"
    assert verdict({"indistinguishable": 0, "borderline": 1, "distinguishable": 0}) == "borderline"
    assert verdict({}) == ""


def test_without_a_floor_there_is_no_verdict():
    results = study(entry("a", judged({}, floor=None)))
    block = results.blocks[0]
    bare = Block(block.forget, block.label, block.sizes, (block.entries[0], block.entries[2]))
    table = make_table(Results("s", "S", {}, (0,), (bare,)))
    assert table.sections[0].floor == {}
    assert row(table, "a").verdicts == {}


def test_costs_are_means_over_the_runs():
    runs = (run(0, judged({}), seconds=1.0, steps=10), run(1, judged({}), seconds=4.0, steps=30))
    found = row(make_table(study(Entry("a", "A", "method", runs), seeds=2)), "a").costs
    assert found == {"steps": 20.0, "forward": 200.0, "backward": 100.0, "seconds": 2.5}


def test_columns_nobody_has_are_named_and_unknown_ones_refused():
    results = study(entry("a", judged({})))
    table = make_table(results, extra=["rmia_tpr1", "test_acc"])
    assert table.columns == COLUMNS
    assert table.absent == ("rmia_tpr1",)
    with pytest.raises(AuditError, match="unknown metric 'test_ac'. Did you mean 'test_acc'"):
        make_table(results, extra=["test_ac"])


def test_an_empty_study_has_an_empty_table():
    table = make_table(Results("s", "S", {}, (0,), (Block("0.1", "10 %", {}, (entry("a"),)),)))
    assert table.sections[0].rows[0].cells == {}
    assert make_table(Results("s", "S", {}, (0,), ())).sections == ()


def test_no_negative_zero():
    assert [fixed(v) for v in (-0.004, -0.0, 0.004, -0.006, 99.996)] == ["0.00", "0.00", "0.00", "-0.01", "100.00"]


def signals(seed: int, forget: float = 0.0) -> dict[str, Signals]:
    made: dict[str, Signals] = {}
    for number, (split, size) in enumerate({"retain": 60, "forget": 40, "test": 50}.items()):
        labels = np.random.default_rng(number).integers(0, 3, size)
        logits = np.random.default_rng([seed, number]).normal(0, 1, (size, 3))
        logits[np.arange(size), labels] += 1.0 + forget * (split == "forget")
        made[split] = Signals.from_logits(logits, labels, number * 1000 + np.arange(size))
    return made


def test_real_evaluations_fill_every_column():
    references = [signals(k) for k in (2, 3, 4, 5)]
    retrain, model = signals(1), evaluate(signals(0, forget=2.0), signals(1), references, bootstrap=50)
    own = evaluate(retrain, None, references, bootstrap=50)
    entries = (entry("retrain", own, kind="retrain"), entry("a", model))
    table = make_table(Results("s", "S", {}, (0,), (Block("0.1", "10 %", {}, entries),)), extra=["rmia_tpr1"])
    assert table.columns == (*COLUMNS, "rmia_tpr1")
    assert table.absent == ()
    for name in table.columns:
        assert row(table, "a").cells[name].mean == model.numbers[name].value
        assert row(table, "a").cells[name].distance == pytest.approx(model.gaps[name].value)
        assert row(table, "retrain").cells[name].distance == 0.0
        assert table.sections[0].floor[name].mean == model.gaps[name].floor_mean
    assert row(table, "a").verdicts == {v: int(v == model.verdict) for v in row(table, "a").verdicts}
