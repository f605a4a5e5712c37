"""The audit: from what models said about examples to every number, with its uncertainty."""

from regun.evaluate.catalogue import METRICS, Metric, describe
from regun.evaluate.evaluation import Evaluation, Gap, evaluate, over_seeds
from regun.evaluate.floor import FloorSummary, NoiseFloor, noise_floor
from regun.evaluate.intervals import Number
from regun.evaluate.leakage import AttackResult
from regun.evaluate.membership import ATTACKS, Attack, Evidence
from regun.evaluate.metrics import spread
from regun.evaluate.risk import Risk, risk_csv, risk_list, risk_rows
from regun.evaluate.signals import Signals

__all__ = [
    "ATTACKS",
    "METRICS",
    "Attack",
    "AttackResult",
    "Evaluation",
    "Evidence",
    "FloorSummary",
    "Gap",
    "Metric",
    "NoiseFloor",
    "Number",
    "Risk",
    "Signals",
    "describe",
    "evaluate",
    "noise_floor",
    "over_seeds",
    "risk_csv",
    "risk_list",
    "risk_rows",
    "spread",
]
