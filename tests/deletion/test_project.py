"""Fields of a project of a kind that cannot be meant, and what its functions return: named, exit code 2, no request."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_project import LENIENT, QUICK, ids, network, project
from torch import nn

import regun
from expect import error
from regun.cli import main
from regun.deletion import history
from regun.errors import RegunError, SettingsError

HERE = Path(__file__).parent
NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"accept": 3}, ["accept"]),
        ({"method": None}, ["method"]),
        ({"method": network}, ["method"]),
        ({"out_models": "2"}, ["out_models"]),
        ({"out_models": True}, ["out_models"]),
        ({"out_share": "half"}, ["out_share"]),
        ({"derived": "othermodel"}, ["derived"]),
        ({"derived": ["one", 2]}, ["derived"]),
        ({"rebuild": "network"}, ["rebuild"]),
        ({"retrained": [network()]}, ["retrained"]),
        ({"retrain": [20]}, ["retrain"]),
        ({"role": None}, ["role"]),
        ({"family": 1}, ["family"]),
        ({"ids": "abc"}, ["ids"]),
        ({"unseen_ids": ["a"]}, ["unseen_ids"]),
        ({"unseen_ids": {"test": 3}}, ["unseen_ids"]),
        ({"num_classes": 2.5}, ["num_classes"]),
    ],
)
def test_a_field_of_a_wrong_kind_is_said_when_the_project_is_made(changes: dict, names: list[str]) -> None:
    with error(SettingsError, *names):
        project(**changes)


def test_all_of_them_are_said_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        project(accept=3, method=None, derived="othermodel")
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"device": "gpu"}, ["device", "'gpu'", "cpu"]),
        pytest.param({"device": "cuda"}, ["device", "'cuda'", "cpu"], marks=NO_CUDA),
        ({"model": network().state_dict()}, ["model", "OrderedDict"]),
        ({"num_classes": 1}, ["num_classes", 1, 2]),
        ({"num_classes": 5}, ["num_classes", 5, 3]),
        ({"rebuild": lambda seed: None}, ["rebuild", "NoneType"]),
        ({"rebuild": lambda seed: nn.Linear(8, 3)}, ["rebuild"]),
        ({"rebuild": network()}, ["rebuild", "TypeError"]),
        ({"retrained": lambda ids: None}, ["retrained", "None"]),
        ({"retrained": lambda ids: [3]}, ["retrained", "int"]),
    ],
)  # fmt: skip
def test_what_only_shows_later_is_said_and_nothing_counts(tmp_path: Path, changes: dict, names: list[str]) -> None:
    given = project(**{"method": "retrain,epochs=1", **changes})
    with error(RegunError, *names):
        regun.forget(given, regun.DeletionRequest.of(ids()[:5]), tmp_path / "out", LENIENT)
    assert not history(tmp_path / "out")


def test_what_is_of_a_fitting_kind_is_taken(tmp_path: Path) -> None:
    given = project(
        method=QUICK,
        ids=np.array(ids()),
        retrained=lambda gone: (network(seed) for seed in (1, 2)),
        num_classes=np.int64(3),
        derived=("a", "b"),
        device="cpu",
    )
    done = regun.forget(given, regun.DeletionRequest.of(ids()[:5]), tmp_path, LENIENT)
    assert done.receipt["audit"]["scopes"]["all"]["after"]["retrain"]


@pytest.mark.parametrize("change", ["accept=3", "rebuild=lambda seed: None", "device='gpu'", "method=None"])
def test_on_the_command_line_it_is_exit_code_2(tmp_path: Path, capsys, change: str) -> None:
    (tmp_path / "ids.txt").write_text(ids()[0])
    (tmp_path / "app.py").write_text(
        f"import sys\nsys.path.append({str(HERE)!r})\nimport small_project\n"
        f"def project():\n    return small_project.project(**{{'method': 'retrain,epochs=1', **dict({change})}})\n"
    )
    given = ["--project", f"{tmp_path / 'app.py'}:project", "--ids", str(tmp_path / "ids.txt"), "--bootstrap", "20"]
    assert main(["forget", *given, "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert "should not have happened" not in capsys.readouterr().err
