"""A study's table as text: what people read, what machines parse back, and text of others that must stay text."""

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_table import FLOOR, entry, judged, run, study

from regun.errors import RegunError
from regun.study.export import HEAD
from regun.study.formats import FORMATS, markdown_text, plain, render
from regun.study.latex import latex_text
from regun.study.paper import paper_numbers
from regun.study.results import Entry, Results
from regun.study.table import COLUMNS, Table, make_table

NASTY = r"""A & B_50% #1 {x} $y$ ~ ^ \end{tabular} | [z] *q* <b> "é ß λ 中 -- `' """ + "\n\n\x1b[31m\t"
nasty = st.text(
    st.sampled_from(list("\\{}&%$#_^~|[]*<>\"'`-!?a1 é中±\n\t\x1b@=+")) | st.characters(codec="utf-8"), max_size=30
)


def several(title: str = "Mine", name: str = "toy") -> Results:
    tests = {"regun": (89.0, 91.0, 90.6), "salun": (85.0, 86.0, 87.0), "finetune": (80.0, 81.0, 82.0)}
    entries = [entry(n, *(judged({"test_acc": v, "rmia_auc": v - 38}) for v in values)) for n, values in tests.items()]
    lost = Entry("mine", title, "method", (run(0, judged({})), run(1, None, "loss was nan"), run(2, judged({}))))
    return study(*entries, lost, seeds=3, name=name)


def one(title: str = "Mine") -> Results:
    return study(entry("regun", judged({"test_acc": 89.0})), entry("mine", judged({"test_acc": 80.0}), title=title))


def with_paper(results: Results) -> Table:
    return make_table(results, paper=paper_numbers("resnet18-cifar10-small"))


TABLES = {
    "several": make_table(several()),
    "one": make_table(one()),
    "nasty": make_table(several(NASTY)),
    "paper": with_paper(several()),
    "nothing": make_table(Results("s", "S", {}, (0,), ())),
}


def test_terminal_table_of_several_seeds():
    shown = render(make_table(several())).splitlines()
    assert shown[:2] == ["A toy study", ""]
    assert shown[2] == "Forget 10 %: 100 forgotten, 900 retained, 1,000 test"
    cells = [re.split(r"\s{2,}", line.strip()) for line in shown]
    assert cells[4][:4] == ["Seeds", "Retain acc.", "Forget acc.", "Test acc."]
    assert cells[4][-3:] == ["In noise", "Steps", "Seconds"]
    by_name = {line[0]: line[1:] for line in cells if len(line) > 5}
    assert by_name["Retrain"][:4] == ["3/3", "99.00 ± 0.00", "90.00 ± 0.00", "90.00 ± 0.00"]
    assert by_name["noise floor"][0] == "0.50 (1.00)"
    assert by_name["Regun"][3] == "90.20 ± 1.06**"
    assert by_name["Salun"][3] == "86.00 ± 1.00*"
    assert by_name["Mine †"][0] == "2/3"
    assert "† Mine, forget 10 %, seed 1: diverged: loss was nan (not in the means)." in shown


def test_terminal_table_of_one_seed_shows_intervals():
    shown = render(make_table(one()))
    assert "89.00 [88.0–90.0]" in shown
    assert "Seeds" not in shown
    assert "One seed; in brackets the 95 % interval over examples." in shown
    assert re.search(r"^Base .* no +40 +2\.0$", shown, re.MULTILINE)
    assert re.search(r"^Regun .* yes +40 +2\.0$", shown, re.MULTILINE)


def test_missing_parts_are_named():
    results = several()
    missing = tuple(f"part {k}" for k in range(10))
    shown = render(make_table(Results("s", "S", {}, (0, 1, 2), results.blocks, missing)))
    assert "Not made yet, or failed (10): part 0; part 1;" in shown
    assert "and 2 more." in shown


