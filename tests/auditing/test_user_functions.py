"""Attacks and metrics of one's own: by text and by function, described, with gap and floor, and faults that name them."""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import regun
from expect import error
from regun.auditing import (
    ATTACKS,
    METRICS,
    UNSEEN,
    Attack,
    Evaluation,
    Evidence,
    Metric,
    Predictions,
    SplitPredictions,
    describe,
    evaluate,
    judged_by,
    noise_floor,
)
from regun.auditing.metrics import BUILT_IN, accuracy, divergence, resolve_metric
from regun.errors import AuditError, RegunError
from regun.experiments.study.parse import parse_study

K = 4
SIZES = {"retain": 60, "forget": 40, "test": 80, "val": 50}


def model(seed: int, forget: float = 0.0) -> dict[str, Predictions]:
    made: dict[str, Predictions] = {}
    for number, (split, size) in enumerate(SIZES.items()):
        labels = np.random.default_rng(number).integers(0, K, size)
        logits = np.random.default_rng([seed, number]).normal(0, 1.5, (size, K))
        logits[np.arange(size), labels] += 1.0 + (forget if split == "forget" else 0.0)
        made[split] = Predictions.from_logits(logits, labels, number * 1000 + np.arange(size))
    return made


TARGET, RETRAIN, REFERENCES = model(0, 2.0), model(1), [model(k) for k in (2, 3, 4)]

MINE = '''
"""Extensions in a file."""
from functools import partial
import numpy as np
from regun.auditing import Attack, Metric
from regun.auditing.attacks import rmia_offline

def margin(evidence):
    """How far the answer is ahead of the next one.

    More text.
    """
    best = np.sort(evidence.target.log_probs, axis=1)
    return best[:, -1] - best[:, -2]

def tail(splits, retrain):
    """Forgotten examples with a confidence above 90 %."""
    return np.exp(splits["forget"].true_log_prob) > 0.9

def mean_loss(splits, retrain):
    return -splits["test"].true_log_prob

def moved(splits, retrain):
    if retrain is None:
        return None
    return float(np.abs(splits["forget"].true_log_prob - retrain["forget"].true_log_prob).max())

MOVED = Metric("moved_far", "Moved", "nats", "the farthest move", "0", measure=moved, distance=True)
GAP = Metric("gap_own", "Own gap", "points", "test accuracy and tail", terms=("test_acc", "tail"))
FIXED = Attack("rmia_03", partial(rmia_offline, a=0.3), "RMIA a=0.3", references=1, population=True)
number = 3
'''


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return str(path)


def test_text_and_function_give_the_same_attack(mine: str) -> None:
    def margin(evidence: Evidence) -> np.ndarray:
        best = np.sort(evidence.target.log_probs, axis=1)
        return best[:, -1] - best[:, -2]

    found = evaluate(TARGET, RETRAIN, REFERENCES, attacks=["smia", f"{mine}:margin"], bootstrap=30)
    same = evaluate(TARGET, RETRAIN, REFERENCES, attacks=["smia", margin], bootstrap=30)
    assert found.numbers == same.numbers
    assert found.gaps == same.gaps
    assert found.gaps["margin_auc"].verdict is not None
    assert set(found.metrics) == {name for name in found.numbers if name.startswith("margin_")}
    assert describe("margin_tpr1_val", found).label == "margin TPR@1% (validation)"
    assert "(How far the answer is ahead of the next one)" in describe("margin_auc", found).meaning


def test_a_module_on_pythons_path_serves_too(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(mine).parent))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    assert "tail" in evaluate(TARGET, metrics=["mine:tail"], attacks=[], bootstrap=0).numbers
    monkeypatch.delitem(sys.modules, "mine")


