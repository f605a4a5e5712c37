"""The maths of a study's results, by examples computed by hand: means, deviations, gaps, marks, floors, missing runs."""

import math
from dataclasses import replace

import numpy as np
import pytest

from expect import error
from regun.auditing import Estimate, evaluate
from regun.errors import RegunError
from regun.experiments.report.formats import render
from regun.experiments.report.table import TableRow, spread_text, tables_of, verdict_text
from regun.experiments.study.results import PAPER_COLUMNS, Block, Results, Row, block_of, rank, row_of
from regun.render.numbers import fixed
from report_samples import (
    SIZES,
    TRUTH,
    block,
    evaluated,
    found,
    hand_made,
    judged,
    method,
    results,
    run,
    signals,
    study,
)


def row(whole: Results, name: str) -> Row:
    return whole.blocks[0].row(name)


def marks(whole: Results, name: str) -> dict[str, str]:
    return dict(whole.blocks[0].rankings[name].marks)


def said(whole: Results, **how) -> str:
    """The table for a terminal, without its line breaks."""
    return " ".join(render(whole, **how).split())


def lines(whole: Results, **how) -> dict[str, TableRow]:
    return {line.name: line for line in tables_of(whole, **how)[0].rows}


def test_mean_and_sample_deviation_over_seeds():
    whole = study(found("a", *(judged({"test_acc": v}) for v in (88.0, 89.0, 93.0))), seeds=3)
    cell = row(whole, "a").cells["test_acc"]
    assert cell.mean == 90.0
    assert cell.std == pytest.approx(math.sqrt(7.0))  # ((-2)^2 + (-1)^2 + 3^2) / (3 - 1)
    assert (cell.low, cell.high, cell.repeat_std) == (89.0, 91.0, None)
    assert [one.value for one in cell.by_run] == [88.0, 89.0, 93.0]


def test_repeats_are_averaged_within_their_seed_first():
    """Seed 0 has 88 and 90, seed 1 has 95 only: the mean is (89 + 95) / 2, the deviation over repeats that of seed 0."""
    runs = [run(judged({"test_acc": v}), s, r) for v, s, r in ((88.0, 0, 0), (90.0, 0, 1), (95.0, 1, 0))]
    cell = row(study(found("a", *runs), seeds=2, repeats=2), "a").cells["test_acc"]
    assert cell.mean == 92.0
    assert cell.std == pytest.approx(math.sqrt(18.0))
    assert cell.repeat_std == pytest.approx(math.sqrt(2.0))
    assert spread_text(cell, seeds=2) == "± 4.24 / 1.41"


def test_one_seed_has_no_deviation_but_an_interval():
    cell = row(study(found("a", judged({"test_acc": 88.0}))), "a").cells["test_acc"]
    assert (cell.mean, cell.std, cell.low, cell.high) == (88.0, None, 87.0, 89.0)
    assert spread_text(cell, seeds=1) == "[87.0–89.0]"
    assert spread_text(cell, seeds=3) == ""  # a seed of a study that has more says nothing about them


def test_one_seed_with_repeats_has_the_deviation_over_its_runs():
    runs = (judged({"test_acc": v}) for v in (88.0, 89.0, 93.0))
    cell = row(study(found("a", *runs, repeats=3), repeats=3), "a").cells["test_acc"]
    assert (cell.mean, cell.std, cell.repeat_std) == (90.0, None, pytest.approx(math.sqrt(7.0)))
    assert spread_text(cell, seeds=1) == "± 2.65"


def test_an_interval_that_one_seed_lacks_is_left_out():
    cell = row(study(found("a", judged(half=1.0), judged(half=None)), seeds=2), "a").cells["test_acc"]
    assert (cell.low, cell.high) == (None, None)
    assert cell.by_run[0].low == 89.0


def test_gaps_are_taken_per_run_and_then_averaged():
    """Test accuracy is off by +2 and by -2: no gap of the means, a gap of 1 in each seed."""
    cells = row(study(found("a", judged({"test_acc": 92.0}), judged({"test_acc": 88.0})), seeds=2), "a").cells
    assert cells["test_acc"].distance == 0.0
    assert (cells["gap_tp"].mean, cells["gap_tp"].std) == (1.0, 0.0)
    assert (cells["gap_rftp"].mean, cells["gap_rftp"].std) == (0.5, 0.0)


