"""`regun audit --shadows`: U-LiRA, by an attacker who knows the method."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from regun.cli.terminal import Display
from regun.errors import AuditError
from regun.plugins import trusted_name
from regun.show.numbers import fixed, interval, many

if TYPE_CHECKING:
    import torch

    from regun.data.examples import Data
    from regun.evaluate import AttackResult
    from regun.runs.setup import Setup
    from regun.store import Artefact, Store


def check_shadows(found: Artefact | None, base: Artefact | None, store: Store) -> None:
    """Raise unless the model's training and unlearning can be repeated."""
    from regun.store import reading

    if not (found and base and "method" in found.inputs and "recipe" in base.inputs):
        raise AuditError("--shadows repeats training and unlearning; give a model that regun trained and unlearned.")
    with reading(found):
        trusted_name(found.inputs["method"]["name"], None, store.trusted, "--method")


def audited_by_shadows(
    args: argparse.Namespace, target: Artefact, setup: Setup, data: Data, store: Store, device: torch.device
) -> AttackResult:
    """U-LiRA of an unlearned model of the store: its own run, repeated on shadow models."""
    from regun.methods import get_method
    from regun.runs.shadows import audit_by_shadows
    from regun.runs.training import Watch
    from regun.runs.unlearning import Unlearning

    method = get_method(trusted_name(target.inputs["method"]["name"], None, store.trusted, "--method"))
    again = Unlearning.of(target, setup.seen_by(method, data), store)
    display = Display("shadows", args.quiet)
    watch = Watch(lambda epoch, _: display.epoch(epoch), display.progress)
    found = audit_by_shadows(
        target, again, data, store, device, shadows=args.shadows, bootstrap=args.bootstrap, watch=watch
    )
    display.close()
    return found


def print_shadowed(found: AttackResult, shadows: int) -> None:
    ends = interval(found.auc.low, found.auc.high, 2)
    shown = fixed(found.auc.value) + (f" ({ends})" if ends else "")
    print(f"\nU-LiRA AUC against validation, {many(shadows, 'shadow run')}: {shown}. Good: 50.")
    print("  This attacker knows the method, its settings, and how it leaves the examples it has unlearned.")
