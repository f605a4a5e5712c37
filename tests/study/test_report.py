"""The page: its sentences, its numbers, and that nothing in the data can become markup."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regun.page.frame import Extra
from regun.page.markup import Html, escape, tag
from regun.study.figure import tradeoff_figure
from regun.study.report import build_report
from regun.study.report.closeup import curves, risky
from regun.study.report.numbers import cell, cost, fixed, floor, names, percent, seconds, share
from regun.study.report.summary import summarise
from regun.study.results import Block, Entry, Results
from report_samples import COST, block, evaluated, hand_made, method, results, run, tradeoff

VOID = {"meta", "br", "hr", "col"}
EVIL = "<script>window.hacked=1</script>\"'</style></title><img src=x onerror=window.hacked=1>&amp;"


class Checked(HTMLParser):
    """Reads a page as elements, and refuses one that is not well-formed."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.stack == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, name: str, attrs) -> None:
        self.tags.append((name, dict(attrs)))
        self.ids += [v for k, v in attrs if k == "id"]
        if name not in VOID:
            self.stack.append(name)

    def handle_startendtag(self, name: str, attrs) -> None:
        self.handle_starttag(name, attrs)
        if name not in VOID:
            self.stack.pop()

    def handle_endtag(self, name: str) -> None:
        assert self.stack.pop() == name

    def handle_data(self, text: str) -> None:
        if self.stack and self.stack[-1] not in ("script", "style"):
            self.text.append(text)

    def words(self) -> str:
        return " ".join("".join(self.text).split())


