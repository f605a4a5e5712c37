"""`regun forget` and `regun verify`: exit codes, JSON, digits in sequence, many ids."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forked import unread
from small_project import EASY, ERASE, QUICK, data, forge, ids, project, receipt_of, receipt_path

from expect import assert_names
from regun.artifacts import Store
from regun.cli import main
from regun.data.registry import DataSpec, load_data
from regun.deletion import Options, Pseudonyms, history, plan_request, read_request_file
from regun.splits import reserve

HERE = Path(__file__).parent
PROJECT = f"{HERE / 'small_project.py'}:project"
LENIENT = ("--accept", EASY, "--accept-inconclusive")
DIGITS = "regun@wide_retain,lr=0.01,w=0.9,granularity=sample,epochs=2"


@pytest.fixture(autouse=True)
def same_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    def call(*args: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(arg) for arg in args])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "ids.csv"
    lines = [f"{one},moved away,T-{n},2024-11-04,Ann" for n, one in enumerate(ids()[:12])]
    path.write_text("id,reason,requester,received,name\n" + "\n".join([*lines, lines[0]]) + "\n")
    return path


def forget(request_file: Path, out: Path, *more: str | Path) -> list[str | Path]:
    return ["forget", "--project", PROJECT, "--ids", request_file, "--out", out, "--threads", "1", *more]


# -------------------------------------------------------------------------------------------------------------- digits


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits, a base model that has hardly learned them, and two requests on it."""
    home = tmp_path_factory.mktemp("digits")
    quick = ["--budget", "steps=20", "--threads", "1", "--quiet", "--store", str(home / "store")]
    assert main(["train", "--data", "digits", *quick]) == 0
    key = Store(home / "store").find("", "model").key
    pool = reserve(load_data(DataSpec("digits"), "digits").train.labels, 0).pool
    (home / "key").write_text(key)
    (home / "first.txt").write_text("\n".join(map(str, pool[:60])))
    (home / "second.json").write_text(json.dumps({"ids": pool[50:100].tolist(), "reason": "art. 17"}))
    for name in ("first.txt", "second.json"):
        assert main([str(arg) for arg in on_digits(home, name)]) == 0
    return home


def on_digits(home: Path, name: str, *more: str) -> list[str | Path]:
    base = ["--base", (home / "key").read_text(), "--store", home / "store", "--threads", "1", "--quiet"]
    rule = "val_drop<=100, test_drop_total<=100"  # so that no processor's run decides this test
    how = ["--method", DIGITS, "--accept", rule, "--accept-inconclusive", "--bootstrap", "20"]
    return ["forget", "--ids", home / name, "--out", home / "out", *how, *base, *more]


def test_two_requests_on_digits_are_verified_and_a_third_does_nothing(digits: Path, run) -> None:
    one, two = (receipt_of(digits / "out", number) for number in (1, 2))
    assert two["data"]["sets"]["forget"]["examples"] == 100
    assert two["ledger"]["before"] == one["ledger"]["after"]
    assert two["request"]["left_out"] == {"named_twice": 0, "already_forgotten": 10, "unknown": 0}
    assert run("verify", digits / "out")[0] == 0
    base = ("--base", (digits / "key").read_text(), "--store", digits / "store")
    for number in (1, 2):
        code, out, _ = run("verify", receipt_path(digits / "out", number), *base)
        assert code == 0, out
    before = (digits / "out/ledger.jsonl").read_bytes()
    assert run(*on_digits(digits, "first.txt"))[0] == 0
    assert (digits / "out/ledger.jsonl").read_bytes() == before


def test_a_changed_byte_is_exit_code_1_and_named(digits: Path, run, tmp_path: Path) -> None:
    out = Path(shutil.copytree(digits / "out", tmp_path / "out"))
    for path in (receipt_path(out, 2), receipt_path(out, 2).parent / "model.safetensors", out / "ledger.jsonl"):
        before = path.read_bytes()
        middle = len(before) // 2
        path.write_bytes(before[:middle] + bytes([before[middle] ^ 1]) + before[middle + 1 :])
        code, said, _ = run("verify", receipt_path(out, 2))
        path.write_bytes(before)
        assert code == 1
        assert f"CHANGED {path.name}" in said
    assert run("verify", receipt_path(out, 2))[0] == 0


