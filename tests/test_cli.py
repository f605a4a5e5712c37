"""The command line: its results, its output on both streams, and its errors for bad input."""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from expect import assert_names
from regun.artifacts import Contents, Store, state_digest
from regun.auditing import VERDICTS
from regun.cli import build_parser, lists, main
from regun.cli.display import Display
from regun.cli.terminal import print_table
from regun.data.registry import DATA_SETS, DataSpec, load_data
from regun.methods import get_method, method_names
from regun.splits import Reserve, reserve
from regun.training.job import Epoch, Progress
from regun.training.recipes import RECIPES

pytestmark = pytest.mark.usefixtures("plain_surroundings")

DATA = "digits,limit=400,test_limit=50"
TINY = ["--data", DATA, "--recipe", "digits,epochs=1", "--threads", "1"]
FINETUNE = ["--method", "finetune,epochs=1", "--threads", "1", "--quiet"]

MODEL_FILE = """
from torch import nn

def net(num_classes, image_size, hidden: int = 8):
    size = image_size[0] * image_size[1] * image_size[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))

def wrong(num_classes):
    return 3
"""
OWN_FILE = """
import numpy as np

def mean_confidence(splits, retrain):
    "How sure the model is of its answers on forgotten examples."
    return 100 * float(np.exp(splits["forget"].log_probs).max(1).mean())

def largest(evidence):
    "The highest log-probability."
    return evidence.target.log_probs.max(1)

def broken(splits, retrain):
    raise ZeroDivisionError("oh")

def leaving(evidence):
    raise SystemExit(0)
"""
METHOD_FILE = """
import torch

def halve(job):
    "Halve every weight."
    with torch.no_grad():
        for parameter in job.model.parameters():
            parameter.mul_(0.5)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that holds one base model, and files to name in arguments."""
    folder = tmp_path_factory.mktemp("home")
    assert main(["train", *TINY, "--store", str(folder / "store"), "--quiet"]) == 0
    (folder / "file").write_text("")
    (folder / "junk.txt").write_text("1\n2\nthree\n")
    (folder / "open.json").write_text("[1, 2")
    (folder / "empty.txt").write_text("")
    (folder / "twice.txt").write_text("5 5")
    (folder / "far.txt").write_text("3\n400\n")
    (folder / "heldout.txt").write_text(str(split().heldout[0]))
    (folder / "val.json").write_text(json.dumps([int(split().val[0])]))
    (folder / "all.txt").write_text("\n".join(map(str, split().base)))
    (folder / "net.py").write_text(MODEL_FILE)
    (folder / "broken.py").write_text("1 / 0")
    (folder / "method.py").write_text(METHOD_FILE)
    (folder / "own.py").write_text(OWN_FILE)
    (folder / "weights.pt").write_bytes(b"\x80\x04")
    (folder / "junk.safetensors").write_bytes(b"not safetensors at all")
    (folder / "hf").mkdir()
    (folder / "layout/train").mkdir(parents=True)
    base = artifacts(folder / "store", "model")[0]
    safetensors.torch.save_file(base.tensors("weights"), folder / "base.safetensors")
    some = {name: tensor for name, tensor in base.tensors("weights").items() if "head" not in name}
    safetensors.torch.save_file(some, folder / "some.safetensors")
    many = Store(folder / "many")
    for n in range(17):
        many.make("model", {"n": n}, lambda _: Contents({}, {}))
    return folder


def split() -> Reserve:
    return reserve(load_data(DataSpec.read("digits", {"limit": 400}), "digits").train.labels, 0)


def artifacts(store: Path, kind: str) -> list:
    return Store(store).artifacts(kind)


@pytest.fixture
def base(home: Path) -> str:
    return artifacts(home / "store", "model")[0].key


def parsed(result: tuple[int, str, str]) -> dict:
    code, out, err = result
    assert code == 0, err
    return json.loads(out)


# -------------------------------------------------------------------------------------------------------------- train


def test_train_shows_a_table_and_a_second_time_loads_the_model(run, tmp_path: Path) -> None:
    code, out, err = run("train", *TINY, "--store", str(tmp_path))
    assert code == 0
    assert_names(out.splitlines()[0], "cnn", "digits", "trained", "16,794", "324")
    assert_names(out, "accuracy", "train", "val", "test", "key", "path", tmp_path)
    assert_names(err, "train:", "1/1", "loss", "examples/s")
    code, again, err = run("train", *TINY, "--store", str(tmp_path))
    assert code == 0
    assert again.splitlines()[1:] == out.splitlines()[1:]
    assert_names(again.splitlines()[0], "store", "16,794", "324")
    assert err == ""
    assert len(artifacts(tmp_path, "model")) == 1


def test_train_prints_nothing_but_json_with_json(run, base: str, home: Path) -> None:
    result = run("train", *TINY, "--json")
    report = parsed(result)
    assert (report["key"], report["in_store"], report["model"], report["data"]) == (base, True, "cnn", "digits")
    assert (report["examples"], report["parameters"], report["cost"]["steps"]) == (324, 16_794, 6)
    assert set(report["accuracy"]) == {"train", "val", "test"}
    assert all(0 <= value <= 100 for value in report["accuracy"].values())
    assert report["weights"] == state_digest(safetensors.torch.load_file(home / "base.safetensors"))


