"""What every model of one request is judged with: the audit of what is new and of all that is forgotten, the influence
left, the accuracy lost, and the acceptance rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from torch import nn

from regun.artifacts import state_digest
from regun.auditing import Estimate, Evaluation, Predictions, SplitPredictions, evaluate
from regun.auditing.influence import Influence
from regun.auditing.metrics import accuracy
from regun.deletion.folder import Folder
from regun.deletion.options import Listener
from regun.deletion.out_models import NONE, RETRAINED, OutModels, train_out_models
from regun.deletion.plan import Plan
from regun.deletion.rule import ALL, Facts, Finding
from regun.predict import predict
from regun.unlearning import Outcome

NEW = "new"
"""The scope of this request's records; it and ALL are the same in the first request."""
REHEARSED, ENOUGH = 8, 4
"""Records of a set, and resamples, in a rehearsal; retrained models, enough for every number there is."""


@dataclass(frozen=True)
class Judge:
    """The plan, what the model before the request said of every set, what the very first one said where it is at hand,
    what retrained models said, and what out models did."""

    plan: Plan
    before: SplitPredictions = field(default_factory=dict[str, Predictions])
    first: SplitPredictions | None = None
    retrained: Sequence[SplitPredictions] = ()
    told: Mapping[str, float] = field(default_factory=dict[str, float])
    """Accuracy lost since the first model, where that is no longer at hand and a receipt tells it."""
    audited: Mapping[str, Evaluation] = field(default_factory=dict[str, Evaluation])
    """The audit of the model before the request, by scope; `known`: of the models that still knew the records."""
    known: Mapping[str, Evaluation] = field(default_factory=dict[str, Evaluation])
    outs: OutModels = field(default_factory=lambda: OutModels(NONE, why="no other models; none were needed"))

    def signals(self, model: nn.Module) -> dict[str, Predictions]:
        """What the model says of every set, once."""
        sets = self.plan.sets()
        return {name: predict(model, examples, device=self.plan.case.device) for name, examples in sets.items()}

    @property
    def scopes(self) -> tuple[str, ...]:
        return (ALL,) if np.array_equal(self.plan.new, self.plan.forget) else (ALL, NEW)

    def audit(self, signals: SplitPredictions, unseen: Sequence[str]) -> dict[str, Evaluation]:
        """The evaluation of a new model by scope, with what is left of the records' influence, judged on these sets.

        The influence is compared with a model that still knew the records: those of earlier requests are gone from the
        last one.
        """
        knew = {ALL: self.before if self.first is None else self.first, NEW: self.before}
        return {
            scope: self.evaluated(scope, signals, before=knew[scope], outs=self.outs.said, unseen=unseen)
            for scope in self.scopes
        }

    def drops(self, after: SplitPredictions) -> dict[str, float]:
        """Accuracy lost by set, in points: in this request and, where the first model is at hand, in all (`_total`)."""
        found = dict(self.told)
        for name in (name for name in after if name != "forget"):
            found[f"{name}_drop"] = accuracy(self.before[name]) - accuracy(after[name])
            if self.first is not None:
                found[f"{name}_drop_total"] = accuracy(self.first[name]) - accuracy(after[name])
        return found

    def left(self, audit: Mapping[str, Evaluation]) -> dict[str, Influence | str]:
        """How much influence the records of each scope have left, or why that cannot be said."""
        return {scope: found.influence or self.outs.why for scope, found in audit.items()}

    def findings(self, audit: Mapping[str, Evaluation], lost: Mapping[str, float]) -> tuple[Finding, ...]:
        """The rule on what was found of a model; what the rule names and the audit lacks is an error."""
        known, left = {scope: _facts(found, lost) for scope, found in self.known.items()}, self.left(audit)
        return self.plan.rule.judge(
            {
                scope: replace(_facts(found, lost), influence=left[scope], before=known.get(scope))
                for scope, found in audit.items()
            }
        )

    def check_unknown_numbers(self) -> None:
        """Raise where the rule names what no audit of this request has."""
        self.findings(self.audited, self.drops(self.before))

    def evaluated(
        self,
        scope: str,
        signals: SplitPredictions,
        *,
        before: SplitPredictions | None = None,
        outs: Sequence[SplitPredictions] = (),
        unseen: Sequence[str] | None = None,
    ) -> Evaluation:
        """What is found of a model, on the records of a scope."""
        own, *others = self._scoped(scope, signals, *self.retrained)
        return evaluate(
            own,
            others[0] if others else None,
            others[1:],
            before=self._scoped(scope, before)[0] if before is not None else None,
            outs=self._scoped(scope, *outs),
            unseen=unseen,
            bootstrap=self.plan.options.bootstrap,
            seed=self.plan.options.seed,
        )

    def _scoped(self, scope: str, *models: SplitPredictions) -> list[SplitPredictions]:
        """What models said, of the records of a scope only."""
        if scope == ALL:
            return list(models)
        rows, found = np.isin(self.plan.forget, self.plan.new), list[SplitPredictions]()
        for said in models:
            whole = said["forget"]
            found.append(
                {**said, "forget": Predictions(whole.log_probs[rows], whole.labels[rows], whole.indices[rows])}
            )
        return found