def test_models_of_the_store_that_come_from_the_base_are_listed(digits: Path, run, tmp_path: Path) -> None:
    key, store = (digits / "key").read_text(), ("--store", digits / "store", "--threads", "1", "--quiet")
    assert run("unlearn", "--base", key, "--forget", "0.1", "--method", "finetune,epochs=1", *store)[0] == 0
    made = [a.key for a in Store(digits / "store").artifacts("model") if a.info["role"] == "unlearned"]
    unseen = reserve(load_data(DataSpec("digits"), "digits").train.labels, 0).heldout[0]
    (tmp_path / "ids.txt").write_text(str(unseen))
    assert run("forget", "--base", key, "--ids", tmp_path / "ids.txt", "--out", tmp_path / "out", *store)[0] == 0
    assert receipt_of(tmp_path / "out")["model"]["derived"] == [f"Finetune {one[:12]}" for one in sorted(made)]


# ---------------------------------------------------------------------------------------------------- what people see


def test_a_dry_run_shows_the_plan_and_writes_nothing(request_file: Path, tmp_path: Path, run) -> None:
    code, out, _ = run(*forget(request_file, tmp_path / "out", "--dry-run", "--fallback", "retrain"))
    assert code == 0
    assert_names(out, 13, 12, 148, "'train-0'", "'name'", 60, "forgotten", "val_drop<7.7", "retrain")
    assert not (tmp_path / "out").exists()
    code, out, _ = run(*forget(request_file, tmp_path / "out", "--dry-run", "--json"))
    assert json.loads(out)["retain"] == 148
    request_file.write_text("id\nghost\n")
    code, out, _ = run(*forget(request_file, tmp_path / "out", "--dry-run"))
    assert code == 2, "what the run would refuse, the dry run refuses"
    assert_names(out, "'ghost'")


FORECASTS = {
    "retrain": (True, 20 * 148, 0),
    "auto": (True, None, 0),
    "auto,short=0": (False, None, 2 * 5 * 148),
    "auto,from_scratch=never": (False, None, 2 * 5 * 148),
    "finetune,epochs=3,batch_size=16": (False, 3 * 148, 2 * 5 * 148),
    ERASE: (False, "unknown", 2 * 5 * 148),
}


@pytest.mark.parametrize(("method", "expected"), FORECASTS.items())
def test_a_dry_run_says_the_main_thing_first(
    request_file: Path, tmp_path: Path, run, method: str, expected: tuple
) -> None:
    """From scratch or update, samples and time, what is judged and with which power; in this order."""
    from_scratch, samples, judging = expected
    how = forget(request_file, tmp_path / "out", "--dry-run", "--method", method)
    code, out, errors = run(*how, "--json")
    assert code == 0, errors
    forecast = json.loads(out)["forecast"]
    [stated] = forecast["runs"]
    assert (stated["from_scratch"], forecast["judging_samples"]) == (from_scratch, judging)
    assert stated["may_retrain"] == (method == "auto,short=0"), "only there the run decides"
    assert stated["samples"] == (None if samples == "unknown" else samples or stated["samples"])
    assert forecast["samples_per_second"] > 0
    power = forecast["power"]
    assert (power["forgotten"], power["unseen"]) == (12, 60)
    model, (x, y) = project().model, data()["test"]
    before, unseen = (
        torch.log_softmax(model(a), 1)[range(len(b)), b]
        for a, b in ((data()["train"][0][:12], data()["train"][1][:12]), (x, y))
    )
    auc = (before[:, None] > unseen[None]).double().mean().item() * 100
    assert power["against"] in ("val", "test")
    if power["against"] == "test":
        assert power["before"]["value"] == pytest.approx(auc)
    assert power["smallest"] == pytest.approx(50 + 280 * (73 / (12 * 12 * 60)) ** 0.5)
    first, *rest = run(*how)[1].splitlines()
    assert_names(first, *(["scratch"] if from_scratch else ["update"]), 12)
    assert samples in (None, "unknown") or f"{samples:,}" in first
    assert_names("\n".join(rest), "forgotten", "val_drop<7.7")
    assert from_scratch or any(line.startswith("power") for line in rest)
    assert not (tmp_path / "out").exists()