@pytest.mark.parametrize("name", ["several", "one", "paper"])
def test_tables_fit_a_page_unless_wide(name: str):
    for form in ("terminal", "markdown"):
        narrow, wide = (render(TABLES[name], form, wide=w) for w in (False, True))
        assert max(len(line) for line in narrow.splitlines() if not line.startswith("- ")) <= 155
        assert "Test div." not in narrow
        assert all(head in wide for head in ("Test div.", "SMIA AUC", "Backward", "nats x 100"))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", TABLES)
def test_every_format_of_every_table_ends_in_one_line(name: str, form: str):
    shown = render(TABLES[name], form)
    assert shown.endswith("\n") or not TABLES[name].sections
    assert "-0.00" not in shown
    assert "\x1b" not in shown or form == "csv"


def test_a_format_that_is_not_there():
    with pytest.raises(RegunError, match=r"unknown table format 'latx'. Did you mean 'latex'\? Known: csv, json"):
        render(TABLES["one"], "latx")


def test_markdown_rows_have_as_many_cells_as_the_head():
    for table in TABLES.values():
        rows = [line for line in render(table, "markdown").splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in rows}) <= 1
    shown = render(TABLES["several"], "markdown")
    assert "| **90.20** ± 1.06 |" in shown
    assert "| *86.00* ± 1.00 |" in shown


@given(nasty)
def test_markdown_text_has_no_markup_left(text: str):
    made = markdown_text(text)
    assert re.sub(r"\\(.)", r"\1", made) == plain(text)
    assert not re.search(r"[`*_{}\[\]<>#|~$&!]", re.sub(r"\\.", "", made))
    assert "\n" not in made


@given(nasty)
def test_terminal_text_holds_no_control_characters(text: str):
    assert all(c.isprintable() for c in plain(text))


@given(nasty)
def test_latex_text_is_ascii_balanced_and_escaped(text: str):
    made = latex_text(text)
    assert made.isascii()
    assert "\n" not in made
    assert balanced(made)
    assert made.count("$") % 2 == made.count("\\$") % 2
    rest = re.sub(r"\\[A-Za-z]+|\\[^A-Za-z]|\$\\[a-zA-Z]+\$", "", re.sub(r"\$\\[a-zA-Z]+\$", "", made))
    assert not re.search(r"[&%$#_^~\\<>|\"]", rest)
    assert not made.startswith(("[", "*"))


def test_latex_text_keeps_what_can_be_said():
    assert latex_text("ℓ1 & 50 %: λ é ß") == r"$\ell$1 \& 50 \%: $\lambda$ \'{e} \ss{}"
    assert latex_text("中--") == "{[}U+4E2D{]}-{}-"


