"""Figures: what is drawn stands where the numbers say, files are what their suffix says, and bytes repeat."""

import math
import re

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from expect import error
from regun.errors import RegunError
from regun.experiments.report.charts import gap_figure, histogram_figure, learning_figure, roc_figure
from regun.experiments.report.tradeoff_figure import tradeoff_figure
from regun.experiments.study.details import histogram
from regun.experiments.study.results import Floor, Row
from regun.experiments.study.tradeoff import TradeOffPoint
from regun.render.figure_style import COLOURS, DASHES, MARKERS, colour_names, figure_bytes, series
from regun.render.svg import Gallery
from regun.render.template import asset
from report_samples import block, found, hand_made, method, tradeoff


def lines(axes) -> dict[str, object]:
    return {line.get_label(): line for line in axes.lines if not str(line.get_label()).startswith("_")}


class TestTradeOff:
    def test_every_curve_and_point_stands_at_its_numbers(self) -> None:
        (axes,) = tradeoff_figure(tradeoff()).axes
        drawn = lines(axes)
        assert set(drawn) == {"ReGUn", "SalUn", "Finetune", "Base", "Retrain"}
        np.testing.assert_allclose(drawn["ReGUn"].get_xydata(), [[54.6, 81], [53, 85], [51.4, 89]])
        np.testing.assert_allclose(drawn["SalUn"].get_xydata(), [[54.6, 81], [53, 85]])
        np.testing.assert_allclose(drawn["Finetune"].get_xydata(), [[60, 89]])
        np.testing.assert_allclose(drawn["Base"].get_xydata(), [[62, 91]])
        np.testing.assert_allclose(drawn["Retrain"].get_xydata(), [[50, 90]])
        assert drawn["Retrain"].get_marker() == "*"

    def test_markers_grow_with_w_and_ends_are_labelled(self) -> None:
        (axes,) = tradeoff_figure(tradeoff()).axes
        dots = [c for c in axes.collections if isinstance(c, PathCollection)]
        assert [len(c.get_offsets()) for c in dots] == [3, 2]
        assert all(np.diff(c.get_sizes()).min() > 0 for c in dots)
        assert sorted(t.get_text() for t in axes.texts) == ["w=0.1", "w=0.1", "w=0.5", "w=0.9"]

    def test_the_noise_box_is_centred_on_retrain(self) -> None:
        (axes,) = tradeoff_figure(tradeoff()).axes
        (box,) = [p for p in axes.patches if isinstance(p, Rectangle)]
        assert (box.get_x(), box.get_y(), box.get_width(), box.get_height()) == (47.5, 88.5, 5.0, 3.0)
        (bare,) = tradeoff_figure(tradeoff(noise=None)).axes
        assert not bare.patches

    def test_far_points_get_a_second_panel_around_retrain(self) -> None:
        far = tradeoff(fixed={"NegGrad": TradeOffPoint(10.0, 99.0)})
        everything, near = tradeoff_figure(far).axes
        assert near.get_xlim()[0] < 50 < near.get_xlim()[1] < 99
        assert near.get_ylim()[0] > 10
        np.testing.assert_allclose(lines(everything)["NegGrad"].get_xydata(), [[99, 10]])

    def test_points_that_are_not_finite_are_left_out(self) -> None:
        broken = tradeoff(
            curves={
                "A": (TradeOffPoint(math.nan, 50.0, w=0.1), TradeOffPoint(80.0, 50.0, w=0.9)),
                "B": (TradeOffPoint(1, math.inf),),
            }
        )
        drawn = lines(tradeoff_figure(broken).axes[0])
        assert len(drawn["A"].get_xydata()) == 1
        assert "B" not in drawn

    def test_text_is_never_mathematics(self) -> None:
        odd = tradeoff(fixed={r"$\frac{": TradeOffPoint(89.0, 60.0), "名 <b>": TradeOffPoint(88.0, 60.0)})
        written = figure_bytes(tradeoff_figure(odd), ".svg").decode()
        assert r"$\frac{" in written
        assert "名 &lt;b&gt;" in written


class TestSaving:
    @pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
    def test_suffix_decides_and_bytes_repeat(self, suffix: str, start: bytes) -> None:
        first, second = (figure_bytes(tradeoff_figure(tradeoff()), suffix) for _ in range(2))
        assert first.startswith(start)
        assert first == second
        assert not re.search(rb"20\d\d-\d\d-\d\d|CreationDate", first)

    @pytest.mark.parametrize("suffix", [".jpg", ""])
    def test_another_suffix_is_refused(self, suffix: str) -> None:
        with error(RegunError, "pdf", "png", "svg"):
            figure_bytes(Figure(), suffix)

    def test_nothing_global_changes(self) -> None:
        before = dict(matplotlib.rcParams)
        figure_bytes(tradeoff_figure(tradeoff()), ".svg")
        assert dict(matplotlib.rcParams) == before


def test_series_can_be_told_apart_without_colour() -> None:
    assert len({(series(k).marker, str(series(k).dashes)) for k in range(24)}) == 24
    assert len(set(COLOURS)) == len(COLOURS)
    assert len(set(MARKERS)) == len(MARKERS)
    assert len(DASHES) >= 4


def gap_rows(*rows: Row) -> list[Row]:
    return [row for row in block(*rows, base=None).rows if row.kind != "retrain"]


