"""`regun forget` and `regun verify`: exit codes, what is said, digits in sequence, many ids."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forked import unread
from small_project import EASY, QUICK, ids, project

import regun
from regun.artifacts import Store
from regun.cli import main
from regun.data.registry import DataSpec, load_data
from regun.deletion import Options, Pseudonyms, history, prepare, read_request_file
from regun.deletion.folder import Folder, _private
from regun.deletion.signing import seal, written
from regun.errors import RegunError
from regun.splits import reserve

HERE = Path(__file__).parent
PROJECT = f"{HERE / 'small_project.py'}:project"
LENIENT = ("--accept", EASY, "--accept-untestable")
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


def forget(request_file: Path, out: Path, *more: str) -> list[str | Path]:
    return ["forget", "--project", PROJECT, "--ids", request_file, "--out", out, "--threads", "1", *more]


# -------------------------------------------------------------------------------------------------------------- digits


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits, a base model that has hardly learned them, and two requests carried out on it."""
    home = tmp_path_factory.mktemp("digits")
    quick = ["--max-steps", "20", "--threads", "1", "--quiet", "--store", str(home / "store")]
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
    how = ["--method", DIGITS, "--accept", rule, "--accept-untestable"]
    return ["forget", "--ids", home / name, "--out", home / "out", *how, *base, *more]


def test_two_requests_on_digits_are_verified(digits: Path, run) -> None:
    one, two = (json.loads((digits / f"out/requests/000{n}/receipt.json").read_text()) for n in (1, 2))
    assert two["data"]["sets"]["forget"]["examples"] == 100
    assert two["model"]["before"] == one["model"]["after"]
    assert two["request"]["left_out"] == {"named_twice": 0, "already_forgotten": 10, "unknown": 0}
    code, out, _ = run("verify", digits / "out")
    assert code == 0, out
    base = ("--base", (digits / "key").read_text(), "--store", digits / "store")
    for number in (1, 2):
        code, out, _ = run("verify", digits / f"out/requests/000{number}/receipt.json", *base)
        assert code == 0, out
        assert "numbers come out again" in out
        assert out.endswith("Nothing was changed.\n")


def test_a_byte_a_line_and_a_digit_are_each_caught_and_named(digits: Path, run, tmp_path: Path) -> None:
    out = Path(shutil.copytree(digits / "out", tmp_path / "out"))
    receipt, model = out / "requests/0002/receipt.json", out / "requests/0002/model.safetensors"
    ledger = out / "ledger.jsonl"

    def changed(path: Path, content: bytes) -> str:
        before = path.read_bytes()
        path.write_bytes(content)
        code, said, _ = run("verify", receipt)
        path.write_bytes(before)
        assert code == 1
        return said

    weights = bytearray(model.read_bytes())
    weights[len(weights) // 2] ^= 1
    assert "CHANGED model.safetensors: its bytes are not those" in changed(model, bytes(weights))
    line, rest = ledger.read_bytes().split(b"\n", 1)
    said = changed(ledger, line.replace(b"T", b"S", 1) + b"\n" + rest)
    assert "CHANGED ledger.jsonl: ledger.jsonl line 1 was changed" in said
    text = receipt.read_text()
    place = text.index('"val_drop"') + len('"val_drop": ')
    place += text[place] == "-"
    said = changed(receipt, (text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]).encode())
    assert "CHANGED receipt.json: the section 'audit' was changed" in said
    assert run("verify", receipt)[0] == 0


def test_a_request_again_does_nothing(digits: Path, run) -> None:
    before = (digits / "out/ledger.jsonl").read_bytes()
    code, out, _ = run(*on_digits(digits, "first.txt"))
    assert (code, out) == (
        0,
        "Nothing to do: every id that is known is already forgotten. Nothing was written.\n",
    )
    assert (digits / "out/ledger.jsonl").read_bytes() == before


def test_models_of_the_store_that_come_from_the_base_are_listed(digits: Path, run, tmp_path: Path) -> None:
    key, store = (digits / "key").read_text(), ("--store", digits / "store", "--threads", "1", "--quiet")
    assert run("unlearn", "--base", key, "--forget", "0.1", "--method", "finetune,epochs=1", *store)[0] == 0
    made = [a.key for a in Store(digits / "store").artifacts("model") if a.info["role"] == "unlearned"]
    unseen = reserve(load_data(DataSpec("digits"), "digits").train.labels, 0).heldout[0]
    (tmp_path / "ids.txt").write_text(str(unseen))
    request = ("forget", "--base", key, "--ids", tmp_path / "ids.txt", "--out", tmp_path / "out", *store)
    assert run(*request)[0] == 0
    receipt = json.loads((tmp_path / "out/requests/0001/receipt.json").read_text())
    assert receipt["model"]["derived"] == [f"Finetune {one[:12]}" for one in sorted(made)]


