"""The page: its sentences, its numbers, and that nothing in the data can become markup."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from expect import assert_names
from regun.experiments.report.page import build_report
from regun.experiments.search.trials import SearchResult, Trial
from regun.experiments.study.details import risky, roc_curves
from regun.experiments.study.results import Results, Row, block_of
from regun.experiments.study.summary import summarize
from regun.render.numbers import duration, fixed, names, pairs, percent, settings_text
from regun.render.template import clean, environment
from report_samples import (
    block,
    evaluated,
    found,
    hand_made,
    method,
    relabelled,
    results,
    run,
    tradeoff,
)

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


class TestSummary:
    """The first paragraph has the names and numbers of the leaders, and nobody else's."""

    def page(self, *methods: Row, seeds: int = 1, repeats: int = 1, **more) -> str:
        return build_report(results(block(*methods, seeds=seeds, **more), seeds=range(seeds), repeats=repeats))

    def lead(self, *methods: Row, **more) -> str:
        (text,) = re.findall(r'<p class="lead">(.*?)</p>', self.page(*methods, **more), re.DOTALL)
        return " ".join(Checked(f"<p>{text}</p>").text).strip()

    def notes(self, *methods: Row, **more) -> str:
        return Checked(self.page(*methods, **more)).words()

    @pytest.mark.parametrize(
        ("gap", "phrase"), [(1.5, "inside the noise floor"), (2.5, "inconclusive"), (3.5, "outside the noise floor")]
    )
    def test_the_leader_its_gap_the_noise_floor_the_verdict_and_the_cost(self, gap: float, phrase: str) -> None:
        lead = self.lead(method("Near", gap), method("Far", 7.0))
        for text in ("2 methods", "Near", "Gap RFTP", fixed(gap), "1.00", "2.00", phrase, "90 steps", "7.6 s", "10 %"):
            assert text in lead
        assert "Far" not in lead
        assert ("significantly different" in lead) == (gap != 2.5)

    def test_leaders_that_are_not_distinguishable(self) -> None:
        lead = self.lead(method("Aa", 2.5), method("Bb", 1.5), method("Cc", 9.0))
        assert_names(lead, "Aa", "Bb", "1.50", "2.50", "distinguishable")
        assert "Cc" not in lead

    def test_without_a_noise_floor_nothing_is_significant(self) -> None:
        lead = self.lead(method("Aa", 3.5, floor=None), method("Bb", 9.0, floor=None), floor=None)
        assert_names(lead, "Aa", "3.50", "unknown")
        assert "significantly" not in lead

    @pytest.mark.parametrize(
        ("gaps", "counts"),
        [
            ((1.0, 1.5, 2.0), ["inside the noise floor in all 3 runs"]),
            ((1.0, 2.5, 6.0), ["inside the noise floor in 1 of 3", "outside the noise floor in 1 of 3"]),
        ],
    )
    def test_verdicts_are_counted_over_seeds_and_over_repeats(self, gaps: tuple[float, ...], counts: list[str]) -> None:
        lead = self.lead(method("A", *gaps), method("B", 8.0, 8.0, 8.0), seeds=3)
        assert all(text in lead for text in (*counts, "3 seeds", "±"))
        lead = self.lead(method("A", *gaps, repeats=3), method("B", 8.0, 8.0, 8.0, repeats=3), repeats=3)
        assert all(text in lead for text in (*counts, "3 runs of one trained model", "±"))
        assert "2.50 ± 1.41 / 0.71" in self.lead(method("A", 1.0, 2.0, 3.0, 4.0, repeats=2), seeds=2, repeats=2)

    def test_base_may_be_closer(self) -> None:
        assert_names(self.lead(method("A", 1.0), base=0.5), "Base", "0.50")
        assert "Base" not in self.lead(method("A", 1.0), base=5.0)

    def test_unranked_methods_are_named(self) -> None:
        rows = method("Near", 1.0), method("Far", 9.0), replace(method("Nearest", 0.1), unranked=True)
        assert_names(self.notes(*rows), "Nearest", "0.10")  # closer than every ranked method
        assert "Nearest" not in self.lead(*rows)
        facts = summarize(block(*rows, replace(method("Between", 5.0), unranked=True)))
        assert [row.title for row in facts.closer] == ["Nearest"]

    def test_nobody_leads(self) -> None:
        few = method("Few", 0.1, planned=2)
        for rows in ((), (found("lost", run(None, diverged="NaN")),), (few, method("A", 3.0, planned=2))):
            assert self.lead(*rows)
            assert "closest" not in self.lead(*rows)

    def test_diverged_and_missing_runs_are_named(self) -> None:
        some = found("some", hand_made(1.0), hand_made(1.0), run(None, 2, diverged="NaN."))
        every = found("every", *(run(None, s, diverged="NaN") for s in range(3)))
        words = self.notes(some, every, method("Few", 1.0, planned=3), seeds=3)
        assert "Some diverged in 1 of 3 runs (seed 2): NaN." in words
        assert "Every diverged in 3 of 3 runs (seed 0, seed 1, seed 2): NaN." in words
        assert "Few (2 of 3)" in words
        again = found("r", hand_made(1.0), run(None, 0, 1, diverged="NaN"), run(hand_made(1.0), 0, 2, diverged="x"))
        assert "R diverged in 2 of 3 runs (seed 0 run 2, seed 0 run 3): NaN and x." in self.notes(again, repeats=3)

    def test_over_forgetting_names_the_attacks(self) -> None:
        whole, _ = evaluated()
        (first,) = whole.blocks[0].row("m1").runs
        assert first.evaluation is not None
        attack = replace(first.evaluation.attacks["rmia"], over_forgetting=True)
        flagged = replace(first, evaluation=replace(first.evaluation, attacks={"rmia": attack, "rmia_val": attack}))
        assert "X over-forgets: to RMIA, its" in self.notes(found("x", flagged))
        assert "to RMIA (in 1 of 2 runs), its" in self.notes(found("x", flagged, hand_made(1.0)), seeds=2)


