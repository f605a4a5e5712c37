"""The audit: from what models said about examples to every number, with its uncertainty."""

from regun.evaluate.code import judged_by
from regun.evaluate.estimates import Measure, Metric
from regun.evaluate.evaluation import METRICS, Evaluation, describe, evaluate
from regun.evaluate.floor import VERDICTS, FloorSummary, NoiseFloor, Verdict, VerdictWords, noise_floor
from regun.evaluate.influence import Influence, InfluencePart
from regun.evaluate.intervals import Number
from regun.evaluate.leakage import AttackResult
from regun.evaluate.membership import ATTACKS, Attack, Evidence, Scorer
from regun.evaluate.metrics import spread
from regun.evaluate.risk import Exposed, Risk, exposed_list, risk_list, risk_rows
from regun.evaluate.signals import UNSEEN, Signals, SplitSignals
from regun.evaluate.verdicts import Gap

__all__ = [
    "ATTACKS",
    "METRICS",
    "UNSEEN",
    "VERDICTS",
    "Attack",
    "AttackResult",
    "Evaluation",
    "Evidence",
    "Exposed",
    "FloorSummary",
    "Gap",
    "Influence",
    "InfluencePart",
    "Measure",
    "Metric",
    "NoiseFloor",
    "Number",
    "Risk",
    "Scorer",
    "Signals",
    "SplitSignals",
    "Verdict",
    "VerdictWords",
    "describe",
    "evaluate",
    "exposed_list",
    "judged_by",
    "noise_floor",
    "risk_list",
    "risk_rows",
    "spread",
]
