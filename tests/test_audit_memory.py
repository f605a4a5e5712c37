"""Audits and memory: what models said lies in files, and running out of memory is said and spoils nothing."""

import errno
import importlib
import json
import os
import tempfile
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import regun
import regun.artifacts.audits as audits
from expect import assert_names, error
from regun.artifacts import Contents, Store
from regun.auditing import Predictions, evaluate
from regun.auditing.predictions import LogProbs
from regun.cli import main
from regun.data.tensors import TensorExamples
from regun.errors import AuditError, NotFiniteError
from regun.predict import predict, predict_each

regun_predict = importlib.import_module("regun.predict")

TINY = ["--data", "digits,limit=400,test_limit=50", "--threads", "1", "--quiet"]
TRAIN = ["train", *TINY, "--recipe", "digits,epochs=1"]


@pytest.fixture
def asked(tmp_path: Path) -> tuple[Store, list[str]]:
    """A store with a base and a model that unlearned, and the command that audits the latter."""
    store = tmp_path / "store"
    assert main([*TRAIN, "--store", str(store)]) == 0
    base = Store(store).artifacts("model")[0].key
    where = ["--store", str(store)]
    method = ["--method", "finetune,epochs=1"]
    assert main(["unlearn", "--base", base, "--forget", "0.1", *method, "--threads", "1", "--quiet", *where]) == 0
    target = next(a.key for a in Store(store).artifacts("model") if a.key != base)
    return Store(store), ["audit", target, "--retrained", "none", "--json", "--threads", "1", *where]


def short_of_memory(monkeypatch: pytest.MonkeyPatch, name: str, left: int) -> None:
    """The function finds no memory after so many calls."""
    whole, calls = getattr(audits, name), [left]

    def short(*args: object, **more: object) -> object:
        calls[0] -= 1
        if calls[0] < 0:
            np.empty(2**46)  # NumPy says no
        return whole(*args, **more)

    monkeypatch.setattr(audits, name, short)


@pytest.mark.parametrize(("name", "left"), [("predict", 0), ("predict", 1), ("evaluate", 0)])
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
    assert_names(shown.err, "memory", "resume")
    assert store.verify().problems == []
    kept = {a.key for a in store.artifacts("signals")}
    assert len(kept) >= left
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["numbers"]["forget_acc"]
    assert kept <= {a.key for a in store.artifacts("signals")}


# ------------------------------------------------------------------------------------- what models said lies in files

CLASSES, SIZE = 2_000, 6_000
WHOLE = 8 * CLASSES * SIZE
"""Bytes of what one model said: 96 MB."""


