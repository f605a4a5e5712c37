"""Outcomes as tables, pictures and files."""

import csv
from pathlib import Path
from xml.etree import ElementTree

import pytest

from regun.errors import RegunError
from regun.page.look import save_figure
from regun.tune import Judged, Trial, Tuned, trials_csv
from regun.tune.figures import front, history, importance, importance_bars
from regun.tune.report import summary_rows, write_report

pytest.importorskip("optuna")


def tuned(n: int = 12, **more) -> Tuned:
    trials = [
        Trial(k, {"lr": (0.1, 0.01)[k % 2], "w": 0.1 + 0.07 * k}, Judged(abs(10.0 * (0.1 + 0.07 * k) - 5), 5.0 - 0.3 * k, 0.2 * k))
        for k in range(n)
    ]  # fmt: skip
    return Tuned("regun", "reference", tuple(trials), **more)


def test_the_best_is_the_smallest_and_among_equals_the_first() -> None:
    same = Judged(1.0, 1.0, 1.0)
    found = Tuned(
        "x", "gap", (Trial(0, {"a": 1}, same), Trial(1, {"a": 2}, same), Trial(2, {"a": 3}, Judged(2.0, 0, 0)))
    )
    assert (found.best.number, found.best_score, found.default_score) == (0, 1.0, 1.0)


def test_json_round_trip() -> None:
    found = tuned(fixed={"batch_size": 16}, note="n", key="k")
    assert Tuned.from_json(found.to_json()) == found
    assert found.settings == {"batch_size": 16, **found.best_values}


def test_the_front_keeps_what_is_not_beaten() -> None:
    points = [(5, 0), (4, 1), (4, 2), (3, 3), (5, 3), (0, 9), (0, 9)]
    trials = tuple(Trial(k, {}, Judged(f + u, f, u)) for k, (f, u) in enumerate(points))
    assert [t.number for t in Tuned("x", "gap", trials).front] == [5, 3, 1, 0]


def test_the_table_of_several_methods_leaves_cells_empty() -> None:
    other = Trial(0, {"gamma": 1e-5}, Judged(1.0, 1.0, 1.0, {"auc": 50.0}, "the loss was not finite"))
    rows = list(csv.DictReader(trials_csv({"regun": tuned(2).trials, "l1_sparse": (other,)}).splitlines()))
    assert [row["gamma"] for row in rows] == ["", "", "1e-05"]
    assert (rows[0]["auc"], rows[2]["auc"], rows[2]["diverged"]) == ("", "50.0", "the loss was not finite")


def test_importance_finds_the_setting_that_matters() -> None:
    found = importance(tuned(30))
    assert found["w"] > 0.9
    assert sum(found.values()) == pytest.approx(1)
    assert importance(tuned(30)) == found
    assert importance(tuned(3)) == {}
    alone = tuple(Trial(k, {"lr": k / 10}, Judged(k, 0, 0)) for k in range(5))
    assert importance(Tuned("x", "gap", alone)) == {"lr": 1.0}


@pytest.mark.parametrize("draw", [history, importance_bars, front])
@pytest.mark.parametrize("methods", [1, 5])
def test_pictures_have_a_panel_a_method_and_are_the_same_every_time(draw, methods: int, tmp_path: Path) -> None:
    found = {f"method{k}": tuned() for k in range(methods)}
    figure = draw(found)
    shown = [axes.get_title(loc="left") for axes in figure.axes if axes.axison]
    assert shown == list(found)
    one, two = (save_figure(draw(found), tmp_path / f"{k}.svg").read_bytes() for k in range(2))
    assert one == two
    assert ElementTree.fromstring(one).tag.endswith("svg")


def test_the_history_shows_every_trial_and_the_default() -> None:
    (axes,) = history({"regun": tuned()}).axes
    assert axes.collections[0].get_offsets().tolist() == [[t.number, t.score] for t in tuned().trials]
    assert list(axes.lines[-1].get_ydata()) == [tuned().default_score] * 2


def test_one_trial_that_diverged_can_be_drawn() -> None:
    only = Tuned("ssd", "gap", (Trial(0, {}, Judged(100, 100, 100, {}, "the loss was not finite")),))
    for draw in (history, importance_bars, front):
        assert len(draw({"ssd": only}).axes) == 1


def test_rows_say_what_was_kept() -> None:
    kept = Tuned("ssd", "gap", (Trial(0, {}, Judged(3, 3, 3)),), note="nothing to search")
    rows = summary_rows({"regun": tuned(), "ssd": kept})
    assert rows[0] == ["regun", "4.00", "0.20", "12", "lr=0.1 w=0.52", ""]
    assert rows[1] == ["ssd", "3.00", "3.00", "1", "-", "nothing to search"]


def test_the_files_and_the_page(tmp_path: Path) -> None:
    files = write_report(tmp_path / "a" / "b", {"<i>regun": tuned()}, "0.1", "about <b>it")
    names = ["tuned.toml", "trials.csv", "trials.json", "report.html", "history.svg", "importance.svg", "front.svg"]
    assert [f.name for f in files] == names
    page = (tmp_path / "a" / "b" / "report.html").read_text()
    assert "about &lt;b&gt;it" in page
    assert "<i>" not in page
    assert page.count("<svg") == 3
    (tmp_path / "file").write_text("")
    with pytest.raises(RegunError, match="cannot write to"):
        write_report(tmp_path / "file", {"regun": tuned()}, "0.1", "about")