def test_accepted_is_0_rejected_is_1_wrong_is_2_inconclusive_is_4(request_file: Path, tmp_path: Path, run) -> None:
    out = tmp_path / "out"
    quick = ("--method", QUICK, "--bootstrap", "20")
    code, said, _ = run(*forget(request_file, out, *quick, "--accept", EASY))
    assert code == 4
    assert_names(said, "INCONCLUSIVE", "--accept-inconclusive", "--fallback")
    code, said, _ = run(*forget(request_file, out, *quick, "--accept", "val_drop<-100"))
    assert code == 1
    assert_names(said, "REJECTED", "val_drop<-100", "--fallback")
    code, said, progress = run(*forget(request_file, out, *quick, *LENIENT))
    assert code == 0
    assert str(out / "requests/0003/receipt.json") in said
    assert "epoch 1/1" in progress
    code, said, errors = run(*forget(request_file, out, *quick, "--accept", "what"))
    assert (code, said) == (2, "")
    assert_names(errors, "'what'")
    assert [line.status for line in history(out)] == ["inconclusive", "rejected", "accepted inconclusive"]
    assert run("verify", out)[0] == 0


def test_copies_are_named_before_and_after(tmp_path: Path, run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regun.methods._baseline_comparison.BaselineComparison.collapsed", lambda *_: False)
    (tmp_path / "ids.txt").write_text(ids()[0])
    given = f"{HERE / 'small_project.py'}:doubled_project"
    request = ["forget", "--project", given, "--ids", tmp_path / "ids.txt", "--out", tmp_path / "out", "--threads", "1"]
    code, out, _ = run(*request, "--dry-run")
    assert (code, "'copy'" in out) == (0, True)
    code, out, _ = run(*request, "--dry-run", "--json")
    assert (code, json.loads(out)["copies"]) == (0, ["copy"])
    code, out, errors = run(*request, "--accept", f"forgotten, {EASY}", "--bootstrap", "20")
    assert (code, "'copy'" in out, "'copy'" in errors) == (4, True, True)
    code, _, errors = run(*request, "--check-content")
    assert (code, "'copy'" in errors) == (2, True)


def test_the_fallback_and_json(request_file: Path, tmp_path: Path, run) -> None:
    more = (
        "--method",
        QUICK,
        "--accept",
        "smia_auc<0",
        "--fallback",
        "retrain,epochs=2",
        "--bootstrap",
        "20",
        "--json",
    )
    code, out, errors = run(*forget(request_file, tmp_path / "out", *more))
    assert code == 0
    report = json.loads(out)
    assert (report["accepted"], report["plan"]["ids"]) == (True, 12)
    assert report["model"] == str(tmp_path / "out/requests/0001/model.safetensors")
    assert_names(errors, "retrain,epochs=2", 13)


def test_days_and_the_role_reach_the_receipt(tmp_path: Path, run) -> None:
    (tmp_path / "ids.csv").write_text("id,received\nval-1,2024-03-01\nval-2,\n")
    more = ("--received", "2024-03-05", "--due", "2024-03-20", "--role", "Data protection office")
    assert run(*forget(tmp_path / "ids.csv", tmp_path / "out", "--dry-run", *more))[0] == 0
    assert not (tmp_path / "out").exists()
    assert run(*forget(tmp_path / "ids.csv", tmp_path / "out", *more))[0] == 0
    request = receipt_of(tmp_path / "out")["request"]
    assert (request["dates"]["received"], request["dates"]["due"]) == ("2024-03-01", "2024-03-20")
    assert request["role"] == "Data protection office"


BAD = [
    (["--project", PROJECT, "--received", "yesterday"], ["received", "'yesterday'", "2026-11-30"]),
    (["--project", PROJECT, "--due", "2020-01-01"], ["2020-01-01", "2024-11-04"]),
    (["--project", PROJECT, "--role", "x" * 1001], ["role", "1,001"]),
    (["--project", PROJECT, "--requester", "x" * 1001], ["requester", "1,001"]),
    (["--project", "{here}/small_project.py:no_project"], ["int", "regun.Project"]),
    (["--project", "{here}/small_project.py:broken_project"], ["ZeroDivisionError"]),
    (["--project", "{here}/small_project.py:leaving_project"], ["leaving_project", "SystemExit"]),
    (["--project", "{here}/small_project.py:projct"], ["'project'"]),
    (["--project", "{here}/none.py:project"], ["none.py"]),
    (["--base", "xyz", "--project", "x.py:y"], ["--project", "--base"]),
    ([], ["--project", "--base"]),
    (["--base", "xyz", "--store", "{tmp}/store"], ["{tmp}/store"]),
    (["--project", PROJECT, "--ids", "{tmp}/none.csv"], ["{tmp}/none.csv"]),
    (["--project", PROJECT, "--ids", ""], ["ids"]),
    (["--project", PROJECT, "--salt", "{tmp}/none"], ["salt", "{tmp}/none"]),
    (["--project", PROJECT, "--salt", ""], ["salt"]),
    (["--project", PROJECT, "--sign", "{tmp}/none"], ["key", "{tmp}/none"]),
    (["--project", PROJECT, "--sign", ""], ["key"]),
    (["--project", PROJECT, "--method", "regnu"], ["'regnu'", "'regun'"]),
    (["--project", PROJECT, "--method", ""], ["name,key=value"]),
    (["--project", PROJECT, "--fallback", "retrian"], ["'retrian'", "'retrain'"]),
    (["--project", PROJECT, "--accept", "smia_acu~50"], ["'smia_acu'", "'smia_auc'"]),
    (["--project", PROJECT, "--accept", ""], ["forgotten"]),
    (["--project", PROJECT, "--threads", "0"], ["--threads", "0"]),
    (["--project", PROJECT, "--out", ""], ["--out"]),
]


@pytest.mark.parametrize(("more", "names"), BAD)
def test_what_is_wrong_is_named_with_exit_code_2(
    more: list[str], names: list[str], request_file: Path, tmp_path: Path, run
) -> None:
    given = [arg.format(here=HERE, tmp=tmp_path) for arg in more]
    code, _, errors = run("forget", "--ids", request_file, "--out", tmp_path / "out", *given)
    assert code == 2
    assert "Traceback" not in errors
    assert_names(errors, *(name.format(tmp=tmp_path) for name in names))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["received", "due", "reason", "requester", "role"])
