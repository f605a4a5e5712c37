"""A task whose truth is known: members and non-members drawn from two normals, carried by whole `Signals`."""

from statistics import NormalDist

import numpy as np
import pytest

from regun.auditing import Predictions, evaluate
from regun.auditing.intervals import Estimate

normal = NormalDist()
MU, M, N = 0.8, 1500, 2500
SIZES = {"forget": M, "test": N, "val": 1000}


def from_phi(phi: np.ndarray) -> Predictions:
    """Two classes, true label 0, with logit phi."""
    return Predictions.from_logits(
        np.stack([phi, np.zeros_like(phi)], axis=1), np.zeros(len(phi), int), np.arange(len(phi))
    )


def model(phi: dict[str, np.ndarray]) -> dict[str, Predictions]:
    return {name: from_phi(values) for name, values in phi.items()}


def shifts(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: rng.normal(MU if name == "forget" else 0.0, 1.0, size) for name, size in SIZES.items()}


def holds(number: Estimate, truth: float) -> bool:
    assert number.low is not None
    assert number.high is not None
    return number.low <= 100 * truth <= number.high


SEEN = normal.cdf(MU / 2**0.5)  # P(N(mu, 1) > N(0, 1))
SURE = normal.cdf(MU / 2**0.5) ** 2 + normal.cdf(-MU / 2**0.5) ** 2  # P(|N(mu, 1)| > |N(0, 1)|)
RIGHT = 0.5 + (normal.cdf(MU) - 0.5) / 2  # correctness is 1 where phi > 0


@pytest.mark.parametrize(
    ("attack", "truth"),
    [("smia", SEEN), ("confidence", SEEN), ("modified_entropy", SEEN), ("entropy", SURE), ("correctness", RIGHT)],
)
def test_population_attacks_meet_the_analytic_auc(attack: str, truth: float):
    found = evaluate(model(shifts(np.random.default_rng(3))), attacks=[attack], bootstrap=500)
    assert holds(found.numbers[f"{attack}_auc"], truth)
    if truth is SEEN:
        assert holds(found.numbers[f"{attack}_tpr1"], normal.cdf(MU - normal.inv_cdf(0.99)))
        assert holds(found.numbers[f"{attack}_bacc"], normal.cdf(MU / 2))
        assert holds(found.numbers[f"{attack}_advantage"], 2 * normal.cdf(MU / 2) - 1)


def test_rmia_meets_the_analytic_auc_where_the_loss_attack_is_blind():
    """p_target = p_reference * e^shift on examples of very different hardness: only the ratio shows the shift."""
    rng = np.random.default_rng(4)
    hard = {name: rng.uniform(-60, -10, size) for name, size in SIZES.items()}  # p is tiny, so phi = log p
    target = model({k: hard[k] + v for k, v in shifts(rng).items()})
    references = [model({k: v + nudge for k, v in hard.items()}) for nudge in (0.0, 1e-6)]
    found = evaluate(target, references=references, bootstrap=500, rmia_a=1.0)
    for name in ("rmia_auc", "rmia_offline_auc", "rmia_auc_val"):
        assert holds(found.numbers[name], SEEN), name
    assert abs(found.numbers["smia_auc"].value - 50) < 4
    assert abs(found.numbers["rmia_auc"].value - found.numbers["rmia_offline_auc"].value) < 0.2  # only ties differ


def test_offline_lira_meets_the_analytic_auc():
    """phi = hardness + shift, references hardness + N(0, tau^2): their mean adds tau^2 / k to both variances."""
    rng = np.random.default_rng(5)
    tau, k = 0.7, 4
    hard = {name: rng.normal(0, 5, size) for name, size in SIZES.items()}
    target = model({name: hard[name] + v for name, v in shifts(rng).items()})
    references = [model({n: v + rng.normal(0, tau, len(v)) for n, v in hard.items()}) for _ in range(k)]
    found = evaluate(target, references=references, attacks=["lira"], bootstrap=500)
    assert holds(found.numbers["lira_auc"], normal.cdf(MU / (2 * (1 + tau**2 / k)) ** 0.5))


def test_over_forgetting_is_flagged_and_its_advantage_is_as_large():
    rng = np.random.default_rng(6)
    phi = shifts(rng)
    memorised = evaluate(model(phi), attacks=["smia"], bootstrap=300)
    over = evaluate(model({**phi, "forget": phi["forget"] - 2 * MU}), attacks=["smia"], bootstrap=300)
    assert memorised.warnings == ()
    assert over.attacks["smia"].over_forgetting
    assert "over-forgetting: smia against test has an AUC of" in over.warnings[0]
    assert over.numbers["smia_auc"].value == pytest.approx(100 - memorised.numbers["smia_auc"].value, abs=3)
    assert over.numbers["smia_advantage"].value == pytest.approx(memorised.numbers["smia_advantage"].value, abs=5)
    assert over.numbers["smia_bacc"].value == pytest.approx(50, abs=3)  # keeps the attack's direction


def test_with_retrain_over_forgetting_means_below_retrain_not_below_50():
    rng = np.random.default_rng(7)
    phi = shifts(rng)
    hard = {**phi, "forget": phi["forget"] - 1.5}  # these examples are hard: a retrained model scores them low as well
    harder = {**phi, "forget": phi["forget"] - 3.0}
    again = {name: values + rng.normal(0, 0.1, len(values)) for name, values in hard.items()}
    assert evaluate(model(hard), attacks=["smia"], bootstrap=200).warnings
    assert not evaluate(model(hard), model(again), attacks=["smia"], bootstrap=200).warnings
    assert "below Retrain's" in evaluate(model(harder), model(again), attacks=["smia"], bootstrap=200).warnings[0]
    assert "below Retrain's" in evaluate(model(harder), model(again), attacks=["smia"], bootstrap=0).warnings[0]
