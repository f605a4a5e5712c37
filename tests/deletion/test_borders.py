"""Code of the user's: whatever it does, nothing passes as done that was not, and nothing is lost after the work."""

import re
import sys
from pathlib import Path

import pytest
import torch
from forked import Forked
from small_project import (
    EASY,
    LEAVE,
    LENIENT,
    QUICK,
    brain_project,
    failed,
    ids,
    network,
    project,
    receipt_path,
)  # fmt: skip
from torch import nn
from torch.utils.data import Dataset

import regun
import regun.deletion
from expect import error
from regun.cli import main
from regun.deletion import Options, history, load_project, reaudit_receipt, verify_folder
from regun.errors import RegunError
from regun.training.fit import Fitted

HERE = Path(__file__).parent


def leave(*_: object) -> None:
    sys.exit(0)


class Leaving(nn.Module):
    """Ends the program when it is asked about more than a few examples."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) if len(x) < 10 else leave()


class LeavingData(Dataset):
    def __len__(self) -> int:
        return 60

    def __getitem__(self, i: int) -> None:
        leave()


@pytest.mark.parametrize(
    ("changes", "options", "who"),
    [
        ({"method": LEAVE}, LENIENT, "method"),
        ({"model": Leaving()}, LENIENT, "Leaving"),
        ({"val": LeavingData(), "unseen_ids": {}}, LENIENT, "SystemExit"),
        ({"retrained": leave}, LENIENT, "retrained"),
        ({"rebuild": leave, "method": "retrain,epochs=1"}, LENIENT, "rebuild"),
        ({"rebuild": leave}, Options(accept="smia_auc<0", bootstrap=20, fallback="retrain"), "rebuild"),
    ],
)
def test_an_end_of_the_program_is_no_success(tmp_path: Path, changes: dict, options: Options, who: str) -> None:
    given = project(**{"method": QUICK, **changes})
    with error(RegunError, who):
        regun.forget(given, regun.DeletionRequest.of(ids()[:5]), tmp_path / "out", options)
    assert not history(tmp_path / "out")


def test_nor_is_it_one_of_a_project_that_is_verified(original: Path) -> None:
    with error(RegunError, "retrained"):
        reaudit_receipt(receipt_path(original), project(retrained=leave))


def test_nor_is_it_one_of_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import sys\nsys.exit(0)\n")
    with error(RegunError, f"{tmp_path / 'app.py'}"):
        load_project(f"{tmp_path / 'app.py'}:project")


@pytest.mark.parametrize("what", ["retrained", "rebuild"])
def test_what_fails_in_a_callback_is_told_as_the_project_s(tmp_path: Path, what: str) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("no disk today")

    given = project(method="retrain,epochs=1", **{what: fail})
    with error(RegunError, what, "ZeroDivisionError"):
        regun.forget(given, regun.DeletionRequest.of(ids()[:5]), tmp_path / "out", LENIENT)


@pytest.mark.parametrize(
    "more", [["--project", "{app}:leaving_project"], ["--project", "{app}:project", "--method", LEAVE]]
)
def test_an_end_of_the_program_is_not_exit_code_0(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "ids.txt").write_text(ids()[0])
    given = [arg.format(app=HERE / "small_project.py") for arg in more]
    request = ["forget", "--ids", tmp_path / "ids.txt", "--out", tmp_path / "out", "--bootstrap", "20"]
    code, _, errors = Forked(tmp_path / "said", *request, *given).ended()
    assert code == 2, errors
    assert re.search(r"exit|SystemExit", errors)
    assert "Traceback" not in errors
    assert not history(tmp_path / "out")


def test_a_crash_is_not_a_rejection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def crash(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a fault of regun's own")

    (tmp_path / "ids.txt").write_text(ids()[0])
    monkeypatch.setattr("regun.cli.forget.forget", crash)
    given = ["--project", f"{HERE / 'small_project.py'}:project", "--ids", str(tmp_path / "ids.txt")]
    assert main(["forget", *given, "--out", str(tmp_path / "out")]) == 3
    assert "ZeroDivisionError" in capsys.readouterr().err


def noting(job: regun.Job) -> Fitted:
    """Notes what no receipt can hold as it is."""
    return Fitted(notes={"loss": float("nan"), "weights": torch.ones(2), 3: "three"})


def poison(job: regun.Job) -> None:
    """Ends well, with weights that are no numbers."""
    with torch.no_grad():
        next(job.model.parameters()).fill_(float("nan"))


NOTING, POISON = (f"{__file__}:{name}" for name in ("noting", "poison"))


def test_no_note_of_a_method_costs_the_work(tmp_path: Path) -> None:
    done = regun.forget(project(method=NOTING), regun.DeletionRequest.of(ids()[:5]), tmp_path, LENIENT)
    notes = done.receipt["method"]["attempts"][0]["notes"]
    del notes["price"]  # what regun itself notes
    assert notes == {"loss": "nan", "weights": "tensor([1., 1.])", "3": "three"}
    assert failed(verify_folder(tmp_path)) == []


def test_a_model_that_answers_no_numbers_is_rejected_and_the_fallback_runs(tmp_path: Path) -> None:
    for number, fallback in ((1, None), (2, QUICK)):
        options = Options(accept=EASY, accept_inconclusive=True, bootstrap=20, fallback=fallback)
        done = regun.forget(project(method=POISON), regun.DeletionRequest.of(ids()[:5]), tmp_path, options)
        assert (done.plan.number, done.accepted) == (number, fallback is not None)
        assert done.receipt["method"]["attempts"][0]["diverged"]
    assert failed(verify_folder(tmp_path)) == []


def test_bfloat16_is_carried_out_whole_or_refused_before_the_work(tmp_path: Path) -> None:
    said, done = "", None
    try:
        done = regun.forget(brain_project(), regun.DeletionRequest.of(ids()[:5]), tmp_path / "out", LENIENT)
    except RegunError as fault:
        said = str(fault).lower()
    if done is None:
        assert "bfloat16" in said
        assert not (tmp_path / "out").exists()
    else:
        assert done.folder is not None
        assert failed(verify_folder(tmp_path / "out")) == []


def test_a_model_that_cannot_take_the_data_is_said(tmp_path: Path) -> None:
    with error(RegunError, "bfloat16", "float32"):
        regun.forget(
            project(model=network().bfloat16()), regun.DeletionRequest.of(ids()[:5]), tmp_path / "out", LENIENT
        )
    assert not (tmp_path / "out").exists()


def test_data_without_a_digest_are_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regun.data.tensors import TensorExamples

    def no_digest(_: object) -> str:
        raise TypeError("Got unsupported ScalarType BFloat16")

    monkeypatch.setattr(TensorExamples, "digest", property(no_digest))
    with error(RegunError, "train", "digest"):
        regun.forget(project(), regun.DeletionRequest.of(ids()[:5]), tmp_path / "out", LENIENT)
    assert not (tmp_path / "out").exists()
