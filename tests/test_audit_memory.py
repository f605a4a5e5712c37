"""An audit that runs out of memory in the middle: said in words, nothing spoilt, and the same command goes on."""

import json
from pathlib import Path

import numpy as np
import pytest

import regun.runs.audit as audits
from regun.cli import main
from regun.store import Store

TINY = ["--data", "digits,limit=400,test_limit=50", "--threads", "1", "--quiet"]
TRAIN = ["train", *TINY, "--recipe", "digits,epochs=1"]


@pytest.fixture
def asked(tmp_path: Path) -> tuple[Store, list[str]]:
    """A store with a base and a model that unlearned, and the command that audits the latter."""
    store = tmp_path / "store"
    assert main([*TRAIN, "--store", str(store)]) == 0
    base = Store(store).artefacts("model")[0].key
    where = ["--store", str(store)]
    method = ["--method", "finetune,epochs=1"]
    assert main(["unlearn", "--base", base, "--forget", "0.1", *method, "--threads", "1", "--quiet", *where]) == 0
    target = next(a.key for a in Store(store).artefacts("model") if a.key != base)
    return Store(store), ["audit", target, "--alone", "--json", "--threads", "1", *where]


def short_of_memory(monkeypatch: pytest.MonkeyPatch, name: str, left: int) -> None:
    """The function finds no memory after so many calls."""
    whole, calls = getattr(audits, name), [left]

    def short(*args: object, **more: object) -> object:
        calls[0] -= 1
        if calls[0] < 0:
            np.empty(2**46)  # NumPy says no
        return whole(*args, **more)

    monkeypatch.setattr(audits, name, short)


@pytest.mark.parametrize(("name", "left"), [("signals_of", 0), ("signals_of", 1), ("evaluate", 0)])
def test_an_audit_without_memory_keeps_what_it_has_and_goes_on(
    name: str,
    left: int,
    asked: tuple[Store, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store, command = asked
    with monkeypatch.context() as patched:
        short_of_memory(patched, name, left)
        capsys.readouterr()
        assert main(command) == 2
        shown = capsys.readouterr()
    assert shown.out == ""
    assert "regun: there is not enough memory; what was finished is kept." in shown.err
    assert store.verify().problems == []
    kept = {a.key for a in store.artefacts("signals")}
    assert len(kept) >= left
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["numbers"]["forget_acc"]
    assert kept <= {a.key for a in store.artefacts("signals")}
