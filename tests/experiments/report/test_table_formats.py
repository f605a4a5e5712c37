"""A study's tables as text: what people read, what machines parse back, and text of others that must stay text."""

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expect import error
from regun.errors import RegunError
from regun.experiments.report.export import HEAD
from regun.experiments.report.formats import FORMATS, render
from regun.experiments.report.latex import latex_text
from regun.experiments.study.paper import paper_numbers
from regun.experiments.study.results import Results
from regun.render.tables import csv_of, markdown_text, one_line, table
from report_samples import FLOOR, evaluated, found, judged, results, run, study

NASTY = r"""A & B_50% #1 {x} $y$ ~ ^ \end{tabular} | [z] *q* <b> "é ß λ 中 -- `' """ + "\n\n\x1b[31m\t"
nasty = st.text(
    st.sampled_from(list("\\{}&%$#_^~|[]*<>\"'`-!?a1 é中±\n\t\x1b@=+")) | st.characters(codec="utf-8"), max_size=30
)
TESTS = {"regun": (89.0, 91.0, 90.6), "salun": (85.0, 86.0, 87.0), "finetune": (80.0, 81.0, 82.0)}


def several(title: str = "Mine", **more: Any) -> Results:
    rows = [found(n, *(judged({"test_acc": v, "rmia_auc": v - 38}) for v in values)) for n, values in TESTS.items()]
    lost = found("mine", judged(), run(None, 1, diverged="loss was nan"), judged(), title=title)
    return study(*rows, lost, seeds=3, **more)


def repeated(seeds: int = 1) -> Results:
    """Three unlearning runs of each trained model."""
    rows = [
        found(n, *(judged({"test_acc": v + s}) for s in range(seeds) for v in values), repeats=3)
        for n, values in TESTS.items()
    ]
    return study(*rows, seeds=seeds, repeats=3)


def one(title: str = "Mine") -> Results:
    return study(found("regun", judged({"test_acc": 89.0})), found("mine", judged({"test_acc": 80.0}), title=title))


STUDIES = {
    "several": several(),
    "one": one(),
    "repeated": repeated(),
    "repeated seeds": repeated(2),
    "requests": several(forget=("0.01", "0.1", "0.5")),
    "nasty": several(NASTY),
    "paper": several(paper=paper_numbers("resnet18-cifar10-small")),
    "nothing": results(),
}
LAYOUTS = ("requests", "fractions")


def test_numbers_stand_below_numbers_though_some_are_missing() -> None:
    lines = table(["name", "value", "ends"], [["a", "100.00", ""], ["bb", "", "1.0 to 2.0"], ["c", "9.50", "none"]])
    assert lines.splitlines() == [
        "name   value  ends",
        "------------------------",
        "a     100.00",
        "bb            1.0 to 2.0",
        "c       9.50  none",
    ]


def cells(shown: str) -> dict[str, list[str]]:
    """The rows of a terminal table by their first cell."""
    split = [re.split(r"\s{2,}", line.strip()) for line in shown.splitlines()]
    return {line[0]: line[1:] for line in split if len(line) > 3}


def test_terminal_table_of_several_seeds():
    shown = render(several())
    assert shown.splitlines()[:3] == ["A toy study", "", "Forget 10 %: 100 forgotten, 900 retained, 1,000 test"]
    by_name = cells(shown)
    assert by_name["Runs"][:3] == ["Retain acc.", "Forget acc.", "Test acc."]
    assert by_name["Runs"][-3:] == ["Verdict", "Steps", "Seconds"]
    assert by_name["Retrain"][:4] == ["3/3", "99.00 ± 0.00", "90.00 ± 0.00", "90.00 ± 0.00"]
    assert by_name["noise floor"][0] == "0.50 (1.00)"
    assert by_name["Regun"][3] == "90.20 ± 1.06**"
    assert by_name["Salun"][3] == "86.00 ± 1.00*"
    assert by_name["Salun"][-3] == "1 passed, 1 inconclusive, 1 failed"
    assert by_name["Mine †"][0] == "2/3"
    assert "† Forget 10 %: Mine diverged in 1 of 3 runs (seed 1): loss was nan." in shown