def test_retrain_has_no_distance_to_itself():
    only = block_of("0.1", "", {}, [found("r", judged({"test_div": 3.0}), kind="retrain")])
    cells = only.rows[0].cells
    assert [cells[name].mean for name in cells if name.startswith("gap") or name.endswith("div")] == [0.0] * 4
    assert cells["test_acc"].distance == 0.0
    assert only.rows[0].verdicts == {}


def test_best_is_the_nearest_to_retrain_on_either_side_and_base_is_not_ranked():
    whole = study(
        found("above", judged({"rmia_auc": 53.0, "test_div": 3.0})),
        found("below", judged({"rmia_auc": 48.0, "test_div": 1.0})),
        found("far", judged({"rmia_auc": 40.0, "test_div": 2.0})),
    )
    assert marks(whole, "rmia_auc") == {"below": "best", "above": "second"}
    assert marks(whole, "test_div") == {"below": "best", "far": "second"}


def test_ranks_are_by_the_mean_and_not_by_single_seeds():
    """`swings` has Retrain's mean though no seed of it is near; its gap, taken per seed, is the worst."""
    whole = study(
        found("swings", judged({"test_acc": 95.0}), judged({"test_acc": 85.0})),
        found("steady", judged({"test_acc": 91.0}), judged({"test_acc": 91.0})),
        seeds=2,
    )
    assert marks(whole, "test_acc") == {"swings": "best", "steady": "second"}
    assert marks(whole, "gap_tp") == {"steady": "best", "swings": "second"}


def test_a_lead_within_the_noise_is_no_lead():
    assert rank({"a": 1.0, "b": 1.5, "c": 3.0}, noise=0.5).marks == {}
    assert rank({"a": 1.0, "b": 1.5, "c": 3.0}, noise=0.5).leaders == ("a", "b")
    assert rank({"a": 1.0, "b": 1.6, "c": 1.7}, noise=0.5).marks == {"a": "best"}
    assert rank({"a": 1.0}, noise=0.5).marks == {}
    assert rank({"a": 1.0, "b": 9.0}, noise=None).marks == {}
    whole = study(found("a", judged({"test_acc": 92.0})), found("b", judged({"test_acc": 88.0})))
    assert marks(whole, "test_acc") == {}
    assert whole.blocks[0].rankings["test_acc"].leaders == ("a", "b")
    assert "Not distinguishable" in said(whole)
    assert "A and B in Retain acc., Forget acc., Test acc., RMIA AUC, Gap RFTP and Gap TP" in said(whole)


def test_a_diverged_row_is_shown_with_its_reason_and_not_ranked():
    lost = found("lost", judged(), run(None, 1, diverged="loss was nan at step 3"))
    kept = found("kept", judged(), run(judged(), 1, diverged="stopped at a loss of inf"))
    others = [found(name, *[judged({"test_acc": v})] * 2) for name, v in (("near", 89.0), ("far", 80.0))]
    whole = study(lost, kept, *others, seeds=2)
    assert [r.diverged for r in row(whole, "lost").diverged] == ["loss was nan at step 3"]
    assert (row(whole, "lost").judged, row(whole, "kept").judged) == (1, 2)
    assert marks(whole, "test_acc") == {"near": "best", "far": "second"}
    shown = lines(whole)["lost"]
    assert shown.diverged
    assert shown.cells[0].value == "1/2"
    notes = said(whole)
    assert "† Forget 10 %: Lost diverged in 1 of 2 runs (seed 1): loss was nan at step 3." in notes
    assert "† Forget 10 %: Kept diverged in 1 of 2 runs (seed 1): stopped at a loss of inf." in notes


def test_a_row_with_a_missing_seed_is_not_ranked_and_compared_over_its_own_seeds():
    """Retrain's test accuracy is 90 and 80; a model of seed 1 alone, at 81, is 1 away and not 4."""
    other = TRUTH | {"test_acc": 80.0}
    late = found("late", run(judged({"test_acc": 81.0}, other), 1), planned=2)
    full = [
        found(n, judged({"test_acc": 90 + d}), judged({"test_acc": 80 + d}, other)) for n, d in (("a", 2), ("b", 3))
    ]
    whole = study(late, *full, seeds=2)
    assert row(whole, "late").cells["test_acc"].distance == 1.0
    assert marks(whole, "test_acc") == {"a": "best", "b": "second"}
    assert row(whole, "a").cells["test_acc"].retrain == 85.0


