"""Audit with an attack of your own: a function from the model's predictions to one score per example.

The higher the score, the more an example looks like one the model was trained on. The function sees the scored examples
without knowing which are forgotten and which are new; AUC, intervals and error rates come by themselves. Run:
python docs/howto/own_attack.py
"""

import sys
from pathlib import Path

import numpy as np
import torch

import regun
from regun.auditing import Evidence


def margin(evidence: Evidence) -> np.ndarray:
    """How far the most likely label is ahead of the next one; needs no label at all."""
    best = np.sort(evidence.target.log_probs, axis=1)
    return best[:, -1] - best[:, -2]


def main() -> dict[str, float]:
    sys.path.insert(0, str(Path(__file__).parent))
    from tabular import records, trained

    data = records()
    base = trained(*(torch.cat(parts) for parts in zip(data["forget"], data["retain"], strict=True)), seed=0)
    report = regun.audit(base, forget=data["forget"], test=data["test"], attacks=["smia", margin])
    for name in ("smia", "margin"):
        auc, tpr = report.numbers[f"{name}_auc"], report.numbers[f"{name}_tpr1"]
        print(f"{name:7}  AUC {auc.value:.1f} ({auc.low:.1f} to {auc.high:.1f})  found at 1 % error {tpr.value:.1f} %")
    return {name: report.numbers[f"{name}_auc"].value for name in ("smia", "margin")}


if __name__ == "__main__":
    main()
