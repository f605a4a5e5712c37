"""Audit with a number of your own: a function from the model's predictions to one value per example.

It gets what the audited model said of every set, and what a model retrained without the forgotten examples said (None
without one). Return a number, or an array with one value for each example: then the number is their mean, or, of True
and False, the share in percent, and it gets an interval. With retrained models its gap and noise floor come by
themselves, and tables and reports show it under the function's name. Run: python docs/howto/own_metric.py

On the command line: regun audit MODEL --metrics docs/howto/own_metric.py:sure
In a study's TOML: metrics = ["own_metric.py:sure"]
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

import regun
from regun.auditing import Metric, Predictions, describe


def sure(splits: Mapping[str, Predictions], retrain: Mapping[str, Predictions] | None) -> np.ndarray:
    """Forgotten examples whose true label the model gives a probability above 99 %."""
    return np.exp(splits["forget"].true_log_prob) > 0.99


def regret(splits: Mapping[str, Predictions], retrain: Mapping[str, Predictions] | None) -> np.ndarray | None:
    """How much larger Retrain's loss on forgotten examples is."""
    return None if retrain is None else splits["forget"].true_log_prob - retrain["forget"].true_log_prob


REGRET = Metric("regret", "loss regained", "nats", good="0, or inside the noise floor", measure=regret, distance=True)
"""The same with its words; a `distance` to Retrain is its own gap. In a file, `own_metric.py:REGRET`."""


def main() -> dict[str, str]:
    sys.path.insert(0, str(Path(__file__).parent))
    from tabular import records, trained

    data = records()
    base = trained(*(torch.cat(parts) for parts in zip(data["forget"], data["retain"], strict=True)), seed=0)
    retrained = [trained(*data["retain"], seed=seed) for seed in range(1, 5)]
    sets = {name: data[name] for name in ("forget", "retain", "test")}
    report = regun.audit(base, **sets, retrained=retrained, metrics=[sure, REGRET])
    for name in ("sure", "regret"):
        about, number, gap = describe(name, report), report.numbers[name], report.gaps[name]
        print(
            f"{about.label}: {number.value:.1f} {about.unit} ({number.low:.1f} to {number.high:.1f}). {about.meaning}."
        )
        print(f"  {gap.value:.1f} from Retrain, two retrained models up to {gap.floor_largest:.1f}: {gap.verdict}")
    return {name: str(report.gaps[name].verdict) for name in ("sure", "regret")}


if __name__ == "__main__":
    main()