def test_an_empty_option_is_refused(name: str, request_file: Path, tmp_path: Path, capsys) -> None:
    """A variable of a script that is not set must not pass for today."""
    with pytest.raises(SystemExit) as caught:
        main([str(arg) for arg in forget(request_file, tmp_path / "out", f"--{name}", " ")])
    assert caught.value.code == 2
    assert_names(capsys.readouterr().err, f"--{name}")


def test_verify_names_what_is_wrong_with_its_arguments(tmp_path: Path, run) -> None:
    (tmp_path / "out").mkdir()
    for given, names in (
        ([tmp_path / "none.json"], [tmp_path / "none.json"]),
        ([tmp_path / "out"], ["ledger.jsonl"]),
        ([tmp_path / "none.json", "--expect", "f" * 64], ["--expect"]),
    ):
        code, _, errors = run("verify", *given)
        assert code == 2
        assert_names(errors, *names)
    (tmp_path / "out/ledger.jsonl").touch()
    for more, name in ((["--expect", "x"], "--expect"), (["--public-key", ""], "key"), (["--alone"], "--alone")):
        code, _, errors = run("verify", tmp_path / "out", *more)
        assert code == 2
        assert_names(errors, name)


def test_a_receipt_cannot_write_to_the_terminal(out: Path, run) -> None:
    """Whatever a forged receipt holds, no line of the output is its own."""
    hostile = "x\x1b[1A\x1b[2K\nNothing was changed.\n"
    forge(out, 1, lambda receipt: receipt["request"].update(pseudonyms=hostile))
    forge(out, 1, pseudonyms=hostile)
    for given in (out, receipt_path(out)):
        code, said, _ = run("verify", given)
        assert "\x1b" not in said
        assert said.count("\nNothing was changed.") == (code == 0)


