"""Nothing can be stale: the name of a result holds the code that decides it, whichever file that code is in."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import regun
from regun.cli import main
from regun.methods._registry import get_method
from regun.rng import rng_key

TELL = """
import json, torch
from regun.hashing import code_digest
from regun.methods import get_method
from regun.models import ModelSpec
from regun.data.registry import DataSpec, load_data
from regun.artifacts.trainings import Training
from regun.training.recipes import RECIPES
data = load_data(DataSpec("digits"), "digits")
training = Training(data=data, trained_on=data.train.labels * 0, model=ModelSpec("cnn"), recipe=RECIPES["digits"], seed=0)
methods = {name: get_method(name).describe(get_method(name).configure({})) for name in ("finetune", "regun", "ssd")}
print(json.dumps({"train": training.inputs(torch.device("cpu")), "signals": code_digest("regun.predict"), **methods}))
"""


def described(package: Path) -> dict:
    env = {**os.environ, "PYTHONPATH": str(package.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", TELL], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-800:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("copy") / "regun"
    shutil.copytree(Path(regun.__file__).parent, place, ignore=shutil.ignore_patterns("__pycache__"))
    return place


@pytest.fixture(scope="module")
def before(package: Path) -> dict:
    return described(package)


def changed(package: Path, before: dict, file: str, old: str, new: str) -> set[str]:
    """Which results get another name when one line of the package changes."""
    path = package / file
    text = path.read_text()
    assert old in text, f"{file} no longer has {old!r}"
    try:
        path.write_text(text.replace(old, new))
        after = described(package)
    finally:
        path.write_text(text)
    return {name for name in before if before[name] != after[name]}


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("methods/finetune.py", "functional.cross_entropy(", "2 * functional.cross_entropy(", {"finetune"}),
        ("methods/_unseen_targets.py", ".double() / temperature", ".double() * temperature", {"regun"}),
        (
            "training/fit.py",
            "self.optimizer.step()",
            "self.optimizer.step(None)",
            {"train", "finetune", "regun", "ssd"},
        ),
        ("training/scratch.py", "functional.cross_entropy(", "2 * functional.cross_entropy(", {"train", "regun"}),
        ("models/small.py", "nn.ReLU(inplace=True)", "nn.ReLU(inplace=False)", {"train"}),
        ("training/forward.py", "BATCH = 256", "BATCH = 128", {"signals", "regun", "ssd"}),
    ],
)
def test_changed_code_changes_the_names_of_what_it_decides(
    package: Path, before: dict, file: str, old: str, new: str, expected: set[str]
) -> None:
    assert changed(package, before, file, old, new) == expected


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("methods/finetune.py", '"""Train on the retain set."""', '"""Train on what is retained."""'),
        ("training/fit.py", "import time\n", "import time  # seconds\n\n"),
        ("errors.py", "did you mean", "did you mean"),
        ("settings.py", "give a number", "please give a number"),
    ],
)
def test_words_and_layout_change_nothing(package: Path, before: dict, file: str, old: str, new: str) -> None:
    old = old if old in (package / file).read_text() else old.capitalize()
    assert changed(package, before, file, old, new) == set()


NET = """
from torch import nn

def build(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.{kind}(), nn.Linear(8, num_classes))
"""


def test_the_same_weights_in_another_model_are_judged_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither definition nor weights alone decide what a model answers."""
    torch.manual_seed(0)
    weights = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10)).state_dict()
    save_file(weights, tmp_path / "mine.safetensors")
    found = []
    for kind in ("ReLU", "Tanh", "ReLU"):
        (tmp_path / "net.py").write_text(NET.format(kind=kind))
        words = ["audit", str(tmp_path / "mine.safetensors"), "--data", "digits,limit=300,test_limit=100"]
        words += ["--model", f"{tmp_path}/net.py:build", "--forget", "0.1", "--store", str(tmp_path / "store")]
        assert main([*words, "--json", "--quiet", "--threads", "1"]) == 0
        found.append(json.loads(capsys.readouterr().out)["numbers"]["smia_auc"])
    assert found[0] == found[2] != found[1]


def test_seeds_follow_from_the_names_that_settings_had_when_results_were_published() -> None:
    for method, new, old in (("auto", "from_scratch", "anew"), ("regun", "source", "reference")):
        config = get_method(method).describe(get_method(method).configure({}))["config"]
        named = {("old" if key == new else key): value for key, value in config.items()}
        assert "old" in named, "the setting has this name today"
        before = {**{key: value for key, value in config.items() if key != new}, old: config[new]}
        keys = [rng_key({"method": {"name": method, "config": one}}) for one in (config, before, named)]
        assert keys[0] == keys[1] != keys[2]
    other = [rng_key({"method": {"name": "ssd", "config": {name: 1}}}) for name in ("source", "reference")]
    assert other[0] != other[1]
