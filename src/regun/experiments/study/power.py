"""The power of a setup: the distance of the untouched base to Retrain, compared with the noise floor."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regun.auditing import Gap, spread
from regun.errors import SettingsError
from regun.experiments.study.results import Block, Results
from regun.experiments.study.spec import Study

STRONG, WEAK = 6.0, 2.0
"""Ratios from which differences between methods can be significant, and below which nothing can."""
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
        """What the ratio means."""
        if self.ratio is None:
            return "the retrained models do not differ in this number, so it has no noise floor"
        if self.ratio >= STRONG:
            return "methods can be significantly different"
        if self.ratio < WEAK:
            return "the study has no power: not even the untouched base is significantly different from Retrain"
        return "only large differences can be significant, and a decent method lies inside the noise floor"


def retrained_only(study: Study) -> Study:
    """Return the study without its methods: base, Retrain and references with their evaluations."""
    if study.references < 2:
        raise SettingsError(
            [f"study.references is {study.references}; a noise floor needs at least 2 besides Retrain."]
        )
    return replace(
        study, methods=(), unranked=(), untuned=(), titles={}, settings={}, tune={}, tune_seed=None, relearn=False
    )


def powers(results: Results) -> list[Power]:
    """Return, for each request, the power in the main gap by seed and over all seeds, then in its parts."""
    by_number = list[Power]()
    for block in results.blocks:
        gap, base = block.main_gap, block.row("base").cells
        if gap is None or gap not in base:
            continue
        pairs = zip(base[gap].seeds, base[gap].gaps, strict=True)
        floored = [(seed, one) for seed, one in pairs if one is not None and one.floor_mean is not None]
        by_number += [_power(block, gap, [one], seed) for seed, one in floored]
        parts = [gap, *(name for name in PARTS if name in base)] if floored else []
        by_number += [_power(block, name, base[name].gaps, None) for name in parts]
    return by_number


def _power(block: Block, number: str, by_run: Sequence[Gap | None], seed: int | None) -> Power:
    gaps = [gap for gap in by_run if gap is not None]
    return Power(
        forget=block.forget,
        label=block.label,
        number=number,
        seed=seed,
        base=spread([gap.value for gap in gaps])[0],
        floor_mean=spread([gap.floor_mean or 0.0 for gap in gaps])[0],
        floor_largest=max(gap.floor_largest or 0.0 for gap in gaps),
    )
