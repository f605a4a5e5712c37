"""Every attack against a slow re-derivation in plain loops, its invariances, and the faults seen elsewhere."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expect import error
from regun.auditing.attacks import (
    ATTACKS,
    Attack,
    Evidence,
    confidence,
    correctness,
    estimate_offline_a,
    lira,
    loss,
    negative_entropy,
    negative_modified_entropy,
    resolve_attack,
    rmia,
    rmia_offline,
)
from regun.auditing.predictions import Predictions
from regun.auditing.roc import Contrast
from regun.errors import AuditError

K = 5


def signals(seed: int, n: int = 40, scale: float = 2.0, shift: float = 0.0) -> Predictions:
    labels = np.random.default_rng(n).integers(0, K, n)
    logits = np.random.default_rng(seed).normal(0, scale, (n, K)) + shift
    logits[np.arange(n), labels] += 1.5
    return Predictions.from_logits(logits, labels, np.arange(n))


def evidence(seed: int = 0, n: int = 40, references: int = 3, population: int = 30, a: float = 1.0) -> Evidence:
    others = [signals(seed * 100 + k + 1, n) for k in range(references)]
    unseen = Evidence(
        signals(seed * 100, population), tuple(signals(seed * 100 + k + 1, population) for k in range(references))
    )
    return Evidence(signals(seed * 100, n), tuple(others), unseen, a)


def slow_ratio(e: Evidence, i: int, a: float) -> float:
    outs = [math.exp(r.log_probs[i, r.labels[i]]) for r in e.references]
    out = sum(outs) / len(outs)
    return math.exp(e.target.log_probs[i, e.target.labels[i]]) / (0.5 * ((1 + a) * out + (1 - a)))


def slow_modified_entropy(p: list[float], y: int) -> float:
    total = -(1 - p[y]) * math.log(p[y])
    for k, p_k in enumerate(p):
        if k != y:
            total -= p_k * math.log(1 - p_k)
    return total


def test_simple_attacks_follow_their_definitions():
    e = evidence()
    for i in range(len(e.target)):
        p, y = [math.exp(v) for v in e.target.log_probs[i]], int(e.target.labels[i])
        assert loss(e)[i] == pytest.approx(math.log(p[y]))
        assert confidence(e)[i] == pytest.approx(p[y])
        assert negative_entropy(e)[i] == pytest.approx(sum(v * math.log(v) for v in p))
        assert negative_modified_entropy(e)[i] == pytest.approx(-slow_modified_entropy(p, y))
        assert correctness(e)[i] == float(max(range(K), key=p.__getitem__) == y)


def test_rmia_follows_its_definitions():
    e = evidence()
    population = e.population
    assert population is not None
    for a, gamma in ((1.0, 1.0), (0.3, 2.0), (0.0, 1.0), (0.6, 0.5)):
        found = rmia_offline(e, a=a, gamma=gamma)
        ratios = [slow_ratio(population, j, a) for j in range(len(population.target))]
        for i in range(len(e.target)):
            beaten = [slow_ratio(e, i, a) / z >= gamma for z in ratios]
            assert found[i] == pytest.approx(sum(beaten) / len(beaten))
    for i in range(len(e.target)):
        assert rmia(e)[i] == pytest.approx(math.log(slow_ratio(e, i, 1.0)))


def test_offline_lira_follows_its_definition():
    e = evidence()
    phis = [[math.log(p / (1 - p)) for p in np.exp(r.true_log_prob)] for r in e.references]
    means = [sum(column) / 3 for column in zip(*phis, strict=True)]
    pooled = sum((phis[k][i] - means[i]) ** 2 for k in range(3) for i in range(40)) / (40 * 2)
    for i, p in enumerate(np.exp(e.target.true_log_prob)):
        assert lira(e)[i] == pytest.approx((math.log(p / (1 - p)) - means[i]) / math.sqrt(pooled))


# ---- modified entropy: the faults of public code must fail here -------------------------------------------------


def swapped_vector_entropy(e: Evidence) -> np.ndarray:
    """A known fault: p_y replaced by 1 - p_y, then the plain entropy of that vector."""
    p = np.exp(e.target.log_probs)
    p[np.arange(len(p)), e.target.labels] = 1 - p[np.arange(len(p)), e.target.labels]
    return (p * np.log(np.maximum(p, 1e-30))).sum(axis=1)


def whole_batch_edit(e: Evidence) -> np.ndarray:
    """A known fault: the edit of the label's column hits every row (x[:, labels] in place of x[rows, labels])."""
    p = np.exp(e.target.log_probs)
    changed, logs = p.copy(), np.log(np.maximum(1 - p, 1e-30))
    changed[:, e.target.labels] = 1 - p[:, e.target.labels]
    logs[:, e.target.labels] = np.log(np.maximum(p[:, e.target.labels], 1e-30))
    return (changed * logs).sum(axis=1)