def _facts(evaluation: Evaluation, lost: Mapping[str, float]) -> Facts:
    """What a rule may name: the audit's numbers and the accuracy lost."""
    numbers = {**evaluation.numbers, **{name: Estimate(value) for name, value in lost.items()}}
    return Facts(numbers, evaluation.retrain, evaluation.gaps)


def _with_audits(judge: Judge) -> Judge:
    """The judge with the audits of the models before."""
    audited = {scope: judge.evaluated(scope, judge.before) for scope in judge.scopes}
    if judge.first is None or NEW not in judge.scopes:
        return replace(judge, audited=audited, known=audited)
    return replace(judge, audited=audited, known={**audited, ALL: judge.evaluated(ALL, judge.first)})


def judge_for(plan: Plan, current: nn.Module, totals: Mapping[str, float] | None = None) -> Judge:
    """The judge of a request that starts from `current`, with what the project's retrained models say.

    Where a receipt is checked, `totals` is the accuracy that it says was lost since the very first model, if any.
    """
    plain, case = Judge(plan), plan.case
    forgotten = frozenset([case.ids["train"][int(row)] for row in plan.forget])
    models = case.project.retrained(forgotten) if case.project.retrained is not None else ()
    retrained = [plain.signals(model) for model in models]
    before = plain.signals(current)
    first = None
    if case.weights == plan.base and totals != {}:  # otherwise the very first model is, or was, not at hand
        same = state_digest(current.state_dict()) == plan.base
        first = before if same else plain.signals(case.project.model)
    return _with_audits(Judge(plan, before, first, retrained, totals or {} if first is None else {}))


def with_outs(judge: Judge, outcome: Outcome, folder: Folder, listener: Listener) -> Judge:
    """The judge with the out models that its rule asks for: the project's retrained ones, or short trainings.

    A model that was trained anew needs none, and made ones are kept.
    """
    if judge.outs.said or not judge.plan.rule.asks_influence:
        return judge
    if judge.retrained:
        return replace(judge, outs=OutModels(RETRAINED, tuple(judge.retrained)))
    if outcome.from_scratch or outcome.diverged is not None:
        return judge
    return replace(judge, outs=train_out_models(judge.plan, folder, listener))


def rehearsal(plan: Plan) -> Judge:
    """The judge of a request before any work: a few records of noise stand in place of what models answer, the
    project's retrained ones as well; how many those are shows when they are asked."""
    rng, classes = np.random.default_rng(0), plan.case.sets["train"].num_classes
    forget, new = (np.arange(min(REHEARSED, len(rows))) for rows in (plan.forget, plan.new))
    sets = ("retain", *(name for name, rows in plan.kept.items() if len(rows)))

    def noise() -> dict[str, Predictions]:
        return {
            name: Predictions.from_logits(rng.standard_normal((n, classes)), np.arange(n) % classes, np.arange(n))
            for name, n in {**dict.fromkeys(sets, REHEARSED), "forget": len(forget)}.items()
        }

    options = replace(plan.options, bootstrap=min(plan.options.bootstrap, REHEARSED))
    small = replace(plan, options=options, forget=forget, new=new)
    before, retrained = noise(), range(ENOUGH if plan.case.project.retrained is not None else 0)
    first = before if plan.case.weights == plan.base else None
    return _with_audits(Judge(small, before, first, [noise() for _ in retrained]))