def test_the_result_depends_on_the_seeds_and_not_on_how_it_was_run(run, base: str, tmp_path: Path) -> None:
    keys = {parsed(run("train", *TINY, "--json", *more))["key"] for more in (["--seed", "1"], ["--split", "seed=1"])}
    assert len(keys | {base}) == 3
    elsewhere = parsed(
        run("train", *TINY, "--json", "--store", str(tmp_path), "--snapshot-seconds", "0", "--quiet", "--device", "cpu")
    )
    assert elsewhere["key"] == base
    assert elsewhere["weights"] == artifacts(tmp_path, "model")[0].info["weights"]
    assert elsewhere["weights"] == parsed(run("train", *TINY, "--json"))["weights"]


def test_train_without_some_examples(run, base: str, tmp_path: Path) -> None:
    labels = load_data(DataSpec.read("digits", {"limit": 400}), "digits").train.labels
    tenth = parsed(run("train", *TINY, "--json", "--without", "0.1"))
    assert tenth["examples"] == 324 - 36
    (tmp_path / "ids.txt").write_text("\n".join(map(str, split().pool[:36])))
    (tmp_path / "ids.json").write_text(json.dumps(split().pool[:36].tolist()))
    for name in ("ids.txt", "ids.json"):
        same = parsed(run("train", *TINY, "--json", "--without", f"ids:{tmp_path / name}"))
        assert (same["key"], same["in_store"]) == (tenth["key"], True)
    three = parsed(run("train", *TINY, "--json", "--without", "class:3"))
    assert three["examples"] == int((labels[split().base] != 3).sum())
    threes = 324 - three["examples"]
    for request, expected in {"class:3=0.5": round(0.5 * threes), "stratified:0.1": 36}.items():
        assert parsed(run("train", *TINY, "--json", "--without", request))["examples"] == 324 - expected
    roles = {a.key: a.info["role"] for a in artifacts(Path(tenth["path"]).parents[2], "model")}
    assert (roles[base], roles[tenth["key"]]) == ("base", "retrain")


def test_a_model_file_of_the_user_s(run, home: Path) -> None:
    report = parsed(run("train", *TINY, "--json", "--model", f"{home / 'net.py'}:net,hidden=4"))
    assert report["parameters"] == 64 * 4 + 4 + 4 * 10 + 10


def test_a_try_of_a_few_steps(run) -> None:
    assert parsed(run("train", *TINY, "--json", "--budget", "steps=2"))["cost"]["steps"] == 2


# ------------------------------------------------------------------------------------------------------------ unlearn


def test_unlearn_from_a_stored_model(run, base: str, home: Path, tmp_path: Path) -> None:
    before = artifacts(home / "store", "model")[0].info["weights"]
    out_file = tmp_path / "out.safetensors"
    code, out, err = run("unlearn", "--base", base[:10], "--forget", "0.1", *FINETUNE, "--out", str(out_file))
    assert code == 0, err
    assert_names(
        out, "finetune", "cnn", "digits", "36", "3", "288", "retain", "forget", "val", "test", "before", "after"
    )
    assert re.search(rf"regun audit [0-9a-f]{{12}} --store {re.escape(str(home / 'store'))}\n", out)
    report = parsed(run("unlearn", "--base", base, "--forget", "0.1", *FINETUNE, "--json"))
    assert (report["base"], report["method"], report["forgotten"]) == (base, "finetune", 36)
    assert set(report["accuracy"]["after"]) == {"retain", "forget", "val", "test"}
    assert report["weights"] == state_digest(safetensors.torch.load_file(out_file)) != before
    artifact = Store(home / "store").find(report["key"])
    assert artifact.info["request"] == "0.1"
    assert artifact.tensors("splits")["forget"].tolist() == sorted(split().pool[:36].tolist())


def test_unlearn_from_a_file_of_weights(run, base: str, home: Path) -> None:
    """Named by content: the same weights, data, split and method are the same run, wherever the file lies."""
    shutil.copy(home / "base.safetensors", home / "copy.safetensors")
    words = ("--forget", "0.1", *FINETUNE, "--data", DATA, "--model", "cnn", "--json")
    one, two = (
        parsed(run("unlearn", "--base", str(home / name), *words)) for name in ("base.safetensors", "copy.safetensors")
    )
    assert (one["key"], one["weights"]) == (two["key"], two["weights"])
    ours = parsed(run("unlearn", "--base", base, "--forget", "0.1", *FINETUNE, "--json"))
    assert one["accuracy"]["before"] == ours["accuracy"]["before"]
    assert Store(home / "store").find(one["base"]).info["role"] == "imported"


def test_a_budget_is_met_and_the_best_epoch_can_be_kept(run, base: str, home: Path) -> None:
    args = ("unlearn", "--base", base, "--forget", "0.2", "--threads", "1", "--quiet", "--json")
    report = parsed(run(*args, "--method", "neggrad_plus,batch_size=16", "--budget", "steps=7"))
    assert report["cost"]["steps"] == 7
    report = parsed(run(*args, "--method", "finetune,batch_size=16", "--budget", "samples=100"))
    assert 100 <= report["cost"]["backward"] < 116
    best = parsed(run(*args, "--method", "finetune,epochs=3", "--keep", "best:val_loss"))
    watched = Store(home / "store").find(best["key"]).info["watched"]
    assert [entry["epoch"] for entry in watched] == [1, 2, 3]
    assert all("val_loss" in entry for entry in watched)