# ---------------------------------------------------------------------------------------------------- what people see


def test_a_dry_run_says_what_would_happen(request_file: Path, tmp_path: Path, run) -> None:
    code, out, _ = run(*forget(request_file, tmp_path / "out", "--dry-run", "--fallback", "retrain"))
    assert code == 0
    assert out.startswith(
        "13 lines: 12 ids to forget (12 training examples)\n  1 named twice; counted once: 'train-0'\n"
    )
    assert "columns not read: 'name'" in out
    assert "request 1 would forget 12 examples in all and retain 148\nunseen: heldout 60, val 60, test 60\n" in out
    assert ", fallback retrain\naccepted if forgotten, val_drop<7.7\nNothing was written.\n" in out
    assert not (tmp_path / "out").exists()
    code, out, _ = run(*forget(request_file, tmp_path / "out", "--dry-run", "--json"))
    assert json.loads(out)["retain"] == 148
    request_file.write_text("id\nghost\n")
    code, out, _ = run(*forget(request_file, tmp_path / "out", "--dry-run"))
    assert code == 2, "what the run would refuse, the rehearsal refuses"
    assert "  1 unknown: 'ghost'\nNothing would be done." in out


def test_accepted_is_0_rejected_is_1_wrong_is_2_untold_is_4(request_file: Path, tmp_path: Path, run) -> None:
    out = tmp_path / "out"
    quick = ("--method", QUICK, "--bootstrap", "50")
    code, said, _ = run(*forget(request_file, tmp_path / "untold", *quick, "--accept", EASY))
    assert code == 4
    assert "INCONCLUSIVE (forgetting): no condition of the rule is about forgetting\n" in said
    assert "INCONCLUSIVE: request 1 has no evidence; its model is kept apart, the one before it stays current" in said
    assert "--fallback retrain trains anew without the records" in said
    assert [line.status for line in history(tmp_path / "untold")] == ["inconclusive"]
    code, said, _ = run(*forget(request_file, out, *quick, "--accept", "val_drop<-100"))
    assert code == 1
    assert "NOT MET      val_drop<-100: " in said
    assert "REJECTED: request 1 failed; its model is kept apart, the one before it stays current\n" in said
    assert "\n--fallback retrain trains anew without the records, by the project's retrain=...; or try other" in said
    code, said, progress = run(*forget(request_file, out, *quick, "--accept", EASY, "--accept-untestable"))
    assert code == 0
    assert "accepted, untestable: nobody can tell whether request 2 has worked; as you asked, its model is" in said
    assert said.endswith(f"check    regun verify {out / 'requests/0002/receipt.json'}\n")
    assert "forget: epoch 1/1" in progress
    code, said, errors = run(*forget(request_file, out, *quick, "--accept", "what"))
    assert (code, said) == (2, "")
    assert errors.startswith("regun: the acceptance rule has 'what'")
    assert run("verify", out)[0] == 0


