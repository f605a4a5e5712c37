"""Every Python block of the documentation pages runs, on a small model and in a folder of its own."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch.utils.data import TensorDataset

import regun
from regun.predict import predict
from toys import blobs, mlp

DOCS = Path(__file__).parents[1] / "docs"
SMALL = """data = "digits,limit=300,test_limit=60"\nrecipe = "digits,epochs=1"\nreferences = 2\nmethods = ["finetune,epochs=1"]\n"""


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def names() -> dict[str, Any]:
    """What the pages take for granted: a trained model, its data in parts, its recipe."""
    examples = blobs(n=240, seed=1)
    x, y = examples.x, torch.from_numpy(examples.labels)
    cuts = {"forget": (0, 20), "retain": (20, 120), "heldout": (120, 180), "test": (180, 240)}
    sets = {name: (x[start:stop], y[start:stop]) for name, (start, stop) in cuts.items()}
    model, train = mlp(), TensorDataset(x[:120], y[:120])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {
        **sets,
        "regun": regun,
        "safetensors": safetensors,
        "model": model,
        "train": train,
        "train_set": train,
        "test_set": TensorDataset(*sets["test"]),
        "forget_indices": list(range(20)),
        "recipe": {"epochs": 2, "lr": 0.1, "batch_size": 32},
        "rebuild": lambda seed: mlp(),
        "build_model": mlp,
        "load_pretrained": mlp,
        "my_training": lambda dataset, seed: mlp(seed=7),
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30),
    }


def fake_trainer() -> SimpleNamespace:
    """The arguments of a Hugging Face Trainer."""
    transformers = pytest.importorskip("transformers")
    return SimpleNamespace(args=transformers.TrainingArguments(output_dir="out", report_to=[], use_cpu=True))


def make_request(scope: dict[str, Any]) -> None:
    """A folder of deletion requests with an accepted one."""
    train = scope["train"].tensors
    project = regun.Project(
        model=mlp(), train=train, test=scope["test"], method="retrain", accept="test_drop<100", retrain=scope["recipe"]
    )
    options = regun.deletion.Options(accept_inconclusive=True)
    result = regun.forget(project, regun.DeletionRequest.of([1, 2]), "deletions", options)
    assert result.status.startswith("accepted")


def make_predictions(scope: dict[str, Any]) -> None:
    """Predictions of an audited model, of Retrain and of references, by split."""
    examples = blobs(n=240, seed=1)
    cuts = {"forget": (0, 20), "retain": (20, 120), "val": (120, 180), "test": (180, 240)}
    splits = {name: np.arange(*cut) for name, cut in cuts.items()}
    audited, retrain, *references = (
        {name: predict(mlp(seed=seed), examples, ids) for name, ids in splits.items()} for seed in range(4)
    )
    scope.update(predictions=audited, retrain=retrain, references=references)


PREPARED: dict[str, Callable[[dict[str, Any]], None]] = {
    "deletion.md": make_request,
    "own_models.md": lambda scope: scope.update(trainer=fake_trainer()),
    "metrics.md": make_predictions,
}


def test_no_page_with_code_is_left_out() -> None:
    """start.md has its own test (test_site.py), and so have the files of studies.md (test_study_cli.py)."""
    assert {path.name for path in DOCS.glob("*.md") if blocks(path.name)} == {*PAGES, "start.md", "studies.md"}


PAGES = [
    "index.md",
    "crossfit.md",
    "deletion.md",
    "methods.md",
    "metrics.md",
    "own_models.md",
    "relearning.md",
    "troubleshooting.md",
    "tuning.md",
]


def test_a_study_from_python_as_the_page_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    code = blocks("studies.md")[-1]
    assert code.count('"digits"') == 2
    scope: dict[str, Any] = {"print": lambda event: None}
    exec(compile(code.replace('"digits"', '"small.toml"'), "studies.md", "exec"), scope)
    assert [row["method"] for row in scope["results"].rows() if row["kind"] == "method"] == ["finetune"]


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope = names()
    PREPARED.get(page, lambda scope: None)(scope)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in blocks(page):
            exec(compile(block, page, "exec"), scope)