def test_rows_of_an_unfinished_study_are_not_ranked_and_the_note_says_so():
    """Nobody has every run, so there is no mark, and what stands below says the same."""
    rows = [found(n, judged({"test_acc": v}), planned=3) for n, v in (("a", 89.0), ("b", 80.0))]
    whole = study(*rows, missing=("seed 1", "seed 2"))
    assert marks(whole, "test_acc") == {}
    shown = said(whole)
    assert "Gap TP (forget 10 %): no method" in shown
    assert "closest to Retrain" not in shown
    assert lines(whole)["b"].cells[0].value == "1/3"
    assert "only A" in said(study(found("a", judged()), rows[1]))


def test_a_number_that_retrain_does_not_have_is_not_said_to_lack_a_mark():
    """What only the methods have cannot be close to Retrain, however many runs there are."""
    own = [judged({"test_acc": v}) for v in (89.0, 80.0)]
    own = [replace(one, numbers={**one.numbers, "influence_left": Estimate(10.0)}) for one in own]
    whole = study(*(found(name, one) for name, one in zip("ab", own, strict=True)))
    assert whole.blocks[0].rankings["influence_left"].order == ()
    assert row(whole, "a").cells["influence_left"].distance is None
    assert "Influence left (forget" not in said(whole)


def test_floors_keep_the_largest_of_any_seed_and_a_limit_beyond_it():
    noisy = found("a", judged(floor=(0.25, 0.5, 0.75)), judged(floor=(0.75, 1.5, 2.25)))
    floor = block_of("0.1", "10 %", {}, [noisy]).floors["gap_rftp"]
    assert (floor.mean, floor.largest, floor.limit, floor.seeds) == (0.5, 1.5, 2.25, 2)


def test_verdicts_are_counted_over_runs():
    tests = (90.0, 94.0, 95.2, 100.0)  # Gap RFTP is a quarter of the difference: 0, 1, 1.3 and 2.5
    whole = study(found("a", *(judged({"test_acc": v}) for v in tests), repeats=2), seeds=2, repeats=2)
    assert row(whole, "a").verdicts == {"passed": 2, "inconclusive": 1, "failed": 1}
    assert verdict_text(row(whole, "a").verdicts) == "2 passed, 1 inconclusive, 1 failed"
    assert verdict_text({"passed": 0, "inconclusive": 1, "failed": 0}) == "inconclusive"
    assert verdict_text({}) == ""


def test_without_a_floor_there_is_neither_verdict_nor_mark():
    whole = results(block(method("A", 1.0, floor=None), method("B", 9.0, floor=None), floor=None))
    assert whole.blocks[0].floors == {}
    assert row(whole, "a").verdicts == {}
    assert marks(whole, "gap_rftp") == {}
    assert "No mark in Gap RFTP (forget 10 %)" in said(whole)
    assert "Verdict" not in said(whole)


def test_costs_are_means_over_the_runs_and_shares_of_retrain():
    cheap = [run(judged(), s, cost={"seconds": v, "steps": n}) for s, v, n in ((0, 1.0, 10), (1, 4.0, 30))]
    slow = [run(judged(), s, cost={"seconds": 10.0}) for s in range(2)]
    made = block_of("0.1", "10 %", SIZES, [found("retrain", *slow, kind="retrain"), found("a", *cheap)])
    assert made.row("a").costs == {"steps": 20.0, "seconds": 2.5}
    assert made.row("a").shares == {"seconds": 25.0}
    shown = lines(results(made, seeds=(0, 1)), columns=["time_share", "seconds"])
    assert [cell.value for cell in shown["a"].cells] == ["25 %", "2.5"]


def test_columns_are_chosen_and_unknown_ones_refused():
    whole = study(found("a", judged()))
    assert [made.columns for made in tables_of(whole, columns=["gap_tp", "seconds", "gap_tp"])] == [
        ("gap_tp", "seconds")
    ]
    with error(RegunError, "test_ac", "test_acc", "gap_rftp", "seconds", "time_share", "verdict"):
        tables_of(whole, columns=["test_ac"])
    with error(RegunError, "one", "two"):
        tables_of(whole, columns=["one", "two"])
    with error(RegunError, "request", "requests", "fractions"):
        tables_of(whole, layout="request")


def test_columns_nobody_has_are_named():
    whole = study(found("a", judged()), columns=(*PAPER_COLUMNS, "rmia_tpr1"))
    assert "Not measured: rmia_tpr1." in said(whole)


