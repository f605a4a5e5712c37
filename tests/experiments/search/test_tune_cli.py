"""`regun tune` and `regun unlearn --settings`, as a person uses them."""

import csv
import json
import signal
import time
from pathlib import Path

import pytest
from forked import PATIENCE, Forked

from expect import assert_names
from regun.artifacts import Store
from regun.cli import main
from regun.experiments.search.settings_file import read_settings

pytest.importorskip("optuna")
pytestmark = pytest.mark.usefixtures("plain_surroundings")

DATA = ["--data", "digits,limit=400,test_limit=50", "--recipe", "digits,epochs=4", "--threads", "1", "--quiet"]
QUICK = ["--forget", "0.1", "--budget", "steps=3", "--threads", "1"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that holds a base model and two retrained ones."""
    folder = tmp_path_factory.mktemp("home")
    for more in ([], ["--without", "0.1"], ["--without", "0.1", "--seed", "1"]):
        assert main(["train", *DATA, *more, "--store", str(folder / "store")]) == 0
    return folder


@pytest.fixture(scope="module")
def base(home: Path) -> str:
    return next(a.key for a in Store(home / "store").artifacts() if a.info.get("role") == "base")


def test_a_search_with_the_oracle_says_so_and_shows_a_table(run, base: str) -> None:
    code, out, err = run("tune", "--base", base, *QUICK, "--methods", "finetune,regun,ssd", "--trials", "3")
    assert code == 0, err
    assert_names(out, "gap", "RFVP")
    lines = out.splitlines()
    assert lines[2].split() == ["method", "default", "best", "trials", "settings"]
    assert [line.split()[0] for line in lines[4:7]] == ["finetune", "regun", "ssd"]
    assert_names(err, "finetune", "3/3")
    again = run("tune", "--base", base, *QUICK, "--methods", "finetune,regun,ssd", "--trials", "3", "--quiet")
    assert again == (0, out, "")


def test_the_files_and_what_reads_them(run, base: str, home: Path) -> None:
    folder = home / "out"
    order = ("tune", "--base", base, *QUICK, "--methods", "regun,batch_size=16,finetune", "--trials", "5")
    code, out, err = run(*order, "--objective", "reference", "--out", str(folder), "--json", "--quiet")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["objective"], found["retrain"], found["references"]) == ("reference", None, [])
    assert list(found["methods"]) == ["regun", "finetune"]
    regun = found["methods"]["regun"]
    assert [t["number"] for t in regun["trials"]] == list(range(5))
    assert regun["best_score"] == min(t["score"] for t in regun["trials"])
    names = {"tuned.toml", "trials.csv", "trials.json", "history.svg", "importance.svg", "front.svg", "report.html"}
    assert {Path(f).name for f in found["files"]} == names == {p.name for p in folder.iterdir()}

    blocks = read_settings(folder / "tuned.toml")
    assert blocks == {"0.1": {"regun": {"batch_size": 16, **regun["best_values"]},
                              "finetune": found["methods"]["finetune"]["best_values"]}}  # fmt: skip
    assert json.loads((folder / "trials.json").read_text()) == found["methods"]
    rows = list(csv.DictReader((folder / "trials.csv").read_text().splitlines()))
    assert [row["method"] for row in rows] == ["regun"] * 5 + ["finetune"] * 4
    assert float(rows[0]["score"]) == regun["trials"][0]["score"]
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 3

    used = run("unlearn", "--base", base, *QUICK, "--settings", str(folder / "tuned.toml"), "--method", "regun", "--json", "--quiet")  # fmt: skip
    config = json.loads(used[1])["config"]
    assert {k: config[k] for k in blocks["0.1"]["regun"]} == blocks["0.1"]["regun"]
    won = run("unlearn", "--base", base, *QUICK, "--settings", str(folder / "tuned.toml"), "--method", "regun,w=0.25", "--json", "--quiet")  # fmt: skip
    config = json.loads(won[1])["config"]
    assert (config["w"], config["batch_size"]) == (0.25, 16)
    for more, names in (
        (["--method", "salun"], ["'salun'", "'0.1'", "finetune", "regun"]),
        (["--forget", "0.2"], ["'0.2'", "0.1"]),
        (["--settings", str(home / "none.toml")], [home / "none.toml"]),
    ):
        code, out, err = run("unlearn", "--base", base, *QUICK, "--settings", str(folder / "tuned.toml"), *more)
        assert (code, out) == (2, "")
        assert_names(err, *names)


def test_the_best_model_of_a_search_can_be_audited(run, base: str) -> None:
    order = (
        "tune",
        "--base",
        base,
        *QUICK,
        "--objective",
        "reference",
        "--trials",
        "4",
        "--methods",
        "regun,batch_size=16",
    )
    code, out, err = run(*order)
    assert code == 0, err
    trials = json.loads(run(*order, "--json", "--quiet")[1])["methods"]["regun"]["trials"]
    best = min(trials, key=lambda t: (t["score"], t["number"]))["model"]
    assert f"regun audit {best[:12]}" in out
    assert run("audit", best, "--retrained", "none", "--bootstrap", "0", "--threads", "1")[0] == 0


@pytest.mark.parametrize(
    ("more", "names"),
    [
        (["--objective", "refrence"], ["'refrence'", "reference"]),
        (["--trials", "0"], ["--trials", 0, 1]),
        (["--methods", "regnu"], ["'regnu'", "regun"]),
        (["--methods", "regun,regun"], ["--methods", "regun"]),
        (["--methods", "regun,lr=fast"], ["regun.lr", "'fast'"]),
        (["--methods", "lr=1,regun"], ["lr=1"]),
        (["--methods", "ssd"], ["ssd", "resnet"]),
        (["--methods", "regun,lr=0.1,w=0.2"], ["regun"]),
        (["--forget", "0.3"], ["gap", "reference"]),
        (["--base", "no-key"], ["'no-key'"]),
        (["--objective", "reference", "--retrained", "abc"], ["--retrained", "gap"]),
        (["--methods", "regun,finetune", "--budget", "9"], ["budget", "'9'"]),
        (["--methods", "finetune", "--trials", "2", "--out", "{home}/file/x"], ["{home}/file/x"]),
        (["--out", "{home}/file"], ["--out", "{home}/file"]),
    ],
)
def test_bad_input_is_named_and_nothing_is_printed(more: list[str], names: list, run, base: str, home: Path) -> None:
    (home / "file").write_text("")
    code, out, err = run("tune", "--base", base, *QUICK, *(m.format(home=home) for m in more))
    assert (code, out) == (2, "")
    assert_names(err, *(str(name).format(home=home) for name in names))
    assert "Traceback" not in err


def test_all_mistakes_are_reported_at_once(run, base: str) -> None:
    code, _, err = run("tune", "--base", base, *QUICK, "--objective", "x", "--trials", "0", "--methods", "a,b")
    assert code == 2
    assert_names(err, "'x'", "--trials", "'a'", "'b'")


def test_ctrl_c_keeps_what_is_finished(base: str, home: Path, tmp_path: Path) -> None:
    words = f"tune --base {base} --forget 0.1 --budget steps=40 --threads 1 --objective reference --methods l1_sparse"
    where = ["--trials", "4", "--store", str(home / "store"), "--json"]
    command = [*words.split(), *where]
    process = Forked(tmp_path, *command)
    deadline = time.monotonic() + PATIENCE
    while "trial 1/4" not in process.errors.read_text() and process.running and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill(signal.SIGINT)
    code, out, err = process.ended()
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    finished = len(Store(home / "store").artifacts("score"))
    code, out, err = Forked(tmp_path, *command).ended()
    assert code == 0, err
    assert len(json.loads(out)["methods"]["l1_sparse"]["trials"]) == 4
    assert "trial 4/4" in err
    made = [a.manifest["created"] for a in Store(home / "store").artifacts("score")]
    assert len(made) <= finished + 3  # what was finished before was not made again