def test_an_attack_object_states_its_needs_in_a_file(mine: str) -> None:
    found = evaluate(TARGET, RETRAIN, REFERENCES, attacks=[f"{mine}:FIXED"], bootstrap=0)
    assert found.metrics["rmia_03_auc"].label == "RMIA a=0.3 AUC"
    assert found.gaps["rmia_03_auc"].floor_mean is not None
    with error(AuditError, "'rmia_03'", "1", "val", "0"):
        evaluate(TARGET, attacks=[f"{mine}:FIXED"])


def test_an_attack_that_needs_references_gets_them_in_the_noise_floor_without_saying_more() -> None:
    def best(evidence: Evidence) -> np.ndarray:
        return evidence.target.true_logit - np.max([r.true_logit for r in evidence.references], axis=0)

    floor = noise_floor(RETRAIN, REFERENCES, attacks=[Attack("best", best, references=2)])
    assert len(floor.values["best_auc"]) == 6


def test_a_metric_has_number_interval_retrain_gap_floor_and_description(mine: str) -> None:
    found = evaluate(TARGET, RETRAIN, REFERENCES, attacks=["smia"], metrics=[f"{mine}:tail"], bootstrap=200)

    def tail(splits: SplitPredictions) -> float:
        return 100 * float((np.exp(splits["forget"].true_log_prob) > 0.9).mean())

    number, gap = found.numbers["tail"], found.gaps["tail"]
    assert number.value == pytest.approx(tail(TARGET))
    assert number.low < number.value < number.high
    assert found.retrain["tail"] == pytest.approx(tail(RETRAIN))
    assert gap.value == pytest.approx(abs(tail(TARGET) - tail(RETRAIN)))
    every = [tail(m) for m in (RETRAIN, *REFERENCES)]
    pairs = [abs(a - b) for i, a in enumerate(every) for b in every[i + 1 :]]
    assert (gap.floor_mean, gap.floor_largest) == pytest.approx((np.mean(pairs), max(pairs)))
    assert gap.verdict in ("passed", "inconclusive", "failed")
    about = describe("tail", found)
    assert (about.label, about.good) == ("tail", "Retrain's value")
    assert about.meaning == "Forgotten examples with a confidence above 90 %"
    assert set(found.metrics) == {"tail"}


def test_what_a_metric_may_return() -> None:
    def share(splits, retrain):
        return splits["forget"].predicted == splits["forget"].labels

    def mean(splits, retrain):
        return -splits["test"].true_log_prob

    def value(splits, retrain):
        return np.float32(3)

    def absent(splits, retrain):
        return None

    found = evaluate(TARGET, attacks=[], metrics=[share, mean, value, absent], bootstrap=400)
    assert found.numbers["share"].value == accuracy(TARGET["forget"])
    assert found.numbers["share"].high - found.numbers["share"].low > 5
    values = -TARGET["test"].true_log_prob
    error = 1.96 * values.std() / np.sqrt(len(values))
    assert found.numbers["mean"].value == pytest.approx(values.mean())
    assert found.numbers["mean"].low == pytest.approx(values.mean() - error, abs=0.3 * error)
    assert (found.numbers["value"].value, found.numbers["value"].low) == (3.0, None)
    assert "absent" not in found.numbers
    assert not found.gaps


def test_a_share_of_all_or_none_gets_the_exact_bound() -> None:
    found = evaluate(TARGET, attacks=[], metrics=[Metric("all", measure=lambda s, r: s["forget"].labels >= 0)])
    assert found.numbers["all"].low == pytest.approx(100 * 0.025 ** (1 / SIZES["forget"]))


def test_a_distance_is_its_own_gap_and_needs_retrain(mine: str) -> None:
    found = evaluate(TARGET, RETRAIN, REFERENCES, attacks=[], metrics=[f"{mine}:MOVED", f"{mine}:moved"], bootstrap=0)
    assert found.gaps["moved_far"].value == found.numbers["moved_far"].value == found.gaps["moved"].value
    assert found.retrain["moved"] == 0.0
    assert "moved_far" not in found.retrain
    assert found.gaps["moved_far"].floor_mean == pytest.approx(found.gaps["moved"].floor_mean)
    assert "moved" not in evaluate(TARGET, attacks=[], metrics=[f"{mine}:moved"], bootstrap=0).numbers


