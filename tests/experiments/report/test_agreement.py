"""One set of results, every format: the same means, deviations, floors, marks and verdicts, number for number."""

import csv
import io
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser

import pytest

from expect import assert_names
from regun.experiments.report.formats import render
from regun.experiments.report.page import build_report
from regun.experiments.study.results import Block, Results
from report_samples import block, evaluated, found, hand_made, judged, method, results, run, study

COLUMNS = ("verdict", "gap_rftp", "gap_tp", "test_acc")
WORDS = {"passed": "passed", "inconclusive": "inconclusive", "failed": "failed"}
TESTS = {"a": (89.0, 91.0, 90.6), "b": (85.0, 86.0, 87.0), "c": (80.0, 81.0, 82.0)}


def seeds() -> Results:
    """Three seeds whose noise floors differ, and a method that lacks one of them."""
    floors = ((0.3, 0.9, 1.4), (0.5, 1.3, 1.2), (0.7, 0.8, 2.0))
    rows = [
        found(n, *(judged({"test_acc": v}, floor=f) for v, f in zip(values, floors, strict=True)))
        for n, values in TESTS.items()
    ]
    return study(*rows, found("few", judged(floor=floors[0]), planned=3), seeds=3)


def repeats(seeds: int) -> Results:
    rows = [
        found(n, *(judged({"test_acc": v + 2 * s}) for s in range(seeds) for v in values), repeats=3)
        for n, values in TESTS.items()
    ]
    return study(*rows, seeds=seeds, repeats=3)


def tied() -> Results:
    return study(found("a", judged({"test_acc": 89.0})), found("b", judged({"test_acc": 88.8})))


SAMPLES = {
    "seeds": seeds(),
    "repeats": repeats(1),
    "seeds and repeats": repeats(2),
    "tied": tied(),
    "evaluated": evaluated()[0],
    "nobody is complete": study(*(found(n, judged({"test_acc": v[0]}), planned=3) for n, v in TESTS.items())),
    "no floor": results(block(method("A", 1.0, floor=None), method("B", 9.0, floor=None), floor=None)),
}


@dataclass(frozen=True)
class Shown:
    """A cell as a format shows it."""

    value: str
    behind: str = ""
    mark: str | None = None


def expected(whole: Results, made: Block, row: str, column: str) -> Shown:
    """The cell by the results alone, in the words and digits that all formats share."""
    if row == "floor":
        floor = made.floors.get(column)
        return Shown(f"{floor.mean:.2f}", f"({floor.largest:.2f})") if floor else Shown("")
    one = made.row(row)
    if column == "verdict":
        given = {WORDS[name]: n for name, n in one.verdicts.items() if n}
        counts = [word if sum(given.values()) == 1 else f"{n} {word}" for word, n in given.items()]
        return Shown(", ".join(counts))
    cell = one.cells.get(column)
    if cell is None:
        return Shown("")
    stds = [cell.std, cell.repeat_std] if len(whole.seeds) > 1 else [cell.repeat_std]
    behind = " / ".join(f"{std:.2f}" for std in stds if std is not None)
    if behind:
        behind = f"± {behind}"
    elif len(whole.seeds) == 1 and cell.low is not None:
        behind = f"[{cell.low:.1f}–{cell.high:.1f}]".replace("100.0", "100")
    return Shown(f"{cell.mean:.2f}", behind, made.rankings[column].marks.get(row))


def of_terminal(text: str, names: dict[str, str], columns: list[str]) -> dict[tuple[str, str], Shown]:
    """Cells by where their heads begin or end."""
    lines = text.splitlines()
    head = next(k for k, line in enumerate(lines) if line.startswith("---")) - 1
    rows = [re.split(r"\s{2,}", line) for line in lines[head + 2 :] if "  " in line]
    shown: dict[tuple[str, str], Shown] = {}
    for title, *cells in rows:
        if title.removesuffix(" †") in names and len(cells) == len(columns):
            for column, cell in zip(columns, cells, strict=True):
                mark = "best" if cell.endswith("**") else "second" if cell.endswith("*") else None
                value, _, behind = cell.rstrip("*").partition(" ") if column != "verdict" else (cell, "", "")
                shown[names[title.removesuffix(" †")], column] = Shown(value.replace("-", ""), behind, mark)
    return shown


