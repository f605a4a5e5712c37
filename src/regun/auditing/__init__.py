"""The audit: from predictions of models to numbers with intervals, gaps with a noise floor, and verdicts.

Start with `evaluation.evaluate`. `predictions` holds the input, `attacks` and `metrics` one function per number,
`intervals` and `floor` the uncertainty over examples and over models, `judge` the verdict, `verdict` the words of all
verdicts, `text` the printed report.
"""

from regun.auditing.attack_results import METRICS, AttackResult
from regun.auditing.attacks import ATTACKS, Attack, Evidence, Scorer
from regun.auditing.code import judged_by
from regun.auditing.estimates import Measure, Metric
from regun.auditing.evaluation import Evaluation, evaluate
from regun.auditing.floor import FloorSummary, NoiseFloor, noise_floor
from regun.auditing.gaps import Gap
from regun.auditing.influence import Influence, InfluencePart
from regun.auditing.intervals import Estimate
from regun.auditing.metrics import spread
from regun.auditing.predictions import UNSEEN, Predictions, SplitPredictions
from regun.auditing.risk import Exposed, Risk, exposed_list, risk_list, risk_rows
from regun.auditing.text import describe
from regun.auditing.verdict import VERDICTS, Decision, Judgement, Part, Verdict, VerdictText

__all__ = [
    "ATTACKS",
    "METRICS",
    "UNSEEN",
    "VERDICTS",
    "Attack",
    "AttackResult",
    "Decision",
    "Estimate",
    "Evaluation",
    "Evidence",
    "Exposed",
    "FloorSummary",
    "Gap",
    "Influence",
    "InfluencePart",
    "Judgement",
    "Measure",
    "Metric",
    "NoiseFloor",
    "Part",
    "Predictions",
    "Risk",
    "Scorer",
    "SplitPredictions",
    "Verdict",
    "VerdictText",
    "describe",
    "evaluate",
    "exposed_list",
    "judged_by",
    "noise_floor",
    "risk_list",
    "risk_rows",
    "spread",
]
