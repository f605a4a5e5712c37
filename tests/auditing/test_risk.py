"""The per-example risk list: order, percentiles, and exports that cannot run in a spreadsheet."""

import csv
import io
import json

import numpy as np
import pytest
from scipy.stats import percentileofscore

from expect import error
from regun.auditing import Exposed, Predictions, Risk, exposed_list, risk_list, risk_rows
from regun.auditing.attacks import Evidence, rmia
from regun.auditing.risk import percentiles
from regun.errors import AuditError
from regun.render.tables import csv_text

K = 4


def model(seed: int) -> dict[str, Predictions]:
    made: dict[str, Predictions] = {}
    for number, (name, size) in enumerate({"forget": 30, "test": 50, "heldout": 20, "val": 25}.items()):
        rng = np.random.default_rng([seed, number])
        labels = np.random.default_rng(number).integers(0, K, size)
        made[name] = Predictions.from_logits(rng.normal(0, 2, (size, K)), labels, 1000 + np.arange(size))
    return made


def test_percentiles_equal_scipy():
    rng = np.random.default_rng(0)
    scores, unseen = rng.normal(size=20).round(1), rng.normal(size=300).round(1)
    expected = [percentileofscore(unseen, s, kind="mean") for s in scores]
    np.testing.assert_allclose(percentiles(scores, unseen), expected)


def test_most_member_like_first():
    target, references = model(0), [model(1), model(2)]
    rows = risk_list(target, references)
    assert [row.score for row in rows] == sorted((row.score for row in rows), reverse=True)
    assert {row.attack for row in rows} == {"rmia"}
    assert sorted(row.index for row in rows) == list(range(1000, 1030))
    scores = rmia(Evidence(target["forget"], tuple(r["forget"] for r in references)))
    unseen = rmia(Evidence(target["test"], tuple(r["test"] for r in references)))
    first = int(scores.argmax())
    assert (rows[0].index, rows[0].label) == (1000 + first, int(target["forget"].labels[first]))
    assert rows[0].score == pytest.approx(scores.max())
    assert rows[0].percentile == pytest.approx(percentileofscore(unseen, scores.max(), kind="mean"))


def test_without_references_the_loss_ranks():
    rows = risk_list(model(0), against="heldout")
    assert rows[0].attack == "smia"
    assert rows[0].score == pytest.approx(model(0)["forget"].true_log_prob.max())
    own = risk_list(model(0), attack=lambda e: e.target.true_logit)
    assert [row.index for row in own] == [row.index for row in risk_list(model(0))]


def test_json_rows_are_plain():
    rows = risk_rows(risk_list(model(0), names={1000: "a.png"}))
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert {row["name"] for row in rows} == {"", "a.png"}


def risk_csv(risk: Risk) -> str:
    rows = risk_rows([risk])
    return csv_text(list(rows[0]), [list(row.values()) for row in rows])


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "  =1", '=cmd|"/c calc"!A1', "\n=2"])
def test_text_that_starts_like_a_formula_is_neutralised(name: str):
    text = risk_csv(Risk(1, 0, "smia", -3.5, 12.5, None, name))
    header, row = csv.reader(io.StringIO(text, newline=""))
    assert header == ["split", "index", "label", "attack", "score", "percentile", "before", "name"]
    assert row[7] == "'" + name
    assert row[4] == "-3.5"  # a negative number stays a number


def test_harmless_text_stays_as_it_is():
    assert list(csv.reader(io.StringIO(risk_csv(Risk(1, 0, "a", 1.0, 2.0, None, 'x, "y"')))))[1][7] == 'x, "y"'


def test_where_forgotten_examples_stood_before_unlearning():
    rows = {row.index: row for row in risk_list(model(0), [model(1)], before=model(2))}
    was = {row.index: row.percentile for row in risk_list(model(2), [model(1)])}
    assert {index: row.before for index, row in rows.items()} == was
    assert all(row.before is None for row in risk_list(model(0)))


def loss(values: list[float]) -> Predictions:
    """Two classes, true label 0, with these probabilities of it."""
    p = np.array(values)
    return Predictions(np.log(np.stack([p, 1 - p], axis=1)), np.zeros(len(p), int), 10 + np.arange(len(p)))


def test_retained_examples_that_unlearning_exposed_come_with_how_far_they_rose():
    unseen = loss([0.1, 0.2, 0.3, 0.4])
    before = {"retain": loss([0.15, 0.25, 0.35, 0.05]), "forget": loss([0.9]), "test": unseen}
    after = {"retain": loss([0.15, 0.99, 0.45, 0.01]), "forget": loss([0.1]), "test": unseen}
    rows = exposed_list(after, before, names={11: "b.png"})
    assert rows == [Exposed(11, 0, 50.0, 100.0, "b.png"), Exposed(12, 0, 75.0, 100.0)]  # the others did not rise
    assert [row.rise for row in rows] == [50.0, 25.0]
    listed = risk_rows(risk_list(after), rows)
    assert [row["split"] for row in listed] == ["forget", "retain", "retain"]
    assert {tuple(row) for row in listed} == {tuple(listed[0])}  # the same columns, whoever it is


def test_refusals():
    with error(AuditError, "'retain'"):
        risk_list(model(0), against="retain")
    with error(AuditError, "'nope'"):
        risk_list(model(0), attack="nope")
    with error(AuditError, "reference", "0", "val"):
        risk_list(model(0), [{k: v for k, v in model(1).items() if k != "val"}])
