"""`regun audit --relearn`: whether forgetting lasts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from regun.cli.terminal import Display
from regun.show.numbers import fixed, interval
from regun.show.text import table

if TYPE_CHECKING:
    import torch

    from regun.evaluate.relearning import Point, Relearned
    from regun.runs.audit import Audit
    from regun.runs.setup import Setup
    from regun.store import Artefact, Store


def relearn_check(
    args: argparse.Namespace, audit: Audit, base: Artefact | None, setup: Setup, store: Store, device: torch.device
) -> Relearned:
    """The check of the audited model next to the same retrained models; curves are kept in the store."""
    from regun.methods import get_method
    from regun.runs.relearn import Relearning, relearn_models

    seen = setup.seen_by(get_method("finetune"), audit.data)
    display = Display("relearn", args.quiet)
    run = Relearning.of(audit.target, seen, audit.splits, base or audit.target)
    return relearn_models(run, audit.retrain, audit.references, store, device, display.counter("model"))


def print_relearned(found: Relearned) -> None:
    """The curve, the numbers and what they mean."""
    from regun.evaluate.relearning import RELEARN_METRICS

    curves = {"model": found.curve, "Retrain": found.retrain_curve}
    steps = found.curve[-1].steps
    print(f"\nRelearning: {steps:,} small steps on retained examples alone")
    head = ["after steps", *(f"{what}, {who}" for who in curves if curves[who] for what in ("forget acc.", "AUC"))]
    rows = [
        [f"{point.steps:,}", *(text for curve in curves.values() if curve for text in _shown(curve[k]))]
        for k, point in enumerate(found.curve)
    ]
    print(table(head, rows))
    lines = [
        [
            RELEARN_METRICS[name].label,
            fixed(number.value),
            interval(number.low, number.high, 2),
            fixed(found.retrain[name]) if name in found.retrain else "",
            _noise(found, name),
        ]
        for name, number in found.numbers.items()
    ]
    print("\n" + table(["number", "value", "95 % interval", "Retrain", "noise floor"], lines))
    for name in found.numbers:
        print(f"  {RELEARN_METRICS[name].label}: {RELEARN_METRICS[name].meaning}. Good: {RELEARN_METRICS[name].good}.")


def _shown(point: Point) -> tuple[str, str]:
    return fixed(point.forget_acc), fixed(point.smia_auc if point.rmia_auc is None else point.rmia_auc)


def _noise(found: Relearned, name: str) -> str:
    gap = found.gaps.get(name)
    if gap is None or gap.floor_mean is None or gap.floor_largest is None:
        return ""
    return f"{fixed(gap.floor_mean)} (max {fixed(gap.floor_largest)})"