class TestSentences:
    def lead(self, *entries: Entry, **more) -> str:
        found = block(*entries, **more)
        return summarise(results(found), found).lead

    def notes(self, *entries: Entry, seeds: int = 1, **more) -> tuple[str, ...]:
        found = block(*entries, seeds=seeds, **more)
        return summarise(results(found, seeds=range(seeds)), found).notes

    def test_inside_the_noise_floor(self) -> None:
        assert self.lead(method("A", 1.5), method("B", 4.0)) == (
            "Of 2 methods, A comes closest to retraining: its Gap RFTP, the mean distance to Retrain, is 1.50 points. "
            "That is inside the noise floor: two retrained models are 1.00 points apart on average and up to 2.00, so "
            "by this measure the model cannot be told from a retrained one. "
            "It took 90 steps and 7.6 s, 10 % of the steps and 10 % of the time of retraining."
        )

    def test_at_the_edge_of_it(self) -> None:
        said = self.lead(method("A", 2.5), method("B", 4.0))
        assert "at the edge of the noise floor" in said
        assert "farther off than any pair of them, but one more retrained model could be as far (limit 3.00)" in said

    def test_outside_of_it(self) -> None:
        said = self.lead(method("A", 3.5), method("B", 4.0))
        assert "outside the noise floor" in said
        assert "can be told from a retrained one" in said

    def test_without_a_noise_floor(self) -> None:
        said = self.lead(method("A", 3.5, floor=None), floor=None)
        assert "Whether that is close cannot be told" in said
        assert "at least two reference models" in said

    def test_one_method_and_equal_ones(self) -> None:
        assert self.lead(method("A", 1.0)).startswith("A has a Gap RFTP (its mean distance to Retrain) of 1.00 points.")
        assert self.lead(method("A", 1.0), method("B", 1.0)).startswith("A and B are equally close to retraining")

    @pytest.mark.parametrize(
        ("gaps", "text"),
        [
            ((1.0, 1.5, 2.0), "That is inside the noise floor in all 3 seeds: two retrained"),
            ((4.0, 5.0, 6.0), "That is outside the noise floor in all 3 seeds: two retrained"),
            ((1.0, 2.5, 6.0), "it is inside it in 1, at its edge in 1 and outside it in 1 of 3 seeds"),
            ((1.0, 1.0, 6.0), "it is inside it in 2 and outside it in 1 of 3 seeds"),
        ],
    )
    def test_several_seeds(self, gaps: tuple[float, ...], text: str) -> None:
        said = self.lead(method("A", *gaps), method("B", 8.0, 8.0, 8.0), seeds=3)
        assert text in said
        assert "over 3 seeds" in said
        assert "It took 90 steps and 7.6 s a seed" in said
        assert "±" in said

    def test_base_may_be_closer(self) -> None:
        assert "The base model, which forgot nothing, is closer still (0.50)." in self.lead(method("A", 1.0), base=0.5)
        assert self.notes(method("A", 1.0), method("B", 2.0), base=0.5) == (
            "Inside the noise floor as well: B.",
            "No method is closer to retraining than the base model (0.50), which forgot nothing.",
        )
        assert "B and C are no closer to retraining than the base model (3.50)." in self.notes(
            method("A", 1.0), method("B", 4.0), method("C", 5.0), base=3.5
        )

    def test_diverged_with_and_without_numbers(self) -> None:
        reason = "the loss was not finite at step 3."
        lost = Entry("l", "Lost", "method", (run(None, diverged=reason),))
        kept = Entry("k", "Kept", "method", (run(hand_made(5.0), diverged=reason),))
        said = self.notes(method("A", 1.0), lost, kept)
        assert (
            "Lost diverged: the loss was not finite at step 3. Its answers are not finite, so it cannot be judged."
            in said
        )
        assert "Kept diverged: the loss was not finite at step 3. What is shown is its last finite state." in said
        assert "Of the 2 methods that can be judged, A comes closest" in self.lead(method("A", 1.0), lost, kept)

    def test_diverged_in_some_seeds(self) -> None:
        some = replace(method("S", 1.0, 1.0), runs=(*method("S", 1.0, 1.0).runs, run(None, 2, diverged="NaN")))
        every = Entry("e", "E", "method", tuple(run(None, s, diverged="NaN") for s in range(3)))
        said, also = self.notes(some, every, seeds=3)
        assert also == "E diverged in all 3 seeds: NaN. Its answers are not finite, so it cannot be judged."
        assert said == (
            "S diverged in 1 of 3 seeds (seed 2): NaN. It gives no finite answers there, so those seeds are left out."
        )

    def test_nothing_to_say_is_said(self) -> None:
        assert self.lead() == "No method has been run on this request yet."
        lost = Entry("l", "Lost", "method", (run(None, diverged="NaN"),))
        assert self.lead(lost) == "None of the 1 method run on this request gave a model that can be judged."
        blind = replace(hand_made(1.0), numbers={}, gaps={})
        assert "cannot be told: distances need a model retrained" in self.lead(Entry("x", "X", "method", (run(blind),)))

    def test_missing_seeds(self) -> None:
        found = block(method("A", 1.0, 2.0), method("B", 1.0), seeds=2)
        said = summarise(results(found, seeds=(0, 1, 2)), found).notes
        assert "A is incomplete: seed 2 not made yet." in said
        assert "B is incomplete: seeds 1 and 2 not made yet." in said

    def test_over_forgetting_names_the_attacks(self) -> None:
        whole, _ = evaluated()
        entry = whole.blocks[0].entries[2]
        (first,) = entry.runs
        attack = replace(first.evaluation.attacks["rmia"], over_forgetting=True)
        flagged = replace(first, evaluation=replace(first.evaluation, attacks={"rmia": attack, "rmia_val": attack}))
        said = self.notes(Entry("x", "X", "method", (flagged,)))
        assert any(s.startswith("X (RMIA) over-forgets: to the attacks named, its forgotten") for s in said)
        twice = Entry("x", "X", "method", (flagged, run(hand_made(1.0), 1)))
        assert any(s.startswith("X (RMIA in 1 of 2 seeds) over-forgets") for s in self.notes(twice, seeds=2))


