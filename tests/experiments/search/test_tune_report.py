"""Outcomes as tables, pictures and files."""

import csv
from xml.etree import ElementTree

import pytest

from regun.experiments.report.search_page import (
    front,
    history,
    importance_bars,
    searches_view,
    summary_rows,
    trials_csv,
    tuning_files,
)
from regun.experiments.search import SearchResult, Trial
from regun.render.figure_style import figure_bytes
from regun.render.svg import Gallery

pytest.importorskip("optuna")

from regun.experiments.search.tpe import importance


def trial(number: int, values, score: float, forgetting: float = 0.0, utility: float = 0.0, **more) -> Trial:
    return Trial(number=number, values=values, score=score, forgetting=forgetting, utility=utility, **more)


def tuned(n: int = 12, **more) -> SearchResult:
    def one(k: int) -> Trial:
        w = 0.1 + 0.07 * k
        return trial(k, {"lr": (0.1, 0.01)[k % 2], "w": w}, abs(10.0 * w - 5), 5.0 - 0.3 * k, 0.2 * k)

    return SearchResult("regun", "reference", tuple(one(k) for k in range(n)), **more)


def test_the_best_is_the_smallest_and_among_equals_the_first() -> None:
    found = SearchResult("x", "gap", (trial(0, {"a": 1}, 1.0), trial(1, {"a": 2}, 1.0), trial(2, {"a": 3}, 2.0)))
    assert (found.best.number, found.best_score, found.default_score) == (0, 1.0, 1.0)


def test_json_round_trip() -> None:
    found = tuned(fixed={"batch_size": 16}, note="n", key="k")
    assert SearchResult.from_json(found.to_json()) == found
    assert found.settings == {"batch_size": 16, **found.best_values}


def test_the_front_keeps_what_is_not_beaten() -> None:
    points = [(5, 0), (4, 1), (4, 2), (3, 3), (5, 3), (0, 9), (0, 9)]
    trials = tuple(trial(k, {}, f + u, f, u) for k, (f, u) in enumerate(points))
    assert [t.number for t in SearchResult("x", "gap", trials).front] == [5, 3, 1, 0]


def test_the_table_of_several_methods_leaves_cells_empty() -> None:
    other = trial(0, {"gamma": 1e-5}, 1.0, parts={"auc": 50.0}, diverged="the loss was not finite")
    text = trials_csv({"regun": tuned(2), "l1_sparse": SearchResult("l1_sparse", "reference", (other,))})
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["gamma"] for row in rows] == ["", "", "1e-05"]
    assert (rows[0]["auc"], rows[2]["auc"], rows[2]["diverged"]) == ("", "50.0", "the loss was not finite")


def test_the_table_runs_no_formulas() -> None:
    """Names and settings are a user's own: a spreadsheet must show them and not run them."""
    text = trials_csv({"=1+1": SearchResult("x", "gap", (trial(0, {"a": "@cmd", "b": -1.5}, 1.0),))})
    (row,) = csv.DictReader(text.splitlines())
    assert (row["method"], row["a"], row["b"]) == ("'=1+1", "'@cmd", "-1.5")


def test_importance_finds_the_setting_that_matters() -> None:
    found = importance(tuned(30))
    assert found["w"] > 0.9
    assert sum(found.values()) == pytest.approx(1)
    assert importance(tuned(30)) == found
    assert importance(tuned(3)) == {}
    alone = tuple(trial(k, {"lr": k / 10}, k) for k in range(5))
    assert importance(SearchResult("x", "gap", alone)) == {"lr": 1.0}


@pytest.mark.parametrize("draw", [history, importance_bars, front])
@pytest.mark.parametrize("methods", [1, 5])
def test_pictures_have_a_panel_a_method_and_are_the_same_every_time(draw, methods: int) -> None:
    found = {f"method{k}": tuned() for k in range(methods)}
    figure = draw(found)
    shown = [axes.get_title(loc="left") for axes in figure.axes if axes.axison]
    assert shown == list(found)
    one, two = (figure_bytes(draw(found), ".svg") for _ in range(2))
    assert one == two
    assert ElementTree.fromstring(one).tag.endswith("svg")


def test_the_history_shows_every_trial_and_the_default() -> None:
    (axes,) = history({"regun": tuned()}).axes
    assert axes.collections[0].get_offsets().tolist() == [[t.number, t.score] for t in tuned().trials]
    assert list(axes.lines[-1].get_ydata()) == [tuned().default_score] * 2


def test_one_trial_that_diverged_can_be_drawn() -> None:
    only = SearchResult("ssd", "gap", (trial(0, {}, 100, 100, 100, diverged="the loss was not finite"),))
    for draw in (history, importance_bars, front):
        assert len(draw({"ssd": only}).axes) == 1


def test_rows_say_what_was_kept() -> None:
    kept = SearchResult("ssd", "gap", (trial(0, {}, 3),), note="nothing to search")
    rows = summary_rows({"regun": tuned(), "ssd": kept})
    assert rows[0] == ["regun", "4.00", "0.20", "12", "lr=0.1 w=0.52", ""]
    assert rows[1] == ["ssd", "3.00", "3.00", "1", "-", "nothing to search"]


def test_what_another_page_includes_is_complete() -> None:
    gallery = Gallery()
    view = searches_view({"regun": tuned()}, gallery, title="Search of settings, 10 %", link="search-0")
    assert (view["link"], view["title"]) == ("search-0", "Search of settings, 10 %")
    assert view["rows"] == summary_rows({"regun": tuned()})
    assert list(view["figures"]) == ["history", "importance", "front"]
    assert all(svg.startswith("<svg") for svg in view["figures"].values())
    assert gallery.figures == 3


def test_the_files_and_the_page() -> None:
    files = tuning_files({"<i>regun": tuned()}, "0.1", "about <b>it")
    names = ["tuned.toml", "trials.csv", "trials.json", "report.html", "history.svg", "importance.svg", "front.svg"]
    assert list(files) == names
    page = files["report.html"].decode()
    assert "about &lt;b&gt;it" in page
    assert "<i>" not in page
    assert page.count("<svg") == 3
    assert 'href="#search"' in page
    assert '<section id="search"' in page
    assert "[settings.&#34;0.1&#34;" in page
