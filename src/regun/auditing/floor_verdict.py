"""The verdict by the noise floor: the main gap and each of its parts, the influence left, and all numbers together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regun.auditing.estimates import Metric
from regun.auditing.floor import NoiseFloor
from regun.auditing.gaps import (
    ALL_NUMBERS,
    INFLUENCE,
    MAIN_GAPS,
    PART_LABELS,
    SHARE_BEYOND,
    count_beyond,
    is_utility,
    times_limit,
    verdict_of,
    verdict_tests,
)
from regun.auditing.influence import Influence
from regun.auditing.verdict import ERROR_RATE, UNKNOWN_POWER, Judgement, Part
from regun.render.numbers import fixed, many


@dataclass(frozen=True)
class _FloorTests:
    """What the tests by the noise floor are made from: `values` and `distances` of the audited model, of the one before
    unlearning (empty if unknown) and, for values, of Retrain. `metrics` describe all numbers."""

    floor: NoiseFloor
    names: tuple[str, ...]
    values: Sequence[Mapping[str, float]]
    distances: Sequence[Mapping[str, float]]
    metrics: Mapping[str, Metric]
    influence: Influence | None

    def times_limit(self, model: int) -> dict[str, float]:
        """Return how many times its limit the audited model (0) or the one before (1) is off, by test."""
        if not self.distances[model]:
            return {}
        count, before = len(self.names), bool(model)
        return times_limit(
            self.names, self.distances[model], self.floor, self.metrics, count, self.influence, before=before
        )

    def limit(self, name: str) -> float | None:
        """Return the limit of a test of one number."""
        return self.floor.summary(name, len(self.names)).limit if name in self.floor.values else None

    def label(self, name: str) -> str:
        return PART_LABELS[name] if name in PART_LABELS else self.metrics[name].label.removesuffix(".")

    def off(self, name: str, model: int) -> str:
        """Return how far a model is from retrained ones in one test; empty if that is not known."""
        if name == INFLUENCE and self.influence is not None:
            return f"p = {self.influence.p('before' if model else 'after') or 0.0:.2g}"
        distances = self.distances[model]
        if name == ALL_NUMBERS and distances:
            beyond, numbers = count_beyond(distances, self.floor, self.metrics, len(self.names))
            return f"{beyond} of {numbers} beyond their limits"
        return f"{distances[name]:.2g} from retrained" if name in distances else ""

    def shown(self, name: str, model: int) -> str:
        """Return a model's number next to the retrained model's."""
        if name in self.values[model] and name in self.values[2]:
            ours, truth = (fixed(self.values[which][name], 1) for which in (model, 2))
            return f"{self.label(name)} {ours}, retrained {truth}"
        limit = self.limit(name)
        if limit is not None:
            return (
                f"{self.label(name)} {fixed(self.distances[model][name], 1)}, retrained models up to {fixed(limit, 1)}"
            )
        return f"{self.label(name)}: {self.off(name, model)}"

    def part(self, name: str, now: float, then: float | None) -> Part:
        """Return one test; `now` and `then` are times its limit."""
        utility, before, limit = is_utility(name, self.metrics), self.off(name, 1), self.limit(name)
        flagged = None if utility or then is None else then > 1
        if limit is not None:
            bound = f"{limit:.2g}"
        elif name == INFLUENCE:
            bound = f"{ERROR_RATE / len(self.names):.2g}"
        else:
            bound = (
                f"{100 * SHARE_BEYOND:.0f} % of them, each at {100 * ERROR_RATE * SHARE_BEYOND / len(self.names):.2g} %"
            )
        was = (
            f", before {before.removesuffix(' from retrained').removesuffix(' beyond their limits')}" if before else ""
        )
        text = f"{self.label(name)}: {self.off(name, 0)}{was}; limit {bound}"
        return Part(name, verdict_of(now > 1, utility or bool(flagged)), text, flagged, limit)

    def failure(self, name: str, *, recognised: bool) -> str:
        """Return what a failed test on forgotten records shows; `recognised`: they were recognisable before."""
        if name == INFLUENCE and self.influence is not None:
            above = min(self.influence.parts, key=lambda part: part.p_after).after.value > 0
        elif name in self.values[2] and name in self.values[0]:
            above = self.values[0][name] > self.values[2][name]
        else:
            return "treated differently than by a retrained model"
        return ("still recognisable" if recognised else "recognisable") if above else "over-forgotten"


def judge_by_floor(
    floor: NoiseFloor,
    distances: tuple[Mapping[str, float], Mapping[str, float]],
    values: tuple[Mapping[str, float], Mapping[str, float], Mapping[str, float]],
    metrics: Mapping[str, Metric],
    judged: Sequence[str],
    influence: Influence | None,
) -> Judgement:
    """Return the verdict by the noise floor.

    `distances` to Retrain are those of the audited model and of the one before unlearning (empty if unknown); `values`
    are the numbers of these two and of Retrain. `metrics` describe all numbers. `judged` are the sets that count.
    """
    names = verdict_tests(distances[0], floor, metrics, judged, influence)
    tests = _FloorTests(floor, names, values, distances, metrics, influence)
    now, then = tests.times_limit(0), tests.times_limit(1)
    parts = tuple(tests.part(name, now[name], then.get(name)) for name in names)
    of_groups = (INFLUENCE, ALL_NUMBERS, *MAIN_GAPS)
    powerful = [part.name for part in parts if part.flagged]
    power = min(powerful, key=lambda name: (not name.startswith("rmia"), name in of_groups), default=None)
    failed = [part.name for part in parts if part.verdict == "failed"]
    # one number says more than several together, and one about forgetting more than one about utility
    sums = of_groups[1:]
    worst = min(failed or now, key=lambda n: (n in sums, bool(failed) and is_utility(n, metrics), -now[n]))
    before = f"Before: the forgotten records were recognisable ({tests.shown(power, 1)}). " if power else ""
    if failed and (is_utility(worst, metrics) or worst in sums):
        forgot = "the forgotten records pass, but the model" if power else "the model"
        limit = f", limit {tests.limit(worst) or 0.0:.2g}" if worst not in sums else ""
        reason = f"{before}Now: {forgot} differs from a retrained one ({tests.shown(worst, 0)}{limit})."
    elif failed:
        reason = f"{before}Now: {tests.failure(worst, recognised=bool(power))} ({tests.shown(worst, 0)})."
    elif power:
        all_tests = f"not distinguishable from a retrained model by any of {many(len(names), 'test')}"
        reason = f"{before}Now: not recognisable ({tests.shown(power, 0)}), and {all_tests}."
    elif then:
        reason = (
            f"None of {many(len(names), 'test')} flags the model before unlearning: the influence of the forgotten "
            "records was too small to measure, so passing shows nothing."
        )
    else:
        reason = (
            f"Not distinguishable from a retrained model by any of {many(len(names), 'test')}. But: {UNKNOWN_POWER}"
        )
    return Judgement(verdict_of(bool(failed), bool(power)), "noise floor", reason, parts, worst)
