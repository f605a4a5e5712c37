"""Distances to Retrain next to the noise floor: each number by its own limit, a gap by its worst part.

The main gap is also tested as a whole, and so are all numbers together. No number is `passed` unless the same test
flags the model before unlearning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regun.auditing.attack_results import number_name
from regun.auditing.estimates import Metric
from regun.auditing.floor import NoiseFloor
from regun.auditing.influence import Influence
from regun.auditing.predictions import UNSEEN
from regun.auditing.verdict import ERROR_RATE, Verdict

INFLUENCE = "influence"
"""The part of a verdict that compares record by record."""
ALL_NUMBERS = "all_numbers"
"""The part of a verdict that counts how many numbers are beyond their limits."""
PART_LABELS = {INFLUENCE: "influence, record by record", ALL_NUMBERS: "all numbers together"}
"""The two in texts; other parts have the label of their number."""
SHARE_BEYOND = 0.2
"""Share of all numbers that must be beyond their limits, each at this part of the test's error rate, to fail."""
MAIN_GAPS = ("gap_rftp", "gap_rfvp")
"""The gaps whose parts decide the verdict of an audit: the first that there is."""


@dataclass(frozen=True)
class Gap:
    """The distance of one number to Retrain's, next to how far retrained models are from each other.

    `before` is that of the model before unlearning. `verdict` is on this number alone, at an error rate of 5 %; that of
    a gap follows from its parts, and `worst` names the one that is farthest off, measured by its own limit.
    """

    value: float
    floor_mean: float | None = None
    floor_largest: float | None = None
    floor_limit: float | None = None
    verdict: Verdict | None = None
    before: float | None = None
    worst: str | None = None


def judge_gaps(
    ours: Mapping[str, float],
    before: Mapping[str, float],
    floor: NoiseFloor | None,
    metrics: Mapping[str, Metric],
    judged: Sequence[str] = (),
    influence: Influence | None = None,
) -> dict[str, Gap]:
    """Return every distance to Retrain with its noise floor and verdict.

    `ours` and `before` are the distances of the audited model and of the one before unlearning (empty if unknown).
    `metrics` are those that are no attack's; `judged` are the unseen sets that count. All gaps share one correction for
    the number of tests, so that one cannot fail by a part that another passes.
    """
    family = verdict_tests(ours, floor, metrics, judged, influence)
    gaps: dict[str, Gap] = {}
    for name, value in ours.items():
        if floor is None or name not in floor.values:
            gaps[name] = Gap(value, before=before.get(name))
            continue
        noise, metric, worst = floor.summary(name), metrics.get(name), None
        if metric is not None and metric.terms:
            tests = family if name in family else _tests(metric, ours, floor, judged, influence)
            comparisons = max(len(family), len(tests))
            now = times_limit(tests, ours, floor, metrics, comparisons, influence, before=False)
            then = times_limit(tests, before, floor, metrics, comparisons, influence, before=True)
            worst = max(now, key=lambda part: now[part])
            powerful = any(then[part] > 1 for part in then if not is_utility(part, metrics))
            verdict = verdict_of(now[worst] > 1, powerful)
        else:
            powerful = is_utility(name, metrics) or before.get(name, 0.0) > noise.limit
            verdict = verdict_of(value > noise.limit, powerful)
        gaps[name] = Gap(value, noise.mean, noise.largest, noise.limit, verdict, before.get(name), worst)
    return gaps


def verdict_tests(
    ours: Mapping[str, float],
    floor: NoiseFloor | None,
    metrics: Mapping[str, Metric],
    judged: Sequence[str],
    influence: Influence | None,
) -> tuple[str, ...]:
    """Return the tests that decide the verdict of an audit by its noise floor: the parts of the main gap, the gap
    itself, and all numbers together."""
    for name in MAIN_GAPS:
        if floor is not None and name in ours and name in floor.values and name in metrics:
            return (*_tests(metrics[name], ours, floor, judged, influence), name, ALL_NUMBERS)
    return ()


def times_limit(
    tests: Sequence[str],
    distances: Mapping[str, float],
    floor: NoiseFloor,
    metrics: Mapping[str, Metric],
    comparisons: int,
    influence: Influence | None,
    *,
    before: bool,
) -> dict[str, float]:
    """Return by test how many times its limit a model is off, at an error rate of 5 % over `comparisons`.

    `distances` are those of the audited model or, with `before`, of the one before unlearning; a test without one is
    left out. The limit of `influence` is on its p-value.
    """
    times: dict[str, float] = {}
    for name in tests:
        p_value = influence.p("before" if before else "after") if name == INFLUENCE and influence else None
        if p_value is not None:
            times[name] = _times(ERROR_RATE / comparisons, p_value)
        elif name == ALL_NUMBERS and distances:
            beyond, numbers = count_beyond(distances, floor, metrics, comparisons)
            times[name] = _times(beyond / numbers, SHARE_BEYOND)
        elif name in distances:
            times[name] = _times(distances[name], floor.summary(name, comparisons).limit)
    return times


def count_beyond(
    distances: Mapping[str, float], floor: NoiseFloor, metrics: Mapping[str, Metric], comparisons: int
) -> tuple[int, int]:
    """Return how many numbers are beyond their limits, and how many there are; gaps, which are means of them, are not
    counted.

    With each limit at an error rate of a * SHARE_BEYOND, more than SHARE_BEYOND of the numbers of a retrained model are
    beyond with a probability of at most a, however the numbers depend on each other (Rueger's inequality). They depend
    strongly: all come from the same few predictions.
    """
    numbers = [n for n in distances if n in floor.values and not (n in metrics and metrics[n].terms)]
    sharper = comparisons / SHARE_BEYOND
    return sum(distances[name] > floor.summary(name, sharper).limit for name in numbers), len(numbers)


def _tests(
    gap: Metric,
    ours: Mapping[str, float],
    floor: NoiseFloor,
    judged: Sequence[str],
    influence: Influence | None,
) -> tuple[str, ...]:
    """Return the tests of a gap: its parts that have a floor, and the influence where it was tested."""
    parts = [name for name in parts_of(gap, judged) if name in ours and name in floor.values]
    return (*parts, INFLUENCE) if influence is not None and influence.parts else tuple(parts)


def parts_of(gap: Metric, judged: Sequence[str]) -> tuple[str, ...]:
    """Return the numbers that decide the verdict on a gap.

    These are its terms; with forget accuracy, the divergence on forgotten examples too; and with an attack against test
    examples, the same attack against every other unseen set that is judged.
    """
    parts = list(gap.terms)
    if "forget_acc" in gap.terms:
        parts.append("forget_div")
    attacks = [term.removesuffix("_auc") for term in gap.terms if term.endswith("_auc")]
    parts += [number_name(attack, "auc", name) for attack in attacks for name in judged if name != UNSEEN[0]]
    return tuple(dict.fromkeys(parts))


def verdict_of(beyond: bool, powerful: bool) -> Verdict:
    """Return the verdict of a test: beyond its limit it failed, and without power it is inconclusive."""
    return "failed" if beyond else "passed" if powerful else "inconclusive"


def is_utility(name: str, metrics: Mapping[str, Metric]) -> bool:
    """Return True for numbers about retained and unseen examples: no evidence of forgetting, so they need no power."""
    return name in metrics and metrics[name].utility


def _times(value: float, limit: float) -> float:
    """Return how many times the limit; 0 of 0 is nothing."""
    return value / limit if limit > 0 else float("inf") if value > 0 else 0.0