def test_divergence_is_declared_like_any_other(mine: str) -> None:
    """A second derivation of a built-in number, as a metric of one's own, gets the same gap and floor."""

    def again(splits, retrain):
        return None if retrain is None else divergence(splits["test"], retrain["test"])

    found = evaluate(TARGET, RETRAIN, REFERENCES, attacks=[], metrics=[Metric("again", measure=again, distance=True)])
    assert found.gaps["again"].value == pytest.approx(found.gaps["test_div"].value)
    assert found.gaps["again"].floor_limit == pytest.approx(found.gaps["test_div"].floor_limit)


def test_a_gap_of_ones_own_terms(mine: str) -> None:
    found = evaluate(TARGET, RETRAIN, REFERENCES, attacks=[], metrics=[f"{mine}:GAP", f"{mine}:tail"], bootstrap=0)
    assert found.numbers["gap_own"].value == pytest.approx(
        (found.gaps["test_acc"].value + found.gaps["tail"].value) / 2
    )
    assert found.gaps["gap_own"].floor_mean is not None
    assert describe("gap_own", found).label == "Own gap"


def test_descriptions_survive_json(mine: str) -> None:
    found = evaluate(
        TARGET,
        RETRAIN,
        REFERENCES,
        attacks=[f"{mine}:margin"],
        metrics=[f"{mine}:MOVED", f"{mine}:GAP", f"{mine}:tail"],
    )
    again = Evaluation.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False)))
    assert again == found
    assert describe("moved_far", again).meaning == "the farthest move"
    with error(AuditError, "'moved_fat'", "'moved_far'"):
        describe("moved_fat", again)


def test_built_in_metrics_may_be_named_and_change_nothing() -> None:
    plain = evaluate(TARGET, attacks=[], bootstrap=0)
    assert evaluate(TARGET, attacks=[], metrics=["test_acc", "forget_entropy"], bootstrap=0) == plain
    assert resolve_metric("gap_rftp") is METRICS["gap_rftp"]


def test_what_own_code_draws_is_the_same_every_time_and_leaves_no_trace() -> None:
    def noisy(splits, retrain):
        return np.random.normal(size=5) + random.random()  # noqa: NPY002

    def guess(evidence: Evidence) -> np.ndarray:
        return np.random.normal(size=len(evidence.target))  # noqa: NPY002

    np.random.seed(7)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    first, second = (evaluate(TARGET, attacks=[guess], metrics=[noisy], bootstrap=0) for _ in range(2))
    assert first == second
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def failing(fault: BaseException):
    def fails(*given):
        raise fault

    return fails


@pytest.mark.parametrize("fault", [ValueError("no good"), SystemExit(3), KeyError("x")])
def test_faults_of_own_code_name_it(fault: BaseException) -> None:
    with error(AuditError, "attack", "'fails'", type(fault).__name__):
        evaluate(TARGET, attacks=[failing(fault)])
    with error(AuditError, "metric", "'fails'", type(fault).__name__):
        evaluate(TARGET, metrics=[failing(fault)])


def test_an_interrupt_stays_one() -> None:
    with pytest.raises(KeyboardInterrupt):
        evaluate(TARGET, metrics=[failing(KeyboardInterrupt())])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "gave float64 of shape ()"),
        (np.zeros((3, 2)), "gave float64 of shape (3, 2)"),
        (np.array([1.0, np.inf]), "gave float64 of shape (2,)"),
        (np.array([]), "gave float64 of shape (0,)"),
        ("80 %", "gave <U4 of shape ()"),
        ({"a": 1}, "gave object of shape ()"),
    ],
)
def test_what_is_no_number_is_refused(value: object, said: str) -> None:
    with pytest.raises(AuditError) as fault:
        evaluate(TARGET, metrics=[Metric("odd", measure=lambda splits, retrain: value)])  # type: ignore[arg-type]
    assert f"the metric 'odd' {said}; give a finite number" in str(fault.value)


