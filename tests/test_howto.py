"""Every how-to runs as it stands, and what it claims comes out."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import regun

FOLDER = Path(__file__).parents[1] / "docs/howto"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.fixture
def howto(monkeypatch: pytest.MonkeyPatch):
    """A how-to as a module; what it puts on Python's path goes away with the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    threads = torch.get_num_threads()

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    yield load
    torch.set_num_threads(threads)


def test_there_is_one_for_every_need() -> None:
    wanted = {"image_model", "hf_vision", "hf_text", "tabular", "own_method", "own_attack", "deletion_request"}
    assert wanted <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_howto_can_be_read_in_a_minute(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 100
    assert f"python docs/howto/{name}.py" in text
    assert "torchvision" not in [line.split()[1].split(".")[0] for line in text.splitlines() if line[:6] == "import"]


@pytest.mark.parametrize("name", ["tabular", "hf_text"])
def test_regun_moves_the_attack_to_the_retrained_model_s_and_keeps_the_accuracy(howto, name: str, capsys) -> None:
    pytest.importorskip("transformers") if name == "hf_text" else None
    results = howto(name).main()
    base, ours, retrained = (results[who] for who in ("base", "ReGUn", "retrained"))
    assert base["smia_auc"] > 62, "the base must remember something, or there is nothing to show"
    assert base["smia_auc"] - retrained["smia_auc"] > 10
    left = abs(ours["smia_auc"] - retrained["smia_auc"]) / (base["smia_auc"] - retrained["smia_auc"])
    assert left < 0.5, "more than half of the way"
    assert ours["test_acc"] > base["test_acc"] - 4
    printed = capsys.readouterr().out
    assert all(f"smia_auc {results[who]['smia_auc']:5.1f}" in printed for who in results)


@pytest.mark.parametrize("name", ["image_model", "hf_vision"])
def test_images(howto, name: str, capsys) -> None:
    pytest.importorskip("transformers") if name == "hf_vision" else None
    results = howto(name).main()
    assert results["ReGUn"]["smia_auc"] < results["base"]["smia_auc"] - 2
    assert results["ReGUn"]["test_acc"] > results["base"]["test_acc"] - 5
    if name == "image_model":
        assert "refused: retain and heldout share 50 examples" in capsys.readouterr().out


def test_a_method_and_an_attack_of_one_s_own(howto) -> None:
    results = howto("own_method").main()
    assert results["second best"] < 60 < results["forget nothing"]
    assert howto("own_attack").main()["margin"] > 55


def test_two_deletion_requests(howto) -> None:
    module = howto("deletion_request")
    assert isinstance(module.project(), regun.Project)
    assert module.main() == [True, True]