def test_a_study_that_has_judged_nothing_is_empty_and_may_be_asked_for_anything():
    empty = results(block_of("0.1", "10 %", {}, [found("a", planned=1)]))
    assert empty.blocks[0].rows[0].cells == {}
    assert lines(empty, columns=["rmia_auc"])["a"].cells[0].value == "-"
    assert tables_of(results()) == []


def test_side_by_side_every_request_has_the_same_columns():
    whole = study(found("a", judged()), found("b", judged({"test_acc": 80.0})), forget=("0.01", "0.1", "0.5"))
    (made,) = tables_of(whole, layout="fractions")
    assert [block.label for block in made.blocks] == ["1 %", "10 %", "50 %"]
    assert made.columns == ("test_acc", "rmia_auc", "gap_rftp") * 3
    assert {len(line.cells) for line in made.rows} == {9}
    (wide,) = tables_of(whole, layout="fractions", wide=True)
    assert set(PAPER_COLUMNS) < set(wide.columns)


def test_side_by_side_a_row_that_one_request_lacks_is_blank_there():
    both = study(found("a", judged()), found("b", judged()), forget=("0.1", "0.5"))
    first: Block = replace(both.blocks[0], rows=both.blocks[0].rows[:-1])
    shown = lines(replace(both, blocks=(first, both.blocks[1])), layout="fractions", columns=["test_acc"])
    assert [cell.value for cell in shown["b"].cells] == ["-", "90.00"]


def test_no_negative_zero():
    assert [fixed(v) for v in (-0.004, -0.0, 0.004, -0.006, 99.996)] == ["0.00", "0.00", "0.00", "-0.01", "100.00"]


def test_real_evaluations_fill_every_column():
    whole, _ = evaluated()
    assert set(PAPER_COLUMNS) <= set(whole.metrics)
    model = row(whole, "m1").runs[0].evaluation
    assert model is not None
    for name in whole.metrics:
        cell = row(whole, "m1").cells[name]
        assert cell.mean == model.numbers[name].value
        if name in model.gaps:
            assert cell.distance == pytest.approx(model.gaps[name].value)
            assert whole.blocks[0].floors[name].mean == model.gaps[name].floor_mean
    assert row(whole, "m1").verdicts == {v: int(v == model.verdict) for v in row(whole, "m1").verdicts}


def test_a_metric_of_the_users_own_appears_in_every_format_without_a_list_of_names():
    def tail(splits, retrain):
        """Share of forgotten examples with almost no confidence."""
        return np.exp(splits["forget"].true_log_prob) < 0.2

    retrain, *others = (signals(seed, {"retain": 4.0}) for seed in range(4))
    made = [evaluate(signals(10 + k, {}), retrain, others, bootstrap=0, metrics=[tail]) for k in range(2)]
    rows = [found(f"m{k}", one) for k, one in enumerate(made)]
    whole = results(block_of("0.1", "10 %", SIZES, rows), columns=(*PAPER_COLUMNS, "tail"))
    value = fixed(made[0].numbers["tail"].value)
    for form in ("terminal", "markdown", "latex", "csv", "json"):
        shown = render(whole, form)
        assert "tail" in shown.lower()
        assert value in shown or repr(made[0].numbers["tail"].value) in shown
    assert hand_made(1.0).verdict == "passed"


def test_rows_beside_the_others_are_judged_alike_and_take_no_marks():
    rows = [method("Near", 1.0), method("Far", 9.0), replace(method("Nearest", 0.1), unranked=True)]
    without, whole = results(block(*rows[:2])), results(block(*rows))
    assert marks(whole, "gap_rftp") == marks(without, "gap_rftp") == {"near": "best", "far": "second"}
    assert row(whole, "nearest").cells["gap_rftp"].mean == 0.1
    assert row(whole, "nearest").verdicts == {"passed": 1, "inconclusive": 0, "failed": 0}
    assert "Unranked: Nearest." in said(whole)
    assert "Unranked" not in said(without)


def test_retrain_is_at_no_distance_from_itself_and_is_not_judged():
    """Also where its evaluation holds gaps, as one of a stored model against another retrained one does."""
    judged = hand_made(3.0)
    cells = row_of("retrain", "Retrain", "retrain", [run(judged)], 1).cells
    assert judged.gaps["gap_rftp"].value == 3.0
    assert {name: cell.gaps for name, cell in cells.items()} == dict.fromkeys(cells, (None,))
    assert cells["gap_rftp"].mean == cells["gap_rftp"].retrain == 0.0
    assert not cells["gap_rftp"].verdicts