@contextmanager
def little_memory() -> Generator[None]:
    """Inside, NumPy and Python hold no more than a quarter of what one model said."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < WHOLE / 4


@pytest.fixture(scope="module")
def examples() -> TensorExamples:
    rng = np.random.default_rng(0)
    return TensorExamples(torch.rand(SIZE, 4), rng.integers(0, CLASSES, SIZE), CLASSES)


def model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(4, CLASSES)


def test_what_models_say_of_many_examples_is_not_held_in_memory(examples: TensorExamples) -> None:
    parts = {"forget": np.arange(2_000), "test": np.arange(2_000, SIZE)}
    there = set(os.listdir(tempfile.gettempdir()))
    with little_memory():
        said = {name: predict_each([model(n) for n in range(4)], examples, rows) for name, rows in parts.items()}
        ours, before, *others = ({name: all_said[n] for name, all_said in said.items()} for n in range(4))
        found = evaluate(ours, others[0], others[1:], before=before, bootstrap=20)
    assert found.numbers["test_acc"].value < 5
    assert not {name for name in set(os.listdir(tempfile.gettempdir())) - there if "regun" in name}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of the process from /proc")
def test_files_with_predictions_are_not_mapped_as_a_whole() -> None:
    """The memory of the process stays small, however many classes there are; what was written stays readable."""

    def mapped() -> int:
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return 1024 * int(status["RssFile"].split()[0])

    start = mapped()
    filled = LogProbs(SIZE, CLASSES)
    logits = np.random.default_rng(0).normal(size=(1_000, CLASSES))
    for _ in range(SIZE // 1_000):
        filled.add(logits)
        assert mapped() - start < WHOLE / 2
    found = filled.predictions(np.zeros(SIZE, np.int64), np.arange(SIZE))
    for name in ("true_log_prob", "predicted", "true_logit", "entropy", "modified_entropy"):
        values = getattr(found, name)
        np.testing.assert_array_equal(values[:1_000], values[-1_000:])
        assert mapped() - start < WHOLE / 8


def test_what_lies_in_a_file_is_the_same_to_the_last_bit(examples: TensorExamples) -> None:
    small, large = np.arange(10), np.arange(SIZE)
    few, many = (predict(model(0), examples, rows) for rows in (small, large))
    np.testing.assert_allclose(few.log_probs, many.log_probs[:10], rtol=1e-5)  # torch rounds batches differently
    logits = np.random.default_rng(0).normal(0, 9, (SIZE, 100))
    in_parts = LogProbs(*logits.shape)
    for part in np.split(logits, [1, 7, 3_000]):
        in_parts.add(part)
    labels = np.zeros(SIZE, np.int64)
    np.testing.assert_array_equal(Predictions.from_logits(logits, labels, large).log_probs, in_parts.values)
    np.testing.assert_array_equal(
        Predictions.from_logits(logits[:9], labels[:9], small[:9]).log_probs, in_parts.values[:9]
    )


def test_the_store_keeps_and_gives_back_large_tensors_without_copies_in_memory(tmp_path: Path) -> None:
    store, large = Store(tmp_path / "store"), torch.rand(SIZE, CLASSES, dtype=torch.float64)
    both = {"one": large, "same again": large, "a part": large[1:3], "turned": large[:5].T}
    with little_memory():
        kept = store.make("signals", {"n": 1}, lambda _: Contents({"signals": both}, {}))
        found = kept.tensors("signals")
    assert all(torch.equal(found[name], value) for name, value in both.items())
    found["one"][:] = 0.0
    assert torch.equal(kept.tensors("signals")["one"], large), "who changes what they read changes no file"
    assert store.verify().problems == []


def test_answers_that_are_no_numbers_are_named_by_their_row_in_any_batch() -> None:
    said = LogProbs(700, 2)
    said.add(np.zeros((512, 2)))
    bad = np.zeros((100, 2))
    bad[88] = np.nan
    with error(NotFiniteError, "NaN", "600"):
        said.add(bad)


@pytest.mark.parametrize(("answers", "names"), [((700, 3), (700, 3)), ((600, 2), (600, 2)), ((599, 3), (599,))])
def test_too_few_or_too_many_answers_are_named(answers: tuple[int, int], names: tuple[int, ...]) -> None:
    def fill() -> None:
        said = LogProbs(600, 3)
        said.add(np.zeros(answers))
        said.predictions(np.zeros(600, np.int64), np.arange(600))

    with error(AuditError, *names, 600, 3):
        fill()


def test_a_full_folder_for_temporary_files_is_said_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with error(AuditError, "1,000,000", 100, 0.8, "TMPDIR"):
        LogProbs(1_000_000, 100)


def test_predictions_too_large_to_keep_give_the_same_numbers_without_divergences(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def classifier(seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return nn.Linear(6, 5)

    draw = torch.Generator().manual_seed(0)
    parts = {n: (torch.randn(40, 6, generator=draw), torch.arange(40) % 5) for n in ("forget", "retain", "test")}
    models = {"before": classifier(0), "retrained": [classifier(2), classifier(3)]}
    whole = regun.audit(classifier(1), **parts, **models).values()
    monkeypatch.setattr(regun_predict, "MOST_BYTES", 8 * 5 * 40 - 1)
    caplog.clear()
    part = regun.audit(classifier(1), **parts, **models).values()
    assert_names(caplog.text, "40", "5", "Divergences", "39")
    assert {name for name in whole if name not in part} == {f"{n}_div" for n in parts}
    assert {name: whole[name] for name in part} == part
    kept = predict(classifier(1), TensorExamples(*[t if t.ndim > 1 else t.numpy() for t in parts["test"]], 5))
    assert not kept.complete
    with error(AuditError, "40", "5", "log-probabilities"):
        _ = kept.log_probs


def test_stored_predictions_too_large_to_keep_are_audited(
    asked: tuple[Store, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, command = asked
    monkeypatch.setattr(regun_predict, "MOST_BYTES", 0)
    for _ in range(2):  # made, and read from the store
        capsys.readouterr()
        assert main(command) == 0
        assert "test_acc" in capsys.readouterr().out
