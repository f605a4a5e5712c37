"""How often an audit's 95 % intervals hold the truth, with few and with many members.

    python research/intervals.py [--repeats 1000] [--unseen 300]

Scores of members are drawn from worlds whose truth is known, those of non-members from a standard normal. Printed: the
share of repeats in which the AUC's interval holds the true AUC, in brackets its mean width in points; for comparison
the percentile bootstrap and DeLong's interval, and the worst case of a share (an accuracy) over all true values. About
a minute on one core.
"""

import argparse
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom

from regun.auditing.intervals import auc_interval, bootstrap_contrast, share
from regun.auditing.roc import Contrast

MEMBERS = (2, 3, 5, 8, 12, 30, 100, 400)
Scores = np.ndarray[tuple[int], np.dtype[np.float64]]
Interval = Callable[[Contrast, int], tuple[float, float]]


def mixed(part: float, centre: float, rng: np.random.Generator, size: int) -> Scores:
    """Some members look alike and far above, the others below."""
    return np.where(rng.random(size) < part, rng.normal(centre, 0.3, size), rng.normal(-1.0, 1.0, size))


WORLDS: dict[str, Callable[[np.random.Generator, int], Scores]] = {
    "like unseen ones": lambda rng, size: rng.normal(0.0, 1.0, size),
    "shifted a little": lambda rng, size: rng.normal(0.47, 1.0, size),
    "shifted": lambda rng, size: rng.normal(1.0, 1.0, size),
    "shifted far": lambda rng, size: rng.normal(2.0, 1.0, size),
    "three times as wide": lambda rng, size: rng.normal(0.0, 3.0, size),
    "a fifth as wide": lambda rng, size: rng.normal(0.3, 0.2, size),
    "heavy tails": lambda rng, size: 1.0 + rng.standard_t(1.2, size),
    "60 % far above": lambda rng, size: mixed(0.6, 2.5, rng, size),
    "95 % far above": lambda rng, size: mixed(0.95, 3.0, rng, size),
}


def ours(contrast: Contrast, seed: int) -> tuple[float, float]:
    estimate = auc_interval(contrast)
    return estimate.low or 0.0, 100.0 if estimate.high is None else estimate.high


def bootstrap(contrast: Contrast, seed: int) -> tuple[float, float]:
    low, high = np.quantile(bootstrap_contrast(contrast, 200, seed)[0], [0.025, 0.975])
    return 100 * float(low), 100 * float(high)


def delong(contrast: Contrast, seed: int) -> tuple[float, float]:
    beats, beaten, _ = contrast.wins()
    m, n = len(beats), len(beaten)
    reach = 196 * ((beats / n).var(ddof=1) / m + (beaten / m).var(ddof=1) / n) ** 0.5
    return 100 * beats.mean() / n - reach, 100 * beats.mean() / n + reach


def coverage(world: str, members: int, unseen: int, repeats: int, interval: Interval) -> tuple[float, float]:
    """The share of repeats in which the interval holds the true AUC, in percent, and its mean width."""
    draw, rng = WORLDS[world], np.random.default_rng([members, unseen])
    truth = 100 * float(ndtr(draw(np.random.default_rng(0), 1_000_000)).mean())
    ends = np.array(
        [interval(Contrast.of(draw(rng, members), rng.normal(0, 1, unseen)), seed) for seed in range(repeats)]
    )
    held = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    return 100 * float(held.mean()), float((ends[:, 1] - ends[:, 0]).mean())


def worst_share(size: int) -> float:
    """The lowest coverage of a share's interval over all true shares, exactly, in percent."""
    true = np.linspace(0.001, 0.999, 1999)
    shares = [share(hits / size, size) for hits in range(size + 1)]
    held = [((n.low or 0.0) <= 100 * true) & (100 * true <= (n.high or 0.0)) for n in shares]
    return 100 * float((binom.pmf(np.arange(size + 1)[:, None], size, true) * np.array(held)).sum(axis=0).min())


def row(name: str, cells: list[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--unseen", type=int, default=300)
    args = parser.parse_args()
    print(row(f"AUC, {args.unseen} unseen; members:", [str(m) for m in MEMBERS]))
    print(row("---", ["---"] * len(MEMBERS)))
    for world in WORLDS:
        coverages = [coverage(world, m, args.unseen, args.repeats, ours) for m in MEMBERS]
        print(row(world, [f"{held:.1f} ({width:.0f})" for held, width in coverages]), flush=True)
    few = min(args.repeats, 400)
    for name, interval in (("percentile bootstrap", bootstrap), ("DeLong", delong)):
        coverages = [coverage("shifted a little", m, args.unseen, few, interval) for m in MEMBERS]
        print(
            row(f"*{name}, shifted a little*", [f"{held:.1f} ({width:.0f})" for held, width in coverages]), flush=True
        )
    print(row("a share (accuracy), worst case", [f"{worst_share(m):.1f}" for m in MEMBERS]))


if __name__ == "__main__":
    main()