def test_a_method_of_the_user_s_own(run, base: str, home: Path) -> None:
    report = parsed(
        run("unlearn", "--base", base, "--forget", "class:3", "--method", f"{home / 'method.py'}:halve", "--json")
    )
    before = Store(home / "store").find(base).tensors("weights")
    after = Store(home / "store").find(report["key"]).tensors("weights")
    assert torch.equal(after["features.0.weight"], before["features.0.weight"] / 2)


# -------------------------------------------------------------------------------------------------------------- audit


def test_a_prepared_table_serves_crossfit_and_auto(home: Path, base: str, tmp_path: Path, capsys) -> None:
    store, table = ["--store", str(home / "store"), "--threads", "1", "--quiet"], str(tmp_path / "table.safetensors")
    how = ["unlearn", "--base", base, "--forget", "0.1", *store]
    assert main([*how, "--method", "crossfit,steps=4"]) == 2
    assert_names(capsys.readouterr().err, "--prepared", "prepare", "--out")
    assert main([*how, "--method", "crossfit,steps=4", "--prepared", table]) == 2
    assert_names(capsys.readouterr().err, "table.safetensors")
    assert main(["prepare", "--base", base, "--folds", "2", "--share", "1", "--out", table, *store]) == 0
    for method in ("crossfit,steps=4", "auto,short=0,steps=4"):
        capsys.readouterr()
        assert main([*how, "--method", method, "--prepared", table, "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["cost"]["steps"] == 4
    assert result["notes"]["price"]["branch"] == "cross-fitted"


@pytest.fixture(scope="module")
def judged(home: Path) -> dict[str, str]:
    """Keys of an unlearned model and of three retrained without the same examples, in the store of `home`."""
    store = str(home / "store")
    for seed in ("0", "1", "2"):
        assert main(["train", *TINY, "--without", "0.1", "--seed", seed, "--store", store, "--quiet"]) == 0
    base = next(a.key for a in artifacts(home / "store", "model") if a.info["role"] == "base" and not a.inputs["seed"])
    assert main(["unlearn", "--base", base, "--forget", "0.1", *FINETUNE, "--store", store]) == 0
    models = artifacts(home / "store", "model")
    retrained = {str(a.inputs["seed"]): a.key for a in models if a.info.get("without") == "0.1"}
    return {**retrained, "unlearned": next(a.key for a in models if a.info.get("request") == "0.1")}


AUDIT = ("--bootstrap", "20", "--threads", "1")


def test_audit_compares_with_the_retrained_models_of_the_store(run, judged: dict[str, str], base: str) -> None:
    code, out, err = run("audit", judged["unlearned"], *AUDIT)
    assert code == 0, err
    assert_names(err, "audit:", *(judged[seed][:12] for seed in "012"))
    assert_names(out.splitlines()[2], "36")
    head = next(line for line in out.splitlines() if line.startswith("number"))
    assert [word.strip() for word in head.split("  ") if word] == [
        *("number", "before", "now", "retrained", "noise floor")
    ]
    assert any(name.upper() in out for name in VERDICTS)
    report = parsed(run("audit", judged["unlearned"], *AUDIT, "--json", "--quiet"))
    assert report["models"] == {
        "target": judged["unlearned"],
        "before": base,
        "retrain": judged["0"],
        "references": [judged["1"], judged["2"]],
        "out_models": [],
    }
    assert report["u_lira"] is None


def test_any_model_of_the_store_can_be_audited(run, judged: dict[str, str], base: str) -> None:
    """A retrained model's forget set is recorded; a base needs --forget."""
    retrained = parsed(run("audit", judged["1"], *AUDIT, "--json", "--quiet"))
    assert retrained["models"]["references"] == [judged["2"]]
    assert retrained["models"]["retrain"] == judged["0"]
    named_set = parsed(run("audit", base, "--forget", "0.1", *AUDIT, "--json", "--quiet"))
    assert named_set["models"]["retrain"] == judged["0"]
    alone = parsed(run("audit", judged["unlearned"], "--retrained", "none", *AUDIT, "--json", "--quiet"))
    assert alone["models"]["retrain"] is None
    assert alone["models"]["references"] == []
    named = ("--retrained", f"{judged['2']},{judged['0']},{judged['1']}")
    chosen = parsed(run("audit", judged["unlearned"], *named, *AUDIT, "--json", "--quiet"))
    assert chosen["models"]["references"] == [judged["0"], judged["1"]]


def test_attacks_and_metrics_of_the_user_s_own_are_shown(run, judged: dict[str, str], home: Path) -> None:
    own = ("--metrics", f"{home}/own.py:mean_confidence", "--attacks", f"smia,{home}/own.py:largest")
    code, out, err = run("audit", judged["unlearned"], *own, *AUDIT)
    assert code == 0, err
    assert "mean confidence" in out
    assert "largest AUC" in out
    numbers = parsed(run("audit", judged["unlearned"], *own, *AUDIT, "--json", "--quiet"))["numbers"]
    assert 10 <= numbers["mean_confidence"][0] <= 100
    assert "largest_auc" in numbers
    assert "entropy_auc" not in numbers


def test_the_risk_list_is_written_whole(run, judged: dict[str, str], tmp_path: Path) -> None:
    for name in ("risks.csv", "risks.json"):
        assert run("audit", judged["unlearned"], *AUDIT, "--risks", str(tmp_path / name))[0] == 0
    rows = json.loads((tmp_path / "risks.json").read_text())
    assert len((tmp_path / "risks.csv").read_text().splitlines()) == len(rows) + 1
    assert [row["split"] for row in rows].count("forget") == 36
    assert sorted(p.name for p in tmp_path.iterdir()) == ["risks.csv", "risks.json"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--metrics", "{home}/own.py:broken"], ["'broken'", "ZeroDivisionError", "oh"]),
        (["--attacks", "{home}/own.py:leaving"], ["'leaving'", "SystemExit"]),
        (["--attacks", "smiaa"], ["'smiaa'", "'smia'"]),
        (["--metrics", "forget_ac"], ["'forget_ac'", "'forget_acc'"]),
        (["--risks", "risks.txt"], ["--risks", "risks.txt", ".csv", ".json"]),
        (["--risks", "{home}/no/risks.csv"], ["{home}/no/risks.csv"]),
        (["--model", "cnn"], ["--model"]),
    ],
)
def test_bad_options_of_an_audit_are_named(
    run, judged: dict[str, str], home: Path, words: list[str], names: list[str]
) -> None:
    code, out, err = run("audit", judged["unlearned"], *AUDIT, *(word.format(home=home) for word in words))
    assert (code, out) == (2, "")
    assert_names(err, *(name.format(home=home) for name in names))


def test_shadows_need_a_model_that_regun_unlearned(run, judged: dict[str, str], base: str) -> None:
    code, _, err = run("audit", base, "--forget", "0.1", "--shadows", "8", *AUDIT)
    assert code == 2
    assert_names(err, "--shadows")


# -------------------------------------------------------------------------------------------------------------- lists


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("data", list(DATA_SETS)),
        ("models", ["resnet18", "swin-t", "cnn", "hf:PATH", "module:function"]),
        ("recipes", list(RECIPES)),
        ("methods", method_names()),
    ],
)
def test_lists_name_everything_for_people_and_machines(command: str, names: list[str], capsys) -> None:
    assert main([command]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)
    assert main([command, "--json"]) == 0
    listed = json.dumps(json.loads(capsys.readouterr().out))
    assert all(f'"{name}"' in listed for name in names)