class TestNumbers:
    def test_means_and_sample_deviations(self) -> None:
        found = block(method("A", 1.0, 3.0), seeds=2)
        number = cell(found, found.entry("a"), "gap_rftp")
        assert number is not None
        assert (number.value, number.seeds) == (2.0, 2)
        assert number.deviation == pytest.approx(2**0.5)
        assert number.low is None

    def test_one_seed_has_an_interval_and_retrain_no_gap(self) -> None:
        found = block(method("A", 1.0, test_acc=90.0))
        number = cell(found, found.entry("a"), "test_acc")
        assert number is not None
        assert (number.low, number.high, number.deviation) == (89.0, 91.0, None)
        assert cell(found, found.entry("retrain"), "gap_rftp") is None
        own = cell(found, found.entry("retrain"), "test_acc")
        assert own is not None
        assert own.value == 90.5

    def test_the_floor_is_averaged_over_seeds(self) -> None:
        runs = (run(hand_made(1.0, floor=(1, 2, 3)), 0), run(hand_made(1.0, floor=(3, 4, 5)), 1))
        found = floor(block(Entry("a", "A", "method", runs), base=None), "gap_rftp")
        assert found is not None
        assert (found.mean, found.largest, found.limit) == (2.0, 3.0, 4.0)

    def test_costs(self) -> None:
        found = block(method("A", 1.0))
        spent = cost(found.entry("a"), "steps")
        assert spent is not None
        assert spent.value == COST["steps"]
        assert share(found, found.entry("a"), "seconds") == pytest.approx(10.0)

    def test_texts(self) -> None:
        assert [fixed(v) for v in (-0.001, -1.0, 1234.5, float("nan"))] == ["0.00", "−1.00", "1,234.50", "not finite"]
        assert [seconds(v) for v in (0.01, 9.94, 59.4, 60, 75, 3570, 8000)] == [
            *("under 0.1 s", "9.9 s", "59 s", "1 min", "1 min 15 s", "1 h", "2 h 13 min")
        ]
        assert [percent(v) for v in (0.0, 0.4, 12.4, 1234.0)] == ["0 %", "under 1 %", "12 %", "1,234 %"]
        assert [names(x) for x in ([], "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]


class TestCloseups:
    def test_curves_agree_with_the_audit(self) -> None:
        whole, close = evaluated()
        for name, curve in curves(close).items():
            (only,) = whole.blocks[0].entry(name).runs
            assert curve.auc == pytest.approx(only.evaluation.attacks["rmia"].auc.value)
            assert curve.tpr1 == pytest.approx(only.evaluation.attacks["rmia"].tpr1.value)
            assert (curve.fpr[0], curve.fpr[-1], curve.tpr[-1]) == (0.0, 1.0, 1.0)

    def test_the_risk_list_is_sorted_and_counts_who_stands_out(self) -> None:
        _, close = evaluated()
        table = risky(close, "base")
        assert len(table.rows) == 25
        assert table.forgotten == 40
        scores = [row.risk.score for row in table.rows]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= row.confidence <= 1 for row in table.rows)
        assert table.above == sum(row.risk.percentile > 99 for row in table.rows)

    def test_without_references_the_loss_serves(self) -> None:
        _, close = evaluated()
        alone = replace(close, references=())
        assert len(curves(alone)) == len(close.signals)
        assert risky(alone, "base").rows[0].expected is None


class TestPage:
    def test_a_whole_study(self) -> None:
        whole, close = evaluated()
        second = replace(whole.blocks[0], forget="0.5", label="50 %")
        whole = replace(whole, blocks=(whole.blocks[0], second), missing=("50 %, seed 0: SalUn",))
        extra = Extra("Search", "How settings were found.", tradeoff_figure(tradeoff()), ("lr", "gap"), (("0.1", "2"),))
        page = build_report(whole, [close], [tradeoff(), tradeoff(forget="other")], [extra])
        found = Checked(page)
        words = found.words()
        for text in ("A toy", "Overview", "Forget 10 %", "Forget 50 %", "Not finished: 1 part missing", "SalUn"):
            assert text in words
        for text in (
            "Noise floor",
            "ROC curves",
            "Confidence in the true label",
            "Examples at risk",
            "Learning curves",
        ):
            assert text in words
        for text in ("Every number", "Settings, costs and keys", "What this report can and cannot say", "Search"):
            assert text in words
        assert "One seed: small ranges are 95 % intervals over examples" in words
        assert "Lost diverged: the loss was not finite at step 3." in words
        links = [a["href"] for name, a in found.tags if name == "a"]
        assert {link[1:] for link in links} <= set(found.ids)
        described = {a["aria-describedby"] for name, a in found.tags if a.get("aria-describedby")}
        assert described
        assert described <= set(found.ids)

    def test_it_can_load_nothing(self) -> None:
        whole, close = evaluated()
        page = build_report(whole, [close])
        found = Checked(page)
        policy = next(a["content"] for name, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        assert not [a for _, a in found.tags if {"src", "style"} & set(a) or any(k.startswith("on") for k in a)]
        assert "http:" not in page
        assert "https:" not in page
        assert set(re.findall(r"url\((.)|@import", page)) == {"#"}
        assert [a["href"] for _, a in found.tags if "href" in a and not str(a["href"]).startswith("#")] == []

    def test_it_repeats(self) -> None:
        whole, close = evaluated()
        assert build_report(whole, [close], [tradeoff()]) == build_report(whole, [close], [tradeoff()])

    def test_nothing_yet(self) -> None:
        words = Checked(build_report(results(missing=("everything",)))).words()
        assert "Nothing has been made yet." in words
        assert "everything" in words

    def test_hand_made_rows(self) -> None:
        page = build_report(results(block(method("A", 1.0, 3.0), method("B", 4.0, 5.0), seeds=2), seeds=(0, 1)))
        words = Checked(page).words()
        assert "1 of 2 inside" in words
        assert "± 1.41" in words
        assert "≤ 2.00" in words
        assert "means over 2 seeds, ± their sample standard deviation" in words

    def test_twelve_methods_stay_small(self) -> None:
        whole, close = evaluated(methods=11)
        assert len(build_report(whole, [close]).encode()) < 1_000_000


class TestEscaping:
    def test_markup_from_data_is_text(self) -> None:
        whole, close = evaluated(titles=(EVIL,))
        only = whole.blocks[0]
        entries = tuple(
            replace(
                e,
                runs=tuple(
                    replace(r, key=EVIL, settings={EVIL: EVIL, "x": {EVIL: [EVIL]}}, notes={EVIL: EVIL}) for r in e.runs
                ),
            )
            for e in only.entries
        )
        evil = Results(
            EVIL, EVIL, {EVIL: EVIL}, (0,), (replace(only, label=EVIL, entries=entries),), (EVIL,), {EVIL: EVIL}
        )
        extra = Extra(EVIL, EVIL, None, (EVIL,), ((EVIL,),))
        swept = tradeoff(label=EVIL, fixed={EVIL: tradeoff().base})
        page = build_report(evil, [close], [swept], [extra])
        found = Checked(page)
        assert [name for name, _ in found.tags].count("script") == 1
        assert not [name for name, _ in found.tags if name == "img"]
        assert "window.hacked" in found.words()
        assert json.dumps(EVIL)[1:-1] in found.words().replace("\n", " ")

    @settings(max_examples=12, deadline=None)
    @given(text=st.text(min_size=1, max_size=30))
    def test_any_text_keeps_the_page_well_formed(self, text: str) -> None:
        entry = replace(method("A", 1.0), title=text, name="a")
        found = Block(text, text, {}, (*block().entries, entry))
        Checked(build_report(Results(text, text, {text: text}, (0,), (found,), (text,), {text: text})))

    @given(text=st.text())
    def test_escaped_text_reads_back(self, text: str) -> None:
        class Reader(HTMLParser):
            said = ""

            def handle_data(self, data: str) -> None:
                self.said += data

        reader = Reader(convert_charrefs=True)
        reader.feed(tag("p", text, title=text))
        reader.close()
        plain = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)
        assert reader.said == plain

    def test_only_markup_passes(self) -> None:
        assert escape(Html("<b>")) == "<b>"
        assert tag("i", "<b>", None, ["a", Html("<br>")], class_="x", hidden=True, id=None) == (
            '<i class="x" hidden>&lt;b&gt;a<br></i>'
        )
        assert "\ud800" not in escape("\ud800")
