"""The paper's numbers as data: complete, true to the paper's own statements, and beside ours in every format."""

import json
from collections import Counter
from itertools import product

import pytest

from expect import error
from regun.auditing.metrics import GAPS
from regun.errors import RegunError
from regun.experiments.report.formats import render
from regun.experiments.study.paper import Paper, paper_numbers
from regun.experiments.study.results import PAPER_COLUMNS
from report_samples import found, judged, study

STUDIES = ("resnet18-cifar10", "resnet18-cifar100", "swin-t-tiny-imagenet", "resnet18-tiny-imagenet")
FRACTIONS = ("0.01", "0.1", "0.5")
PAPER = {name: paper_numbers(name) for name in STUDIES}


def methods(paper: Paper) -> list[str]:
    return list(dict.fromkeys(name for _, name, _ in paper.numbers))


def test_the_table_is_complete():
    assert sum(len(paper.numbers) for paper in PAPER.values()) == 1161
    for paper in PAPER.values():
        cells = product((0.01, 0.1, 0.5), methods(paper), PAPER_COLUMNS)
        assert set(paper.numbers) == set(cells)


def test_lowest_gap_over_the_twelve_blocks():
    """ReGUn in 9 of 12; AMUN on CIFAR-10 at 10 %, LUR on CIFAR-100 at 10 %, SalUn with Swin-T at 1 %."""
    best: dict[tuple[str, str], str] = {}
    for (name, paper), forget in product(PAPER.items(), FRACTIONS):
        found = {m: n.mark for m in methods(paper) if (n := paper.number(forget, m, "gap_rftp"))}
        (best[name, forget],) = [m for m, mark in found.items() if mark == "best"]
        assert found["retrain"] is found["base"] is None
    assert Counter(best.values()) == {"regun": 9, "amun": 1, "lur": 1, "salun": 1}
    assert best["resnet18-cifar10", "0.1"] == "amun"
    assert best["resnet18-cifar100", "0.1"] == "lur"
    assert best["swin-t-tiny-imagenet", "0.01"] == "salun"


@pytest.mark.parametrize(("gap", "expected"), [("gap_rftp", 16), ("gap_tp", 15)])
def test_some_printed_gaps_undercut_the_gap_of_the_printed_means(gap: str, expected: int):
    """The mean of distances cannot be below the distance of means: rows that are stand as printed, not recomputed."""
    odd = 0
    for paper, forget in product(PAPER.values(), FRACTIONS):
        mean = {key: number.mean for key, number in paper.numbers.items() if key[0] == float(forget)}
        for name in methods(paper):
            away = [abs(mean[float(forget), name, t] - mean[float(forget), "retrain", t]) for t in GAPS[gap]]
            odd += sum(away) / len(away) - mean[float(forget), name, gap] > 0.02 + 1e-9
    assert odd == expected


def test_marks_are_those_the_paper_prints():
    """CIFAR-10 at 1 %, as in the appendix: bold and underlined cells of three columns."""
    paper = PAPER["resnet18-cifar10"]
    printed = {
        "test_acc": {"neggrad": "best", "ssd": "second"},
        "rmia_auc": {"salun": "best", "lur": "second"},
        "gap_rftp": {"regun": "best", "salun": "second"},
    }
    for metric, expected in printed.items():
        found = {m: n.mark for m in methods(paper) if (n := paper.number("0.01", m, metric)) and n.mark}
        assert found == expected


@pytest.mark.parametrize(
    ("small", "full"),
    [
        ("resnet18-cifar10-small", "resnet18-cifar10"),
        ("resnet18-cifar100-small", "resnet18-cifar100"),
        ("swin-tiny-imagenet-small", "swin-t-tiny-imagenet"),
        ("resnet18-tiny-imagenet-small", "resnet18-tiny-imagenet"),
    ],
)
def test_small_studies_stand_beside_their_setup_with_a_warning(small: str, full: str):
    paper = paper_numbers(small)
    assert paper.numbers == PAPER[full].numbers
    assert paper.note != PAPER[full].note


def test_a_study_the_paper_does_not_have():
    with error(RegunError, "digits", *STUDIES):
        paper_numbers("digits")


def test_requests_the_paper_does_not_have():
    paper = PAPER["resnet18-cifar10"]
    assert paper.number("0.10", "regun", "gap_rftp") == paper.number("0.1", "regun", "gap_rftp")
    assert paper.number("0.1", "regun@swin", "gap_rftp") == paper.number("0.1", "regun", "gap_rftp")
    assert paper.number("0.1", "regun@teacher", "gap_rftp") is None, "not the paper's method"
    assert paper.number("class:3", "regun", "gap_rftp") is None
    assert paper.number("0.2", "regun", "gap_rftp") is None
    assert paper.number("0.1", "regun@wide", "gap_rftp") is None


def test_the_paper_stands_beside_ours_in_every_format():
    rows = found("regun", judged()), found("mine", judged({"test_acc": 80.0}))
    whole = study(*rows, paper=PAPER["resnet18-cifar10"])
    shown = render(whole).splitlines()
    place = next(k for k, line in enumerate(shown) if line.startswith("Regun"))
    assert shown[place + 1].startswith("  paper")
    assert all(text in shown[place + 1] for text in ("98.42 ± 1.01", "51.01 ± 0.64**", "2.00 ± 0.18*"))
    assert shown[place + 2].startswith("Mine")
    assert not shown[place + 3].startswith("  paper")
    assert "ResNet-18 on CIFAR-10" in render(whole)
    assert "*2.00* ± 0.18" in render(whole, "markdown")
    assert r"\underline{2.00} {\tiny $\pm$ 0.18}" in render(whole, "latex")
    assert ",2.0,0.18,second\r\n" in render(whole, "csv")
    read = json.loads(render(whole, "json"))
    assert read["paper"]["setup"] == "resnet18_cifar10"
    assert read["requests"][0]["rows"][2]["paper"]["gap_rftp"] == {"mean": 2.0, "std": 0.18, "mark": "second"}


def test_side_by_side_the_papers_numbers_stand_below_ours():
    whole = study(found("regun", judged()), forget=("0.01", "0.1"), paper=PAPER["resnet18-cifar10"])
    shown = render(whole, layout="fractions", columns=["gap_rftp"]).splitlines()
    place = next(k for k, line in enumerate(shown) if line.startswith("Regun"))
    first, second = (PAPER["resnet18-cifar10"].number(forget, "regun", "gap_rftp") for forget in ("0.01", "0.1"))
    assert first is not None
    assert second is not None
    assert all(f"{n.mean:.2f} ± {n.std:.2f}" in shown[place + 1] for n in (first, second))


def test_a_request_without_the_papers_numbers_is_said_to_be_so():
    shown = render(study(found("regun", judged()), forget=["class:3"], paper=PAPER["resnet18-cifar10"]))
    assert "The paper has no numbers for forget class:3." in shown
    assert "  paper" not in shown


def test_every_row_of_the_papers_studies_that_the_paper_has_finds_its_number() -> None:
    from regun.experiments.study.parse import read_study

    for name in ("resnet18-cifar10", "resnet18-cifar100", "swin-t-tiny-imagenet", "resnet18-tiny-imagenet"):
        paper, found = paper_numbers(name), read_study(name)
        lacking = {row for row in found.rows for f in found.forget if paper.number(f, row, "gap_rftp") is None}
        assert lacking == {"scrub", "crossfit"}
    assert paper_numbers("resnet18-cifar10").number("0.1", "regun@wide_retain", "gap_rftp") is None