def test_terminal_table_of_one_seed_shows_intervals():
    shown = render(one())
    assert "89.00 [88.0–90.0]" in shown
    assert "Runs" not in shown
    assert "95 % interval over examples" in shown
    assert re.search(r"^Base .* failed +90 +7\.6$", shown, re.MULTILINE)
    assert re.search(r"^Regun .* passed +90 +7\.6$", shown, re.MULTILINE)


def test_terminal_table_of_repeats_shows_their_deviation_and_says_over_what():
    by_name, shown = cells(render(repeated())), " ".join(render(repeated()).split())
    assert by_name["Regun"][2] == "90.20 ± 1.06**"
    assert by_name["Regun"][-3] == "3 passed"
    assert by_name["Retrain"][2] == "90.00 [89.0–91.0]"
    assert "standard deviation over 3 unlearning runs of one trained model" in shown
    by_name, shown = cells(render(repeated(2))), " ".join(render(repeated(2)).split())
    assert by_name["Regun"][2] == "90.70 ± 0.71 / 1.06**"
    assert by_name["Base"][2] == "90.00 ± 0.00"
    assert "standard deviation over 2 seeds / over 3 unlearning runs per trained model." in shown


def test_terminal_table_side_by_side():
    shown = render(STUDIES["requests"], layout="fractions").splitlines()
    assert shown[2] == "Forget 1 %, 10 % and 50 %"
    assert re.split(r"\s{2,}", shown[3].strip()) == ["Forget 1 %", "Forget 10 %", "Forget 50 %"]
    heads = [m.start() for m in re.finditer("Test acc.", shown[4])]
    assert [shown[3].index(f"Forget {label} %") for label in ("1", "10", "50")] == heads
    assert cells("\n".join(shown))["Regun"] == ["90.20 ± 1.06**", "52.20 ± 1.06", "0.77 ± 0.25**"] * 3


def test_missing_parts_are_named():
    shown = render(several(missing=tuple(f"part {k}" for k in range(10))))
    assert "(10): part 0; part 1;" in shown
    assert "and 2 more." in shown


@pytest.mark.parametrize("name", ["several", "one", "repeated", "paper"])
def test_tables_fit_a_page_unless_wide(name: str):
    for form in ("terminal", "markdown"):
        narrow, wide = (render(STUDIES[name], form, wide=w) for w in (False, True))
        assert max(len(line) for line in narrow.splitlines() if not line.startswith("- ")) <= 168
        assert "Test div." not in narrow
        assert all(head in wide for head in ("Test div.", "SMIA AUC", "Backward", "nats x 100"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", STUDIES)
def test_every_format_of_every_study_ends_in_one_line(name: str, form: str, layout: str):
    shown = render(STUDIES[name], form, layout=layout)
    assert shown.endswith("\n") or not STUDIES[name].blocks
    assert "-0.00" not in shown
    assert "\x1b" not in shown or form == "csv"


def test_a_format_that_is_not_there():
    with error(RegunError, "latx", *FORMATS):
        render(STUDIES["one"], "latx")


def test_chosen_columns_are_all_there_is():
    shown = cells(render(several(), columns=["gap_tp", "verdict", "seconds"]))
    assert shown["Regun"] == ["1.53 ± 0.50**", "3 passed", "7.6"]
    late = study(found("late", judged(), planned=3))
    assert "Late (2 of 3)." in render(late, columns=["gap_tp"])
    read = parsed(render(several(), "csv", columns=["gap_tp", "seconds"]))
    assert {line["metric"] for line in read} == {"gap_tp"}
    assert [m["name"] for m in json.loads(render(several(), "json", columns=["gap_tp"]))["metrics"]] == ["gap_tp"]
    with error(RegunError, "gap_t", "gap_tp"):
        render(several(), "csv", columns=["gap_t"])


def test_a_number_of_a_study_of_its_own_stands_behind_the_papers():
    whole, _ = evaluated()
    heads = render(replace(whole, columns=(*whole.columns, "lira_auc")), "markdown").splitlines()[4]
    assert [head.strip() for head in heads.split("|")][-5:-1] == ["Offline LiRA AUC", "Verdict", "Steps", "Seconds"]


def test_markdown_rows_have_as_many_cells_as_the_head():
    for whole in STUDIES.values():
        for layout in LAYOUTS:
            rows = [line for line in render(whole, "markdown", layout=layout).splitlines() if line.startswith("|")]
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in rows}) <= 1
    shown = render(STUDIES["several"], "markdown")
    assert "| **90.20** ± 1.06 |" in shown
    assert "| *86.00* ± 1.00 |" in shown
    assert "| Forget 10 %: Gap RFTP |" in render(STUDIES["requests"], "markdown", layout="fractions")


