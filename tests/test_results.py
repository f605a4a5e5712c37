"""Every committed table follows from its rows: means, deviations, gaps, marks and floors are computed again."""

import csv
import importlib
import json
import re
import statistics
from collections import defaultdict
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from expect import assert_names
from regun.experiments.study.parse import read_study

RESULTS = Path(__file__).parent.parent / "results"
FOLDERS = sorted(path.parent for path in RESULTS.glob("*/rows.csv"))
HEADS = {
    "Retain acc.": "retain_acc",
    "Forget acc.": "forget_acc",
    "Test acc.": "test_acc",
    "SMIA AUC": "smia_auc",
    "RMIA AUC": "rmia_auc",
    "Gap RFTP": "gap_rftp",
    "Gap TP": "gap_tp",
}
Values = dict[int, list[float]]


def plain(cell: str) -> str:
    return cell.replace("*", "").replace("†", "").strip()  # marks: closest, second closest, diverged


def tables(folder: Path) -> list[dict[str, dict[str, str]]]:
    """Of every request: row title to column to what stands there."""
    found: list[dict[str, dict[str, str]]] = []
    heads: list[str] = []
    for line in (folder / "table.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells and cells[0] == "":
            heads = cells
            found.append({})
        elif cells and not set(cells[0]) <= {"-", " "}:
            found[-1][plain(cells[0])] = dict(zip(heads[1:], cells[1:], strict=True))
    return found


def rows(folder: Path) -> dict[str, dict[str, dict[str, Values]]]:
    """Request, title, number: its values by seed."""
    found: dict[str, dict[str, dict[str, Values]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    with (folder / "rows.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for name in HEADS.values():
                if row[name]:
                    seeds = found[row["forget"]][row["title"]][name]
                    seeds.setdefault(int(row["seed"]), []).append(float(row[name]))
    return found


def shown(values: Values) -> tuple[str, str | None]:
    """Mean over seeds of the means over repeats, and the deviation over seeds, as a table prints them."""
    means = [statistics.fmean(some) for some in values.values()]
    return f"{statistics.fmean(means):.2f}", f"{statistics.stdev(means):.2f}" if len(means) > 1 else None


def test_there_are_results():
    assert FOLDERS, "results/ holds no study"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_cell_of_the_table_follows_from_the_rows(folder: Path):
    checked = 0
    for request, table in zip(rows(folder).values(), tables(folder), strict=True):
        for title, numbers in request.items():
            for head, name in HEADS.items():
                if title == "Retrain" and name.startswith("gap"):
                    continue  # its distance to itself, by definition 0
                text = table[title][head]
                mean, deviation = shown(numbers[name])
                assert re.match(r"-?[\d.]+", plain(text)).group() == mean, (title, head)
                if deviation is not None:
                    assert re.search(r"± ([\d.]+)", text).group(1) == deviation, (title, head)
                checked += 1
    assert checked > 15


def test_the_table_of_the_readme_is_that_of_the_rows():
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    table = tables(RESULTS / "cifar10-long")[0]
    with (RESULTS / "cifar10-long" / "rows.csv").open(newline="", encoding="utf-8") as file:
        published = list(csv.DictReader(file))

    def number(title: str, head: str) -> float:
        return float(re.match(r"-?[\d.,]+", plain(table[title][head])).group().replace(",", ""))

    def mean(title: str, name: str) -> float:
        seeds: dict[str, list[float]] = defaultdict(list)
        for row in published:
            if row["title"] == title:
                seeds[row["seed"]].append(float(row[name]))
        return statistics.fmean(statistics.fmean(runs) for runs in seeds.values())

    def line(title: str) -> str:
        names = ("forget_acc", "relearn_forget_acc", "test_acc", "rmia_auc", "gap_rftp")
        cells = [f"{mean(title, name):.1f}" for name in names]
        samples, whole = (sum(number(one, head) for head in ("Forward", "Backward")) for one in (title, "Retrain"))
        costs = "0 %" if title == "Base" else f"{100 * samples / whole:.0f} %"
        return f"| {' | '.join([*cells[:4], '' if title == 'Retrain' else cells[4], costs])} |"

    part = readme.partition("## What it costs")[2].partition("\n## ")[0]
    shown = [one for one in part.splitlines() if one.startswith("| ")][1:]
    crossfit = "Cross-fitted references, 16 %"
    titles = ("Retrain", "Base", "ReGUn", "AMUN", crossfit, "Retraining cut to 17 %")
    assert len(shown) == len(titles)
    assert [title for title, one in zip(titles, shown, strict=True) if not one.endswith(line(title)[1:])] == []
    assert f"two retrained models are {number('noise floor', 'Gap RFTP'):.2f} apart" in " ".join(part.split())


def test_the_cost_figure_is_drawn_from_the_rows(monkeypatch: pytest.MonkeyPatch):
    """Values as in the table; costs as shares of Retrain's samples; retraining cut short apart from the methods."""
    monkeypatch.syspath_prepend(RESULTS.parent / "research")
    gap, relearned = importlib.import_module("cost_figure").panels(RESULTS / "cifar10-long")
    ((_, published),) = rows(RESULTS / "cifar10-long").items()
    table = tables(RESULTS / "cifar10-long")[0]
    for panel, name in ((gap, "gap_rftp"), (relearned, "relearn_forget_acc")):
        points = {point.title: point for point in (*panel.methods, *panel.shortened)}
        assert points.keys() == published.keys() - {"Retrain", "Base"}
        if name in HEADS.values():
            assert all(f"{point.value:.2f}" == shown(published[title][name])[0] for title, point in points.items())
    assert [point.title.partition(" cut")[0] for point in gap.shortened] == ["Retraining"] * len(gap.shortened)
    assert [point.share for point in gap.shortened] == sorted(point.share for point in gap.shortened)
    floor = re.match(r"[\d.]+", plain(table["noise floor"]["Gap RFTP"])).group()
    assert f"{gap.retrain.value:.2f}" == floor
    assert gap.band[0] == 0 < gap.retrain.value < gap.band[1] < gap.base


@pytest.mark.parametrize("page", ["results.md", "results_short.md", "results_more.md"])
def test_the_pages_of_results_show_what_their_commands_print(page: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(RESULTS.parent / "research")
    monkeypatch.chdir(RESULTS.parent)
    refresh = importlib.import_module("refresh")
    text = (RESULTS.parent / "docs" / page).read_text(encoding="utf-8")
    assert refresh.commands(text)
    assert refresh.refreshed(text) == text, f"python research/refresh.py docs/{page}"


SETUPS = (
    ("cifar10-small", "0.1"),
    ("cifar10-small-half", "0.5"),
    ("cifar100-small", "0.1"),
    ("cifar100-small", "0.5"),
    ("tiny-swin-small", "0.1"),
    ("tiny-swin-small", "0.5"),
    ("tiny-resnet-small", "0.1"),
)
"""The columns of the table of findings in docs/results_short.md."""


def test_the_findings_of_the_summary_follow_from_the_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(RESULTS.parent / "research")
    read = importlib.import_module("compare").read
    page = (RESULTS.parent / "docs/results_short.md").read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:2] == "| "]
    table = {row[0]: row[1:] for row in cells if len(row) == 1 + len(SETUPS)}
    paper = ("ReGUn", "Finetune", "NegGrad", "NegGrad+", "l1-sparse", "SSD", "SalUn", "AMUN", "LUR")
    for column, (name, forget) in enumerate(SETUPS):
        numbers = {
            number: read(RESULTS / name, number)[forget] for number in ("gap_rftp", "rmia_auc", "forward", "backward")
        }
        gaps, aucs = ({title: row.mean for title, row in numbers[one].items()} for one in ("gap_rftp", "rmia_auc"))
        ranks = sorted((title for title in paper if title in gaps), key=gaps.__getitem__)
        samples = {
            title: numbers["forward"][title].mean + numbers["backward"][title].mean for title in ("ReGUn", "Retrain")
        }
        above = {title: aucs[title] - aucs["Retrain"] for title in ("Finetune", "l1-sparse")}
        expected = {
            "here": f"{ranks.index('ReGUn') + 1}",
            "ReGUn's RMIA AUC is Retrain's": f"{aucs['ReGUn']:.1f}, {aucs['Retrain']:.1f}",
            "SSD does nothing: gap, base": f"{gaps['SSD']:.1f}, {gaps['Base']:.1f}",
            "NegGrad does nothing useful: gap, base": f"{gaps['NegGrad']:.1f}, {gaps['Base']:.1f}",
            "Finetune, l1-sparse: RMIA AUC above Retrain's": f"{above['Finetune']:.0f}, {above['l1-sparse']:.0f}",
            "ReGUn's samples, of a retraining's": f"{100 * samples['ReGUn'] / samples['Retrain']:.0f} %",
        }
        assert {title: table[title][column] for title in expected} == expected, (name, forget)


def test_a_significant_difference_is_paired_over_seeds_and_beyond_the_floor(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(RESULTS.parent / "research")
    compare = importlib.import_module("compare")
    one, other = {0: 5.0, 1: 6.0, 2: 4.5, 3: 9.0}, {2: 2.6, 1: 4.1, 0: 3.0}  # seed 3 has no partner
    theirs = ttest_rel([3.0, 4.1, 2.6], [5.0, 6.0, 4.5])
    found = compare.compared(one, other)
    assert (found.mean, found.p) == pytest.approx((statistics.fmean([-2.0, -1.9, -1.9]), theirs.pvalue))
    assert found.mean + found.half == pytest.approx(theirs.confidence_interval(0.95).high)
    assert compare.significant(found, p=0.04, floor=1.5) == "yes"
    assert compare.significant(found, p=0.06, floor=1.5) == "uncorrected"
    assert compare.significant(found, p=0.04, floor=2.5) == "no", "two retrained models are farther apart"
    assert compare.significant(compare.compared({0: 1.0}, {0: 9.0}), p=1.0, floor=1.0) == "no", "one seed tells nothing"
    assert compare.holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nowhere"], ["nowhere"]),
        (["results/digits", "results/cifar10-small"], ["2", "--overview"]),
        (["results/digits", "--to", "Nobody"], ["--to", "Nobody", "Retrain", "Base"]),
        (["results/digits", "--number", "accuracy"], ["--number", "accuracy", "gap_rftp"]),
        (["results/digits", "--sweep"], ["results/digits", "sweep.csv"]),
    ],
)
def test_a_wrong_comparison_names_what_is_wrong(
    words: list[str], named: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.syspath_prepend(RESULTS.parent / "research")
    monkeypatch.chdir(RESULTS.parent)
    with pytest.raises(SystemExit):
        importlib.import_module("compare").printed(words)
    assert_names(capsys.readouterr().err, *named)


def test_the_pages_of_the_first_try_show_what_its_rows_say(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(RESULTS.parent / "research")
    first_try = importlib.import_module("first_try")
    found = first_try.read(RESULTS / "first-try" / "rows.jsonl")
    costs = first_try.read(RESULTS / "first-try" / "cost" / "rows.jsonl")
    page = (RESULTS.parent / "docs/first_try.md").read_text(encoding="utf-8").splitlines()
    over, every = (text.splitlines() for text in (first_try.overview(found), first_try.cost_table(costs)))
    assert [line for line in over if line not in page] == []
    shown = [line for line in page if re.match(rf"\| ({'|'.join(first_try.USERS)}) \| \S+ \| ", line)]
    assert len(shown) > 40
    assert [line for line in shown if line not in every] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_gaps_are_the_mean_distance_of_four_numbers_run_by_run(folder: Path):
    with (folder / "rows.csv").open(newline="", encoding="utf-8") as file:
        all_rows = list(csv.DictReader(file))
    truth = {(row["forget"], row["seed"]): row for row in all_rows if row["kind"] == "retrain"}
    for row in all_rows:
        if row["kind"] != "retrain" and row["gap_rftp"]:
            own = truth[row["forget"], row["seed"]]
            parts = ("retain_acc", "forget_acc", "test_acc", "rmia_auc")
            gap = statistics.fmean(abs(float(row[name]) - float(own[name])) for name in parts)
            assert float(row["gap_rftp"]) == pytest.approx(gap, abs=1e-6)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_marks_are_leads_beyond_the_noise_floor_among_rivals(folder: Path):
    floors = json.loads((folder / "about.json").read_text(encoding="utf-8"))["floors"]
    study = read_study(str(folder / "study.toml"))
    aside = {row.title for row in study.rows.values() if row.unranked}
    for (forget, request), table in zip(rows(folder).items(), tables(folder), strict=True):
        assert plain(table["noise floor"]["Gap RFTP"]).startswith(f"{floors[forget]['gap_rftp']['mean']:.2f}")
        rivals = {t: float(shown(n["gap_rftp"])[0]) for t, n in request.items() if t not in {"Retrain", "Base", *aside}}
        marked = [title for title, cells in table.items() if cells["Gap RFTP"].startswith("**")]
        if len(rivals) < 2:
            assert not marked
            continue
        (first, least), (_, next_least) = sorted(rivals.items(), key=lambda pair: pair[1])[:2]
        lead = next_least - least - floors[forget]["gap_rftp"]["mean"]
        if abs(lead) > 0.02:  # what rounding leaves
            assert marked == ([first] if lead > 0 else [])


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_results_are_small_whole_and_say_where_they_come_from(folder: Path):
    told = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    assert told["missing"] == []
    assert {"torch", "regun"} <= told["versions"].keys()
    assert {"processor", "instructions"} <= told["machine"].keys()
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_000_000


def test_the_summary_repeats_the_first_try():
    docs = RESULTS.parent / "docs"
    row = re.search(
        r"^\| `auto` with `recipe=` and a table \| (\d+) \|[^|]+\| (\d+ of \d+) \|",
        (docs / "first_try.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    summary = " ".join((docs / "results.md").read_text(encoding="utf-8").split())
    assert f"within the noise floor on {row[2]} models" in summary
