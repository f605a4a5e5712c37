"""Thousands of bad inputs: each ends with a documented exit code, without a traceback, and touches nothing else.

Valid arguments, studies, lists of ids, receipts, ledgers and manifests are changed at random, in the same way on every
run; REGUN_FUZZ_SEED=7 tries others, REGUN_FUZZ_CASES=100000 tries more.
"""

import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib.font_manager  # noqa: F401  (looks for fonts when it is first imported)
import pytest

from regun import cli, files
from regun.artifacts import Store
from regun.artifacts.setup import Setup
from regun.cli import build_parser, main
from regun.cli.arguments import CRASHED, EXIT_CODES
from regun.errors import RegunError

SEED = int(os.environ.get("REGUN_FUZZ_SEED", "0"))
CASES = int(os.environ.get("REGUN_FUZZ_CASES", "600"))
"""For each border, or as many as a slow machine manages in some seconds."""
SECONDS = 9 * max(1, CASES // 600)
LEAST = 50
"""However slow."""
PATIENCE = 120
"""Seconds after which a case counts as endless."""

# fmt: off
NASTY = [
    "", " ", "0", "-1", "1e9", "1e400", "nan", "inf", "true", "none", "null", "9" * 30, "-" * 50,
    "../../../etc/passwd", "/", ".", "..", "~", "~nobody/x", "/dev/null", "/etc", "x" * 300,
    "a,b=c", "a,=", ",", "=", ":", "a:b", "a.py", "a.py:b", "os.path:join", "sys:exit", "hf:", "hf:../x", "@", "regun@",
    "ä", "日本", "\u202e", "\x1b[31m", "\t", "a\nb", "\udcff", "%s", "{}", "{0}", "$HOME", "`id`", "'; --", "\\", '"',
    "class:", "class:1/2", "class:1=2", "ids:", "ids:/", "stratified:9", "steps=", "steps=1", "samples=-1", "0.5", "1.0",
    "[" * 200, "{" * 200, "=1+1", "@SUM(A1)", "0x10", "1_000", "１２", "+5", "1.", ".5", "--help", "--json",
]
ODD: list[Any] = [
    None, True, False, 0, -1, 2**63, 10**30, 1.5, 1e308, "", "x", "../../../etc/passwd", "/etc",
    [], {}, [[]], [None], {"": None}, {"a": {"b": [1, 2]}}, "cnn", "a.py:f", "os.path:join", "0" * 64, "nan",
]
# fmt: on


class OutsideAccess:
    """Everything written, created, moved, removed or started outside of one folder, by Python's audit events."""

    CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
    STARTS = {"os.system", "subprocess.Popen", "os.posix_spawn", "os.exec", "socket.connect", "os.fork"}

    def __init__(self) -> None:
        self.allowed: Path | None = None
        self.events: list[str] = []
        sys.addaudithook(self.audit)

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self.allowed is None:
            return
        if event in self.STARTS:
            self.events.append(f"{event} {args[0]!r}")
        elif event == "open" and isinstance(args[0], str) and isinstance(args[2], int):
            if args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.check(event, args[0])
        elif event in self.CHANGES:
            self.check(event, args[0])

    def check(self, event: str, name: object) -> None:
        path = os.path.abspath(os.fsdecode(name)) if isinstance(name, str | bytes | os.PathLike) else ""
        allowed = path.startswith(str(self.allowed)) or "__pycache__" in path or path in ("", os.devnull)
        if not allowed:
            self.events.append(f"{event} {path}")


OUTSIDE, PARSER = OutsideAccess(), build_parser()


class Sandbox:
    """A folder with everything valid in it, and one case after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cases = 0
        self.faults: list[str] = []

    def run(self, *args: str) -> int:
        """One command; its exit code, after all that must hold for any."""
        shown = io.StringIO()
        OUTSIDE.allowed, OUTSIDE.events = self.folder, []
        try:
            with redirect_stdout(shown), redirect_stderr(shown), patience():
                try:
                    code = main(args)
                except SystemExit as left:  # argparse
                    code = left.code if isinstance(left.code, int) else 1
        finally:
            OUTSIDE.allowed = None
        output = shown.getvalue()
        for wrong, what in (
            (code not in EXIT_CODES or code == CRASHED, f"exit code {code}"),
            ("Traceback" in output, "a traceback"),
            (bool(OUTSIDE.events), f"touched {OUTSIDE.events}"),
        ):
            if wrong:
                shortened = " ".join(word if len(word) < 100 else f"{word[:100]}..." for word in args)
                self.faults.append(f"{what}: regun {shortened!r}\n{output[-300:]}")
        self.cases += 1
        return code


@contextmanager
def patience() -> Iterator[None]:
    def endless(*_: object) -> None:
        pytest.fail(f"no end after {PATIENCE} seconds")

    before = signal.signal(signal.SIGALRM, endless)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


TINY = ["--data", "digits,limit=400,test_limit=50", "--recipe", "digits,epochs=1"]


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A store with a base and an unlearned model, and ids to forget; where they are."""
    folder = tmp_path_factory.mktemp("valid")
    store = ["--store", str(folder / "store"), "--threads", "1", "--quiet"]
    assert main(["train", *TINY, *store]) == 0
    base = Store(folder / "store").artifacts("model")[0]
    assert main(["unlearn", "--base", base.key, "--forget", "0.1", "--method", "finetune,epochs=1", *store]) == 0
    rows = base.tensors("trained_on")["indices"][:3].tolist()
    (folder / "ids.csv").write_text("id,reason\n" + "".join(f"{row},asked\n" for row in rows))
    unlearned = next(a.key for a in Store(folder / "store").artifacts("model") if a.info["role"] == "unlearned")
    return {"folder": str(folder), "base": base.key, "unlearned": unlearned}


@pytest.fixture(scope="module")
def ledger(valid: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the ledger and the receipt of one request."""
    folder, out = Path(valid["folder"]), tmp_path_factory.mktemp("ledger") / "out"
    words = ["forget", "--base", valid["base"], "--ids", str(folder / "ids.csv"), "--out", str(out), "--quiet"]
    words += ["--method", "finetune,epochs=1", "--accept", "val_drop<100", "--store", str(folder / "store")]
    assert main([*words, "--threads", "1", "--accept-inconclusive"]) == 0
    return out


@pytest.fixture
def sandbox(valid: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """A copy of what is valid, which is also home and working directory; no command gets as far as loading data."""

    def enough(self: Setup, on_progress: object = None) -> None:
        raise RegunError("far enough.")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve() / "sandbox"
        shutil.copytree(valid["folder"], folder)
        for variable in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
            monkeypatch.setenv(variable, str(folder))
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        monkeypatch.setattr(Setup, "load", enough)
        monkeypatch.setattr(cli, "build_parser", lambda: PARSER)  # to make it anew takes longer than most cases
        monkeypatch.chdir(folder)
        yield Sandbox(folder)


def rounds(sandbox: Sandbox, border: str) -> Iterator[random.Random]:
    """Random generators, one a case; in the end, all that went wrong."""
    end = time.monotonic() + SECONDS
    for number in range(CASES):
        if number >= LEAST and time.monotonic() > end:
            break
        yield random.Random(f"{SEED} {border} {number}")
    assert not sandbox.faults, "\n\n".join([f"{len(sandbox.faults)} of {sandbox.cases} cases:", *sandbox.faults[:20]])
    assert sandbox.cases >= min(LEAST, CASES)


def changed(content: bytes, draw: random.Random) -> bytes:
    """The content with one to three changes: bits, pieces lost, doubled, moved, or something nasty put in."""
    for _ in range(draw.randint(1, 3)):
        a, b = sorted(draw.randrange(len(content) + 1) for _ in range(2))
        b = min(b, a + draw.choice([1, 3, 20, 200]))
        nasty = draw.choice(NASTY).encode("utf-8", "surrogateescape")
        content = draw.choice(
            [
                content[:a] + content[b:],
                content[:b] + content[a:],
                content[:a] + nasty + content[b:],
                content[:a] + bytes([draw.randrange(256)]) + content[a + 1 :],
                content[:a],
                content[a:b] + content[:a] + content[b:],
            ]
        )
    return content


def odd(value: Any, draw: random.Random) -> Any:
    """A JSON value with something odd at one place."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        key = draw.choice(list(value))
        if draw.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: odd(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.7:
        place = draw.randrange(len(value))
        return [*value[:place], odd(value[place], draw), *value[place + 1 :]]
    return draw.choice(ODD)


# ---------------------------------------------------------------------------------------------------------- arguments

COMMANDS = """
train --data digits,limit=400 --model cnn,width=4 --recipe digits,epochs=1 --seed 1 --without 0.1 --split val=0.1
train --data digits --budget steps=3 --split seed=2,heldout=0.2,stratified=true --pipeline none --device cpu
unlearn --base {base} --forget class:3 --method regun,w=0.3 --budget steps=3 --keep best:val_loss
unlearn --base {base} --forget 0.1 --method finetune@resnet,lr=0.1 --teacher {base} --out out.safetensors
unlearn --base w.safetensors --forget 0.1 --data digits --model cnn --settings tuned.toml --snapshot-seconds 3
audit {unlearned} --forget 0.1 --retrained {base} --attacks smia --metrics gap_rftp --bootstrap 9
audit {base} --base {base} --retrained none --risks risks.csv --shadows 3 --all --threads 1
tune --base {base} --forget 0.1 --methods finetune --trials 2 --objective reference --out tuned --seed 1
forget --base {base} --ids ids.csv --out out2 --accept val_drop<1 --fallback finetune --method finetune --bootstrap 9
forget --base {base} --ids ids.csv --out out2 --received 2024-01-01 --due 2024-02-01 --role us --accept-inconclusive --out-models 1
forget --project app.py:project --ids ids.csv --out out2 --dry-run --salt salt --sign key.pem --reason why
verify out/requests/0001/receipt.json --alone --public-key key.pem
verify out --expect abc
store list
store show {base}
store verify --quick
store gc --dry-run --partial-days 3
study show digits
study show study.toml
methods regun
data
models
recipes
"""


def test_arguments(sandbox: Sandbox, valid: dict[str, str]) -> None:
    lines = [line.format(**valid).split() for line in COMMANDS.strip().splitlines()]
    for draw in rounds(sandbox, "arguments"):
        words = list(draw.choice(lines))
        for _ in range(draw.randint(1, 3)):
            place = draw.randrange(len(words))
            nasty = draw.choice([*NASTY, *(word for line in lines for word in line)])
            pieces = words[place].replace(",", " , ").replace("=", " = ").replace(":", " : ").split()
            pieces[draw.randrange(len(pieces)) if pieces else 0 : 1] = [nasty]
            words[place : place + 1] = draw.choice(
                [[], [nasty], ["".join(pieces)], [words[place], nasty], words[place:][:1] * 2]
            )
            if not words:
                break
        words = [word.replace("\0", "") for word in words]
        has_store = words[:1] and words[0] not in ("methods", "data", "models", "recipes", "verify", "study")
        sandbox.run(*words, *(["--store", str(sandbox.folder / "store")] if has_store else []))


# ------------------------------------------------------------------------------------------------------------- files

STUDY = """
name = "mine"
title = "Mine"
data = "digits,limit=400"
model = "cnn,width=8"
recipe = "digits,epochs=2"
forget = ["0.1", "class:3"]
seeds = [0, 1]
repeats = 2
methods = ["regun", "finetune,lr=0.1", "salun@original"]
references = 2
bootstrap = 100
heldout = 0.1
val = 0.1

[titles]
regun = "Ours"

[settings."0.1".regun]
w = 0.5

[tune]
trials = 3
objective = "gap"
"""


def test_studies(sandbox: Sandbox) -> None:
    path = sandbox.folder / "study.toml"
    path.write_text(STUDY)
    assert sandbox.run("study", "show", "study.toml", "--json") == 0
    for draw in rounds(sandbox, "studies"):
        path.write_bytes(changed(STUDY.encode(), draw))
        sandbox.run("study", "show", "study.toml", "--json")


SETTINGS = """
[settings."0.1".finetune]
lr = 0.01
epochs = 3
milestones = [1, 2]
"""


def test_settings_files(sandbox: Sandbox, valid: dict[str, str]) -> None:
    path = sandbox.folder / "tuned.toml"
    words = ["unlearn", "--base", valid["base"], "--forget", "0.1", "--method", "finetune", "--settings", "tuned.toml"]
    for draw in rounds(sandbox, "settings"):
        path.write_bytes(changed(SETTINGS.encode(), draw))
        sandbox.run(*words, "--store", "store", "--quiet")


LISTS = {
    "ids.txt": b"3\n5\n8\n",
    "ids.json": b"[3, 5, 8]",
    "asked.json": b'[{"id": 3, "reason": "asked"}, {"id": "5"}]',
    "ids.csv": b'id,reason,requester,received,due\n3,asked,T-1,2024-01-01,2024-02-01\n5,"a ""b""",,,\n',
}


def test_lists_of_ids(sandbox: Sandbox, valid: dict[str, str]) -> None:
    for draw in rounds(sandbox, "ids"):
        name = draw.choice(list(LISTS))
        (sandbox.folder / name).write_bytes(changed(LISTS[name], draw))
        if draw.random() < 0.4:
            sandbox.run("train", "--without", f"ids:{name}", "--store", "store", "--quiet")
        else:
            words = ["--base", valid["base"], "--ids", name, "--out", "out2", "--dry-run"]
            sandbox.run("forget", *words, "--store", "store", "--quiet")


def test_receipts_and_ledgers(sandbox: Sandbox, ledger: Path) -> None:
    out = sandbox.folder / "out"
    shutil.copytree(ledger, out)
    wholes = {
        path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.suffix in (".json", ".jsonl")
    }
    assert sandbox.run("verify", "out") == 0
    receipt = next(path for path in wholes if path.name == "receipt.json")
    for draw in rounds(sandbox, "receipts"):
        path = draw.choice(list(wholes))
        if path.suffix == ".json" and draw.random() < 0.5:
            path.write_text(json.dumps(odd(json.loads(wholes[path]), draw)))
        else:
            path.write_bytes(changed(wholes[path], draw))
        sandbox.run("verify", *draw.choice([[str(receipt)], [str(receipt), "--alone"], ["out"]]), "--quiet")
        path.write_bytes(wholes[path])


def test_manifests(sandbox: Sandbox, valid: dict[str, str]) -> None:
    """Damaged ones, and ones with a valid seal that say something odd."""
    store = Store(sandbox.folder / "store")
    paths = {key: store.path("model", valid[key]) / "manifest.json" for key in ("base", "unlearned")}
    wholes = {path: path.read_bytes() for path in paths.values()}
    commands: list[Callable[[str], list[str]]] = [
        lambda key: ["store", "list"],
        lambda key: ["store", "show", key],
        lambda key: ["store", "verify"],
        lambda key: ["store", "verify", "--quick"],
        lambda key: ["store", "gc"],
        lambda key: ["audit", key, "--quiet"],
        lambda key: ["audit", key, "--forget", "0.1", "--shadows", "4", "--quiet"],
        lambda key: ["unlearn", "--base", key, "--forget", "0.1", "--quiet"],
        lambda key: ["forget", "--base", key, "--ids", "ids.csv", "--out", "out2", "--quiet"],
    ]
    for draw in rounds(sandbox, "manifests"):
        which = draw.choice(list(paths))
        path = paths[which]
        if draw.random() < 0.8:
            content = files.unsealed(wholes[path])
            part = draw.choice(["info", "info", "inputs", "files", "manifest"])
            content = odd(content, draw) if part == "manifest" else {**content, part: odd(content[part], draw)}
            path.write_bytes(files.sealed(content) if isinstance(content, dict) and content else b"")
            if part == "inputs" and isinstance(content["inputs"], dict):
                path = renamed(path, content, store)
        else:
            path.write_bytes(changed(wholes[path], draw))
        sandbox.run(*draw.choice(commands)(path.parent.name), "--store", "store")
        if path != paths[which]:
            path.parent.rename(paths[which].parent)
        paths[which].write_bytes(wholes[paths[which]])


def renamed(path: Path, content: dict[str, Any], store: Store) -> Path:
    """The artifact under the key that its odd inputs have, if they can have one."""
    try:
        key = store.key("model", content["inputs"])
    except UnicodeEncodeError:
        return path
    path.write_bytes(files.sealed({**content, "key": key}))
    target = path.parent.with_name(key)
    if target != path.parent:
        path.parent.rename(target)
    return target / "manifest.json"
