"""The relearning check's numbers on curves whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from expect import error
from regun.auditing import Predictions, evaluate
from regun.auditing.durability import (
    REGAINED,
    RELEARN_METRICS,
    RelearningCurve,
    points,
    relearn_floor,
    relearned,
    with_relearning,
)
from regun.errors import AuditError

FORGOTTEN, UNSEEN, STEPS = 400, 600, (0, 5, 10)


def curve(
    forget: tuple[float, ...], unseen: float = 0.0, seed: int = 0, right: tuple[float, ...] = (0.5,) * 3
) -> RelearningCurve:
    """Log p_y drawn around these means at the three points; `right` are shares of forgotten examples that are right."""
    rng = np.random.default_rng(seed)
    noise = {"forget": rng.normal(size=FORGOTTEN), "test": rng.normal(size=UNSEEN)}
    means = {"forget": forget, "test": (unseen,) * 3}
    hits = {"forget": right, "test": (0.5,) * 3}
    return RelearningCurve(
        STEPS,
        {name: np.stack([values + mean - 20 for mean in means[name]]) for name, values in noise.items()},
        {name: np.stack([np.arange(len(v)) < share * len(v) for share in hits[name]]) for name, v in noise.items()},
    )


def retrained(seed: int) -> RelearningCurve:
    return curve((0.0, 0.0, 0.0), seed=seed)


BASE = curve((2.0, 2.0, 2.0), seed=1, right=(1.0, 1.0, 1.0))
RETRAIN, OTHERS = retrained(2), [retrained(3), retrained(4)]


def test_what_a_method_hid_is_regained_and_a_retrained_model_regains_nothing() -> None:
    hidden = curve((0.0, 1.0, 2.0), seed=1, right=(0.5, 0.7, 0.9))
    found = relearned(hidden, RETRAIN, OTHERS)
    assert found.numbers["regained_acc"].value == pytest.approx(40)
    assert found.numbers["regained_auc"].value > 20
    assert found.gaps["regained_auc"].verdict == "failed"
    assert found.numbers["relearn_forget_acc"].value == pytest.approx(90)
    again = relearned(retrained(5), RETRAIN, OTHERS)
    assert again.numbers["regained_acc"].value == 0
    assert again.numbers["regained_auc"].value == pytest.approx(0, abs=1e-9)


def test_damage_that_is_repaired_up_to_retrains_level_is_not_regained() -> None:
    ruined = curve((-3.0, -1.0, 0.0), seed=1, right=(0.1, 0.3, 0.5))
    found = relearned(ruined, RETRAIN, OTHERS)
    assert found.numbers["regained_acc"].value == 0
    assert found.numbers["regained_auc"].value < 3  # chance alone lifts an AUC over another draw's
    assert relearned(replace(ruined)).numbers["regained_acc"].value == 0


def test_a_model_that_never_forgot_regains_nothing_but_is_far_from_retrain_after() -> None:
    """So `regained` shows nothing of it, and never calls it inside, whether it is known to be the model before or not."""
    for before in (None, BASE):
        found = relearned(BASE, RETRAIN, OTHERS, before=before)
        assert found.numbers["regained_acc"].value == 0
        assert found.gaps["relearn_rmia_auc"].value > 20
        assert found.gaps["relearn_rmia_auc"].verdict == "failed"
        assert [found.gaps[name].verdict for name in REGAINED] == ["inconclusive"] * 2


def test_inside_takes_a_model_before_that_the_same_steps_tell() -> None:
    """As in the audit: without one, or where it is within the limit as well, nobody can tell."""
    honest = retrained(5)
    told = relearned(honest, RETRAIN, OTHERS, before=BASE)
    for name in ("relearn_forget_acc", "relearn_smia_auc", "relearn_rmia_auc"):
        gap = told.gaps[name]
        assert gap.value <= gap.floor_limit < gap.before
        assert gap.verdict == "passed"
        assert relearned(honest, RETRAIN, OTHERS).gaps[name].verdict == "inconclusive"
        assert relearned(honest, RETRAIN, OTHERS, before=retrained(6)).gaps[name].verdict == "inconclusive"
    assert {told.gaps[name].verdict for name in REGAINED} == {"inconclusive"}
    assert not {gap.verdict for gap in relearned(honest, RETRAIN, OTHERS[:1], before=BASE).gaps.values()} - {None}


def test_numbers_after_relearning_are_those_of_the_last_point_of_the_curve() -> None:
    found = relearned(BASE, RETRAIN, OTHERS)
    last = found.curve[-1]
    names = {
        "relearn_forget_acc": last.forget_acc,
        "relearn_smia_auc": last.smia_auc,
        "relearn_rmia_auc": last.rmia_auc,
    }
    for name, value in names.items():
        number = found.numbers[name]
        assert number.value == pytest.approx(value)
        assert number.low <= number.value <= number.high
    assert last.rmia_auc != last.smia_auc
    assert found.retrain["relearn_rmia_auc"] == pytest.approx(found.retrain_curve[-1].rmia_auc)


def test_what_the_model_before_says_stands_beside_the_numbers() -> None:
    found = relearned(retrained(5), RETRAIN, OTHERS, before=BASE)
    assert found.before["relearn_forget_acc"].value == 100
    assert set(found.before) == set(found.numbers) - set(REGAINED) == set(found.to_json()["before"])
    assert not relearned(retrained(5), RETRAIN, OTHERS).before
    with error(AuditError, "steps"):
        relearned(retrained(5), RETRAIN, OTHERS, before=replace(BASE, steps=(0, 6, 10)))


def test_without_retrain_unseen_examples_are_the_comparison() -> None:
    hidden = curve((0.0, 1.0, 2.0), seed=1, right=(0.5, 0.7, 0.9))
    found = relearned(hidden)
    assert set(found.numbers) == {"relearn_forget_acc", "relearn_smia_auc", "regained_acc", "regained_auc"}
    assert found.numbers["regained_acc"].value == pytest.approx(40)
    assert found.numbers["regained_auc"].value > 20
    assert not found.gaps
    assert not found.retrain


def test_at_the_start_the_attack_is_the_audits_own() -> None:
    """The first point of a curve is the model as it was audited: same log p_y, same AUCs."""
    rng = np.random.default_rng(0)
    models = [
        {
            name: Predictions.from_logits(rng.normal(size=(n, 5)) * 3, np.arange(n) % 5, np.arange(n) + start)
            for name, n, start in (("forget", 40, 0), ("test", 70, 100))
        }
        for _ in range(4)
    ]
    audited = evaluate(models[0], models[1], models[2:], bootstrap=0)
    curves = [
        RelearningCurve(
            (0,),
            {name: said.true_log_prob[None] for name, said in model.items()},
            {name: (said.predicted == said.labels)[None] for name, said in model.items()},
        )
        for model in models
    ]
    (first,) = points(curves[0], curves[2:])
    assert first.rmia_auc == pytest.approx(audited.numbers["rmia_auc"].value)
    assert first.smia_auc == pytest.approx(audited.numbers["smia_auc"].value)
    assert first.forget_acc == pytest.approx(audited.numbers["forget_acc"].value)
    assert first.unseen_acc == pytest.approx(audited.numbers["test_acc"].value)
    found = with_relearning(audited, relearned(curves[0], curves[1], curves[2:], before=curves[3]))
    assert set(RELEARN_METRICS) <= set(found.numbers)
    assert set(found.before) == set(RELEARN_METRICS) - set(REGAINED)
    assert found.verdict == audited.verdict


def test_the_noise_floor_does_not_depend_on_the_order_of_models() -> None:
    models = [retrained(k) for k in range(4)]
    one, two = relearn_floor(models[0], models[1:]), relearn_floor(models[2], [models[0], models[3], models[1]])
    for name in one.values:
        assert sorted(one.values[name]) == pytest.approx(sorted(two.values[name]))
    assert len(one.values["relearn_smia_auc"]) == 6


def test_curves_of_other_examples_or_steps_are_refused() -> None:
    other = replace(retrained(1), steps=(0, 6, 10))
    with error(AuditError, "steps"):
        relearned(retrained(0), other)
    with error(AuditError, "forget"):
        RelearningCurve((0,), {"forget": np.zeros((1, 3))}, {"forget": np.zeros((1, 3), dtype=bool)})
