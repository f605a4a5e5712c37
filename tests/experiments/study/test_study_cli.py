"""`regun study` and `regun tradeoff` as a user meets them."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from expect import assert_names
from mini import MINI
from regun.artifacts import Store
from regun.cli import main

MINE = '''"""Shrink every weight a little: a method of a user's own."""
from dataclasses import dataclass
import torch
from regun.methods import Needs
from regun.settings import setting
from regun.training.fit import Fitted

TITLE = "Shrink <b>"
NEEDS = Needs(retain=False)

@dataclass(frozen=True)
class Config:
    factor: float = setting(0.9, "what every weight is multiplied by", low=0, high=1)
    w: int = setting(4, "a setting that is no weight", low=1)

def unlearn(job, config):
    with torch.no_grad():
        for parameter in job.model.parameters():
            parameter.mul_(config.factor)
    return Fitted()
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with a study and a method of their own, run once."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "shrink.py").write_text(MINE)
    (folder / "mini.toml").write_text(MINI.replace('"ssd"]', '"shrink.py,factor=0.8"]'))
    assert main(["study", "run", str(folder / "mini.toml"), "--store", str(folder / "store"), "--quiet"]) == 0
    return folder


def regun(place: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main([*words, "--store", str(place / "store")])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_users_method_and_study_appear_in_table_and_report(place: Path, capsys) -> None:
    code, out, _ = regun(place, capsys, "study", "table", str(place / "mini.toml"))
    assert code == 0
    assert "Shrink <b>" in out
    report = (place / "store" / "studies" / "mini" / "report.html").read_text()
    assert "Shrink &lt;b&gt;" in report
    assert "Shrink <b>" not in report


def test_a_run_leaves_everything_it_promises(place: Path) -> None:
    out = place / "store" / "studies" / "mini"
    names = {path.name for path in out.iterdir()}
    assert {"metrics.jsonl", "report.html", "table.md", "table.tex", "table.csv", "table.json"} <= names
    assert {"tradeoff.png", "tradeoff.svg", "tradeoff.pdf"} <= names
    assert (out / "tradeoff.png").read_bytes()[:4] == b"\x89PNG"
    assert (out / "tradeoff.pdf").read_bytes()[:4] == b"%PDF"


def test_running_again_makes_nothing(place: Path, capsys) -> None:
    code, out, err = regun(place, capsys, "study", "run", str(place / "mini.toml"))
    assert code == 0
    assert_names(err, 20)
    assert "ReGUn" in out
    assert "report.html" in out


def test_a_part_of_a_study_leaves_the_files_of_the_whole_alone(place: Path, capsys) -> None:
    whole = place / "store" / "studies" / "mini" / "rows.csv"
    before = whole.read_bytes()
    code, out, _ = regun(place, capsys, "study", "run", str(place / "mini.toml"), "--seeds", "0", "--quiet")
    assert code == 0
    part = place / "store" / "studies" / "mini-seeds-0" / "rows.csv"
    assert str(part.parent) in out
    assert whole.read_bytes() == before
    assert {row["seed"] for row in csv.DictReader(part.read_text().splitlines())} == {"0"}


@pytest.mark.parametrize("format", ["terminal", "markdown", "latex", "latex-document", "csv", "json"])
def test_tables_in_every_format(place: Path, capsys, format: str) -> None:
    code, out, _ = regun(
        place, capsys, "study", "table", str(place / "mini.toml"), "--format", format, "--columns", "paper"
    )
    assert code == 0
    assert "ReGUn" in out
    if format == "csv":
        assert len(list(csv.DictReader(io.StringIO(out)))) > 20
    if format == "json":
        assert json.loads(out)["study"] == "mini"


def test_table_to_a_file_with_more_columns(place: Path, capsys, tmp_path: Path) -> None:
    target = tmp_path / "t.csv"
    words = [
        "study",
        "table",
        str(place / "mini.toml"),
        "--format",
        "csv",
        "--columns",
        "lira_auc",
        "--out",
        str(target),
    ]
    assert regun(place, capsys, *words)[0] == 0
    assert "lira_auc" in target.read_text()


def test_the_papers_numbers_beside_ours(place: Path, capsys) -> None:
    code, out, _ = regun(place, capsys, "study", "table", str(place / "mini.toml"), "--paper", "resnet18-cifar10")
    assert code == 0
    assert "2.00 ± 0.18" in out  # the paper's Gap RFTP of ReGUn on CIFAR-10, 10 %
    code, _, err = regun(place, capsys, "study", "table", str(place / "mini.toml"), "--paper")
    assert code == 2
    assert "resnet18-cifar10" in err


def test_report_alone_writes_what_a_run_writes(place: Path, capsys, tmp_path: Path) -> None:
    code, out, _ = regun(place, capsys, "study", "report", str(place / "mini.toml"), "--out", str(tmp_path))
    assert code == 0
    assert out.split() == list(map(str, [tmp_path / "report.html", *map(Path, out.split()[1:])]))
    assert {"table.tex", "rows.csv", "cost.png", "tradeoff.pdf"} <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "report.html").read_text().lower().startswith("<!doctype html>")
    code, out, _ = regun(place, capsys, "study", "report", str(place / "mini.toml"), "--out", str(tmp_path), "--json")
    assert sorted(json.loads(out)["files"]) == sorted(str(path) for path in tmp_path.iterdir())
    assert json.loads(regun(place, capsys, "study", "table", str(place / "mini.toml"), "--json")[1])["study"] == "mini"


