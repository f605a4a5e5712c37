"""Which forgotten examples still look like members, and which retained ones look more like it than they did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regun.auditing.attack_results import attack_scores, offline_a
from regun.auditing.attacks import Attack, Scorer, resolve_attack
from regun.auditing.checks import aligned, check_distinct, check_splits
from regun.auditing.predictions import UNSEEN, FloatArray, SplitPredictions
from regun.errors import AuditError


@dataclass(frozen=True)
class Risk:
    """A forgotten example: its id, label, score and the share of unseen examples that score lower, in percent, now and
    on the model before unlearning where that is known."""

    index: int
    label: int
    attack: str
    score: float
    percentile: float
    before: float | None = None
    name: str = ""


@dataclass(frozen=True)
class Exposed:
    """A retained example that unlearning exposed: the share of unseen examples whose loss is higher, before and after,
    in percent."""

    index: int
    label: int
    before: float
    after: float
    name: str = ""

    @property
    def rise(self) -> float:
        return self.after - self.before


EXPOSED = 25
"""Retained examples that are listed."""


def exposed_list(
    predictions: SplitPredictions,
    before: SplitPredictions,
    *,
    against: str | None = None,
    names: Mapping[int, str] | None = None,
) -> list[Exposed]:
    """Return the retained examples whose rank among unseen ones rose, the farthest first."""
    against = against or next(name for name in UNSEEN if name in predictions)
    retain = predictions["retain"]
    was, now = (percentiles(m["retain"].true_log_prob, m[against].true_log_prob) for m in (before, predictions))
    rise, exposed = now - was, list[Exposed]()
    for row in np.argsort(-rise, kind="stable")[:EXPOSED]:
        index = int(retain.indices[row])
        if rise[row] > 0:
            name = (names or {}).get(index, "")
            exposed.append(Exposed(index, int(retain.labels[row]), float(was[row]), float(now[row]), name))
    return exposed


def risk_list(
    predictions: SplitPredictions,
    references: Sequence[SplitPredictions] = (),
    *,
    before: SplitPredictions | None = None,
    attack: str | Attack | Scorer | None = None,
    against: str | None = None,
    names: Mapping[int, str] | None = None,
) -> list[Risk]:
    """Return forgotten examples, the most member-like first; with `before`, also their rank on that model.

    Without an attack it is RMIA if there are references, else the loss; without `against`, the first unseen split.
    `names` may give a text (a file name, say) for an example's id.
    """
    check_splits(predictions)
    needed = {name: split for name, split in predictions.items() if name != "retain"}
    against = against or next(name for name in UNSEEN if name in predictions)
    if against not in predictions or against not in UNSEEN:
        raise AuditError(f"no unseen split {against!r} to rank against; there is {', '.join(predictions)}.")
    chosen = resolve_attack(attack or ("rmia" if references else "smia"))
    aligned_references = [aligned(needed, reference, f"reference {k}") for k, reference in enumerate(references)]
    check_distinct({"the audited model": predictions}, aligned_references)
    a, forget = offline_a(references), predictions["forget"]

    def placed(model: SplitPredictions) -> tuple[FloatArray, FloatArray]:
        scores = attack_scores([chosen], model, aligned_references, a)[chosen.name]
        return scores["forget"], percentiles(scores["forget"], scores[against])

    scores_now, places = placed(needed)
    were = placed(aligned(needed, before, "the model before unlearning"))[1] if before is not None else None
    rows = [
        Risk(
            int(index),
            int(forget.labels[row]),
            chosen.name,
            float(scores_now[row]),
            float(places[row]),
            None if were is None else float(were[row]),
            (names or {}).get(int(index), ""),
        )
        for row, index in enumerate(forget.indices)
    ]
    return sorted(rows, key=lambda row: (-row.score, row.index))


def percentiles(scores: FloatArray, unseen: FloatArray) -> FloatArray:
    """Return 100 * (share of `unseen` below each score + half the share equal to it)."""
    ranked = np.sort(unseen)
    below, upto = np.searchsorted(ranked, scores, side="left"), np.searchsorted(ranked, scores, side="right")
    return 50.0 * (below + upto).astype(np.float64) / len(ranked)


def risk_rows(risks: Sequence[Risk], exposed: Sequence[Exposed] = ()) -> list[dict[str, Any]]:
    """Return forgotten examples, then retained ones that unlearning exposed, as JSON rows of the same columns.

    `before` is the place before unlearning, of forgotten examples where it is known.
    """
    rows = [{"split": "forget", **asdict(risk)} for risk in risks]
    stayed = [
        {
            "split": "retain",
            "index": one.index,
            "label": one.label,
            "attack": "smia",
            "score": one.rise,
            "percentile": one.after,
            "before": one.before,
            "name": one.name,
        }
        for one in exposed
    ]
    return [*rows, *stayed]
