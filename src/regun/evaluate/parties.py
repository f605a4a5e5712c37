"""Who takes part in an audit, and what each is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regun.evaluate.checks import aligned, check_distinct, check_splits
from regun.evaluate.influence import Influence, influence
from regun.evaluate.leakage import AttackRun, Lineup, run_attacks
from regun.evaluate.membership import Attack
from regun.evaluate.signals import SplitSignals


@dataclass(frozen=True, eq=False)
class Parties:
    """Who takes part in an audit: the model, Retrain, references and the model before, on the same splits."""

    target: Lineup
    truth: Lineup | None
    others: Sequence[Lineup]
    past: Lineup | None

    @classmethod
    def of(
        cls,
        signals: SplitSignals,
        retrain: SplitSignals | None,
        references: Sequence[SplitSignals],
        before: SplitSignals | None,
    ) -> Parties:
        check_splits(signals)
        truth = Lineup.of(aligned(signals, retrain, "Retrain")) if retrain is not None else None
        others = [Lineup.of(aligned(signals, reference, f"reference {k}")) for k, reference in enumerate(references)]
        past = Lineup.of(aligned(signals, before, "the model before unlearning")) if before is not None else None
        known = [("the audited model", signals)] + ([("Retrain", retrain)] if retrain is not None else [])
        check_distinct(known, references)
        return cls(Lineup.of(signals), truth, others, past)

    @property
    def never(self) -> list[SplitSignals]:
        """What models said that never saw the forgotten examples."""
        return [model.splits for model in (self.truth, *self.others) if model is not None]

    def attacked(self, who: Lineup | None, attacks: Sequence[Attack], a: float, seed: int) -> list[AttackRun]:
        return run_attacks(attacks, who, self.others, a, seed) if who is not None else []

    def influence(self, outs: Sequence[SplitSignals], judged: Sequence[str], seed: int) -> Influence | None:
        if self.past is None or not outs:
            return None
        return influence(self.target.splits, self.past.splits, outs, unseen=judged, seed=seed)
