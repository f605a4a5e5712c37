"""Which forgotten examples still look like members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regun.errors import AuditError
from regun.evaluate.checks import aligned, check_distinct, check_splits
from regun.evaluate.leakage import Lineup, offline_a, scores
from regun.evaluate.membership import Attack, Scorer, resolve_attack
from regun.evaluate.signals import UNSEEN, FloatArray, SplitSignals


@dataclass(frozen=True)
class Risk:
    """A forgotten example: its id, label, score and the share of unseen examples that score lower, in percent."""

    index: int
    label: int
    attack: str
    score: float
    percentile: float
    name: str = ""


def risk_list(
    signals: SplitSignals,
    references: Sequence[SplitSignals] = (),
    *,
    attack: str | Attack | Scorer | None = None,
    against: str | None = None,
    names: Mapping[int, str] | None = None,
) -> list[Risk]:
    """Forgotten examples, the most member-like first.

    Without an attack it is RMIA if there are references, else the loss; without `against`, the first unseen split.
    `names` may give a text (a file name, say) for an example's id.
    """
    check_splits(signals)
    needed = {name: split for name, split in signals.items() if name != "retain"}
    against = against or next(name for name in UNSEEN if name in signals)
    if against not in signals or against not in UNSEEN:
        raise AuditError(f"no unseen split {against!r} to rank against; there is {', '.join(signals)}.")
    chosen = resolve_attack(attack or ("rmia" if references else "smia"))
    others = [Lineup.of(aligned(needed, reference, f"reference {k}")) for k, reference in enumerate(references)]
    check_distinct([("the audited model", signals)], references)
    by_split = scores(chosen, Lineup.of(needed), others, offline_a(references))
    forget = signals["forget"]
    places = percentiles(by_split["forget"], by_split[against])
    rows = [
        Risk(int(index), int(label), chosen.name, float(score), float(place), (names or {}).get(int(index), ""))
        for index, label, score, place in zip(forget.indices, forget.labels, by_split["forget"], places, strict=True)
    ]
    return sorted(rows, key=lambda row: (-row.score, row.index))


def percentiles(scores: FloatArray, unseen: FloatArray) -> FloatArray:
    """100 * (share of `unseen` below each score + half the share equal to it)."""
    ranked = np.sort(unseen)
    below, upto = np.searchsorted(ranked, scores, side="left"), np.searchsorted(ranked, scores, side="right")
    return 50.0 * (below + upto).astype(np.float64) / len(ranked)


def risk_rows(risks: Sequence[Risk]) -> list[dict[str, Any]]:
    """The list as plain JSON rows."""
    return [asdict(risk) for risk in risks]