def test_copies_are_named_before_and_after_and_nothing_passes_by_construction(
    tmp_path: Path, run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regun.methods._baseline_comparison.BaselineComparison.collapsed", lambda *_: False)
    (tmp_path / "ids.txt").write_text(ids()[0])
    given = f"{HERE / 'small_project.py'}:doubled_project"
    request = ["forget", "--project", given, "--ids", tmp_path / "ids.txt", "--out", tmp_path / "out", "--threads", "1"]
    held = "train holds 1 copy of these records under other ids (the first: 'copy')"
    code, out, _ = run(*request, "--dry-run")
    assert (code, f"  {held}" in out) == (0, True)
    code, out, _ = run(*request, "--dry-run", "--json")
    assert (code, json.loads(out)["copies"]) == (0, ["copy"])
    code, out, errors = run(*request, "--accept", f"forgotten, {EASY}", "--bootstrap", "20")
    assert (code, held in errors) == (4, True)
    assert "INCONCLUSIVE forgotten: trained anew without these records, but on 1 identical one under other ids" in out
    assert "warning     train holds 1 copy of forgotten records under other ids (the first: 'copy')" in out
    assert "\nadd the ids of the copies (see the warning) to the request, or take them out of train" in out
    assert "retraining takes 3,200 samples" in errors
    code, _, errors = run(*request, "--check-content")
    assert (code, "train holds 1 copy of forgotten records, under other ids (the first: 'copy')" in errors) == (2, True)


def test_a_model_that_was_trained_anew_and_rejected_gets_other_advice(request_file: Path, tmp_path: Path, run) -> None:
    quick = ("--method", "retrain,epochs=1", "--accept", "val_drop<-100", "--bootstrap", "20")
    code, said, _ = run(*forget(request_file, tmp_path / "out", *quick))
    assert (code, "train it better (--method retrain,epochs=...,lr=...), or ask for less by --accept" in said) == (
        1,
        True,
    )


def test_the_fallback_and_json(request_file: Path, tmp_path: Path, run) -> None:
    more = (
        "--method",
        QUICK,
        "--accept",
        "smia_auc<0",
        "--fallback",
        "retrain,epochs=2",
        "--bootstrap",
        "50",
        "--json",
    )
    code, out, errors = run(*forget(request_file, tmp_path / "out", *more))
    assert code == 0
    report = json.loads(out)
    assert (report["accepted"], report["plan"]["ids"]) == (True, 12)
    assert report["model"] == str(tmp_path / "out/requests/0001/model.safetensors")
    assert "going on with retrain,epochs=2" in errors
    assert "13 lines: 12 ids" in errors


def test_days_and_the_role_reach_the_receipt(tmp_path: Path, run) -> None:
    (tmp_path / "ids.csv").write_text("id,received\nval-1,2024-03-01\nval-2,\n")
    more = ("--received", "2024-03-05", "--due", "2024-03-20", "--role", "Data protection office")
    code, _, _ = run(*forget(tmp_path / "ids.csv", tmp_path / "out", *more))
    assert code == 0
    request = json.loads((tmp_path / "out/requests/0001/receipt.json").read_text())["request"]
    assert (request["dates"]["received"], request["dates"]["due"]) == ("2024-03-01", "2024-03-20")
    assert request["role"] == "Data protection office"


BAD = [
    (["--project", PROJECT, "--received", "yesterday"], "the day received is 'yesterday'; give a day as 2026-11-30"),
    (["--project", PROJECT, "--due", "2020-01-01"], "is due on 2020-01-01, before it was received (2024-11-04)"),
    (["--project", PROJECT, "--role", "x" * 1001], "the role has 1,001 characters"),
    (["--project", "{here}/small_project.py:no_project"], "returned a int; return a regun.Project"),
    (["--project", "{here}/small_project.py:broken_project"], "failed: ZeroDivisionError: no data today"),
    (["--project", "{here}/small_project.py:projct"], "Did you mean 'project'?"),
    (["--project", "{here}/none.py:project"], "there is no file"),
    (["--base", "xyz", "--project", "x.py:y"], "give either --project FILE.py:FUNCTION or --base KEY"),
    ([], "give either --project FILE.py:FUNCTION or --base KEY"),
    (["--base", "xyz", "--store", "{tmp}/store"], "there is no store at "),
    (["--project", PROJECT, "--ids", "{tmp}/none.csv"], "cannot read the ids of"),
    (["--project", PROJECT, "--salt", "{tmp}/none"], "cannot read the salt"),
    (["--project", PROJECT, "--sign", "{tmp}/none"], "cannot read the private key"),
    (["--project", PROJECT, "--method", "regnu"], "unknown method 'regnu'"),
    (["--project", PROJECT, "--fallback", "retrian"], "unknown method 'retrian'"),
    (["--project", PROJECT, "--accept", "smia_acu~50"], "unknown number in the acceptance rule 'smia_acu'"),
    (["--project", PROJECT, "--threads", "0"], "--threads is 0"),
    (["--project", PROJECT, "--accept", ""], "the acceptance rule is empty"),
    (["--project", PROJECT, "--method", ""], "is not of the form name,key=value"),
    (["--project", PROJECT, "--fallback", ""], "is not of the form name,key=value"),
    (["--project", PROJECT, "--sign", ""], "cannot read the private key"),
    (["--project", PROJECT, "--salt", ""], "cannot read the salt"),
    (["--project", PROJECT, "--witness", ""], "cannot read the witness"),
    (["--project", PROJECT, "--witness", "{tmp}/out/ledger.jsonl"], "is inside"),
    (["--project", PROJECT, "--out", ""], "--out is empty; name a folder"),
    (["--project", PROJECT, "--ids", ""], "cannot read the ids of"),
    (["--project", PROJECT, "--accept", f"smia_auc<{'9' * 5000}"], "its bound is too large for a number"),
    (["--project", "{here}/small_project.py:leaving_project"], "leaving_project failed: SystemExit: 0"),
]


@pytest.mark.parametrize(("args", "message"), BAD, ids=[" ".join(args)[-40:] for args, _ in BAD])
def test_bad_input_is_said_in_words(args: list[str], message: str, request_file: Path, tmp_path: Path, run) -> None:
    given = [arg.format(here=HERE, tmp=tmp_path) for arg in args]
    out = tmp_path / "out"
    code, _, errors = run("forget", "--ids", request_file, "--out", out, "--bootstrap", "50", *given)
    assert code == 2
    assert message in errors
    assert errors.startswith("regun: ") or "\nregun: " in errors
    assert "Traceback" not in errors
    assert not (out / "ledger.jsonl").exists()


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5000, "-1", "1.5", ""])
def test_a_number_of_resamples_that_is_none_is_refused(number: str, request_file: Path, tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(arg) for arg in forget(request_file, tmp_path / "out", "--bootstrap", number)])
    assert caught.value.code == 2
    assert "argument --bootstrap: give a whole number from 0 to 1,000,000" in capsys.readouterr().err
    with pytest.raises(RegunError, match="give 0 to 1,000,000 resamples"):
        Options(bootstrap=10**30)


