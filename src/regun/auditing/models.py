"""Who takes part in an audit, and what each is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regun.auditing.attack_results import AttackRun, ScoredSplits, run_attacks
from regun.auditing.attacks import Attack
from regun.auditing.checks import aligned, check_distinct, check_splits
from regun.auditing.influence import Influence, influence
from regun.auditing.predictions import SplitPredictions


@dataclass(frozen=True, eq=False)
class AuditModels:
    """Who takes part in an audit: the model, Retrain, references and the model before, on the same splits."""

    target: ScoredSplits
    truth: ScoredSplits | None
    others: Sequence[ScoredSplits]
    past: ScoredSplits | None

    @classmethod
    def of(
        cls,
        signals: SplitPredictions,
        retrain: SplitPredictions | None,
        references: Sequence[SplitPredictions],
        before: SplitPredictions | None,
    ) -> AuditModels:
        check_splits(signals)
        truth = ScoredSplits.of(aligned(signals, retrain, "Retrain")) if retrain is not None else None
        others = [
            ScoredSplits.of(aligned(signals, reference, f"reference {k}")) for k, reference in enumerate(references)
        ]
        past = ScoredSplits.of(aligned(signals, before, "the model before unlearning")) if before is not None else None
        known = [("the audited model", signals)] + ([("Retrain", retrain)] if retrain is not None else [])
        check_distinct(known, references)
        return cls(ScoredSplits.of(signals), truth, others, past)

    @property
    def never(self) -> list[SplitPredictions]:
        """What models said that never saw the forgotten examples."""
        return [model.splits for model in (self.truth, *self.others) if model is not None]

    def attacked(self, who: ScoredSplits | None, attacks: Sequence[Attack], a: float, seed: int) -> list[AttackRun]:
        return run_attacks(attacks, who, self.others, a, seed) if who is not None else []

    def influence(self, outs: Sequence[SplitPredictions], judged: Sequence[str], seed: int) -> Influence | None:
        if self.past is None or not outs:
            return None
        return influence(self.target.splits, self.past.splits, outs, unseen=judged, seed=seed)