def test_texts() -> None:
    assert [fixed(v) for v in (-0.001, -1.0, 1234.5, float("nan"))] == ["0.00", "-1.00", "1,234.50", "not finite"]
    assert [duration(v) for v in (0.01, 9.94, 59.4, 60, 75, 3570, 8000)] == [
        *("under 0.1 s", "9.9 s", "59 s", "1 min", "1 min 15 s", "1 h", "2 h 13 min")
    ]
    assert [percent(v) for v in (0.0, 0.4, 12.4, 1234.0)] == ["0 %", "under 1 %", "12 %", "1,234 %"]
    assert [names(x) for x in ([], "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
    assert names(["A, large", "1,035 retained"]) == "“A, large” and 1,035 retained"
    assert settings_text({"lr": 0.1, "layers": ["a"]}) == 'lr=0.1 layers=["a"]'
    assert pairs({"a": "x" * 300, "b": None, "c": {"d": [1]}})[1:] == (("b", "None"), ("c", '{"d": [1]}'))
    assert len(pairs({"a": "x" * 300})[0][1]) == 240


def test_a_claim_says_of_whom_it_is_unless_it_is_of_all() -> None:
    def claiming(title: str, *claims: str) -> Row:
        return found(title.lower(), replace(hand_made(5.0), limits=claims), title=title)

    rows = [claiming(name, "Of all.", "Of most.") for name in "AB"] + [claiming("C", "Of all.", "Of one.")]
    page = build_report(results(block_of("0.1", "10 %", {}, rows)))
    assert "<li>Of all.</li>" in page
    assert "<li>All but C: Of most.</li>" in page
    assert "<li>C: Of one.</li>" in page


def test_the_caption_of_a_trade_off_speaks_of_what_is_drawn() -> None:
    whole, _ = evaluated()
    swept, plain = (build_report(whole, (), [found]) for found in (tradeoff(), tradeoff(curves={}, noise=None)))
    captions = [
        re.findall(r'<figure class="plot.*?<figcaption>(.*?)</figcaption>', page, re.DOTALL) for page in (swept, plain)
    ]
    ((with_curves,), (without,)) = captions
    assert_names(with_curves, "w", "noise")
    assert not re.search(r"\bw\b|noise", without)


class TestCloseups:
    def test_curves_agree_with_the_audit(self) -> None:
        whole, close = evaluated()
        for name, curve in roc_curves(close).items():
            (only,) = whole.blocks[0].row(name).runs
            assert only.evaluation is not None
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
        assert len(roc_curves(alone)) == len(close.predictions)
        assert risky(alone, "base").rows[0].expected is None


def searched(method: str) -> SearchResult:
    """A finished search of two trials."""
    values = [{"lr": 0.1, "w": 0.5}, {"lr": 0.2, "w": 0.4}]
    tried = [Trial(number=k, values=v, score=3.0 - k, forgetting=2.0 - k, utility=k) for k, v in enumerate(values)]
    return SearchResult(method, "gap", tuple(tried))


class TestPage:
    def test_a_whole_study(self) -> None:
        whole, close = evaluated()
        whole = replace(relabelled(whole, "50 %"), missing=("50 %, seed 0: SalUn",))
        page = build_report(whole, [close], [tradeoff(), tradeoff(forget="other")])
        seen = Checked(page)
        words = seen.words()
        for text in ("A toy study", "Overview", "Forget 10 %", "Forget 50 %", "Not finished: 1 part missing", "SalUn"):
            assert text in words
        for text in (
            "noise floor",
            "ROC curves",
            "Confidence in the true label",
            "Examples at risk",
            "Learning curves",
            "Trade-off between utility and forgetting",
        ):
            assert text in words
        for text in ("Every number", "Settings, costs and keys", "What this report can and cannot say"):
            assert text in words
        assert "95 % interval over examples" in words
        assert "Lost diverged: the loss was not finite at step 3." in words
        links = [a["href"] for name, a in seen.tags if name == "a"]
        assert {str(link)[1:] for link in links} <= set(seen.ids)
        described = {a["aria-describedby"] for name, a in seen.tags if a.get("aria-describedby")}
        assert described
        assert described <= set(seen.ids)

    def test_it_can_load_nothing(self) -> None:
        whole, close = evaluated()
        page = build_report(whole, [close])
        seen = Checked(page)
        policy = next(str(a["content"]) for name, a in seen.tags if a.get("http-equiv") == "Content-Security-Policy")
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        assert not [a for _, a in seen.tags if {"src", "style"} & set(a) or any(k.startswith("on") for k in a)]
        assert "http:" not in page
        assert "https:" not in page
        assert set(re.findall(r"url\((.)|@import", page)) == {"#"}
        assert [a["href"] for _, a in seen.tags if "href" in a and not str(a["href"]).startswith("#")] == []

    def test_it_repeats(self) -> None:
        whole, close = evaluated()
        assert build_report(whole, [close], [tradeoff()]) == build_report(whole, [close], [tradeoff()])

    def test_nothing_yet(self) -> None:
        words = Checked(build_report(results(missing=("everything",)))).words()
        assert "Not finished: 1 part missing" in words
        assert "everything" in words

    def test_seeds_repeats_and_the_kind_of_processor(self) -> None:
        two = block(method("A", 1.0, 3.0), method("B", 4.0, 5.0), seeds=2)
        words = Checked(build_report(results(two, seeds=(0, 1)))).words()
        assert "1 passed, 1 inconclusive" in words
        assert "± 1.41" in words
        assert "1.00(2.00)" in words
        assert "standard deviation over 2 seeds." in words
        assert "Processor: x86_64, AVX2." in words
        again = block(method("A", 1.0, 3.0, repeats=2), method("B", 4.0, 5.0, repeats=2))
        words = Checked(build_report(results(again, repeats=2))).words()
        assert "± 1.41" in words
        assert "over 2 unlearning runs of one trained model" in words
        assert "seed 0 run 2:" in words

    def test_a_number_of_the_users_own_is_a_column_of_its_own(self) -> None:
        whole, _ = evaluated()
        page = build_report(replace(whole, columns=(*whole.columns, "lira_tpr1")))
        heads = page[page.index('<table class="sortable">') :].split("</thead>")[0]
        assert "Offline LiRA TPR@1%" in heads
        assert "SMIA" not in heads

    def test_twelve_methods_stay_small(self) -> None:
        whole, close = evaluated(methods=11)
        assert len(build_report(whole, [close]).encode()) < 1_000_000


class TestEscaping:
    def evil(self) -> Results:
        """Results whose every text tries to be markup."""
        whole, _ = evaluated(titles=(EVIL,))
        only = whole.blocks[0]
        values = {"key": EVIL, "settings": {EVIL: EVIL, "x": {EVIL: [EVIL]}}, "notes": {EVIL: EVIL}}
        rows = tuple(replace(row, runs=tuple(replace(r, **values) for r in row.runs)) for row in only.rows)
        texts = {"name": EVIL, "title": EVIL, "about": {EVIL: EVIL}, "missing": (EVIL,), "versions": {EVIL: EVIL}}
        metrics = {name: replace(metric, label=EVIL, meaning=EVIL) for name, metric in whole.metrics.items()}
        more = {"machine": {EVIL: EVIL, "processor": EVIL}, "metrics": metrics}
        return replace(whole, blocks=(replace(only, label=EVIL, rows=rows),), **texts, **more)

    def test_markup_from_data_is_text(self) -> None:
        _, close = evaluated(titles=(EVIL,))
        swept = tradeoff(label=EVIL, fixed={EVIL: tradeoff().base})
        seen = Checked(build_report(self.evil(), [close], [swept]))
        assert [name for name, _ in seen.tags].count("script") == 1
        assert not [name for name, _ in seen.tags if name == "img"]
        assert "window.hacked" in seen.words()
        assert json.dumps(EVIL)[1:-1] in seen.words().replace("\n", " ")

    def test_searches_have_sections_and_are_text_as_well(self) -> None:
        pytest.importorskip("optuna")
        seen = Checked(
            build_report(results(), searches=[(EVIL, {"<i>A": searched("a")}), ("50 %", {"B": searched("b")})])
        )
        assert f"Search of settings, {' '.join(EVIL.split())}" in seen.words()
        assert {"search-1", "search-2"} <= set(seen.ids)
        assert not [name for name, _ in seen.tags if name in ("img", "i")]

    @settings(max_examples=12, deadline=None)
    @given(text=st.text(min_size=1, max_size=30))
    def test_any_text_keeps_the_page_well_formed(self, text: str) -> None:
        row = replace(method("A", 1.0), title=text, name=text)
        made = block_of(text, text, {}, [row])
        Checked(build_report(results(made, name=text, title=text, about={text: text}, missing=(text,))))

    @given(text=st.text())
    def test_escaped_text_reads_back(self, text: str) -> None:
        class Reader(HTMLParser):
            said = ""

            def handle_data(self, data: str) -> None:
                self.said += data

        made = environment().from_string('<p title="{{ text }}">{{ text }}</p>').render(text=text)
        reader = Reader(convert_charrefs=True)
        reader.feed(clean(made))
        reader.close()
        assert reader.said == clean(text)

    def test_a_value_that_is_missing_is_an_error(self) -> None:
        with pytest.raises(UndefinedError):
            environment().from_string("{{ text }}").render()