@given(nasty)
def test_markdown_text_has_no_markup_left(text: str):
    made = markdown_text(text)
    assert re.sub(r"\\(.)", r"\1", made) == one_line(text)
    assert not re.search(r"[`*_{}\[\]<>#|~$&!]", re.sub(r"\\.", "", made))
    assert "\n" not in made


@given(nasty)
def test_terminal_text_holds_no_control_characters(text: str):
    assert all(c.isprintable() for c in one_line(text))


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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", STUDIES)
def test_latex_is_well_formed(name: str, wide: bool, layout: str):
    shown = render(STUDIES[name], "latex-document", wide=wide, layout=layout)
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
        rows = [line for line in body.splitlines() if not line.startswith((r"\midrule", r"\cmidrule"))]
        assert all(line.endswith(r" \\") for line in rows)
        columns = len(re.findall(r"\{@\{\}(l(r+))@\{\}\}", shown)[0][0])
        assert {_columns_of(line) for line in rows} == {columns}


def _columns_of(line: str) -> int:
    spans = [int(span) - 1 for span in re.findall(r"\\multicolumn\{(\d+)\}", line)]
    return 1 + len(re.findall(r"(?<!\\)&", line)) + sum(spans)


def test_the_latex_note_has_at_most_two_sentences():
    for name, whole in STUDIES.items():
        for note in re.findall(r"\\parbox\{\\linewidth\}\{(.*)\}\n\\end\{table\}", render(whole, "latex", wide=True)):
            assert len(re.findall(r"\.(?:\s|$)", note)) <= 2, (name, note)