class TestGaps:
    def test_rows_and_floor(self) -> None:
        rows = gap_rows(method("A", 0.5), method("B", 2.0, 4.0), found("base", hand_made(7.0), kind="base"))
        (axes,) = gap_figure(rows, "gap_rftp", Floor(1.0, 2.0, 2.5, 1), "Gap").axes
        drawn = lines(axes)
        assert {t: tuple(d.get_xydata()[0]) for t, d in drawn.items()} == {"A": (0.5, 0), "B": (3, 1), "Base": (7, 2)}
        assert [t.get_text() for t in axes.get_yticklabels()] == ["A", "B", "Base"]
        spans = sorted((p.get_x(), p.get_x() + p.get_width()) for p in axes.patches)
        assert spans == [(0.0, 2.0), (2.0, 2.5)]
        assert any(np.allclose(line.get_xdata(), 1.0) for line in axes.lines if len(line.get_xdata()) == 2)
        assert axes.get_xlim()[0] == 0.0

    def test_every_run_is_a_tick(self) -> None:
        (axes,) = gap_figure(gap_rows(method("A", 2.0, 3.0, 4.0), method("B", 1.0)), "gap_rftp", None, "Gap").axes
        (ticks,) = [line for line in axes.lines if line.get_marker() == "|"]
        np.testing.assert_allclose(ticks.get_xydata(), [[2, 0], [3, 0], [4, 0]])

    def test_a_method_far_off_does_not_flatten_the_others(self) -> None:
        rows = gap_rows(method("A", 0.5), method("B", 1.0), method("C", 60.0))
        (axes,) = gap_figure(rows, "gap_rftp", None, "Gap").axes
        assert axes.get_xscale() == "log"
        assert "log" in axes.get_xlabel()

    def test_nothing_finite_is_still_a_figure(self) -> None:
        for rows in (gap_rows(method("A", math.nan), method("B", 0.0)), []):
            assert Gallery().embed(gap_figure(rows, "gap_rftp", None, "Gap"), "x").startswith("<svg")


class TestPanels:
    def test_roc_on_log_axes_clips_zero_to_the_edge(self) -> None:
        curve = (np.array([0.0, 0.0, 0.5, 1.0]), np.array([0.0, 0.2, 0.7, 1.0]))
        (axes,) = roc_figure({"method": curve, "retrain": curve, "base": curve}, nonmembers=50).axes
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        drawn = lines(axes)
        assert set(drawn) == {"method", "retrain", "base"}
        np.testing.assert_allclose(drawn["method"].get_xydata(), [[0.01, 0.01], [0.01, 0.2], [0.5, 0.7], [1, 1]])
        assert len({str(d.get_linestyle()) + str(d.get_color()) for d in drawn.values()}) == 3

    def test_histograms_are_shares_and_lose_nobody(self) -> None:
        values = np.array([-100.0, 0.0, 0.1, 100.0])
        shares = histogram(values, (-5.0, 5.0))
        assert shares.sum() == pytest.approx(100.0)
        assert shares[[0, -1]].tolist() == [25.0, 25.0]
        (axes,) = histogram_figure({"heldout": shares, "test": shares, "forget": shares}, (-5.0, 5.0), 50.0).axes
        outlines = [p for p in axes.patches if p.get_label()]
        assert [p.get_label() for p in outlines] == ["heldout", "test", "forget"]
        assert [t.get_text() for t in axes.get_xticklabels()] == ["50", "99", "1", "90", "10"]

    def test_learning_curves_skip_what_is_not_finite(self) -> None:
        (axes,) = learning_figure([([1, 2, 3], [2.0, 1.0, math.nan]), ([1], [5.0])]).axes
        np.testing.assert_allclose(axes.lines[0].get_xydata(), [[1, 2], [2, 1]])
        np.testing.assert_allclose(axes.lines[1].get_xydata(), [[1, 5]])


class TestInline:
    def test_figures_share_no_id_and_carry_no_style(self) -> None:
        gallery = Gallery()
        page = "".join(gallery.embed(learning_figure([([1, 2], [1.0, 2.0])]), f"figure {k}") for k in range(2))
        ids = re.findall(r' id="([^"]+)"', page)
        assert ids
        assert len(ids) == len(set(ids))
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', page)) == set(ids)
        assert "style" not in page
        assert "xmlns" not in page
        assert page.count("<title>") == 2

    def test_text_is_text_and_colours_are_the_pages(self) -> None:
        gallery = Gallery()
        drawn = gallery.embed(tradeoff_figure(tradeoff()), 'a "label" <x>')
        assert 'aria-label="a &#34;label&#34; &lt;x&gt;"' in drawn
        assert ">ReGUn</text>" in drawn
        assert not re.search(r"#[0-9a-f]{6}\b", gallery.css())
        assert {"--ink", "--muted", "--c0", "--noise"} <= set(re.findall(r"--\w+", gallery.css()))
        assert "font-family" not in gallery.css()

    def test_the_same_figure_gives_the_same_text(self) -> None:
        one, two = (Gallery().embed(tradeoff_figure(tradeoff()), "x") for _ in range(2))
        assert one == two

    def test_every_colour_has_a_name_in_light_and_in_dark(self) -> None:
        css = asset("page.css")
        light, dark = css.split("@media screen and (prefers-color-scheme:dark)")
        for colour, name in colour_names().items():
            assert f"--{name}:{colour}" in light
            assert f"--{name}:#" in dark.split("*{box-sizing")[0]