def ranks_modified_entropy_rightly(attack: object) -> bool:
    """Sure and right is most member-like, sure and wrong least; and an example's score is its own affair."""
    rows = [[9.0, 0, 0, 0], [1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 9.0, 0, 0]]
    together = attack(Evidence(Predictions.from_logits(rows, [0] * 4, range(4))))  # type: ignore[operator]
    mixed = attack(Evidence(Predictions.from_logits(rows, [0, 1, 2, 3], range(4))))  # type: ignore[operator]
    alone = [attack(Evidence(Predictions.from_logits([r], [y], [0])))[0] for y, r in enumerate(rows)]  # type: ignore[operator]
    return bool((np.diff(together) < 0).all()) and np.allclose(mixed, alone)


def test_modified_entropy_is_right_and_the_known_faults_are_not():
    assert ranks_modified_entropy_rightly(negative_modified_entropy)
    assert not ranks_modified_entropy_rightly(swapped_vector_entropy)
    assert not ranks_modified_entropy_rightly(whole_batch_edit)
    e = evidence()
    assert not np.allclose(negative_modified_entropy(e), swapped_vector_entropy(e))
    assert not np.allclose(negative_modified_entropy(e), whole_batch_edit(e))


def test_modified_entropy_keeps_its_digits_where_one_class_is_certain():
    e = Evidence(Predictions.from_logits([[0.0, 60.0], [60.0, 0.0], [30.0, 0.0]], [0, 0, 0], range(3)))
    rest = [math.exp(-60) / (1 + math.exp(-60)), math.exp(-30) / (1 + math.exp(-30))]
    expected = [-60 - 60, -2 * rest[0] * math.log1p(math.exp(-60)), -2 * rest[1] * math.log1p(math.exp(-30))]
    np.testing.assert_allclose(negative_modified_entropy(e), expected, rtol=1e-9)


# ---- invariances ------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.floats(-1e3, 1e3))
@settings(max_examples=25, deadline=None)
def test_a_constant_on_all_logits_changes_no_score(seed: int, shift: float):
    n = 20
    labels = np.random.default_rng(n).integers(0, K, n)
    logits = [np.random.default_rng([seed, k]).normal(0, 2, (n, K)) for k in range(4)]
    both: list[Evidence] = []
    for c in (0.0, shift):
        made = [Predictions.from_logits(x + c, labels, np.arange(n)) for x in logits]
        both.append(Evidence(made[0], tuple(made[1:]), Evidence(made[0], tuple(made[1:])), 0.5))
    for attack in ATTACKS.values():
        before, after = (attack(e) for e in both)
        np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-8)


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_loss_and_confidence_rank_alike_and_a_1_ranks_as_the_paper_form(seed: int):
    e = evidence(seed, population=400)
    np.testing.assert_array_equal(np.argsort(loss(e)), np.argsort(confidence(e)))
    order = np.argsort(rmia(e))
    assert (np.diff(rmia_offline(e, a=1.0)[order]) >= 0).all()  # the same ranking, up to ties