@pytest.mark.parametrize("name", ["received", "due", "reason", "requester", "role"])
def test_an_option_with_nothing_in_it_is_refused(name: str, request_file: Path, tmp_path: Path, capsys) -> None:
    """A variable of a script that is not set must not pass for today."""
    with pytest.raises(SystemExit) as caught:
        main([str(arg) for arg in forget(request_file, tmp_path / "out", f"--{name}", " ")])
    assert caught.value.code == 2
    assert f"argument --{name}: there is nothing in it" in capsys.readouterr().err


def test_verify_says_what_is_wrong_with_its_arguments(tmp_path: Path, run) -> None:
    code, _, errors = run("verify", tmp_path / "none.json")
    assert (code, errors) == (
        2,
        f"regun: cannot read {tmp_path / 'none.json'}: No such file or directory. Name a receipt.json, or the folder "
        "that regun forget wrote to.\n",
    )
    code, _, errors = run("verify", tmp_path)
    assert code == 2
    assert "has no ledger.jsonl" in errors
    code, _, errors = run("verify", tmp_path / "none.json", "--expect", "f" * 64)
    assert (code, "name its folder, not a receipt" in errors) == (2, True)
    (tmp_path / "ledger.jsonl").touch()
    for more, message in (
        (("--expect", "x"), "is not the hash of a"),
        (("--public-key", ""), "cannot read the public"),
    ):
        code, _, errors = run("verify", tmp_path, *more)
        assert (code, message in errors) == (2, True), errors
    code, _, errors = run("verify", tmp_path, "--alone")
    assert code == 2
    assert "is a folder; --project, --base and --alone go with one receipt.json" in errors


def test_a_receipt_cannot_write_to_the_terminal(request_file: Path, tmp_path: Path, run) -> None:
    """Whatever a forged receipt names, no line of the answer is its own."""
    quick = ("--method", QUICK, *LENIENT, "--bootstrap", "20", "--quiet")
    assert run(*forget(request_file, tmp_path / "out", *quick))[0] == 0
    path = tmp_path / "out/requests/0001/receipt.json"
    content = json.loads(path.read_text())
    content["files"]["x\x1b[1A\x1b[2K\nNothing was changed.\n"] = "0"
    path.write_bytes(written(seal(content, None)))
    code, out, _ = run("verify", path)
    assert code == 1
    assert "\x1b" not in out
    assert out.count("\nNothing was changed.") == 0