def test_latex_marks_and_groups():
    shown = render(STUDIES["several"], "latex")
    assert r"\textbf{90.20} {\tiny $\pm$ 1.06}" in shown
    assert r"\underline{86.00} {\tiny $\pm$ 1.00}" in shown
    assert r"Mine$^\dagger$ & 2/3" in shown
    beside = render(STUDIES["requests"], "latex", layout="fractions")
    assert r"& \multicolumn{3}{c}{Forget 1 \%} & \multicolumn{3}{c}{Forget 10 \%}" in beside
    assert r"\cmidrule(lr){2-4} \cmidrule(lr){5-7} \cmidrule(lr){8-10}" in beside


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here; install texlive-latex-base to run it")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", STUDIES)
def test_latex_compiles(name: str, wide: bool, layout: str, tmp_path: Path):
    text = render(STUDIES[name], "latex-document", wide=wide, layout=layout)
    (tmp_path / "table.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert (tmp_path / "table.pdf").exists()
    assert "Overfull" not in done.stdout


def parsed(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def number(text: str) -> float | None:
    return float(text) if text else None


@pytest.mark.parametrize("name", STUDIES)
def test_csv_gives_back_the_same_numbers(name: str):
    whole = STUDIES[name]
    rows = parsed(render(whole, "csv"))
    expected = [(block, row, metric) for block in whole.blocks for row in block.rows for metric in whole.metrics]
    assert len(rows) == len(expected)
    for read, (block, row, metric) in zip(rows, expected, strict=True):
        assert tuple(read) == HEAD
        assert (read["forget"], read["method"], read["metric"]) == (block.forget, row.name, metric)
        cell, floor = row.cells[metric], block.floors[metric]
        paper = whole.printed(block.forget, row.name, metric)
        shown = [number(read[key]) for key in ("mean", "std", "repeat_std", "low", "high", "retrain_mean", "distance")]
        assert shown == [cell.mean, cell.std, cell.repeat_std, cell.low, cell.high, cell.retrain, cell.distance]
        noise = [number(read[k]) for k in ("floor_mean", "floor_largest", "floor_limit")]
        assert noise == [floor.mean, floor.largest, floor.limit]
        assert (int(read["runs"]), int(read["planned"])) == (len(cell.by_run), row.planned)
        assert number(read["steps"]) == row.costs["steps"]
        assert number(read["paper_mean"]) == (paper.mean if paper else None)
        assert (read["mark"] or None) == block.rankings[metric].marks.get(row.name)


@given(title=nasty.filter(bool))
def test_csv_cells_are_never_formulas(title: str):
    for read in parsed(render(one(title), "csv")) + parsed(csv_of(one(title).rows())):
        assert read["title"] in (title, "'" + title) or read["method"] != "mine"
        assert not read["title"].lstrip().startswith(("=", "+", "-", "@"))


def test_csv_of_a_value_that_is_not_there_is_empty():
    whole = study(found("none", run(None, diverged="lost")))
    rows = [read for read in parsed(render(whole, "csv")) if read["method"] == "none"]
    assert len(rows) == len(whole.metrics)
    assert all((read["mean"], read["runs"], read["diverged_runs"]) == ("", "0", "1") for read in rows)


def test_rows_are_one_a_run_with_every_number():
    whole = STUDIES["repeated seeds"]
    rows = parsed(csv_of(whole.rows()))
    assert len(rows) == 2 + 2 + 3 * 6
    mine = [(read["seed"], read["repeat"], float(read["test_acc"])) for read in rows if read["method"] == "regun"]
    assert mine == [(str(s), str(r), v + s) for s in range(2) for r, v in enumerate(TESTS["regun"])]
    assert set(whole.metrics) < set(rows[0])


@pytest.mark.parametrize("name", STUDIES)
def test_json_gives_back_the_same_numbers(name: str):
    whole, read = STUDIES[name], json.loads(render(STUDIES[name], "json"))
    assert [metric["name"] for metric in read["metrics"]] == list(whole.metrics)
    for block, got in zip(whole.blocks, read["requests"], strict=True):
        for row, had in zip(block.rows, got["rows"], strict=True):
            assert (had["title"], had["judged"], had["planned"]) == (row.title, row.judged, row.planned)
            assert [(r["seed"], r["repeat"], r["key"]) for r in had["runs"]] == [
                (r.seed, r.repeat, r.key) for r in row.runs
            ]
            for metric, cell in row.cells.items():
                back = had["cells"][metric]
                assert (back["mean"], back["std"], back["repeat_std"]) == (cell.mean, cell.std, cell.repeat_std)
                assert back["seeds"] == list(cell.seeds)
                assert [(s["value"], s["low"]) for s in back["by_run"]] == [(s.value, s.low) for s in cell.by_run]


def test_json_holds_every_run_floor_verdict_and_reason():
    read = json.loads(render(STUDIES["several"], "json"))
    rows = {r["name"]: r for r in read["requests"][0]["rows"]}
    assert [r["diverged"] for r in rows["mine"]["runs"]] == [None, "loss was nan", None]
    assert [r["judged"] for r in rows["mine"]["runs"]] == [True, False, True]
    assert rows["regun"]["runs"][0]["settings"] == {"lr": 0.1}
    assert rows["regun"]["verdict"] == "3 passed"
    cell = rows["regun"]["cells"]["test_acc"]
    assert cell["retrain"] == 90.0
    gap = cell["gaps"][0]
    assert (gap["value"], gap["floor_mean"], gap["floor_largest"]) == (1.0, *FLOOR[:2])
    assert read["requests"][0]["rankings"]["test_acc"]["marks"] == {"regun": "best", "salun": "second"}
    assert read["machine"]["instructions"] == "AVX2"


def test_json_takes_settings_and_notes_as_they_come():
    odd = found("odd", run(judged(), cost={"seconds": float("inf")}, notes={"what": object}))
    read = json.loads(render(study(odd), "json"))
    assert read["requests"][0]["rows"][-1]["costs"]["seconds"] == "inf"