def of_markdown(text: str, names: dict[str, str], columns: list[str]) -> dict[tuple[str, str], Shown]:
    shown: dict[tuple[str, str], Shown] = {}
    for line in text.splitlines():
        title, *cells = [part.strip() for part in line.strip("|").split("|")]
        if line.startswith("|") and title.strip("*").removesuffix(" †") in names:
            for column, cell in zip(columns, cells, strict=True):
                value, _, behind = cell.partition(" ") if column != "verdict" else (cell, "", "")
                mark = "best" if value.startswith("**") else "second" if value.startswith("*") else None
                name = names[title.strip("*").removesuffix(" †")]
                shown[name, column] = Shown(value.strip("*").replace("-", ""), behind, mark)
    return shown


def of_latex(text: str, names: dict[str, str], columns: list[str]) -> dict[tuple[str, str], Shown]:
    shown: dict[tuple[str, str], Shown] = {}
    for line in text.splitlines():
        title, *cells = [part.strip() for part in line.removesuffix(r" \\").split(" & ")]
        if title.removesuffix(r"$^\dagger$") in names and len(cells) == len(columns):
            for column, cell in zip(columns, cells, strict=True):
                value, _, behind = cell.partition(r" {\tiny ")
                mark = "best" if "textbf" in value else "second" if "underline" in value else None
                value = re.sub(r"\\\w+\{(.*)\}", r"\1", value).replace("-", "")
                behind = behind.removesuffix("}").replace(r"$\pm$", "±").replace(r"\textendash{}", "–")
                behind = behind.replace("{[}", "[").replace("{]}", "]")
                shown[names[title.removesuffix(r"$^\dagger$")], column] = Shown(value, behind, mark)
    return shown