def balanced(text: str) -> bool:
    depth = 0
    for sign in re.findall(r"\\.|[{}]", text, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth < 0:
            return False
    return depth == 0


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_latex_is_well_formed(name: str, wide: bool):
    shown = render(TABLES[name], "latex-document", wide)
    assert shown.isascii()
    assert balanced(shown)
    open_: list[str] = []
    for what, where in re.findall(r"(?<!\\)\\(begin|end)\{(\w+\*?)\}", shown):
        if what == "begin":
            open_.append(where)
        else:
            assert open_.pop() == where
    assert open_ == []
    for body in re.findall(r"\\toprule\n(.*?)\\bottomrule", shown, re.DOTALL):
        rows = [line for line in body.splitlines() if line != r"\midrule"]
        assert all(line.endswith(r" \\") for line in rows)
        columns = len(re.findall(r"\{@\{\}(l(r+))@\{\}\}", shown)[0][0])
        assert {len(re.findall(r"(?<!\\)&", line)) for line in rows} == {columns - 1}


def test_latex_marks():
    shown = render(TABLES["several"], "latex")
    assert r"\textbf{90.20} {\tiny $\pm$ 1.06}" in shown
    assert r"\underline{86.00} {\tiny $\pm$ 1.00}" in shown
    assert r"Mine$^\dagger$ & 2/3" in shown


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here; install texlive-latex-base to run it")
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_latex_compiles(name: str, wide: bool, tmp_path: Path):
    (tmp_path / "table.tex").write_text(render(TABLES[name], "latex-document", wide), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert (tmp_path / "table.pdf").exists()
    assert "Overfull" not in done.stdout


def parsed(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def number(text: str) -> float | None:
    return float(text) if text else None


@pytest.mark.parametrize("name", TABLES)
def test_csv_gives_back_the_same_numbers(name: str):
    table = TABLES[name]
    rows = parsed(render(table, "csv"))
    expected = [(s, r, column) for s in table.sections for r in s.rows for column in table.columns]
    assert len(rows) == len(expected)
    for read, (section, r, column) in zip(rows, expected, strict=True):
        assert tuple(read) == HEAD
        assert (read["forget"], read["entry"], read["metric"]) == (section.forget, r.name, column)
        cell, floor, paper = r.cells[column], section.floor[column], r.paper.get(column)
        shown = [number(read[key]) for key in ("mean", "std", "low", "high", "retrain_mean", "distance")]
        assert shown == [cell.mean, cell.std, cell.low, cell.high, cell.retrain, cell.distance]
        assert [number(read[k]) for k in ("floor_mean", "floor_largest")] == [floor.mean, floor.largest]
        assert (int(read["n"]), int(read["seeds"])) == (len(cell.seen), len(table.seeds))
        assert number(read["steps"]) == r.costs["steps"]
        assert number(read["paper_mean"]) == (paper.mean if paper else None)
        assert (read["mark"] or None) == cell.mark


@given(title=nasty.filter(bool))
def test_csv_cells_are_never_formulas(title: str):
    for read in parsed(render(make_table(one(title)), "csv")):
        assert read["title"] in (title, "'" + title) or read["entry"] != "mine"
        assert not read["title"].lstrip().startswith(("=", "+", "-", "@"))


def test_csv_of_a_value_that_is_not_there_is_empty():
    results = study(Entry("none", "None", "method", (run(0, None, "lost"),)))
    rows = [read for read in parsed(render(make_table(results), "csv")) if read["entry"] == "none"]
    assert len(rows) == len(COLUMNS)
    assert all((read["mean"], read["n"], read["diverged_runs"]) == ("", "0", "1") for read in rows)


@pytest.mark.parametrize("name", TABLES)
def test_json_gives_back_the_same_numbers(name: str):
    table, read = TABLES[name], json.loads(render(TABLES[name], "json"))
    assert [column["name"] for column in read["columns"]] == list(table.columns)
    for section, got in zip(table.sections, read["sections"], strict=True):
        for r, had in zip(section.rows, got["rows"], strict=True):
            assert had["title"] == r.title
            assert had["finished"] == {"n": len(r.seeds), "of": len(table.seeds), "seeds": list(r.seeds)}
            for column, cell in r.cells.items():
                back = had["cells"][column]
                assert (back["mean"], back["std"], back["mark"]) == (cell.mean, cell.std, cell.mark)
                assert [(s["seed"], s["value"], s["low"]) for s in back["seeds"]] == [
                    (s.seed, s.value, s.low) for s in cell.seen
                ]


def test_json_holds_every_seed_floor_verdict_and_reason():
    read = json.loads(render(TABLES["several"], "json"))
    rows = {r["name"]: r for r in read["sections"][0]["rows"]}
    assert rows["mine"]["diverged"] == [{"seed": 1, "why": "loss was nan (not in the means)"}]
    assert [r["judged"] for r in rows["mine"]["runs"]] == [True, False, True]
    assert rows["regun"]["runs"][0]["settings"] == {"lr": 0.1}
    assert rows["regun"]["verdict"] == "indistinguishable in 3 of 3 seeds"
    seen = rows["regun"]["cells"]["test_acc"]["seeds"][0]
    assert seen["retrain"] == 90.0
    assert (seen["gap"]["value"], seen["gap"]["floor_mean"], seen["gap"]["floor_largest"]) == (1.0, *FLOOR[:2])


def test_json_takes_settings_and_notes_as_they_come():
    odd = Entry("odd", "Odd", "method", (run(0, judged({}), seconds=float("inf")),))
    read = json.loads(render(make_table(study(odd)), "json"))
    assert read["sections"][0]["rows"][-1]["costs"]["seconds"] == "inf"
