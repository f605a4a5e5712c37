"""The current model: which file it is, loading it, and what a killed run leaves."""

import json
import os
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch
from small_project import ERASE, HALVE, LENIENT, Memory, failed, forget, ids, network, project
from torch import nn

import regun
import regun.deletion.folder as folder_module
from expect import assert_names, error
from regun.artifacts import state_digest
from regun.cli import main
from regun.deletion import Options, current, find_current, history, verify_folder
from regun.errors import RegunError, StoreError

LINK = "current.safetensors"


def served(out: Path) -> str:
    """The digest of the weights that a server which only knows the path would load."""
    return state_digest(safetensors.torch.load_file(out / LINK))


def test_the_current_model_is_that_of_the_last_accepted_request(out: Path) -> None:
    newest = find_current(out)
    assert (newest.request, newest.digest) == (2, history(out)[1].after)
    assert newest.path == out.resolve() / "requests/0002/model.safetensors"
    assert newest.link == out.resolve() / LINK
    model = network(seed=9)
    assert current(out, model) is model
    assert state_digest(model.state_dict()) == newest.digest == served(out)
    rejected = forget(out, ids()[60:65], Options(accept="val_drop<-100", bootstrap=20))
    assert (rejected.status, find_current(out)) == ("rejected", newest)
    assert served(out) == newest.digest
    assert failed(verify_folder(out)) == []


def test_before_the_first_accepted_request_the_first_model_is_current(tmp_path: Path) -> None:
    forget(tmp_path, ids()[:40], Options(bootstrap=20), model=Memory(), method=HALVE, out_models=0)
    assert not history(tmp_path)[0].accepted
    newest = find_current(tmp_path)
    assert (newest.request, newest.path, newest.link) == (None, None, None)
    assert newest.digest == state_digest(Memory().state_dict())
    assert current(tmp_path, Memory()).state_dict().keys() == Memory().state_dict().keys()
    with error(RegunError, newest.digest[:12]):
        current(tmp_path, Memory(0.5))


@pytest.mark.parametrize("fault", [OSError("no links here"), NotImplementedError()])
def test_without_symbolic_links_it_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise fault

    monkeypatch.setattr(Path, "symlink_to", refuse)
    for wanted in (ids()[:5], ids()[5:10]):
        forget(tmp_path, wanted)
        assert not (tmp_path / LINK).is_symlink()
        assert served(tmp_path) == find_current(tmp_path).digest == history(tmp_path)[-1].after
    assert find_current(tmp_path).link is not None
    assert failed(verify_folder(tmp_path)) == []


class Stopped(BaseException):
    """Stands for a kill: nothing may catch it."""


@pytest.mark.parametrize("opening", ["the same request", "the next request", "regun current"])
def test_killed_between_the_line_and_the_switch_the_next_command_repairs_it(
    out: Path, monkeypatch: pytest.MonkeyPatch, opening: str
) -> None:
    old = served(out)

    def stop(*args: object) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "_switch_current", stop)
        with pytest.raises(Stopped):
            forget(out, ids()[60:65])
    line = history(out)[2]
    assert line.accepted
    assert served(out) == old != line.after
    assert [check.passed for _, checks in verify_folder(out) for check in checks if check.name == LINK] == [None]
    if opening == "regun current":
        assert main(["current", str(out)]) == 0
    else:
        forget(out, ids()[60:65] if opening == "the same request" else ids("val")[1:2])
    assert served(out) == line.after == find_current(out).digest
    assert failed(verify_folder(out)) == []


def test_a_folder_that_cannot_be_repaired_still_says_what_is_current(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a server that may only read: the ledger decides, not the link."""

    def refuse(*args: object) -> None:
        raise StoreError("read-only")

    (out / LINK).unlink()
    (out / LINK).symlink_to("requests/0001/model.safetensors")
    monkeypatch.setattr("regun.deletion.serving.repair", refuse)
    newest = find_current(out)
    assert (newest.request, newest.link) == (2, None)
    assert state_digest(current(out, network()).state_dict()) == history(out)[1].after


def test_another_file_in_its_place_is_left_alone_and_named(out: Path, tmp_path: Path) -> None:
    for make in (
        lambda path: path.write_text("the only copy of my thesis"),
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: path.mkdir(),
    ):
        copy = Path(shutil.copytree(out, tmp_path / "copy", symlinks=True))
        (copy / LINK).unlink()
        make(copy / LINK)
        with error(RegunError, (copy / LINK).resolve() if not (copy / LINK).is_symlink() else copy / LINK):
            forget(copy, ids()[60:65])
        with error(RegunError, LINK.split(".")[0]):
            find_current(copy)
        assert failed(verify_folder(copy)) == [LINK]
        assert len(history(copy)) == 2
        shutil.rmtree(copy)


def test_a_copied_folder_has_the_same_current_model(out: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(out, tmp_path / "copy"))  # follows links: a copy of the model
    assert find_current(copy).digest == served(copy) == find_current(out).digest
    moved = Path(os.rename(copy, tmp_path / "moved") or tmp_path / "moved")
    assert served(moved) == find_current(moved).digest


def test_errors(out: Path, tmp_path: Path) -> None:
    with error(RegunError, tmp_path / "nowhere", "ledger.jsonl"):
        find_current(tmp_path / "nowhere")
    with error(RegunError, "0.weight", "model"):
        current(out, nn.Sequential(nn.Linear(8, 5)))
    path = out / "requests/0002/model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    with error(StoreError, path.resolve()):
        current(out, network())


def test_on_the_command_line(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["current", str(out)]) == 0
    assert_names(capsys.readouterr().out, history(out)[1].after, (out / LINK).parent.resolve() / LINK, "accepted")
    assert main(["current", str(out), "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)
    assert (stated["digest"], stated["request"]) == (history(out)[1].after, 2)
    assert Path(stated["path"]).is_file()
    assert main(["current", str(tmp_path / "nowhere")]) == 2
    assert_names(capsys.readouterr().err, "nowhere")


def test_the_weights_in_service_have_forgotten(tmp_path: Path) -> None:
    forget(tmp_path, ids()[:40], LENIENT, model=Memory(), method=ERASE)
    model = regun.deletion.current(tmp_path, Memory())
    assert not torch.any(model.remembers[:40])
    assert torch.all(model.remembers[40:] == 1)
    assert project(model=model).model is model
