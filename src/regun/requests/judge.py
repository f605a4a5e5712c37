"""A method run on a request, and the model it led to judged: the audit of what is new and of all that is forgotten,
the influence left, the accuracy lost, and the acceptance rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from torch import nn

from regun.data.examples import Indices
from regun.evaluate import UNSEEN, Evaluation, Number, Signals, SplitSignals, evaluate
from regun.evaluate.influence import Influence
from regun.evaluate.metrics import accuracy
from regun.evaluate.risk import percentiles
from regun.requests.outs import NONE, Outs, Shown, retrained_outs, short_outs
from regun.requests.plan import RequestPlan
from regun.requests.private import Workplace
from regun.requests.project import Case
from regun.requests.rule import ALL, Facts, Finding, Rule
from regun.runs.signals import signals_of
from regun.runs.unlearning import Outcome
from regun.store import state_digest

NEW = "new"
"""The scope of this request's records; it and ALL are the same in the first request."""
REHEARSED = 8
"""Records of a set, and resamples, in a rehearsal."""


@dataclass(frozen=True)
class Judge:
    """What every model of one request is judged with: the rule, what the model before it said of every set, what the
    very first one said where it is at hand, what retrained models said, and what out models did."""

    case: Case
    plan: RequestPlan
    rule: Rule
    bootstrap: int = 1000
    seed: int = 0
    before: SplitSignals = field(default_factory=dict[str, Signals])
    first: SplitSignals | None = None
    retrained: Sequence[SplitSignals] = ()
    outs: Outs = field(default_factory=lambda: Outs(NONE, why="none were needed"))

    def signals(self, model: nn.Module) -> dict[str, Signals]:
        """What the model says of every set, once."""
        sets = self.plan.sets(self.case)
        return {name: signals_of(model, examples, device=self.case.device) for name, examples in sets.items()}

    @property
    def scopes(self) -> tuple[str, ...]:
        return (ALL,) if np.array_equal(self.plan.new, self.plan.forget) else (ALL, NEW)

    def audit(self, signals: SplitSignals, unseen: Sequence[str]) -> dict[str, Evaluation]:
        """The evaluation of a new model by scope, with what is left of the records' influence, judged on these sets."""
        return {
            scope: self._evaluated(
                scope, signals, before=self._knew(scope), outs=self._scoped(scope, *self.outs.said), unseen=unseen
            )
            for scope in self.scopes
        }

    @cached_property
    def audited(self) -> dict[str, Evaluation]:
        """The audit of the model before the request."""
        return {scope: self._evaluated(scope, self.before) for scope in self.scopes} if self.before else {}

    def drops(self, after: SplitSignals) -> dict[str, float]:
        """Accuracy lost by set, in points: in this request and, where the first model is at hand, in all (`_total`)."""
        found: dict[str, float] = {}
        for name in (name for name in after if name != "forget"):
            found[f"{name}_drop"] = accuracy(self.before[name]) - accuracy(after[name])
            if self.first is not None:
                found[f"{name}_drop_total"] = accuracy(self.first[name]) - accuracy(after[name])
        return found

    def left(self, audit: Mapping[str, Evaluation]) -> dict[str, Influence | str]:
        """How much influence the records of each scope have left, or why that cannot be said."""
        return {scope: found.influence or self.outs.why for scope, found in audit.items()}

    def _knew(self, scope: str) -> SplitSignals:
        """What a model said that still knew the scope's records: those of earlier requests are gone from the last."""
        return self.first if scope == ALL and self.first is not None else self.before

    def findings(self, audit: Mapping[str, Evaluation], lost: Mapping[str, float]) -> tuple[Finding, ...]:
        """The rule on what was found of a model."""
        known, left = {scope: facts(found, lost) for scope, found in self._known.items()}, self.left(audit)
        return self.rule.judge(
            {
                scope: replace(facts(found, lost), influence=left[scope], before=known.get(scope))
                for scope, found in audit.items()
            }
        )

    @cached_property
    def _known(self) -> Mapping[str, Evaluation]:
        """The audit of models that still knew the records, by scope."""
        if self.first is None or NEW not in self.scopes:
            return self.audited
        return {**self.audited, ALL: self._evaluated(ALL, self.first)}

    def _evaluated(
        self,
        scope: str,
        signals: SplitSignals,
        *,
        before: SplitSignals | None = None,
        outs: Sequence[SplitSignals] = (),
        unseen: Sequence[str] | None = None,
    ) -> Evaluation:
        own, *others = self._scoped(scope, signals, *self.retrained)
        knew = self._scoped(scope, before)[0] if before is not None else None
        return evaluate(
            own,
            others[0] if others else None,
            others[1:],
            before=knew,
            outs=outs,
            unseen=unseen,
            bootstrap=self.bootstrap,
            seed=self.seed,
        )

    def _scoped(self, scope: str, *models: SplitSignals) -> list[SplitSignals]:
        """What models said, of the records of a scope only."""
        if scope == ALL:
            return list(models)
        rows = np.flatnonzero(np.isin(self.plan.forget, self.plan.new))
        return [{**said, "forget": _some(said["forget"], rows)} for said in models]