@given(st.integers(0, 10**6), st.floats(0.7, 1.4), st.floats(0.0, 1.0))
@settings(max_examples=25, deadline=None)
def test_population_and_gamma_leave_the_auc_unchanged_up_to_ties(seed: int, gamma: float, a: float):
    e = evidence(seed, n=120, population=3000)
    aucs: list[float] = []
    for scores in (rmia_offline(e, a=a), rmia_offline(e, a=a, gamma=gamma)):
        aucs.append(float(Contrast.of(scores[:60], scores[60:]).auc()))
    other = Evidence(e.target, e.references, evidence(seed + 1, population=3000).population, a)
    scores = rmia_offline(other)
    aucs.append(float(Contrast.of(scores[:60], scores[60:]).auc()))
    assert max(aucs) - min(aucs) < 0.01


def test_target_equal_to_the_mean_of_references_scores_0():
    refs = [signals(k) for k in range(1, 4)]
    mean = np.log(np.mean([np.exp(r.log_probs) for r in refs], axis=0))
    target = Predictions(mean, refs[0].labels, refs[0].indices)
    np.testing.assert_allclose(rmia(Evidence(target, tuple(refs))), 0, atol=1e-12)
    np.testing.assert_allclose(lira(Evidence(refs[0], (refs[0], refs[0]))), 0, atol=1e-9)


def test_extreme_logits_give_finite_scores_for_every_attack():
    inf = np.inf
    rows = [[1e4, 0, 0], [-1e4, 0, 0], [5.0, 5.0, 5.0], [-inf, 0, 0], [0, -inf, -inf], [0, 1e4, -1e4]]
    made = [Predictions.from_logits(rows[k:] + rows[:k], [0] * 6, range(6)) for k in (0, 1, 2)]
    for target in made:
        e = Evidence(target, tuple(made), Evidence(target, tuple(made)), 0.5)
        for attack in ATTACKS.values():
            assert np.isfinite(attack(e)).all()
    same = Evidence(made[0], (made[0], made[0]))
    np.testing.assert_array_equal(rmia(same), 0)  # also where every model gives a probability of 0


# ---- a of offline RMIA ------------------------------------------------------------------------------------------


def confident(p: np.ndarray) -> Predictions:
    return Predictions(np.log(np.stack([p, 1 - p], axis=1)), np.zeros(len(p), int), np.arange(len(p)))


def test_estimated_a_recovers_the_line_between_seen_and_unseen():
    rng = np.random.default_rng(0)
    for a in (0.0, 0.3, 0.8, 1.0):
        pairs = []
        for _ in range(3):
            unseen, hidden = rng.uniform(0.01, 0.99, 20_000), rng.uniform(0.01, 0.99, 20_000)
            seen = np.clip(a * hidden + (1 - a), 0, 1 - 1e-12)
            pairs.append((confident(seen), confident(unseen)))
        assert estimate_offline_a(pairs) == pytest.approx(a, abs=0.02)


def test_own_functions_are_attacks():
    def margin(e: Evidence) -> np.ndarray:
        return e.target.true_logit

    assert resolve_attack(margin).name == "margin"
    np.testing.assert_array_equal(resolve_attack(margin)(evidence()), evidence().target.true_logit)
    fixed = Attack("rmia_03", partial(rmia_offline, a=0.3), "RMIA a=0.3", references=1, population=True)
    np.testing.assert_array_equal(fixed(evidence()), rmia_offline(evidence(), a=0.3))
    assert resolve_attack("rmia") is ATTACKS["rmia"]


def test_refusals():
    with error(AuditError, "'rmai'", "'rmia'"):
        resolve_attack("rmai")
    with error(AuditError, "'lira'", "2", "1"):
        ATTACKS["lira"](evidence(references=1))
    with error(AuditError, "reference"):
        rmia(Evidence(signals(0)))
    with error(AuditError, "population", "val"):
        rmia_offline(Evidence(signals(0), (signals(1),)))
    with error(AuditError, "a=1.5", "gamma=1.0"):
        rmia_offline(evidence(), a=1.5)
    with error(AuditError, "(1,)", "40"):
        resolve_attack(lambda e: np.zeros(1))(evidence())
    with error(AuditError, "'lambda'", "(40,)", "40"):
        resolve_attack(lambda e: np.full(40, np.nan))(evidence())
