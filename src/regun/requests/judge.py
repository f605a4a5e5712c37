"""A model judged on a request: the audit of what is new and of all that is forgotten, and the accuracy it lost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from regun.evaluate import Evaluation, Number, Signals, evaluate
from regun.evaluate.claims import claims
from regun.evaluate.intervals import LEVEL, Resampling
from regun.evaluate.leakage import UNSEEN
from regun.evaluate.metrics import accuracy
from regun.evaluate.plain import accuracy_numbers
from regun.evaluate.risk import percentiles
from regun.requests.plan import Plan, sets_of
from regun.requests.project import Case
from regun.requests.rule import Facts
from regun.runs.signals import signals_of

ALL, NEW = "all", "new"
"""Scopes of an audit: every record forgotten so far, and those of this request (the same in the first request)."""

FEW = 8
"""Records of a set, and resamples, in a rehearsal."""

Sets = Mapping[str, Signals]


@dataclass(frozen=True)
class Judges:
    """What every model of a request is judged with: retrained models and how intervals are made."""

    plan: Plan
    case: Case
    retrained: Sequence[Sets] = ()
    bootstrap: int = 1000
    seed: int = 0

    def signals(self, model: nn.Module) -> dict[str, Signals]:
        """What the model says of every set, once."""
        sets = sets_of(self.plan, self.case)
        return {name: signals_of(model, examples, device=self.case.device) for name, examples in sets.items()}

    def audit(self, signals: Sets) -> dict[str, Evaluation]:
        """The evaluation of a model by scope."""
        return {scope: self._evaluated(scope, signals) for scope in self.scopes}

    @property
    def scopes(self) -> tuple[str, ...]:
        return (ALL,) if np.array_equal(self.plan.new, self.plan.forget) else (ALL, NEW)

    def _evaluated(self, scope: str, signals: Sets) -> Evaluation:
        own, *others = (self._scoped(scope, sets) for sets in (signals, *self.retrained))
        how = Resampling(self.bootstrap, self.seed)
        if len(own["forget"]) == 1:
            return _of_one(own, how)
        return evaluate(
            own, others[0] if others else None, others[1:], bootstrap=how.resamples, seed=how.seed, level=how.level
        )

    def _scoped(self, scope: str, signals: Sets) -> Sets:
        if scope == ALL:
            return signals
        rows = np.flatnonzero(np.isin(self.plan.forget, self.plan.new))
        whole = signals["forget"]
        return {**signals, "forget": Signals(whole.log_probs[rows], whole.labels[rows], whole.indices[rows])}


def judges_for(plan: Plan, case: Case, bootstrap: int, seed: int) -> Judges:
    """The judges of a request, with what the project's retrained models say where it has some."""
    plain = Judges(plan, case, (), bootstrap, seed)
    if case.project.retrained is None:
        return plain
    forgotten = frozenset([case.ids["train"][int(row)] for row in plan.forget])
    return replace(plain, retrained=[plain.signals(model) for model in case.project.retrained(forgotten)])


def facts(evaluation: Evaluation, drops: Mapping[str, float]) -> Facts:
    """What a rule may name: the audit's numbers and the accuracy lost."""
    numbers = {**evaluation.numbers, **{name: Number(value) for name, value in drops.items()}}
    return Facts(numbers, evaluation.retrain, evaluation.gaps)


def rehearsal(plan: Plan, case: Case, bootstrap: int) -> dict[str, Facts]:
    """What a rule will be judged by, as far as names go: the audit of noise in place of the model's answers."""
    rng, classes = np.random.default_rng(0), case.sets["train"].num_classes
    sets = {"retain": FEW, **{name: FEW for name, rows in plan.kept.items() if len(rows)}}
    found: dict[str, Facts] = {}
    for scope, rows in ((ALL, plan.forget), (NEW, plan.new)):
        sizes = {**sets, "forget": min(FEW, len(rows))}
        noise = {
            name: Signals.from_logits(rng.standard_normal((n, classes)), np.arange(n) % classes, np.arange(n))
            for name, n in sizes.items()
        }
        first = noise if case.weights == plan.base else None
        how = Resampling(min(bootstrap, FEW), 0)
        audit = _of_one(noise, how) if sizes["forget"] == 1 else evaluate(noise, bootstrap=how.resamples)
        found[scope] = facts(audit, drops(noise, noise, first))
    return found


def drops(before: Sets, after: Sets, first: Sets | None) -> dict[str, float]:
    """Accuracy lost by set, in points: in this request and, where the first model is at hand, in all (`_total`)."""
    found: dict[str, float] = {}
    for name in (name for name in after if name != "forget"):
        found[f"{name}_drop"] = accuracy(before[name]) - accuracy(after[name])
        if first is not None:
            found[f"{name}_drop_total"] = accuracy(first[name]) - accuracy(after[name])
    return found


def places(signals: Sets) -> tuple[str, list[float]]:
    """For each forgotten record, the share of unseen ones (of which set) that look less like members, in percent."""
    against = next(name for name in UNSEEN if name in signals)
    return against, percentiles(signals["forget"].true_log_prob, signals[against].true_log_prob).tolist()


def _of_one(signals: Sets, how: Resampling) -> Evaluation:
    """A single forgotten record: where its loss stands among those of unseen ones.

    Had the model never seen it, every place would be as likely as another, and 95 % of the time it would lie between
    2.5 and 97.5. The interval is that acceptance region turned around: it contains 50 just when the place is in it.
    """
    reach = 50.0 * how.level
    numbers = accuracy_numbers(signals, how)
    for against in (name for name in UNSEEN if name in signals):
        place = float(percentiles(signals["forget"].true_log_prob, signals[against].true_log_prob)[0])
        name = "smia_auc" if against == UNSEEN[0] else f"smia_auc_{against}"
        numbers[name] = Number(place, max(0.0, place - reach), min(100.0, place + reach))
    settings = {"bootstrap": how.resamples, "seed": how.seed, "level": LEVEL, "references": 0}
    return Evaluation(numbers, {}, {}, {}, (), claims(signals, False, 0, False), settings)
