"""Whether a setup can tell methods apart: how far the untouched base is from Retrain, next to the noise floor."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regun.auditing import spread
from regun.errors import SettingsError
from regun.experiments.study.results import Block, Results, Seen
from regun.experiments.study.spec import Study

STRONG, WEAK = 6.0, 2.0
"""From the first ratio on differences between methods can be told; below the second nothing can."""
PARTS = ("retain_acc", "forget_acc", "test_acc", "rmia_auc", "gap_tp")


@dataclass(frozen=True, kw_only=True)
class Power:
    """The power of one request: the distance of Base to Retrain in one number, and that of two retrained models."""

    forget: str
    label: str
    number: str
    """The number that is compared: gap_rftp, or one of its parts."""
    seed: int | None
    """None for the mean over seeds."""
    base: float
    floor_mean: float
    floor_largest: float

    @property
    def ratio(self) -> float | None:
        """base / floor_mean; None where retrained models do not differ at all."""
        return self.base / self.floor_mean if self.floor_mean > 0 else None

    @property
    def meaning(self) -> str:
        """What the ratio means, in plain words."""
        if self.ratio is None:
            return "the retrained models do not differ in this number, so it has no noise floor"
        if self.ratio >= STRONG:
            return "differences between methods can be told"
        if self.ratio < WEAK:
            return "nothing can be told, since not even the untouched base stands out from retrained models"
        return "only large differences can be told, and a decent method lies inside the noise floor"


def retrained_only(study: Study) -> Study:
    """The part of a study that its power takes: base, Retrain and references with their evaluations, no method."""
    if study.references < 2:
        raise SettingsError(
            [f"study.references is {study.references}; a noise floor needs at least 2 beside Retrain: set 2 or more."]
        )
    return replace(study, methods=(), unranked=(), titles={}, settings={}, tune={}, tune_seed=None, relearn=False)


def powers(results: Results) -> list[Power]:
    """For each request the main gap: of every seed, then over all seeds, then its parts over all seeds."""
    return [power for block in results.blocks for power in _of_block(block)]


def _of_block(block: Block) -> list[Power]:
    gap = block.main_gap
    base = block.row("base").cells
    if gap is None or gap not in base:
        return []
    floored = [seen for seen in base[gap].seen if seen.gap is not None and seen.gap.floor_mean is not None]
    found = [_power(block, gap, [seen], seen.seed) for seen in floored]
    parts = [gap, *(name for name in PARTS if name in base)]
    return found + [_power(block, name, base[name].seen, None) for name in parts if floored]


def _power(block: Block, number: str, seen: Sequence[Seen], seed: int | None) -> Power:
    gaps = [one.gap for one in seen if one.gap is not None]
    return Power(
        forget=block.forget,
        label=block.label,
        number=number,
        seed=seed,
        base=spread([gap.value for gap in gaps])[0],
        floor_mean=spread([gap.floor_mean or 0.0 for gap in gaps])[0],
        floor_largest=max(gap.floor_largest or 0.0 for gap in gaps),
    )