@pytest.mark.parametrize("name", method_names())
def test_every_method_can_be_shown(name: str, capsys) -> None:
    assert main(["methods", name]) == 0
    shown = capsys.readouterr().out
    assert main(["methods", name, "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["name"] == name
    assert all(setting in shown for setting in entry["settings"])
    assert_names(shown, *(f"{name}@{preset}" for preset in entry["presets"]))


def test_store_list_and_show(run, base: str, home: Path) -> None:
    code, out, _ = run("store", "list")
    assert code == 0
    head, _, *rows = out.splitlines()
    assert head.split() == ["key", "kind", "role", "data", "examples", "created"]
    assert rows[0].split()[:5] == [base[:12], "model", "base", "digits", "324"]
    listed = json.loads(run("store", "list", "--json")[1])
    assert len(listed) == len(rows)
    assert listed[0]["key"] == base
    shown = parsed(run("store", "show", base[:10]))
    assert shown["key"] == base
    assert shown["inputs"]["recipe"]["epochs"] == 1
    assert set(shown["files"]) == {"weights.safetensors", "trained_on.safetensors"}
    code, out, _ = run("store", "verify")
    assert code == 0
    assert_names(out, len(rows), 0)
    code, out, err = run("store", "gc")
    assert (code, err) == (0, "")
    assert_names(out, 0)


def test_an_empty_store_is_named_as_empty(run, tmp_path: Path) -> None:
    Store(tmp_path / "new")
    code, out, err = run("store", "list", "--store", str(tmp_path / "new"))
    assert (code, err) == (0, "")
    assert_names(out, tmp_path / "new", "empty")


# ---------------------------------------------------------------------------------------------------------- bad input

TRAIN, UNLEARN = ["train", *TINY], ["unlearn", "--forget", "0.1", *FINETUNE]
FROM_FILE = [*UNLEARN, "--data", DATA, "--model", "cnn", "--base"]

BAD: list[tuple[list[str], list[str]]] = [
    # names, with the nearest suggestion
    (["train", "--data", "digts"], ["'digts'", "'digits'"]),
    (["train", "--model", "resnet81"], ["'resnet81'", "'resnet18'"]),
    (["train", "--recipe", "digit"], ["'digit'", "'digits'"]),
    (["train", "--pipeline", "resnot"], ["'resnot'", "'resnet'"]),
    (["train", "--data", "digits,lmit=4"], ["'lmit'", "'limit'"]),
    (["train", "--model", "cnn,wdith=4"], ["'wdith'", "'width'"]),
    (["train", "--recipe", "digits,epoch=4"], ["'epoch'", "'epochs'"]),
    ([*UNLEARN, "--base", "{base}", "--method", "regnu"], ["'regnu'", "'regun'"]),
    (
        [*UNLEARN, "--base", "{base}", "--method", "regun@papercode"],
        ["'paper_code'", "10"],
    ),
    ([*UNLEARN, "--base", "{base}", "--method", "regun,ww=1"], ["'ww'", "'w'"]),
    (
        [*UNLEARN, "--base", "{base}", "--keep", "best:val_los"],
        ["'val_los'"],
    ),
    (["methods", "salon"], ["'salon'", "'salun'"]),
    # settings
    (["train", "--recipe", "digits,lr=fast"], ["recipe.lr", "'fast'"]),
    (["train", "--recipe", "digits,lr=nan"], ["recipe.lr", "'nan'"]),
    (["train", "--recipe", "digits,lr=inf"], ["recipe.lr", "'inf'"]),
    (["train", "--recipe", "digits,lr=-1"], ["recipe.lr", "1.0"]),
    (["train", "--recipe", "digits,epochs=2.5"], ["recipe.epochs", "'2.5'"]),
    (["train", "--recipe", "digits,lr=1,lr=2"], ["lr"]),
    (["train", "--recipe", "digits,lr"], ["'digits,lr'", "'lr'"]),
    (["train", "--data", ""], ["''"]),
    (["train", "--data", "digits,limit=0"], ["data.limit", "0"]),
    (["train", "--data", "digits,limit=9999"], ["data.limit", "9999", "1437"]),
    (["train", "--split", "heldout=1.5"], ["split.heldout", "1.5", "0.9"]),
    (["train", "--split", "val=nan"], ["split.val", "nan"]),
    (["train", "--data", "digits,limit=4", "--split", "heldout=0.9"], ["0.9", "0.1", "4"]),
    (["train", "--pipeline", "swin"], ["'swin'", "'none'"]),
    (["train", "--model", "swin-t"], ["swin-t", "8x8", "'swin-nano'"]),
    (["train", "--budget", "steps=0"], ["1"]),
    ([*UNLEARN, "--base", "{base}", "--method", "ssd,alpha=inf"], ["ssd.alpha", "'inf'"]),
    ([*UNLEARN, "--base", "{base}", "--method", "regun,w=nan"], ["regun.w", "'nan'"]),
    ([*UNLEARN, "--base", "{base}", "--method", "regun,w=2"], ["regun.w", "2.0"]),
    ([*UNLEARN, "--base", "{base}", "--budget", "foo"], ["'foo'"]),
    ([*UNLEARN, "--base", "{base}", "--budget", "steps=²"], ["'steps=²'"]),
    ([*UNLEARN, "--base", "{base}", "--budget", "steps=0"], ["1"]),
    # sizes that no machine has
    (["train", "--model", "vit,depth=100000000"], ["vit.depth", "100000000", "1000"]),
    (["train", "--model", "mlp,hidden=1e9"], ["2", "000"]),
    (["train", "--data", "digits,limit=1e400"], ["data.limit", "'1e400'"]),
    # the machine
    (["train", "--device", "tpux"], ["'tpux'"]),
    (["train", "--device", "meta"], ["'meta'"]),
    (["train", "--device", "hpu"], ["'hpu'"]),
    (["train", "--threads", "0"], ["--threads", "0"]),
    (["train", "--snapshot-seconds", "-1"], ["1.0", "0"]),
    (["train", "--store", "{home}/file/x"], ["{home}/file/x"]),
    (["train", "--store", "{home}"], ["{home}", "'file'"]),
    (["train", "--threads", "9999"], ["--threads", "9999", "1", "1,024"]),
    # data and models from outside
    (["train", "--data", "cifar10"], ["--data-dir"]),
    (["train", "--data", "cifar10", "--data-dir", "{home}/no"], ["10", "{home}/no"]),
    (["train", "--data", "cifar100", "--data-dir", "{home}"], ["100"]),
    (
        ["train", "--data", "folder", "--data-dir", "{home}/hf"],
        ["{home}/hf"],
    ),
    (["train", "--data", "folder", "--data-dir", "{home}/layout"], ["{home}/layout", "train", "test", "val"]),
    (["train", "--model", "hf:{home}/no"], ["'{home}/no'"]),
    (["train", "--model", "hf:{home}/hf"], ["{home}/hf", "config.json"]),
    (["train", "--model", "{home}/no.py:net"], ["'{home}/no.py'"]),
    (["train", "--model", "{home}/net.py:nett"], ["{home}/net.py", "'nett'", "'net'"]),
    (["train", "--model", "{home}/net.py:net,hiden=3"], ["'hidden'"]),
    (["train", "--model", "{home}/broken.py:net"], ["{home}/broken.py"]),
    (["train", "--model", "{home}/net.py:wrong"], ["torch.nn"]),
    (["train", "--model", "no_such_module:net"], ["'no_such_module'"]),
    ([*UNLEARN, "--base", "{base}", "--split", "seed=5", "--data", "cifar10"], ["--data", "--split"]),
    (["train", "--data", "digits,root=/data"], ["data.root", "'/data'"]),
    (["train", "--data", "folder,root={home},download=true"], ["data.download"]),
    ([*UNLEARN, "--base", "{base}", "--method", "{home}/no.py"], ["'{home}/no.py'"]),
    (
        [*UNLEARN, "--base", "{base}", "--method", "{home}/method.py"],
        ["{home}/method.py"],
    ),
    ([*UNLEARN, "--base", "{base}", "--method", "os.path:join"], ["os.path"]),
    ([*UNLEARN, "--base", "{base}", "--method", "{home}/method.py:halv"], ["method.py", "'halv'", "'halve'"]),
    # requests
    ([*TRAIN, "--without", "some"], ["'some'", "0.1", "3", "5", "0"]),
    ([*TRAIN, "--without", "class:three"], ["'class:three'"]),
    ([*TRAIN, "--without", "clas:3"], ["'clas'", "'class'"]),
    ([*TRAIN, "--without", "class:3=0.5/3=0.1"], ["'class:3=0.5/3=0.1'"]),
    ([*TRAIN, "--without", "class:3=2"], ["3", "2.0", "0"]),
    ([*TRAIN, "--without", "class:77"], ["77"]),
    ([*TRAIN, "--without", "class:0/1/2/3/4/5/6/7/8/9"], ["class", "retain"]),
    ([*TRAIN, "--without", "0"], ["0.0", "0"]),
    ([*TRAIN, "--without", "nan"], ["0"]),
    ([*TRAIN, "--without", "0.0001"], ["0.0001", "360", "0.0028"]),
    ([*TRAIN, "--without", "0.95"], ["0.95", "342", "324"]),
    ([*TRAIN, "--without", "ids:{home}/no.txt"], ["{home}/no.txt", "2"]),
    ([*TRAIN, "--without", "ids:{home}"], ["{home}"]),
    ([*TRAIN, "--without", "ids:{home}/weights.pt"], ["{home}/weights.pt", "'utf-8'"]),
    ([*TRAIN, "--without", "ids:{home}/open.json"], ["{home}/open.json", "','"]),
    ([*TRAIN, "--without", "ids:{home}/junk.txt"], ["junk.txt", "'three'"]),
    ([*TRAIN, "--without", "ids:{home}/empty.txt"], ["ids", "empty"]),
    ([*TRAIN, "--without", "ids:{home}/twice.txt"], ["1"]),
    ([*TRAIN, "--without", "ids:{home}/far.txt"], ["1", "400", "0", "399"]),
    ([*TRAIN, "--without", "ids:{home}/heldout.txt"], ["ids", str(split().heldout[0]), "held-out"]),
    ([*TRAIN, "--without", "ids:{home}/val.json"], ["ids", str(split().val[0]), "validation"]),
    ([*TRAIN, "--without", "ids:{home}/all.txt"], ["ids", "retain"]),
    # the base model
    ([*UNLEARN, "--base", "xyz"], ["'xyz'", "--store"]),
    ([*UNLEARN, "--base", "xyz", "--store", "{home}/typo"], ["{home}/typo", "--store"]),
    (["audit", "xyz", "--store", "{home}/typo"], ["{home}/typo", "--store"]),
    (["study", "table", "digits", "--store", "{home}/typo"], ["{home}/typo", "--store"]),
    (
        [*UNLEARN, "--base", "", "--store", "{home}/many"],
        ["17", "--store"],
    ),
    ([*UNLEARN, "--base", "{base}", "--teacher", "xyz"], ["'xyz'"]),
    ([*UNLEARN, "--base", "{base}", "--method", "regun,source=given"], ["regun.source", "'given'", "'base'"]),
    (
        [*UNLEARN, "--base", "{home}/weights.pt"],
        ["--base", "{home}/weights.pt", ".safetensors"],
    ),
    ([*FROM_FILE, "{home}/no.safetensors"], ["no.safetensors", "2"]),
    ([*FROM_FILE, "{home}/junk.safetensors"], ["junk.safetensors"]),
    ([*FROM_FILE, "{home}/some.safetensors"], ["some.safetensors", "'cnn'", "2"]),
    ([*FROM_FILE, "{home}/base.safetensors", "--model", "cnn,width=3"], ["base.safetensors", "'cnn'", "16", "3"]),
    (
        [*UNLEARN, "--base", "{base}", "--out", "{home}/no/x.safetensors"],
        ["{home}/no/x.safetensors"],
    ),
    # the store
    (["store", "show", "xyz"], ["'xyz'"]),
    (
        ["store", "verify", "--store", "{home}/typo"],
        ["{home}/typo", "--store"],
    ),
    (["store", "list", "--store", "{home}/file"], ["{home}/file"]),
    (["audit", "xyz"], ["'xyz'"]),
    (["audit", "{base}"], ["--forget"]),
]


@pytest.mark.parametrize(("args", "names"), BAD, ids=[" ".join(args)[:120] for args, _ in BAD])
def test_bad_input_is_named(args: list[str], names: list[str], home: Path, base: str, capsys) -> None:
    before = {p: p.stat().st_mtime_ns for p in (home / "store/artifacts/model").iterdir()}
    filled = [arg.format(home=home, base=base) for arg in args]
    store = [] if "--store" in args or args[0] == "methods" else ["--store", str(home / "store")]
    capsys.readouterr()
    assert main([*filled, *store]) == 2
    shown = capsys.readouterr()
    assert_names(shown.err, *(name.format(home=home) for name in names))
    assert shown.err.startswith("regun: ")
    assert "Traceback" not in shown.err
    assert shown.out == ""
    if "--out" not in args:  # the model is made before the file that holds a copy of it
        assert {p: p.stat().st_mtime_ns for p in (home / "store/artifacts/model").iterdir()} == before


@pytest.mark.parametrize(
    ("args", "names"),
    [
        ([], ["COMMAND"]),
        (["trian"], ["'trian'", "'train'"]),
        (["train", "--seed", "x"], ["--seed", "'x'"]),
        (["train", "--seed", "1e3"], ["--seed", "'1e3'"]),
        (["audit", "x", "--bootstrap", "2000000"], ["--bootstrap", "0", "1,000,000", "'2000000'"]),
        (["audit", "x", "--shadows", "-1"], ["--shadows", "0", "10,000", "'-1'"]),
        (["store", "gc", "--partial-days", "-1"], ["--partial-days", "0", "'-1'"]),
        (["store", "gc", "--partial-days", "nan"], ["--partial-days", "0", "'nan'"]),
        (["train", "--nonsense"], ["--nonsense"]),
        (["unlearn", "--base", "x"], ["--forget"]),
        (["store"], ["ACTION"]),
    ],
)
def test_bad_arguments_are_named_below_the_usage(args: list[str], names: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(args)
    assert caught.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("usage: regun")
    assert_names(shown.splitlines()[-1], *names)


def test_all_mistakes_are_reported_at_once(run, home: Path) -> None:
    code, out, err = run(
        *("train", "--data", "digts,limit=x", "--model", "resnet81,width=1", "--recipe", "digit,lr=fast,epoch=1"),
        *("--pipeline", "swim", "--split", "heldout=2,val=-1", "--without", "clas:3", "--device", "tpux"),
        *("--threads", "0", "--budget", "steps=0", "--store", str(home / "file/x")),
    )
    assert (code, out) == (2, "")
    first, *problems = err.splitlines()
    assert_names(first, len(problems))
    names = [
        "'digts'",
        "data.limit",
        "'resnet81'",
        "'digit'",
        "'epoch'",
        "recipe.lr",
        "'swim'",
        "split.heldout",
        "split.val",
    ]
    names += ["'clas'", "budget", "store", "'tpux'", "--threads"]
    for problem, name in zip(problems, names, strict=True):
        assert_names(problem, name)
    code, _, err = run("unlearn", "--base", "xyz", "--forget", "clas:3", "--method", "regnu", "--budget", "foo")
    assert code == 2
    assert_names(err, "4", "'xyz'", "'clas'", "'regnu'", "'foo'")


def test_training_that_diverges_saves_nothing(run, tmp_path: Path) -> None:
    args = ["--data", DATA, "--recipe", "digits,epochs=2,lr=1e30", "--threads", "1", "--quiet"]
    code, out, err = run("train", *args, "--store", str(tmp_path))
    assert (code, out) == (2, "")
    assert_names(err, "loss", "1e+30")
    assert Store(tmp_path).artifacts() == []


def test_an_unlearned_model_is_no_base(run, base: str) -> None:
    key = parsed(run("unlearn", "--base", base, "--forget", "0.1", *FINETUNE, "--json"))["key"]
    code, _, err = run("unlearn", "--base", key, "--forget", "0.2", *FINETUNE)
    assert code == 2
    assert_names(err, key[:12], base[:12])


def test_a_model_trained_on_another_set_is_no_base(run) -> None:
    retrained = parsed(run("train", *TINY, "--json", "--without", "0.1"))["key"]
    code, _, err = run("unlearn", "--base", retrained, "--forget", "0.1", *FINETUNE)
    assert code == 2
    assert_names(err, retrained[:12], "36")


def test_data_that_changed_under_a_base_model_are_noticed(run, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name, seed in (("old", 0), ("new", 1)):
        pixels = np.random.default_rng(seed).integers(0, 256, (36, 8, 8, 3), dtype=np.uint8)
        for n in range(36):
            folder = tmp_path / name / ("train" if n < 30 else "test") / f"class{n % 3}"
            folder.mkdir(parents=True, exist_ok=True)
            image.fromarray(pixels[n]).save(folder / f"{n}.png")
    args = ("--threads", "1", "--quiet", "--store", str(tmp_path / "store"))
    recipe = ("--model", "cnn,width=4", "--recipe", "digits,epochs=1,batch_size=8", "--pipeline", "none")
    trained = run("train", "--data", "folder", "--data-dir", str(tmp_path / "old"), *recipe, *args, "--json")
    key = parsed(trained)["key"]
    command = ("unlearn", "--base", key, "--forget", "0.2", "--method", "finetune,epochs=1", *args)
    assert run(*command)[0] == 0
    code, _, err = run(*command, "--data-dir", str(tmp_path / "new"))
    assert code == 2
    assert_names(err, key[:12], "digest")


# ------------------------------------------------------------------------------------------------ what people see


def show_progress(display: Display) -> None:
    for step in (1, 2, 3):
        display.progress(Progress(2, 3, step, 9, 0.5, 1234.5, 61))
    display.note("resumed [bold]here[/bold]\x1b[31m")
    display.epoch(Epoch(3, 3, 0.25, 0.1, 2.0, 1000))
    display.close()


def test_progress_is_a_few_plain_lines_where_there_is_no_terminal(capsys) -> None:
    show_progress(Display("train"))
    first, note, last = capsys.readouterr().err.splitlines()
    assert_names(first, "train:", "2/3", "1/9", "0.5000", "1,234")
    assert_names(note, "train:", "[bold]here[/bold]")
    assert "\x1b" not in note
    assert_names(last, "train:", "3/3", "0.2500", "0.1", "1,000")


def test_progress_is_a_bar_on_a_terminal(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("TERM", "xterm")
    show_progress(Display("train"))
    live = capsys.readouterr().err
    assert live.count("\x1b[?25l") == live.count("\x1b[?25h") == 1  # the cursor is hidden, then shown again
    assert_names(live, "[bold]here[/bold]", "3/3", "0.2500", "1,000")
    assert "\x1b[31m" not in live.partition("here")[2][:20]


def test_quiet_shows_no_progress(capsys) -> None:
    show_progress(Display("train", quiet=True))
    assert capsys.readouterr().err == ""


def test_an_error_gives_the_terminal_back(home: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    words = ["train", "--data", DATA, "--recipe", "digits,epochs=2,lr=1e30", "--threads", "1"]
    assert main([*words, "--store", str(home / "store")]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1
    assert shown.rfind("regun: ") > shown.rfind("\x1b[?25h")


def test_a_table_is_plain_and_whole_where_there_is_no_terminal(capsys) -> None:
    rows = [["[red]x[/red]", "1"], ["y" * 300, "12"], ["", ""]]
    print_table(["name", "n"], rows)
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "n"]
    assert [line.split() for line in lines] == [[cell for cell in row if cell] for row in rows]
    assert lines[0].endswith("   1")
    assert len(lines[0]) == len(lines[1]) == 304


def test_a_table_fits_a_terminal(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    print_table(["name", "text"], [["x", "y" * 300]])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, shown.splitlines())) <= 60
    assert shown.count("y") == 300


# -------------------------------------------------------------------------------------------------- help and pipes


def parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return [parser, *(p for action in below for child in action.choices.values() for p in parsers(child))]


@pytest.mark.parametrize(
    ("method", "needs"),
    [
        ("neggrad", "forget set"),
        ("regun", "forget set, retain set, held-out set"),
        ("retrain", "forget set, retain set, fresh model"),
        ("crossfit", "forget set, retain set, prepared table"),
    ],
)
def test_the_list_of_methods_names_what_each_needs(method: str, needs: str) -> None:
    assert lists._needs(get_method(method)) == needs


@pytest.mark.parametrize("parser", parsers(build_parser()), ids=lambda p: p.prog)
def test_every_help_ends_in_a_command_that_can_be_given(parser: argparse.ArgumentParser) -> None:
    program, *args = shlex.split(parser.format_help().strip().splitlines()[-1].removeprefix("Example:"))
    assert program == "regun"
    chosen = build_parser().parse_args(args)
    module, _, function = chosen.run.partition(":")
    assert f"def {function}(" in (Path(build_parser.__code__.co_filename).parent / f"{module}.py").read_text()
    if len(parser.prog.split()) == 2:
        assert parser.prog.split()[1] == chosen.command


def test_help_of_a_command_does_not_import_torch() -> None:
    script = """
import sys
from regun.cli import main
for args in (["--help"], ["--version"], ["train", "--help"], ["store", "gc", "--help"], ["nonsense"]):
    try:
        main(args)
    except SystemExit:
        pass
heavy = {"torch", "numpy", "sklearn", "scipy", "safetensors", "rich"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "usage: regun" in done.stdout


def test_a_diverged_run_is_saved_and_shown_and_does_not_fail(
    home: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["unlearn", "--base", base, "--forget", "0.1", "--method", "neggrad,lr=1e37,epochs=9,batch_size=16"]
    assert main([*words, "--store", str(home / "store"), "--threads", "1", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert_names(shown, "DIVERGED", "1e+37")


def test_broken_weights_are_refused_when_they_come_in(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from regun.models import ModelSpec, build_model

    state = build_model(ModelSpec("cnn"), 10, (1, 8, 8), 0).state_dict()
    state[next(iter(state))].view(-1)[0] = float("nan")
    safetensors.torch.save_file({k: v.contiguous() for k, v in state.items()}, home / "nan.safetensors")
    words = ["unlearn", "--base", str(home / "nan.safetensors"), "--forget", "0.1", "--method", "finetune,epochs=1"]
    assert main([*words, "--store", str(home / "store"), "--threads", "1", "--quiet"]) == 2
    assert_names(capsys.readouterr().err, "NaN", next(iter(state)))
