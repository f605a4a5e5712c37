"""Assess a model of a request: the audit of the new and of all forgotten records, the influence left, the accuracy
lost, and the acceptance rule. The same function judges a request and re-audits its receipt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from torch import nn

from regun.artifacts import state_digest
from regun.auditing import Decision, Estimate, Evaluation, Predictions, SplitPredictions, evaluate
from regun.auditing.influence import Influence
from regun.auditing.metrics import accuracy
from regun.auditing.verdict import decide
from regun.deletion.change import Change, measure_change
from regun.deletion.out_models import OutModels
from regun.deletion.plan import Plan
from regun.deletion.rule import ALL, NEW, UTILITY, Facts, Finding
from regun.errors import NotFiniteError
from regun.predict import predict
from regun.render.numbers import many
from regun.unlearning import Outcome

FROM_SCRATCH = "retrained from scratch without these records"
DRY_RECORDS, DRY_RETRAINED = 8, 4
"""Records of a set, resamples and retrained models in a dry assessment: enough for every number there is."""


@dataclass(frozen=True)
class Attempt:
    """A method, the model it led to, its audit (empty if the run diverged) and the findings of the rule."""

    spec: str
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    predictions: SplitPredictions = field(default_factory=dict[str, Predictions])
    audit: Mapping[str, Evaluation] = field(default_factory=dict[str, Evaluation])
    """The evaluation by scope."""
    drops: Mapping[str, float] = field(default_factory=dict[str, float])
    unseen: Sequence[str] = ()
    """The unseen sets that it was judged by."""
    change: Change | None = None
    out_models: OutModels = field(default_factory=OutModels)
    """What its influence was measured with."""

    @property
    def influences(self) -> dict[str, Influence | str]:
        """The influence left by scope, or why it is unknown."""
        return {scope: evaluation.influence or self.out_models.why for scope, evaluation in self.audit.items()}

    @property
    def verdict(self) -> Decision:
        return decide(finding.result for finding in self.findings)


@dataclass(frozen=True)
class Assessor:
    """What every attempt of a request is compared with: predictions and audits of the models before, of retrained
    models and of out-of-sample models."""

    plan: Plan
    before: SplitPredictions = field(default_factory=dict[str, Predictions])
    """Predictions of the model before the request."""
    first: SplitPredictions | None = None
    """Predictions of the very first model, where it is at hand."""
    retrained: Sequence[SplitPredictions] = ()
    totals: Mapping[str, float] = field(default_factory=dict[str, float])
    """Accuracy lost since the first model according to a receipt, where that model is no longer at hand."""
    copies: Mapping[str, int] = field(default_factory=dict[str, int])
    """Retained copies of forgotten records, by scope."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """All forgotten records and, from the second request on, those of this request."""
        return (ALL,) if np.array_equal(self.plan.new, self.plan.forget) else (ALL, NEW)

    @cached_property
    def audit_before(self) -> Mapping[str, Evaluation]:
        """The audit of the model before the request, by scope."""
        return {scope: self.evaluate(scope, self.before) for scope in self.scopes}

    @cached_property
    def audit_original(self) -> Mapping[str, Evaluation]:
        """The audit of the models that still knew the records, by scope."""
        if self.first is None or NEW not in self.scopes:
            return self.audit_before
        return {**self.audit_before, ALL: self.evaluate(ALL, self.first)}

    def assess(
        self, spec: str, outcome: Outcome, unseen: Sequence[str], out_models: OutModels, current: nn.Module
    ) -> Attempt:
        """Audit the model that a run made of `current` against these unseen sets, and judge it by the rule."""
        try:
            predictions = {} if outcome.diverged is not None else self.predict(outcome.model)
        except NotFiniteError as fault:
            outcome, predictions = replace(outcome, diverged=str(fault)), dict[str, Predictions]()
        if outcome.diverged is not None:
            diverged = Finding("finished", ALL, "failed", outcome.diverged, "the run ends well")
            return Attempt(spec, outcome, (diverged,), out_models=out_models)
        # influence is relative to a model that still knew the records: earlier ones are gone from the last model
        original = {ALL: self.before if self.first is None else self.first, NEW: self.before}
        audit = {
            scope: self.evaluate(scope, predictions, original[scope], out_models.predictions, unseen)
            for scope in self.scopes
        }
        drops = self.drops(predictions)
        change = measure_change(current, outcome.model, outcome.cost.steps, (self.before, predictions))
        findings = self.judge(audit, drops, out_models.why)
        if outcome.from_scratch:
            findings = [self._by_construction(finding) for finding in findings]
        if change.nothing:  # rejects the run, whatever the rule is
            findings = [Finding("changed", ALL, "failed", change.nothing, "the run changed the model"), *findings]
        return Attempt(spec, outcome, tuple(findings), predictions, audit, drops, unseen, change, out_models)

    def predict(self, model: nn.Module) -> dict[str, Predictions]:
        """Return the model's predictions on every set."""
        sets = self.plan.sets()
        return {name: predict(model, examples, device=self.plan.opened.device) for name, examples in sets.items()}

    def evaluate(
        self,
        scope: str,
        predictions: SplitPredictions,
        original: SplitPredictions | None = None,
        out_models: Sequence[SplitPredictions] = (),
        unseen: Sequence[str] | None = None,
    ) -> Evaluation:
        """Evaluate a model on the records of a scope; with `original` and out-of-sample models, also the influence."""
        target, *retrained = self._scoped(scope, predictions, *self.retrained)
        return evaluate(
            target,
            retrained[0] if retrained else None,
            retrained[1:],
            before=self._scoped(scope, original)[0] if original is not None else None,
            out_models=self._scoped(scope, *out_models),
            unseen=unseen,
            bootstrap=self.plan.options.bootstrap,
            seed=self.plan.options.seed,
        )

    def drops(self, after: SplitPredictions) -> dict[str, float]:
        """Return the accuracy lost by set, in points: in this request and, where known, since the first model."""
        drops = dict(self.totals)
        for name in (name for name in after if name != "forget"):
            drops[f"{name}_drop"] = accuracy(self.before[name]) - accuracy(after[name])
            if self.first is not None:
                drops[f"{name}_drop_total"] = accuracy(self.first[name]) - accuracy(after[name])
        return drops

    def judge(
        self, audit: Mapping[str, Evaluation], drops: Mapping[str, float], why_unknown: str = ""
    ) -> Sequence[Finding]:
        """Apply the rule; a number that it names and the audit lacks is an error. `why_unknown`: about influence."""

        def facts(evaluation: Evaluation) -> Facts:
            numbers = {**evaluation.numbers, **{name: Estimate(value) for name, value in drops.items()}}
            return Facts(numbers, evaluation.retrain, evaluation.gaps)

        scopes = {
            scope: replace(
                facts(evaluation),
                influence=evaluation.influence or why_unknown,
                before=facts(self.audit_original[scope]),
            )
            for scope, evaluation in audit.items()
        }
        return self.plan.rule.judge(scopes)

    def check_rule(self) -> None:
        """Raise where the rule names a number that no audit of this request has."""
        self.judge(self.audit_before, self.drops(self.before))

    def _scoped(self, scope: str, *models: SplitPredictions) -> list[SplitPredictions]:
        """Return the predictions of models with only the forgotten records of a scope."""
        if scope == ALL:
            return list(models)
        rows, scoped = np.isin(self.plan.forget, self.plan.new), list[SplitPredictions]()
        for predictions in models:
            forget = predictions["forget"]
            subset = Predictions(forget.log_probs[rows], forget.labels[rows], forget.indices[rows])
            scoped.append({**predictions, "forget": subset})
        return scoped

    def _by_construction(self, finding: Finding) -> Finding:
        """Pass what a model retrained from scratch has forgotten by construction, unless it was trained on copies."""
        if finding.scope == UTILITY:
            return finding
        copies = self.copies.get(finding.scope, 0)
        how = f"by construction: {FROM_SCRATCH}"
        if copies:
            how = f"{FROM_SCRATCH}, but on {many(copies, 'identical one')} under other ids"
        why = how if finding.result == "inconclusive" else f"{finding.why.rstrip('.')} ({how})"
        return replace(finding, result=finding.result if copies else "passed", why=why)