def test_verify_in_json_and_with_salt(request_file: Path, tmp_path: Path, run) -> None:
    (tmp_path / "salt").write_bytes(bytes(range(32)))
    (tmp_path / "salt").chmod(0o600)
    salted = ("--method", QUICK, *LENIENT, "--salt", tmp_path / "salt", "--bootstrap", "50", "--quiet")
    assert run(*forget(request_file, tmp_path / "out", *salted))[0] == 0
    receipt = tmp_path / "out/requests/0001/receipt.json"
    code, out, _ = run("verify", receipt, "--project", PROJECT, "--salt", tmp_path / "salt", "--json")
    report = json.loads(out)
    assert (code, report["fine"]) == (0, True)
    assert {"receipt.json", "data"} == set(report["checks"])
    code, _, errors = run("verify", receipt, "--project", PROJECT)
    assert code == 2
    assert "give --salt with the file it was begun with" in errors


# -------------------------------------------------------------------------------------------------------- many ids


@pytest.mark.timeout(60)
def test_many_ids_are_read_matched_and_hashed(tmp_path: Path) -> None:
    """Seconds, not minutes: anything that takes the square of their number would not end."""
    count = 200_000
    path = tmp_path / "ids.csv"
    path.write_text("id,reason\n" + "\n".join(f"user-{n},gone" for n in range(count)) + "\n")
    asked = read_request_file(path)
    assert len(asked.lines) == count
    rows = torch.arange(count + 50) % 3
    given = project(
        model=torch.nn.Linear(1, 3),
        train=(rows[:, None].float(), rows),
        ids=[f"user-{n}" for n in range(count + 50)],
        **{name: (rows[:20, None].float(), rows[:20]) for name in ("heldout", "val", "test")},
        unseen_ids={},
    )
    plan = prepare(given, asked, tmp_path / "out", Options(naming=Pseudonyms(bytes(32))))
    assert (len(plan.new), len(plan.retain)) == (count, 50)


def test_help_of_a_request_needs_no_torch() -> None:
    script = (
        "import sys\nfrom regun.cli import main\ntry:\n    main(['forget', '--help'])\nexcept SystemExit:\n    pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script + "sys.exit('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "regun forget --project app.py:project" in done.stdout
    assert regun.Project is not None


# --------------------------------------------------------------------------------------------------- nobody who reads


def test_a_closed_pipe_changes_neither_work_nor_exit_code(request_file: Path, tmp_path: Path) -> None:
    out, quick = tmp_path / "out", ("--method", QUICK, "--bootstrap", "20")
    assert unread(*forget(request_file, out, *quick, "--accept", "smia_auc<0")) == 1
    assert unread(*forget(request_file, out, *quick, "--accept", EASY, "--accept-untestable")) == 0
    assert [line.status for line in history(out)] == ["rejected", "accepted untestable"]
    assert unread(*forget(request_file, out, *quick, "--accept", "what")) == 2
    assert unread("verify", out) == 0
    (out / "requests/0001/risks.csv").write_text("")
    assert unread("verify", out) == 1


def test_what_was_cleared_up_is_said_also_when_quiet(request_file: Path, tmp_path: Path, run) -> None:
    more = ("--method", QUICK, "--bootstrap", "20", *LENIENT, "--quiet")
    (tmp_path / "out").mkdir()
    _private(Folder(tmp_path / "out"), "new", 1).mkdir()
    code, _, errors = run(*forget(request_file, tmp_path / "out", *more))
    assert code == 0
    assert errors == "forget: an earlier run was stopped before it had written its results; they are removed\n"


def test_unseen_records_alone_are_recorded(tmp_path: Path, run) -> None:
    (tmp_path / "ids.txt").write_text("val-3\n")
    request = forget(tmp_path / "ids.txt", tmp_path / "out")
    code, out, _ = run(*request, "--dry-run")
    assert (code, "request 1 would be recorded" in out) == (0, True)
    assert not (tmp_path / "out").exists()
    code, out, _ = run(*request)
    assert (code, "recorded: request 1 names unseen records only" in out) == (0, True)
    assert len(history(tmp_path / "out")) == 1


def test_a_text_that_is_too_long_stops_before_work(request_file: Path, tmp_path: Path, run) -> None:
    code, _, errors = run(*forget(request_file, tmp_path / "out", "--requester", "x" * 1001))
    assert (code, "the requester has 1,001 characters" in errors) == (2, True)
    assert not (tmp_path / "out").exists()