def _some(whole: Signals, rows: Indices) -> Signals:
    return Signals(whole.log_probs[rows], whole.labels[rows], whole.indices[rows])


def judge_for(case: Case, plan: RequestPlan, rule: Rule, current: nn.Module, bootstrap: int, seed: int) -> Judge:
    """The judge of a request that starts from `current`, with what the project's retrained models say."""
    plain = Judge(case, plan, rule, bootstrap, seed)
    forgotten = frozenset([case.ids["train"][int(row)] for row in plan.forget])
    models = case.project.retrained(forgotten) if case.project.retrained is not None else ()
    retrained = [plain.signals(model) for model in models]
    before = plain.signals(current)
    first = None
    if case.weights == plan.base:  # otherwise the project no longer has the very first model
        same = state_digest(current.state_dict()) == plan.base
        first = before if same else plain.signals(case.project.model)
    return replace(plain, before=before, first=first, retrained=retrained)


def with_outs(judge: Judge, outcome: Outcome, count: int, place: Workplace, shown: Shown) -> Judge:
    """The judge with the out models that its rule asks for: the project's retrained ones, or short trainings.

    A model that was trained anew needs none, and made ones are kept.
    """
    if judge.outs.said or not judge.rule.asks_influence:
        return judge
    if judge.retrained:
        return replace(judge, outs=retrained_outs(judge.retrained))
    if outcome.trained_anew or outcome.diverged is not None:
        return judge
    return replace(judge, outs=short_outs(judge.case, judge.plan, count, place, shown))


def facts(evaluation: Evaluation, lost: Mapping[str, float]) -> Facts:
    """What a rule may name: the audit's numbers and the accuracy lost."""
    numbers = {**evaluation.numbers, **{name: Number(value) for name, value in lost.items()}}
    return Facts(numbers, evaluation.retrain, evaluation.gaps)


def rehearsal(case: Case, plan: RequestPlan, rule: Rule, bootstrap: int) -> dict[str, Facts]:
    """What a rule will be judged by, as far as names go: the audit of noise in place of the model's answers."""
    rng, classes = np.random.default_rng(0), case.sets["train"].num_classes
    sizes = {"retain": REHEARSED, **{name: REHEARSED for name, rows in plan.kept.items() if len(rows)}}
    found: dict[str, Facts] = {}
    for scope, rows in ((ALL, plan.forget), (NEW, plan.new)):
        noise = {
            name: Signals.from_logits(rng.standard_normal((n, classes)), np.arange(n) % classes, np.arange(n))
            for name, n in {**sizes, "forget": min(REHEARSED, len(rows))}.items()
        }
        first = noise if case.weights == plan.base else None
        judge = Judge(case, replace(plan, new=plan.forget), rule, min(bootstrap, REHEARSED), 0, noise, first)
        found[scope] = facts(judge.audited[ALL], judge.drops(noise))
    return found


def places(signals: SplitSignals) -> tuple[str, list[float]]:
    """For each forgotten record, the share of unseen ones (of which set) that look less like members, in percent."""
    against = next(name for name in UNSEEN if name in signals)
    return against, percentiles(signals["forget"].true_log_prob, signals[against].true_log_prob).tolist()