def test_plan_says_what_is_done_and_how_long_the_rest_takes(place: Path, capsys) -> None:
    code, out, _ = regun(place, capsys, "study", "plan", str(place / "mini.toml"), "--json")
    found = json.loads(out)
    assert code == 0
    assert found["tasks"]["train"] == {"planned": 4, "done": 4}
    assert found["tasks"]["evaluate"]["done"] == found["tasks"]["evaluate"]["planned"] == 5
    assert found["samples_per_second"] > 0
    assert found["seconds_left"] == 0
    code, out, _ = regun(place, capsys, "study", "plan", str(place / "mini.toml"), "--seeds", "1")
    assert code == 0
    assert "ReGUn" in out


def test_plan_without_the_data(place: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGUN_DATA", raising=False)
    code, out, _ = regun(place, capsys, "study", "plan", "resnet18-cifar10", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["tasks"]["train"]["planned"] == 64
    assert found["steps_of_methods"]["regun"] == {"0.01": 40, "0.1": 360, "0.5": 1760}
    assert not found["from_data"]
    code, _, err = regun(place, capsys, "study", "plan", "resnet18-cifar10", "--forget", "class:3")
    assert code == 2
    assert "--data-dir" in err


def test_probe_measures_speed(tmp_path: Path, capsys, place: Path) -> None:
    code = main(["study", "plan", str(place / "mini.toml"), "--store", str(tmp_path), "--probe", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert found["seconds_left"] > 0
    assert not list((tmp_path / "artifacts").rglob("manifest.json"))


def test_list_and_show(place: Path, capsys) -> None:
    assert main(["study", "list"]) == 0
    listed = capsys.readouterr().out
    assert "swin-tiny-imagenet-small" in listed
    assert main(["study", "show", "digits"]) == 0
    shown = capsys.readouterr().out
    (place / "copy.toml").write_text(shown)
    assert main(["study", "show", str(place / "copy.toml")]) == 0
    assert capsys.readouterr().out == shown
    (place / "copy.toml").write_text(shown.replace("batch_size=64", "batch_size=32"))
    assert main(["study", "show", str(place / "copy.toml")]) == 0
    again = capsys.readouterr().out
    assert again.count("# finetune") == 1
    assert "finetune  epochs=10 batch_size=32" in again
    assert main(["study", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digits"]["budget"] == "steps=90"


def test_tradeoff_draws_curves_that_the_report_then_shows(place: Path, capsys) -> None:
    code, out, _ = regun(place, capsys, "tradeoff", str(place / "mini.toml"), "--w", "0.2,0.9", "--quiet")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("ReGUn")] == [
        ["ReGUn", "0.2"],
        ["ReGUn", "0.9"],
    ]
    assert (place / "store" / "studies" / "mini" / "tradeoff.svg").exists()
    rows = list(csv.DictReader((place / "store" / "studies" / "mini" / "sweep.csv").read_text().splitlines()))
    assert {"Retrain", "Base", "ReGUn, w 0.2", "ReGUn, w 0.9"} <= {row["title"] for row in rows}
    code, out, _ = regun(place, capsys, "tradeoff", str(place / "mini.toml"), "--w", "0.2,0.9", "--json", "--quiet")
    assert [point["w"] for point in json.loads(out)["tradeoffs"][0]["curves"]["ReGUn"]] == [0.2, 0.9]
    drawn = (place / "store" / "studies" / "mini" / "tradeoff.svg").read_bytes()
    assert regun(place, capsys, "study", "run", str(place / "mini.toml"), "--quiet")[0] == 0
    assert (place / "store" / "studies" / "mini" / "tradeoff.svg").read_bytes() == drawn


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["study", "run", "no-such"], ["no-such", "resnet18-cifar10"]),
        (["study", "run", "digits", "--seeds", "one"], ["--seeds", "one"]),
        (["study", "run", "digits", "--forget", "often"], ["often"]),
        (["study", "run", "digits", "--seeds", "0,0"], ["study.seeds", 0]),
        (["study", "run", "digits", "--seeds", "1001"], ["study.seeds", 1001, 1000]),
        (["study", "run", "digits", "--workers", "0"], ["--workers", 0, 1]),
        (["study", "run", "digits", "--engine", "local:here"], ["--engine", "local:here", "ray:ADDRESS"]),
        (["study", "run", "digits", "--track", "notebook"], ["notebook", "tensorboard"]),
        (["study", "run", "resnet18-cifar10"], ["root=FOLDER"]),
        (["study", "table", "digits", "--format", "word"], ["word", "markdown"]),
        (["tradeoff", "digits", "--w", "much"], ["--w", "much", 0, 1]),
        (["tradeoff", "digits", "--w", "1.5"], [1.5, 0, 1]),
    ],
)
def test_bad_input_is_named(words: list[str], names: list[object], tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.delenv("REGUN_DATA", raising=False)
    Store(tmp_path)
    assert main([*words, "--store", str(tmp_path)]) == 2
    assert_names(capsys.readouterr().err, *names)


def test_failures_show_in_the_exit_code(place: Path, capsys) -> None:
    (place / "bad.py").write_text(MINE.replace("parameter.mul_(config.factor)", "raise RuntimeError('no luck')"))
    (place / "bad.toml").write_text(MINI.replace('"ssd"]', '"bad.py"]'))
    code, out, err = regun(place, capsys, "study", "run", str(place / "bad.toml"))
    assert code == 1
    assert "FAILED" in out
    assert "no luck" in out
    assert "no luck" in err


def test_the_how_to_of_the_docs_works(tmp_path: Path, capsys) -> None:
    text = (Path(__file__).parents[3] / "docs" / "studies.md").read_text()
    for name, body in re.findall(r"```\w+\n# (\S+)\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(body)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.toml", "shrink.py"}
    code, out, _ = regun(tmp_path, capsys, "study", "run", str(tmp_path / "mine.toml"), "--quiet")
    assert code == 0
    assert "Shrink" in out
    assert "Shrink" in (tmp_path / "store" / "studies" / "mine" / "report.html").read_text()
