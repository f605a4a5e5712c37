"""Fields of a project of a kind that cannot be meant, and what its functions return: named, exit code 2, no request."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_project import EASY, QUICK, ids, network, project
from torch import nn

import regun
from regun.cli import main
from regun.deletion import Options, history
from regun.errors import RegunError, SettingsError

HERE = Path(__file__).parent
LENIENT = Options(accept=EASY, accept_inconclusive=True, bootstrap=20)
NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accept": 3}, "the project's accept is 3; give text: 'forgotten, val_drop<3'."),
        ({"method": None}, "the project's method is None; give text as on the command line"),
        ({"method": network}, "the project's method is a function; give text as on the command line"),
        ({"out_models": "2"}, "the project's out_models is '2'; give a whole number."),
        ({"out_models": True}, "the project's out_models is True; give a whole number."),
        ({"out_share": "half"}, "the project's out_share is 'half'; give a number above 0 and up to 1."),
        ({"derived": "othermodel"}, "the project's derived is 'othermodel'; give a list of names."),
        ({"derived": ["one", 2]}, r"the project's derived\[1\] is 2; give text."),
        ({"rebuild": "network"}, "the project's rebuild is 'network'; give a function of a seed"),
        ({"retrained": [network()]}, "the project's retrained is a list; give a function of a set of ids"),
        ({"retrain": [20]}, r"the project's retrain is a list; give a mapping \({'epochs': 30, 'lr': 0.1}\)"),
        ({"role": None}, "the project's role is None; give text."),
        ({"family": 1}, "the project's family is 1; give text: resnet or swin."),
        ({"ids": "abc"}, "the project's ids is 'abc'; give a list with one id for each example."),
        ({"unseen_ids": ["a"]}, "the project's unseen_ids is a list; give a mapping from names of sets to ids"),
        ({"unseen_ids": {"test": 3}}, r"the project's unseen_ids\['test'\] is 3; give a list with one id"),
        ({"num_classes": 2.5}, "the project's num_classes is 2.5; give a whole number"),
    ],
)
def test_a_field_of_a_wrong_kind_is_said_when_the_project_is_made(changes: dict, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        project(**changes)


def test_all_of_them_are_said_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        project(accept=3, method=None, derived="othermodel")
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "gpu"}, r"device 'gpu' cannot be used \(Expected one of cpu, cuda"),
        pytest.param({"device": "cuda"}, "device 'cuda' cannot be used .* use cpu, or leave it out.", marks=NO_CUDA),
        ({"model": network().state_dict()}, "the project's model is a OrderedDict; give a torch.nn.Module. Of a state"),
        ({"num_classes": 1}, "num_classes is 1, but the model tells 3 classes apart; give at least 2."),
        ({"num_classes": 5}, "num_classes is 5, but the model tells 3 classes apart; give at most 3."),
        ({"rebuild": lambda seed: None}, "what the project's rebuild returned is a NoneType; give a torch.nn.Module."),
        ({"rebuild": lambda seed: nn.Linear(8, 3)}, "what the project's rebuild returned does not fit the model: it lacks"),
        ({"rebuild": network()}, "the project's rebuild failed: TypeError"),
        ({"retrained": lambda ids: None}, "what the project's retrained returned is None; give a list of models."),
        ({"retrained": lambda ids: network()}, r"retrained returned is a Sequential; give a list .*also of one: \[model\]"),
        ({"retrained": lambda ids: [3]}, r"what the project's retrained returned\[0\] is a int; give a torch.nn.Module."),
    ],
)  # fmt: skip
def test_what_only_shows_later_is_said_and_nothing_counts(tmp_path: Path, changes: dict, message: str) -> None:
    given = project(**{"method": "retrain,epochs=1", **changes})
    with pytest.raises(RegunError, match=message):
        regun.forget(given, regun.DeletionRequest.of(ids()[:5]), tmp_path / "out", LENIENT)
    assert not history(tmp_path / "out")


def test_another_architecture_is_said_when_out_models_are_made(tmp_path: Path) -> None:
    given = project(method=QUICK, rebuild=lambda seed: nn.Linear(8, 3))
    with pytest.raises(RegunError, match="what the project's rebuild returned does not fit the model"):
        regun.forget(given, regun.DeletionRequest.of(ids()[:5]), tmp_path / "out", Options(bootstrap=20))
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
