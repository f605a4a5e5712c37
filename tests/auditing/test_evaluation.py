"""The whole evaluation: names, intervals, gaps, JSON, claims, what is possible without Retrain, and refusals."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from expect import assert_names, error
from regun.auditing import ATTACKS, METRICS, Evaluation, Evidence, Predictions, describe, evaluate, noise_floor
from regun.auditing.metrics import accuracy, divergence, entropy
from regun.errors import AuditError

K = 4
SIZES = {"retain": 120, "forget": 60, "test": 150, "val": 70, "heldout": 80}


def model(seed: int, **raised: float) -> dict[str, Predictions]:
    made: dict[str, Predictions] = {}
    for number, (split, size) in enumerate(SIZES.items()):
        labels = np.random.default_rng(number).integers(0, K, size)
        logits = np.random.default_rng([seed, number]).normal(0, 1.5, (size, K))
        logits[np.arange(size), labels] += 1.0 + raised.get(split, 0.0)
        made[split] = Predictions.from_logits(logits, labels, number * 1000 + np.arange(size))
    return made


def without(splits: dict[str, Predictions], *names: str) -> dict[str, Predictions]:
    return {name: value for name, value in splits.items() if name not in names}


TARGET, RETRAIN = model(0, retain=2.0, forget=2.0), model(1, retain=2.0)
REFERENCES = [model(k, retain=2.0) for k in (2, 3, 4)]
BEFORE = model(5, retain=2.0, forget=3.0)
FULL = evaluate(TARGET, RETRAIN, REFERENCES, before=BEFORE, bootstrap=200)


def test_numbers_are_what_their_functions_say():
    values = FULL.values()
    for split in SIZES:
        assert values[f"{split}_acc"] == pytest.approx(accuracy(TARGET[split]))
        assert values[f"{split}_div"] == pytest.approx(divergence(TARGET[split], RETRAIN[split]))
        assert FULL.retrain[f"{split}_acc"] == pytest.approx(accuracy(RETRAIN[split]))
    assert values["forget_entropy"] == pytest.approx(entropy(TARGET["forget"]))
    assert values["forget_entropy_diff"] == pytest.approx(entropy(TARGET["forget"]) - entropy(RETRAIN["forget"]))
    terms = ("retain_acc", "forget_acc", "test_acc", "rmia_auc")
    assert values["gap_rftp"] == pytest.approx(np.mean([abs(values[t] - FULL.retrain[t]) for t in terms]))
    assert values["gap_tp"] == pytest.approx(np.mean([abs(values[t] - FULL.retrain[t]) for t in terms[2:]]))
    on_val = ("retain_acc", "forget_acc", "val_acc", "rmia_auc_val")
    assert values["gap_rfvp"] == pytest.approx(np.mean([abs(values[t] - FULL.retrain[t]) for t in on_val]))
    assert values["confidence_ks_test"] == pytest.approx(values["confidence_advantage"])
    for splits, numbers in ((TARGET, values), (RETRAIN, FULL.retrain)):
        sides = [100 * np.exp(splits[name].true_log_prob) for name in ("forget", "heldout")]
        assert numbers["confidence_wasserstein_heldout"] == pytest.approx(wasserstein_distance(*sides))


def test_every_number_is_in_the_catalogue_and_has_an_interval_that_holds_it():
    for name, number in FULL.numbers.items():
        metric = METRICS[name]
        assert all((metric.label, metric.unit, metric.meaning, metric.good))
        if not name.startswith("gap_"):  # a mean of distances has none
            assert number.low is not None, name
            assert number.high is not None, name
            assert number.low <= number.value + 1e-9, name
            assert number.high >= number.value - 1e-9, name
    assert {a.attack for a in FULL.attacks.values()} == set(ATTACKS)
    assert "rmia_offline_val" not in FULL.attacks  # validation is its population


def test_the_docs_explain_every_kind_of_number():
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    statistics = ("auc", "tpr1", "tpr01", "bacc", "advantage")
    assert all(f"`{part}`" in text for part in (*ATTACKS, *statistics))
    attack_numbers = {f"{attack}_{statistic}" for attack in ATTACKS for statistic in statistics}
    for name in METRICS:
        kind = name.removesuffix("_val").removesuffix("_heldout").removesuffix("_test")
        of_split = f"`*_{name.rpartition('_')[2]}`" in text
        assert kind in attack_numbers or f"`{kind}`" in text or of_split, name


def test_describe_knows_every_number_by_name():
    assert describe("rmia_auc").label == "RMIA AUC"
    assert describe("lira_tpr1_val").label == "offline LiRA TPR@1% (validation)"
    assert all(describe(name, FULL) is METRICS[name] for name in FULL.numbers)
    assert not FULL.metrics
    with error(AuditError, "'forget_ac'", "'forget_acc'"):
        describe("forget_ac")


def test_json_round_trip_through_text():
    again = Evaluation.from_json(json.loads(json.dumps(FULL.to_json(), allow_nan=False)))
    assert again == FULL


def test_same_seed_same_result_other_seed_same_values():
    again = evaluate(TARGET, RETRAIN, REFERENCES, before=BEFORE, bootstrap=200)
    assert again == FULL
    other = evaluate(TARGET, RETRAIN, REFERENCES, bootstrap=200, seed=1, floor=False)
    assert other.numbers["rmia_auc"].value == FULL.numbers["rmia_auc"].value
    assert other.numbers["forget_div"].value == FULL.numbers["forget_div"].value
    assert other.numbers["forget_div"].low != FULL.numbers["forget_div"].low


def test_a_floor_made_once_serves_every_model():
    floor = noise_floor(RETRAIN, REFERENCES)
    given = evaluate(TARGET, RETRAIN, REFERENCES, bootstrap=0, floor=floor)
    assert given.gaps == evaluate(TARGET, RETRAIN, REFERENCES, bootstrap=0).gaps
    assert evaluate(TARGET, RETRAIN, REFERENCES, bootstrap=0, floor=False).judgement.test == "loss attack"


def test_without_a_retrained_model():
    found = evaluate(without(TARGET, "val"), bootstrap=100)
    assert {"smia", "smia_heldout", "confidence", "entropy_heldout"} <= set(found.attacks)
    assert {"confidence_ks_heldout", "confidence_wasserstein_test"} <= set(found.numbers)
    assert not found.gaps
    assert not found.retrain
    assert found.judgement.test == "loss attack"
    assert "rmia_auc" not in found.numbers
    assert_names(" ".join(found.limits), "before=", "retrained=", "out_models=", "reference", "3")


def test_limits_follow_what_was_there():
    assert (
        len(FULL.limits) == 3
    )  # nothing is missing: the number of records, and a noise floor's models, how few, how alike
    assert lacking(FULL, "60", "records")
    assert lacking(FULL, "floor", "recipe")
    blind = evaluate(TARGET, RETRAIN, REFERENCES, bootstrap=0)
    assert lacking(blind, "before")
    one = evaluate(TARGET, RETRAIN, REFERENCES[:1], bootstrap=0)
    assert lacking(one, "1", "RMIA")
    assert lacking(one, "Retrain", "2")
    assert lacking(evaluate(TARGET, RETRAIN, REFERENCES, bootstrap=0, floor=False), "off")
    assert lacking(evaluate(without(TARGET, "test"), bootstrap=0), "test", "split")


def lacking(found: Evaluation, *names: str) -> list[str]:
    """The limits that name each of these."""
    return [claim for claim in found.limits if all(name in re.findall(r"\w+", claim) for name in names)]


def test_tuning_works_without_the_test_split():
    found = evaluate(*(without(m, "test", "heldout") for m in (TARGET, RETRAIN)),
                     [without(r, "test", "heldout") for r in REFERENCES], attacks=["rmia"], bootstrap=0)  # fmt: skip
    assert found.numbers["gap_rfvp"].value == pytest.approx(FULL.numbers["gap_rfvp"].value)
    assert found.verdict is not None
    assert not any(name.startswith("test") for name in found.numbers)


def test_attacks_by_name_and_by_function():
    def margin(evidence: Evidence) -> np.ndarray:
        return evidence.target.true_logit

    found = evaluate(TARGET, RETRAIN, REFERENCES, attacks=["smia", margin], bootstrap=50)
    assert found.numbers["margin_auc"].value == pytest.approx(found.numbers["smia_auc"].value)
    assert found.gaps["margin_auc"].verdict is not None
    assert {a.attack for a in found.attacks.values()} == {"smia", "margin"}


def test_more_splits_in_a_reference_do_no_harm():
    few = without(TARGET, "heldout")
    mixed = evaluate(few, RETRAIN, REFERENCES, bootstrap=0)
    assert mixed.numbers["rmia_auc"] == evaluate(TARGET, RETRAIN, REFERENCES, bootstrap=0).numbers["rmia_auc"]


def test_the_tuned_a_is_recorded_and_can_be_given():
    assert 0 < FULL.settings["rmia_a"] < 1
    assert evaluate(TARGET, references=REFERENCES, rmia_a=0.25, bootstrap=0).settings["rmia_a"] == 0.25
    without_retain = evaluate(without(TARGET, "retain"), references=REFERENCES, bootstrap=0)
    assert without_retain.settings["rmia_a"] == FULL.settings["rmia_a"]  # the references' own retain signals serve


def test_two_examples_are_enough():
    def tiny(first: float) -> dict[str, Predictions]:
        return {
            name: Predictions.from_logits([[first, 0.0], [0.0, 1.0]], [0, 1], [0, 1]) for name in ("forget", "test")
        }

    found = evaluate(tiny(2.0), tiny(2.0), [tiny(1.0), tiny(1.5)], bootstrap=20)
    assert found.numbers["rmia_auc"].value == 50
    assert found.numbers["test_div"].value == pytest.approx(0, abs=1e-12)


def shuffled(signals: Predictions) -> Predictions:
    order = np.random.default_rng(0).permutation(len(signals))
    return Predictions(signals.log_probs[order], signals.labels[order], signals.indices[order])


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: evaluate(without(TARGET, "forget")), "forget test heldout val retain"),
        (lambda: evaluate({"forget": TARGET["forget"]}), "forget test heldout val"),
        (lambda: evaluate({**TARGET, "tests": TARGET["test"]}), "'tests' 'test'"),
        (
            lambda: evaluate({**TARGET, "test": Predictions.from_logits([[0.0] * K], [0], [0])}),
            "test 1 2",
        ),
        (lambda: evaluate(TARGET, unseen=["retain"]), "forget retain test heldout val"),
        (lambda: evaluate(TARGET, unseen=[]), "forget test heldout val"),
        (lambda: evaluate(TARGET, before=without(TARGET, "test")), "before test"),
        (
            lambda: evaluate({**TARGET, "test": Predictions.from_logits(np.zeros((5, 3)), [0] * 5, range(5))}),
            "test 3 forget 4",
        ),
        (lambda: evaluate(TARGET, without(RETRAIN, "val")), "Retrain val"),
        (
            lambda: evaluate(TARGET, {**RETRAIN, "test": shuffled(RETRAIN["test"])}),
            "Retrain test ids",
        ),
        (
            lambda: evaluate(TARGET, RETRAIN, [{**RETRAIN, "val": RETRAIN["test"]}]),
            "reference 0 val ids 70 150",
        ),
        (
            lambda: evaluate(
                TARGET, {s: Predictions.from_logits(np.zeros((n, 3)), [0] * n, range(n)) for s, n in SIZES.items()}
            ),
            "4 3 classes",
        ),
        (
            lambda: evaluate(TARGET, RETRAIN, [REFERENCES[0], RETRAIN]),
            "reference 1 Retrain",
        ),
        (lambda: evaluate(TARGET, references=[TARGET]), "reference 0 audited"),
        (lambda: evaluate(TARGET, references=REFERENCES[:1] * 2), "reference 0 1"),
        (lambda: noise_floor(RETRAIN, [*REFERENCES, RETRAIN]), "reference 3 Retrain"),
        (lambda: evaluate(TARGET, attacks=["rmia"]), "'rmia' 1 0 references"),
        (
            lambda: evaluate(without(TARGET, "val"), references=REFERENCES, attacks=["rmia_offline"]),
            "'rmia_offline' val 3 references",
        ),
        (lambda: evaluate(TARGET, attacks=["smia", "smia"]), "smia"),
        (lambda: evaluate(TARGET, bootstrap=-1), "-1"),
    ],
)
def test_refusals(call: object, names: str):
    with error(AuditError, *names.split()):
        call()  # type: ignore[operator]