def test_verify_in_json_and_with_salt(request_file: Path, tmp_path: Path, run) -> None:
    (tmp_path / "salt").write_bytes(bytes(range(32)))
    (tmp_path / "salt").chmod(0o600)
    salted = ("--method", QUICK, *LENIENT, "--salt", tmp_path / "salt", "--bootstrap", "20", "--quiet")
    assert run(*forget(request_file, tmp_path / "out", *salted))[0] == 0
    receipt = receipt_path(tmp_path / "out")
    code, out, _ = run("verify", receipt, "--project", PROJECT, "--salt", tmp_path / "salt", "--json")
    report = json.loads(out)
    assert (code, report["passed"]) == (0, True)
    assert {"receipt.json", "data"} == set(report["checks"])
    code, _, errors = run("verify", receipt, "--project", PROJECT)
    assert code == 2
    assert_names(errors, "--salt")


def test_what_was_recovered_is_noted_also_when_quiet(request_file: Path, out: Path, run) -> None:
    again = forget(request_file, out, "--method", QUICK, "--bootstrap", "20", *LENIENT, "--quiet")
    assert run(*again)[::2] == (0, ""), "these records are forgotten already"
    for wanted in (ids()[:5], ids()[60:65]):  # forgotten already, and new
        (out / ".regun-new").mkdir()
        request_file.write_text("\n".join(["id", *wanted]))
        code, _, errors = run(*again)
        assert code == 0
        assert errors.startswith("forget: ")
        assert not (out / ".regun-new").exists()


# ------------------------------------------------------------------------------------------------- many ids, no reader


@pytest.mark.timeout(60)
def test_many_ids_are_read_matched_and_hashed(tmp_path: Path) -> None:
    """Anything that takes the square of their number would not end."""
    count = 200_000
    path = tmp_path / "ids.csv"
    path.write_text("id,reason\n" + "\n".join(f"user-{n},gone" for n in range(count)) + "\n")
    request = read_request_file(path)
    assert len(request.records) == count
    rows = torch.arange(count + 50) % 3
    given = project(
        model=torch.nn.Linear(1, 3),
        train=(rows[:, None].float(), rows),
        ids=[f"user-{n}" for n in range(count + 50)],
        **{name: (rows[:20, None].float(), rows[:20]) for name in ("heldout", "val", "test")},
        unseen_ids={},
    )
    plan = plan_request(given, request, tmp_path / "out", Options(pseudonyms=Pseudonyms(bytes(32))))
    assert (len(plan.new), len(plan.retain)) == (count, 50)


def test_help_of_a_request_needs_no_torch() -> None:
    script = (
        "import sys\nfrom regun.cli import main\ntry:\n    main(['forget', '--help'])\nexcept SystemExit:\n    pass\n"
    )
    done = subprocess.run([sys.executable, "-c", script + "sys.exit('torch' in sys.modules)"], capture_output=True)
    assert done.returncode == 0


def test_a_closed_pipe_changes_neither_work_nor_exit_code(request_file: Path, tmp_path: Path) -> None:
    out, quick = tmp_path / "out", ("--method", QUICK, "--bootstrap", "20")
    assert unread(*forget(request_file, out, *quick, "--accept", "smia_auc<0")) == 1
    assert unread(*forget(request_file, out, *quick, *LENIENT)) == 0
    assert [line.status for line in history(out)] == ["rejected", "accepted inconclusive"]
    assert unread("verify", out) == 0
    (out / "requests/0001/risks.csv").write_text("")
    assert unread("verify", out) == 1