class Tables(HTMLParser):
    """The sortable table of a page: heads, and of every row its cells with their raw numbers."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.heads: list[str] = []
        self.rows: dict[str, list[tuple[Shown, float | None]]] = {}
        self.parts: dict[str, str] | None = None
        self.row = self.into = ""
        self.feed(page[page.index('<table class="sortable">') :].split("</table>")[0])

    def handle_starttag(self, tag: str, attrs) -> None:
        given = dict(attrs)
        if tag == "tr":
            self.row = given.get("data-name", "")
        elif tag in ("td", "th"):
            self.parts, self.into = {"raw": given.get("data-v", "")}, "head"
        elif self.parts is not None and tag in ("span", "small"):
            classes = (given.get("class") or "").split()
            self.into = "behind" if tag == "small" else "value" if {"v", "chip", "name"} & set(classes) else "skip"
            for mark in {"best", "second"} & set(classes):
                self.parts["mark"] = mark

    def handle_data(self, data: str) -> None:
        if self.parts is not None:
            self.parts[self.into] = self.parts.get(self.into, "") + data.strip()

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("td", "th") or self.parts is None:
            return
        if not self.row:
            self.heads.append(self.parts.get("head", ""))
        else:
            cell = Shown(self.parts.get("value", ""), self.parts.get("behind", ""), self.parts.get("mark"))
            self.rows.setdefault(self.row, []).append((cell, float(self.parts["raw"]) if self.parts["raw"] else None))
        self.parts = None


@pytest.mark.parametrize("name", SAMPLES)
def test_formats_for_people_show_what_the_results_hold(name: str) -> None:
    whole = SAMPLES[name]
    (made,) = whole.blocks
    columns = [column for column in COLUMNS if column in whole.metrics or (column == "verdict" and made.floors)]
    columns = [*columns[1:], "verdict"] if "verdict" in columns else columns
    names = {row.title: row.name for row in made.rows} | {"noise floor": "floor"}
    shown = {form: render(whole, form, columns=columns) for form in ("terminal", "markdown", "latex")}
    readers = {"terminal": of_terminal, "markdown": of_markdown, "latex": of_latex}
    for form, read in readers.items():
        cells = read(shown[form], names, columns)
        rows = {row for row, _ in cells}
        assert rows >= {row.name for row in made.rows if row.judged}
        for (row, column), cell in cells.items():
            assert cell == expected(whole, made, row, column), (form, row, column)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_shows_what_the_results_hold(name: str) -> None:
    whole = SAMPLES[name]
    (made,) = whole.blocks
    page = Tables(build_report(whole))
    places = {"verdict": "Verdict", "gap_rftp": "Gap RFTP", "gap_tp": "Gap TP", "test_acc": "Test acc."}
    assert set(page.rows) == {row.name for row in made.rows} | ({"floor"} if made.floors else set())
    for column, head in places.items():
        if head not in page.heads:
            assert column not in whole.metrics or column == "verdict"
            continue
        for row, cells in page.rows.items():
            cell, raw = cells[page.heads.index(head)]
            assert cell == expected(whole, made, row, column), (row, column)
            if column != "verdict" and row != "floor" and column in made.row(row).cells:
                assert raw == made.row(row).cells[column].mean


@pytest.mark.parametrize("name", SAMPLES)
def test_formats_for_machines_hold_what_the_results_hold(name: str) -> None:
    whole = SAMPLES[name]
    (made,) = whole.blocks
    lines = list(csv.DictReader(io.StringIO(render(whole, "csv"), newline="")))
    (read,) = json.loads(render(whole, "json"))["requests"]
    kept = {row["name"]: row for row in read["rows"]}
    for line in lines:
        row, metric = made.row(line["method"]), line["metric"]
        cell, back = row.cells.get(metric), kept[row.name]["cells"].get(metric)
        if cell is None:
            assert (line["mean"], back) == ("", None)
            continue
        assert float(line["mean"]) == back["mean"] == cell.mean
        assert (line["mark"] or None) == back["mark"] == made.rankings[metric].marks.get(row.name)
        assert {v: int(line[v.replace(" ", "_")]) for v in cell.verdicts} == back["verdicts"] == cell.verdicts
        floor, noise = made.floors.get(metric), read["floors"].get(metric)
        if floor is not None:
            assert [float(line[f"floor_{part}"]) for part in ("mean", "largest", "limit")] == [
                *(noise[part] for part in ("mean", "largest", "limit"))
            ]
            assert (noise["mean"], noise["largest"], noise["limit"]) == (floor.mean, floor.largest, floor.limit)
    assert {name: row["verdicts"] for name, row in kept.items()} == {r.name: dict(r.verdicts) for r in made.rows}


class TestOnceTheyDisagreed:
    """What table and report used to say differently about one study."""

    def noisy(self) -> Results:
        floors = ((3.0, 6.45, 7.0), (4.0, 8.83, 8.85))
        rows = [
            found(name, *(hand_made(gap, floor=f) for f in floors), title=name.upper())
            for name, gap in (("a", 2.0), ("b", 20.0))
        ]
        return results(block(*rows, base=None, seeds=2), seeds=(0, 1))

    def test_the_largest_noise_is_that_of_any_seed_in_table_and_report(self) -> None:
        table, page = render(self.noisy()), build_report(self.noisy())
        assert "3.50 (8.83)" in table
        assert "8.83" in page
        assert "7.64" not in table + page  # the mean of the two seeds' largest

    def test_the_limit_in_the_csv_is_never_below_the_largest(self) -> None:
        for line in csv.DictReader(io.StringIO(render(self.noisy(), "csv"), newline="")):
            assert float(line["floor_limit"]) >= float(line["floor_largest"]) == 8.83

    def test_the_headline_crowns_nobody_whom_the_table_does_not_rank(self) -> None:
        rows = method("Few", 0.1, planned=2), method("A", 3.0, 3.0), method("B", 9.0, 9.0)
        whole = results(block(*rows, seeds=2), seeds=(0, 1))
        lead = re.search(r'<p class="lead">(.*?)</p>', build_report(whole), re.DOTALL)
        assert lead is not None
        assert_names(lead.group(1), "A", "3.00", "closest")
        assert "Few" not in lead.group(1)
        assert re.search(r"^A .*3\.00 ± 0\.00\*\*", render(whole), re.MULTILINE)
        assert not re.search(r"^Few .*\*", render(whole), re.MULTILINE)

    def test_marks_and_footnote_agree_where_every_row_is_incomplete(self) -> None:
        lost = run(None, 1, diverged="nan")
        rows = [found(n, hand_made(g), lost) for n, g in (("a", 1.0), ("b", 9.0))]
        whole = results(block(*rows, seeds=2), seeds=(0, 1))
        assert "No mark in Gap RFTP" in render(whole)
        for form in ("terminal", "markdown", "latex"):
            assert "closest to Retrain" not in " ".join(render(whole, form).split())
        page = build_report(whole)
        (lead,) = re.findall(r'<p class="lead">(.*?)</p>', page, re.DOTALL)
        assert "closest" not in lead
        assert 'class="v best"' not in page