def test_refusals(mine: str) -> None:
    with error(AuditError, "'tial'", "file.py:function"):
        evaluate(TARGET, metrics=["tial"])
    with error(AuditError, "'margn'", "file.py:function"):
        evaluate(TARGET, attacks=["margn"])
    with error(RegunError, "'tial'", "'tail'"):
        evaluate(TARGET, metrics=[f"{mine}:tial"])
    with error(RegunError, "int"):
        evaluate(TARGET, metrics=[f"{mine}:number"])
    with error(AuditError, "tail"):
        evaluate(TARGET, metrics=[f"{mine}:tail", Metric("tail", measure=lambda s, r: 1.0)])
    with error(AuditError, "test_acc"):
        evaluate(TARGET, metrics=[Metric("test_acc", measure=lambda s, r: 1.0)])
    with error(AuditError, "smia_auc"):
        evaluate(TARGET, metrics=[Metric("smia_auc", measure=lambda s, r: 1.0)])
    with error(AuditError, "metric", "_"):
        Metric("my metric")
    with error(AuditError, "attack", "''"):
        Attack("", ATTACKS["smia"].score)


def test_names_of_attacks_cannot_run_into_each_other() -> None:
    """The results of `x` against validation and of `x_val` against test would both be called `x_val`."""
    attacks = [Attack("x", ATTACKS["smia"].score), Attack("x_auc", ATTACKS["smia"].score)]
    assert len(evaluate(TARGET, attacks=attacks, bootstrap=0).attacks) == 4
    clash = [Attack("x", ATTACKS["smia"].score), Attack("x_val", ATTACKS["confidence"].score)]
    with error(AuditError, "x_val"):
        evaluate(TARGET, attacks=clash)


# ---- what decides an evaluation: its key ------------------------------------------------------------------------


def test_the_key_holds_what_will_run_by_name(mine: str) -> None:
    alone = judged_by(None, (), references=0, population=True)
    assert list(alone["attacks"]) == ["smia", "confidence", "entropy", "modified_entropy", "correctness"]
    assert list(judged_by(None, (), 2, True)["attacks"]) == list(ATTACKS)
    assert "rmia_offline" not in judged_by(None, (), 2, False)["attacks"]
    assert list(alone["metrics"]) == list(BUILT_IN)
    own = judged_by(["smia", f"{mine}:margin"], [f"{mine}:tail", f"{mine}:GAP"], 0, True)
    assert list(own["attacks"]) == ["smia", "margin"]
    assert [name for name in own["metrics"] if name not in BUILT_IN] == ["tail", "gap_own"]
    assert own["attacks"]["smia"] == alone["attacks"]["smia"]
    assert json.loads(json.dumps(own)) == own
    with error(AuditError, "'rmia'", "1"):
        judged_by(["rmia"], (), 0, True)


def test_the_key_follows_the_users_file(mine: str) -> None:
    before = judged_by([f"{mine}:margin", f"{mine}:FIXED"], [f"{mine}:tail"], 1, True)
    assert judged_by([f"{mine}:margin", f"{mine}:FIXED"], [f"{mine}:tail"], 1, True) == before
    Path(mine).write_text(MINE.replace("> 0.9", "> 0.95"))
    after = judged_by([f"{mine}:margin", f"{mine}:FIXED"], [f"{mine}:tail"], 1, True)
    assert after["metrics"]["tail"] != before["metrics"]["tail"]
    assert after["attacks"]["rmia_03"] != before["attacks"]["rmia_03"]
    assert after["code"] == before["code"]


def test_functions_are_keyed_by_their_file_and_those_without_one_refused() -> None:
    def margin(evidence: Evidence) -> np.ndarray:
        return evidence.target.true_logit

    assert (
        judged_by([margin], (), 0, True)["attacks"]["margin"] == judged_by([margin], (), 0, True)["attacks"]["margin"]
    )
    typed: dict[str, object] = {}
    exec("def typed(evidence): return evidence.target.true_logit", typed)
    with error(RegunError, "typed"):
        judged_by([typed["typed"]], (), 0, True)  # type: ignore[list-item]


