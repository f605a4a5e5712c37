"""The form of messages: each names the argument, shows what was passed, and lists what is allowed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import regun
from expect import assert_names, error
from regun import InputOptions, RunOptions
from regun.errors import RegunError, SettingsError, not_installed, see
from regun.methods.auto import PRETRAINED
from toys import blobs, mlp

NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
MODULE, DATA = "torch.nn.Module", "DataLoader"


def parts() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    examples = blobs(n=120, seed=1)
    x, y = examples.x, torch.from_numpy(examples.labels)
    cuts = {"forget": slice(0, 20), "retain": slice(20, 80), "test": slice(80, 120)}
    return {name: (x[cut], y[cut]) for name, cut in cuts.items()}


def unlearn(**changes: Any) -> regun.Outcome:
    sets = {name: pair for name, pair in parts().items() if name != "test"}
    return regun.unlearn(**{"model": mlp(), **sets, "method": "finetune,epochs=1", **changes})


def tune(**changes: Any) -> regun.Outcome:
    return regun.tune(**{"model": mlp(), "val": parts()["test"], "method": "finetune", "forget": parts()["forget"], "retain": parts()["retain"], **changes})  # fmt: skip


def audit(**changes: Any) -> regun.Evaluation:
    return regun.audit(**{"model": mlp(), "bootstrap": 20, **parts(), **changes})


def relearn(**changes: Any) -> object:
    return regun.relearn(**{"model": mlp(), "settings": {"epochs": 1}, **parts(), **changes})


@pytest.mark.parametrize("call", [unlearn, tune, audit, relearn])
@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"forget": None}, ("forget", "NoneType", "Dataset", DATA)),
        ({"model": mlp().state_dict()}, ("model", "OrderedDict", MODULE, "model.load_state_dict(state)")),
        ({"model": None}, ("model", "NoneType", MODULE)),
        ({"seed": None}, ("seed", "None", "integer")),
        ({"seed": True}, ("seed", "True", "integer")),
        ({"inputs": {"logits": len}}, ("inputs", "dict", "regun.InputOptions(logits=...")),
        ({"inputs": InputOptions(device="gpu")}, ("device", "'gpu'", "cpu")),
        ({"inputs": InputOptions(device=1.5)}, ("device", "'1.5'", "cpu")),
        pytest.param({"inputs": InputOptions(device="cuda")}, ("device", "'cuda'", "cpu"), marks=NO_CUDA),
        ({"inputs": InputOptions(num_classes=0)}, ("num_classes", 0, 2, 3)),
        ({"inputs": InputOptions(num_classes=4)}, ("num_classes", 4, 2, 3)),
    ],
)
def test_arguments_of_all_functions(call: Callable[..., object], changes: dict[str, Any], names: tuple) -> None:
    with error(RegunError, *names):
        call(**changes)


@pytest.mark.parametrize("call", [unlearn, tune])
@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"method": None}, ("method", "None", "string", "Job")),
        ({"settings": [("lr", 1)]}, ("settings", "list", "mapping", "{'lr':")),
        ({"recipe": [1]}, ("recipe", "list", "mapping", "string")),
        ({"rebuild": "mlp"}, ("rebuild", "'mlp'", "function", "untrained")),
        ({"run": {"keep": "best"}}, ("run", "dict", "regun.RunOptions(budget=...")),
    ],
)
def test_arguments_of_unlearning(call: Callable[..., object], changes: dict[str, Any], names: tuple) -> None:
    with error(SettingsError, *names):
        call(**changes)


@pytest.mark.parametrize(
    ("options", "field", "value", "names"),
    [
        (InputOptions, "logits", 3, (3, "function")),
        (InputOptions, "num_classes", "3", ("'3'", "integer")),
        (InputOptions, "ids", [1, 2], ("list", "mapping")),
        (InputOptions, "check_content", "yes", ("'yes'", "True", "False", "None")),
        (RunOptions, "budget", 10, (10, "regun.Budget(steps=N)", "regun.Budget(samples=N)")),
        (RunOptions, "keep", None, ("None", "'last'", "'best'")),
        (RunOptions, "criterion", 1, (1, "'val_accuracy'", "'val_loss'", "'unseen_error'")),
        (RunOptions, "on_epoch", "loud", ("'loud'", "function")),
        (RunOptions, "progress", 1, (1, "True", "False")),
    ],
)
def test_options(options: type, field: str, value: object, names: tuple) -> None:
    with error(SettingsError, field, *names):
        options(**{field: value})


@pytest.mark.parametrize(
    ("call", "changes", "names"),
    [
        (unlearn, {"run": RunOptions(keep="first")}, ("keep", "'first'", "best", "last")),
        (unlearn, {"run": RunOptions(keep="best", criterion="loss")}, ("criterion", "'loss'", "val_loss")),
        (unlearn, {"run": RunOptions(keep="best")}, ("keep", "val")),
        (unlearn, {"method": "fintune"}, ("'fintune'", "'finetune'", "regun")),
        (unlearn, {"method": "finetune", "settings": {"learning_rate": 1}}, ("'learning_rate'", "lr")),
        (unlearn, {"method": "finetune,lr=-1"}, ("lr", -1, 0)),
        (unlearn, {"teacher": 3}, ("teacher", "int", "function")),
        (tune, {"trials": 0}, ("trials", 0, 1)),
        (tune, {"trials": "8"}, ("trials", "'8'", "integer")),
        (audit, {"retrained": "yesterday"}, ("retrained", "'yesterday'", MODULE, "list")),
        (audit, {"retrained": [mlp(), None]}, ("retrained[1]", "NoneType", MODULE)),
        (audit, {"out_models": None}, ("out_models", "None", MODULE, "list")),
        (audit, {"before": "yesterday"}, ("before", "str", MODULE)),
        (audit, {"attacks": 3}, ("attacks", 3, "name", "function")),
        (audit, {"attacks": "simia"}, ("'simia'", "'smia'", "rmia")),
        (audit, {"metrics": None}, ("metrics", "None", "name", "function")),
        (audit, {"bootstrap": "20"}, ("bootstrap", "'20'", "integer")),
        (relearn, {"retrained": mlp().state_dict()}, ("retrained", "OrderedDict", MODULE, "list")),
        (relearn, {"retain": None}, ("retain", "NoneType", "Dataset", DATA)),
    ],
)
def test_arguments_of_one_function(call: Callable[..., object], changes: dict[str, Any], names: tuple) -> None:
    with error(RegunError, *names):
        call(**changes)


def test_all_wrong_arguments_are_listed_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        unlearn(method=None, seed="0", recipe=3)
    assert sorted(problem.split()[0] for problem in caught.value.problems) == ["method", "recipe", "seed"]


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (None, ("NoneType", MODULE)),
        (mlp(features=7), ("0.weight", 7, 6)),
        (nn.Linear(6, 3), ("'bias'", "untrained")),
    ],
)
def test_what_rebuild_returns_is_a_model_of_the_same_kind(made: nn.Module | None, names: tuple) -> None:
    with error(RegunError, "rebuild", *names):
        unlearn(method="retrain,epochs=1,lr=0.1", rebuild=lambda seed: made)


def test_a_rebuild_that_fails_is_named() -> None:
    with error(RegunError, "rebuild", "TypeError"):
        unlearn(method="retrain,epochs=1,lr=0.1", rebuild=lambda: mlp())


@pytest.mark.parametrize(
    ("returned", "names"), [(5, (5, "int")), ("done", ("'done'", "str")), (mlp(), ("Sequential",))]
)
def test_a_method_returns_a_record_of_its_run_or_nothing(returned: object, names: tuple) -> None:
    with error(RegunError, *names, "regun.training.fit.Fitted", "job.model"):
        unlearn(method=lambda job: returned)


@pytest.mark.parametrize("call", [unlearn, audit, relearn])
def test_messages_are_short(call: Callable[..., object]) -> None:
    """One or two sentences, on one line, that end."""
    for changes in ({"model": None}, {"forget": 3}, {"seed": None}, {"inputs": InputOptions(num_classes=9)}):
        with pytest.raises(RegunError) as caught:
            call(**changes)
        text = str(caught.value)
        assert text.endswith(".")
        assert "\n" not in text
        assert len(text) < 250
        assert_names(text, next(iter(changes)) if "inputs" not in changes else "num_classes")


class Flickering(Dataset):
    """Training data that augment at random."""

    def __init__(self, pair: tuple[torch.Tensor, torch.Tensor]) -> None:
        self.x, self.y = pair

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.x[i] + torch.randn(6), int(self.y[i])


SECTIONS = re.findall(r"^## (.+)$", (Path(__file__).parents[1] / "docs/troubleshooting.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    ("section", "mistake"),
    [
        ("Sets that overlap", lambda: unlearn(retain=parts()["forget"])),
        ("Random augmentation in the audit", lambda: audit(retain=Flickering(parts()["retain"]))),
        ("Outputs that are not logits", lambda: unlearn(model=nn.Sequential(mlp(), nn.Softmax(1)))),
        ("Outputs that are not logits", lambda: unlearn(model=nn.Linear(6, 1))),
    ],
)
def test_a_newcomer_s_mistake_names_its_section_of_the_docs(section: str, mistake: Callable[[], object]) -> None:
    with pytest.raises(RegunError) as caught:
        mistake()
    assert str(caught.value).endswith(see(section))
    assert section in SECTIONS


def test_further_sections_that_messages_name() -> None:
    texts = {
        "A missing extra": not_installed("signing", "cryptography", "sign"),
        "Pretrained models": PRETRAINED,
        "An inconclusive verdict": " ".join(str(audit(before=mlp())).split()),
    }
    assert [section for section, text in texts.items() if see(section) not in text] == []
    assert texts.keys() <= set(SECTIONS)
