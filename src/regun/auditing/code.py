"""The code that decides an evaluation, as digests: part of its content key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regun.auditing.attacks import Attack, Scorer, resolve_attack
from regun.auditing.checks import choose
from regun.auditing.estimates import Measure, Metric
from regun.auditing.metrics import resolve_metric
from regun.hashing import code_digest, digest
from regun.plugins import find_module, source_digest


def judged_by(
    attacks: Sequence[str | Attack | Scorer] | None,
    metrics: Sequence[str | Metric | Measure],
    references: int,
    population: bool,
) -> dict[str, Any]:
    """Return the attacks and metrics that will run, by name, with digests of their code, and that of all the rest.

    `references` says how many models serve as such, `population` whether there is a validation split.
    """
    chosen, measures = choose(attacks, metrics, references, population)
    named_attacks = {resolve_attack(attack).name: attack for attack in attacks or ()}
    user_metrics = [metric for metric in metrics if not isinstance(metric, str) or ":" in metric]
    named_metrics = {resolve_metric(metric).name: metric for metric in user_metrics}
    return {
        "code": code_digest("regun.auditing.evaluation"),
        "attacks": {a.name: _code_of(named_attacks.get(a.name), a.score, a.name) for a in chosen},
        "metrics": {
            m.name: _code_of(named_metrics.get(m.name), m.measure, m.name) if m.measure else digest(m.to_json())
            for m in measures
        },
    }


def _code_of(spec: object, function: Callable[..., Any], name: str) -> str:
    """Return the digest of a user's file, or of the module with all that it imports."""
    if isinstance(spec, str) and ":" in spec:
        return digest(Path(str(find_module(spec.rpartition(":")[0]).__file__)).read_bytes())
    module = str(getattr(function, "__module__", ""))
    return code_digest(module) if module.startswith("regun.") else source_digest(function, name)