def make_assessor(
    plan: Plan, current: nn.Module, copies: Mapping[str, int], totals: Mapping[str, float] | None = None
) -> Assessor:
    """Return the assessor of a request that starts from `current`, with the project's retrained models.

    `copies` counts retained copies of forgotten records by scope. For a re-audit, `totals` is the accuracy that the
    receipt says was lost since the very first model, if any.
    """
    plain, opened = Assessor(plan), plan.opened
    forgotten = frozenset([opened.ids["train"][int(row)] for row in plan.forget])
    models = opened.project.retrained(forgotten) if opened.project.retrained is not None else ()
    retrained = [plain.predict(model) for model in models]
    before = plain.predict(current)
    first = None
    if opened.weights == plan.base and totals != {}:  # otherwise the very first model is, or was, not at hand
        same = state_digest(current.state_dict()) == plan.base
        first = before if same else plain.predict(opened.project.model)
    totals = totals or {} if first is None else {}
    return Assessor(plan, before, first, retrained, totals, copies)


def dry_assessor(plan: Plan) -> Assessor:
    """Return an assessor on random predictions of a few records: it knows which numbers the audit will have."""
    rng, classes = np.random.default_rng(0), plan.opened.sets["train"].num_classes
    forget, new = (np.arange(min(DRY_RECORDS, len(rows))) for rows in (plan.forget, plan.new))
    sets = ("retain", *(name for name, rows in plan.remaining.items() if len(rows)))

    def noise() -> dict[str, Predictions]:
        return {
            name: Predictions.from_logits(rng.standard_normal((n, classes)), np.arange(n) % classes, np.arange(n))
            for name, n in {**dict.fromkeys(sets, DRY_RECORDS), "forget": len(forget)}.items()
        }

    options = replace(plan.options, bootstrap=min(plan.options.bootstrap, DRY_RECORDS))
    small = replace(plan, options=options, forget=forget, new=new)
    before, retrained = noise(), range(DRY_RETRAINED if plan.opened.project.retrained is not None else 0)
    first = before if plan.opened.weights == plan.base else None
    return Assessor(small, before, first, [noise() for _ in retrained])
