"""The page: its sentences, its numbers, and that nothing in the data can become markup."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regun.auditing import Gap
from regun.experiments.report.page import build_report
from regun.experiments.report.summary import Summary, summarise
from regun.experiments.search.trials import SearchResult, Trial
from regun.experiments.study.details import curves, risky
from regun.experiments.study.results import Results, Row, block_of, row_of
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


class TestSentences:
    def summary(self, *methods: Row, seeds: int = 1, repeats: int = 1, **more) -> Summary:
        made = block(*methods, seeds=seeds, **more)
        return summarise(results(made, seeds=range(seeds), repeats=repeats), made)

    def lead(self, *methods: Row, **more) -> str:
        return self.summary(*methods, **more).lead

    def notes(self, *methods: Row, **more) -> tuple[str, ...]:
        return self.summary(*methods, **more).notes

    def test_inside_the_noise_floor(self) -> None:
        assert self.lead(method("A", 1.5), method("B", 4.0)) == (
            "Of 2 methods, A comes closest to retraining: its Gap RFTP, the mean distance to Retrain, is 1.50 points. "
            "That is inside the noise floor: two retrained models are 1.00 points apart on average and up to 2.00, so "
            "by this measure the model cannot be told from a retrained one. "
            "It took 90 steps and 7.6 s, 10 % of the steps and 10 % of the time of retraining."
        )

    def test_where_the_test_cannot_tell(self) -> None:
        said = self.lead(method("A", 2.5), method("B", 4.0))
        assert "inconclusive (no power)" in said
        assert (
            "neither is the base model, which forgot nothing, so that does not show that anything was forgotten" in said
        )

    def test_outside_of_it(self) -> None:
        said = self.lead(method("A", 3.5), method("B", 5.0))
        assert "outside the noise floor" in said
        assert "can be told from a retrained one" in said

    def test_without_a_noise_floor_nobody_is_the_closest(self) -> None:
        bare = {"floor": None}
        said = self.summary(method("A", 3.5, **bare), method("B", 9.0, **bare), floor=None)
        assert said.lead.startswith("Of 2 methods, A has the smallest Gap RFTP, the mean distance to Retrain: 3.50")
        assert "Whether that is close cannot be told" in said.lead
        assert "at least two reference models" in said.lead
        assert said.facts[0][:2] == ("Smallest Gap RFTP", "A")

    def test_outside_by_a_part_although_the_mean_is_small(self) -> None:
        why = "even if the mean distance does not"
        inside, apart = method("A", 1.5), method("B", 9.0)
        assert why not in self.lead(inside, apart)
        (one,) = inside.runs
        told = replace(one.evaluation, gaps={"gap_rftp": Gap(1.5, 1.0, 2.0, 3.0, "outside")})
        assert why in self.lead(row_of("a", "A", "method", [replace(one, evaluation=told)], 1), apart)

    def test_one_method(self) -> None:
        assert self.lead(method("A", 1.0)).startswith("A has a Gap RFTP (its mean distance to Retrain) of 1.00 points.")

    def test_leaders_that_cannot_be_told_apart(self) -> None:
        said = self.summary(method("A", 2.5), method("B", 1.5), method("C", 9.0))
        assert said.lead == (
            "Of 3 methods, B and A come closest to retraining and cannot be told apart: their Gap RFTP, the mean "
            "distance to Retrain, is 1.50 to 2.50 points, no farther from each other than two retrained models are on "
            "average. B is inside the noise floor; A is inconclusive (no power): two retrained models are "
            "1.00 points apart on average and up to 2.00."
        )
        assert said.facts == (
            ("Closest to retraining", "B and A", "of 3 methods, not to be told apart"),
            ("Gap RFTP", "1.50 to 2.50", "noise floor: up to 2.00"),
        )

        both = self.lead(method("A", 2.5), method("B", 1.5))
        assert both.startswith("B and A cannot be told apart: their Gap RFTP, the mean distance to Retrain, is 1.50 to")

    def test_a_row_without_all_its_runs_is_never_the_closest(self) -> None:
        few = method("Few", 0.1, planned=2)
        said = self.summary(few, method("A", 3.0, 3.0), method("B", 9.0, 9.0), seeds=2)
        assert said.lead.startswith("Of the 2 methods that can be ranked, A comes closest to retraining")
        assert "Runs not made yet (forget 10 %): Few (1 of 2)." in said.notes
        alone = self.lead(few, method("A", 3.0, planned=2), seeds=2)
        assert alone.startswith("No method has every run of the study without one that diverged, so none can be called")

    @pytest.mark.parametrize(
        ("gaps", "text"),
        [
            ((1.0, 1.5, 2.0), "That is inside the noise floor in all 3 runs: two retrained"),
            ((4.0, 5.0, 6.0), "That is outside the noise floor in all 3 runs: two retrained"),
            (
                (1.0, 2.5, 6.0),
                "That is inside the noise floor in 1, inconclusive (no power) in 1 and outside the noise "
                "floor in 1 of 3 runs",
            ),
            ((1.0, 1.0, 6.0), "inside the noise floor in 2 and outside the noise floor in 1 of 3 runs"),
        ],
    )
    def test_several_seeds_and_several_runs(self, gaps: tuple[float, ...], text: str) -> None:
        said = self.lead(method("A", *gaps), method("B", 8.0, 8.0, 8.0), seeds=3)
        assert text in said
        assert "points over 3 seeds." in said
        assert "It took 90 steps and 7.6 s a run" in said
        assert "±" in said
        said = self.lead(method("A", *gaps, repeats=3), method("B", 8.0, 8.0, 8.0, repeats=3), repeats=3)
        assert text in said
        assert "points over 3 runs of one trained model." in said

    def test_seeds_and_repeats(self) -> None:
        said = self.lead(method("A", 1.0, 2.0, 3.0, 4.0, repeats=2), seeds=2, repeats=2)
        assert "2.50 ± 1.41 points over 2 seeds, 2 runs each." in said

    def test_base_may_be_closer(self) -> None:
        assert "The base model, which forgot nothing, is closer still (0.50)." in self.lead(method("A", 1.0), base=0.5)
        assert self.notes(method("A", 0.8), method("B", 2.0), base=0.5)[:2] == (
            "Others inside the noise floor: B.",
            "No method is closer to retraining than the base model (0.50), which forgot nothing.",
        )
        assert "B and C are no closer to retraining than the base model (3.50)." in self.notes(
            method("A", 1.0), method("B", 4.0), method("C", 5.0), base=3.5
        )

    def test_where_the_base_passes_as_well_passing_says_nothing(self) -> None:
        said = self.notes(method("A", 0.8), method("B", 9.0), base=2.5)
        assert said[-1] == (
            "Base, which forgot nothing, is not told from retrained models either (forget 10 %): no model there can be "
            "shown to have forgotten."
        )
        made = block(method("A", 1.0, 1.0), base=3.5, seeds=2)
        assert not [text for text in summarise(results(made, seeds=(0, 1)), made).notes if "forgot nothing" in text]

    def test_diverged_with_and_without_numbers(self) -> None:
        reason = "the loss was not finite at step 3."
        lost = found("lost", run(None, diverged=reason))
        kept = found("kept", run(hand_made(5.0), diverged=reason))
        said = self.notes(method("A", 1.0), lost, kept)
        assert (
            "Lost diverged: the loss was not finite at step 3; its answers are not finite, so it cannot be judged."
            in said
        )
        assert "Kept diverged: the loss was not finite at step 3; what is shown is its last finite state." in said
        more = self.lead(method("A", 1.0), method("B", 3.0), lost, kept)
        assert more.startswith("Of the 2 methods that can be ranked, A comes closest")

    def test_diverged_in_some_runs(self) -> None:
        some = found("s", hand_made(1.0), hand_made(1.0), run(None, 2, diverged="NaN"))
        every = found("e", *(run(None, s, diverged="NaN") for s in range(3)))
        _, said, also = self.notes(some, every, method("B", 1.0, 1.0, 1.0), seeds=3)
        assert also == "E diverged in all 3 runs: NaN; its answers are not finite, so it cannot be judged."
        assert said == ("S diverged in 1 of 3 runs (seed 2): NaN; left out, its answers not being finite: seed 2.")
        again = found("r", hand_made(1.0), run(None, 0, 1, diverged="NaN"), run(hand_made(1.0), 0, 2, diverged="x"))
        assert self.notes(again, repeats=3) == (
            "R diverged in 2 of 3 runs (seed 0 run 2 and seed 0 run 3): NaN and x; left out, its answers not "
            "being finite: seed 0 run 2.",
        )

    def test_nothing_to_say_is_said(self) -> None:
        assert self.lead() == "No method has been run on this request yet."
        lost = found("lost", run(None, diverged="NaN"))
        assert self.lead(lost) == "None of the 1 method run on this request gave a model that can be judged."
        blind = replace(hand_made(1.0), numbers={}, gaps={})
        assert "cannot be told: distances need a model retrained" in self.lead(found("x", blind))

    def test_over_forgetting_names_the_attacks(self) -> None:
        whole, _ = evaluated()
        (first,) = whole.blocks[0].row("m1").runs
        assert first.evaluation is not None
        attack = replace(first.evaluation.attacks["rmia"], over_forgetting=True)
        flagged = replace(first, evaluation=replace(first.evaluation, attacks={"rmia": attack, "rmia_val": attack}))
        said = self.notes(found("x", flagged))
        assert any(s.startswith("X (RMIA) over-forgets: to the attacks named, its forgotten") for s in said)
        twice = found("x", flagged, hand_made(1.0))
        assert any(s.startswith("X (RMIA in 1 of 2 runs) over-forgets") for s in self.notes(twice, seeds=2))


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
        return found(title.lower(), replace(hand_made(5.0), claims=claims), title=title)

    rows = [claiming(name, "Of all.", "Of most.") for name in "AB"] + [claiming("C", "Of all.", "Of one.")]
    page = build_report(results(block_of("0.1", "10 %", {}, rows)))
    assert "<li>Of all.</li>" in page
    assert "<li>All but C: Of most.</li>" in page
    assert "<li>C: Of one.</li>" in page


def test_the_caption_of_a_trade_off_speaks_of_what_is_drawn() -> None:
    whole, _ = evaluated()
    swept, plain = (build_report(whole, (), [found]) for found in (tradeoff(), tradeoff(curves={}, noise=None)))
    assert "Along a curve markers grow with w" in swept
    assert "Green: as far as two retrained models are apart.</" not in plain
    assert "Along a curve" not in plain


class TestCloseups:
    def test_curves_agree_with_the_audit(self) -> None:
        whole, close = evaluated()
        for name, curve in curves(close).items():
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
        assert len(curves(alone)) == len(close.signals)
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
        assert "One seed; in brackets the 95 % interval over examples. That says nothing about what another" in words
        assert "Lost diverged: the loss was not finite at step 3; its answers" in words
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
        assert "Nothing has been made yet." in words
        assert "everything" in words

    def test_seeds_repeats_and_the_kind_of_processor(self) -> None:
        two = block(method("A", 1.0, 3.0), method("B", 4.0, 5.0), seeds=2)
        words = Checked(build_report(results(two, seeds=(0, 1)))).words()
        assert "1 inside, 1 inconclusive" in words
        assert "± 1.41" in words
        assert "1.00(2.00)" in words
        assert "Mean ± sample standard deviation over 2 seeds." in words
        assert "Made on this kind of processor: x86_64, AVX2." in words
        again = block(method("A", 1.0, 3.0, repeats=2), method("B", 4.0, 5.0, repeats=2))
        words = Checked(build_report(results(again, repeats=2))).words()
        assert "± 1.41" in words
        assert "Mean ± sample standard deviation over 2 unlearning runs of one trained model" in words
        assert "A tick is a run, the dot their mean." in words
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
        from jinja2 import UndefinedError

        with pytest.raises(UndefinedError, match="text"):
            environment().from_string("{{ text }}").render()
