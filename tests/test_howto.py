"""Every how-to runs as it stands, and what it claims comes out."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import regun
from regun.auditing import VERDICTS

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
    own = {f"own_{what}" for what in ("method", "attack", "metric", "data", "model")}
    assert own | {"image_model", "hf_vision", "hf_text", "tabular", "deletion_request", "prepared"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_howto_can_be_read_in_a_minute(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 100
    assert f"python docs/howto/{name}.py" in text
    assert "torchvision" not in [line.split()[1].split(".")[0] for line in text.splitlines() if line[:6] == "import"]


@pytest.mark.parametrize("name", ["tabular", "hf_text", "image_model", "hf_vision"])
def test_it_runs_and_prints_what_it_found(howto, name: str, capsys) -> None:
    """How well one training run went is for the reader to see; that the base remembers more holds by far."""
    pytest.importorskip("transformers") if name.startswith("hf") else None
    outcome, report = howto(name).main()
    printed = capsys.readouterr().out
    assert str(outcome) in printed
    assert str(report) in printed
    assert report.verdict in VERDICTS
    assert report.before["smia_auc"].value > report.retrain.get("smia_auc", 50) + 5
    if name == "image_model":
        assert "refused: retain and heldout share 50 examples" in printed
        assert_readme_shows(printed)


def assert_readme_shows(printed: str) -> None:
    """The README quotes this output; numbers depend on the machine, the lines before the verdict do not."""
    readme = (FOLDER.parents[1] / "README.md").read_text()
    block = readme.partition("    auto: retrained")[2].partition("    Verdict: ")
    assert all(block)

    def lines(text: str) -> list[str]:
        return [" ".join(re.sub(r"[-\d.,]+", "0", line).split()) for line in text.splitlines()]

    assert [line for line in lines("auto: retrained" + block[0]) if line not in lines(printed)] == []


def test_the_notebook_runs_and_shows_what_it_did() -> None:
    """As it stands in the docs, with its outputs, and again from the beginning in a kernel of its own."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    book = nbformat.read(FOLDER / "first_unlearning.ipynb", as_version=4)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells), "save the notebook with its outputs"
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    kinds = [output.output_type for cell in cells for output in cell.outputs]
    assert "error" not in kinds
    assert "display_data" in kinds  # the figure
    pages = [
        output.data["text/html"] for cell in cells for output in cell.outputs if "text/html" in output.get("data", {})
    ]
    assert any(f">{verdict}<" in page for page in pages for verdict in VERDICTS)  # a report shows itself
    printed = "".join(output.get("text", "") for cell in cells for output in cell.outputs)
    assert "Verdict: " in printed


def test_any_model_comes_back_as_it_was(howto, capsys) -> None:
    made = howto("any_model").main()
    assert all(type(before) is type(after) for before, after in made.values())
    assert [next(after.parameters()).dtype for _, after in made.values()].count(torch.bfloat16) == 1
    before, after = made["adapters"]
    assert torch.equal(before.base.weight, after.base.weight)
    assert not torch.equal(before.up.weight, after.up.weight)
    assert capsys.readouterr().out.count("refused: ") == 2


def test_a_method_an_attack_and_a_metric_of_one_s_own(howto) -> None:
    results = howto("own_method").main()
    assert results.keys() == {"forget nothing", "second best"}
    assert results["forget nothing"] > 55  # the base itself, which remembers
    assert howto("own_attack").main().keys() == {"smia", "margin"}
    assert set(howto("own_metric").main().values()) <= set(VERDICTS)


def test_a_data_set_and_a_model_of_one_s_own(howto) -> None:
    assert howto("own_data").main() == {"train": 300, "test": 300, "command": 0}
    assert howto("own_model").main()["command"] == 0


def test_two_deletion_requests(howto, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECKPOINT", str(tmp_path / "patients.safetensors"))
    module = howto("deletion_request")
    with pytest.raises(FileNotFoundError):
        module.project()  # it trains nothing
    assert len(module.main()) == 2
    assert isinstance(module.project(), regun.Project)
    assert capsys.readouterr().out.count("checks passed") == 2


def test_a_request_with_a_prepared_table(howto, capsys) -> None:
    """Whether one training run forgets is for the reader to see; the rows are erased if it was accepted."""
    module = howto("prepared")
    assert isinstance(module.project(), regun.Project)
    status = module.main()
    left = 192 if status.startswith("accepted") else 222
    assert f"{left} left" in capsys.readouterr().out