EDITS = """
import json, sys
from pathlib import Path

def key(file="__init__.py", old="", new=""):
    path = Path(ROOT, "auditing", file)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new) if old else text)
    for name in [name for name in sys.modules if name.split(".")[0] == "regun"]:
        del sys.modules[name]  # as in a new process, but for torch, which takes seconds to load
    from regun.auditing import judged_by
    found = judged_by(None, (), 2, True)
    path.write_text(text)
    return found

import regun
ROOT = Path(regun.__file__).parent
line = "return np.exp(evidence.target.true_log_prob)"
print(json.dumps({
    "root": str(ROOT),
    "before": key(),
    "remark": key("attacks.py", line, line + "  # a remark"),
    "docstring": key("attacks.py", "p_y; the ranking", "p_y, the ranking"),
    "attack": key("attacks.py", line, line.replace("np.exp", "np.expm1")),
    "floor": key("verdict.py", "ERROR_RATE = 0.05", "ERROR_RATE = 0.04"),
}))
"""


def test_the_key_follows_the_code_and_not_its_comments(tmp_path: Path) -> None:
    """In a copy of the package: a changed line in one attack changes the key, a changed comment does not."""
    shutil.copytree(Path(regun.__file__).parent, tmp_path / "regun", ignore=shutil.ignore_patterns("__pycache__"))
    child = [sys.executable, "-B", "-c", EDITS]
    done = subprocess.run(child, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    keys = json.loads(done.stdout)
    assert keys["root"] == str(tmp_path / "regun")
    before = keys["before"]
    assert keys["remark"] == keys["docstring"] == before
    assert keys["attack"]["attacks"]["confidence"] != before["attacks"]["confidence"]
    assert keys["attack"]["code"] != before["code"]
    assert keys["floor"]["code"] != before["code"]
    assert keys["floor"]["attacks"] == before["attacks"]


def test_every_built_in_number_has_its_words() -> None:
    assert set(UNSEEN) == {"test", "heldout", "val"}
    for name, metric in METRICS.items():
        assert metric.name == name
        assert all((metric.label, metric.unit, metric.meaning, metric.good)), name
    assert all(attack.meaning for attack in ATTACKS.values())


def test_numbers_of_an_own_attack_may_be_named_as_metrics(mine: str) -> None:
    """The column appears by itself; naming it changes nothing."""
    attacks = ["smia", f"{mine}:margin"]
    named = evaluate(TARGET, attacks=attacks, metrics=["margin_auc", "smia_auc", "margin_tpr1_val"], bootstrap=30)
    assert named.numbers == evaluate(TARGET, attacks=attacks, bootstrap=30).numbers
    with error(AuditError, "'margin_auc'", "file.py:function"):
        evaluate(TARGET, attacks=["smia"], metrics=["margin_auc"], bootstrap=0)
    judged = judged_by(attacks, ["margin_auc"], 0, True)
    assert judged["metrics"] == judged_by(attacks, [], 0, True)["metrics"]


def test_a_study_may_name_numbers_of_its_own_attack(mine: str) -> None:
    def columns(*metrics: str) -> list[str]:
        named = ", ".join(map(repr, metrics))
        text = f'name = "own"\nattacks = ["{mine}:margin"]\nmetrics = [{named}]\nmethods = ["finetune"]\n'
        study = parse_study(text, "own.toml", Path(mine).parent)
        assert study.audit_metrics == ()
        return study.columns(["smia_auc", "margin_auc", "margin_tpr1", "margin_auc_val"])

    assert columns() == columns("margin_auc") == ["margin_auc"]
    assert columns("margin_tpr1") == ["margin_tpr1", "margin_auc"]
