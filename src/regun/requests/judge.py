"""A method run on a request, and the model it led to judged: the audit of what is new and of all that is forgotten,
the accuracy it lost, and the acceptance rule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import nn

from regun.api import unlearn
from regun.errors import NotFiniteError
from regun.evaluate import UNSEEN, Evaluation, Number, Signals, SplitSignals, evaluate
from regun.evaluate.claims import claims
from regun.evaluate.intervals import Resampling, share
from regun.evaluate.metrics import accuracy
from regun.evaluate.risk import percentiles
from regun.methods import get_method
from regun.requests.plan import RequestPlan
from regun.requests.project import Case, Project
from regun.requests.rule import Facts, Finding, Rule
from regun.runs.signals import signals_of
from regun.runs.unlearning import Outcome
from regun.seeds import derive
from regun.settings import parse_spec
from regun.store import state_digest
from regun.training.job import Cost, Epoch

ALL, NEW = "all", "new"
"""Scopes of an audit: every record forgotten so far, and those of this request (the same in the first request)."""
REHEARSED = 8
"""Records of a set, and resamples, in a rehearsal."""
NOTHING_TO_UNLEARN = "none"
"""The method of a request whose records the model never trained on."""
BY_CONSTRUCTION = "by construction: trained anew without these records"


@dataclass(frozen=True)
class Judge:
    """What every model of one request is judged with: the rule, what the model before it said of every set, what the
    very first one said where it is at hand, and what retrained models said."""

    case: Case
    plan: RequestPlan
    rule: Rule
    bootstrap: int = 1000
    seed: int = 0
    before: SplitSignals = field(default_factory=dict[str, Signals])
    first: SplitSignals | None = None
    retrained: Sequence[SplitSignals] = ()

    def signals(self, model: nn.Module) -> dict[str, Signals]:
        """What the model says of every set, once."""
        sets = self.plan.sets(self.case)
        return {name: signals_of(model, examples, device=self.case.device) for name, examples in sets.items()}

    @property
    def scopes(self) -> tuple[str, ...]:
        return (ALL,) if np.array_equal(self.plan.new, self.plan.forget) else (ALL, NEW)

    def audit(self, signals: SplitSignals) -> dict[str, Evaluation]:
        """The evaluation of a model by scope."""
        return {scope: self.evaluated(scope, signals) for scope in self.scopes}

    @cached_property
    def audited(self) -> dict[str, Evaluation]:
        """The audit of the model before the request."""
        return self.audit(self.before) if self.before else {}

    def drops(self, after: SplitSignals) -> dict[str, float]:
        """Accuracy lost by set, in points: in this request and, where the first model is at hand, in all (`_total`)."""
        found: dict[str, float] = {}
        for name in (name for name in after if name != "forget"):
            found[f"{name}_drop"] = accuracy(self.before[name]) - accuracy(after[name])
            if self.first is not None:
                found[f"{name}_drop_total"] = accuracy(self.first[name]) - accuracy(after[name])
        return found

    def findings(self, audit: Mapping[str, Evaluation], lost: Mapping[str, float], method: str) -> tuple[Finding, ...]:
        """The rule on an audit; for a retrained model only what it asks of utility decides."""
        findings = self.rule.judge({scope: facts(found, lost) for scope, found in audit.items()})
        if method != "retrain":
            return findings
        utility = {c.text for c in self.rule.conditions if c.about_utility}
        return tuple(f if f.condition in utility else _by_construction(f) for f in findings)

    def evaluated(self, scope: str, signals: SplitSignals) -> Evaluation:
        """The evaluation of a model on one scope."""
        own, *others = (self._scoped(scope, sets) for sets in (signals, *self.retrained))
        if len(own["forget"]) == 1:
            return _of_one(own, Resampling(self.bootstrap, self.seed))
        truth = others[0] if others else None
        return evaluate(own, truth, others[1:], bootstrap=self.bootstrap, seed=self.seed)

    def _scoped(self, scope: str, signals: SplitSignals) -> SplitSignals:
        if scope == ALL:
            return signals
        rows = np.flatnonzero(np.isin(self.plan.forget, self.plan.new))
        whole = signals["forget"]
        return {**signals, "forget": Signals(whole.log_probs[rows], whole.labels[rows], whole.indices[rows])}


@dataclass(frozen=True)
class Attempt:
    """One try at a request: a method and the model it led to, what the audit found of it (nothing if the run diverged)
    and how the rule judged it."""

    spec: str
    outcome: Outcome
    signals: SplitSignals = field(default_factory=dict[str, Signals])
    audit: Mapping[str, Evaluation] = field(default_factory=dict[str, Evaluation])
    drops: Mapping[str, float] = field(default_factory=dict[str, float])
    findings: tuple[Finding, ...] = ()

    @property
    def accepted(self) -> bool:
        return all(finding.passed for finding in self.findings)


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


def try_method(spec: str, current: nn.Module, judge: Judge, on_epoch: Callable[[Epoch], None]) -> Attempt:
    """Run the method of `spec` (name@preset,key=value,...) on the current model and judge what comes out."""
    case, plan = judge.case, judge.plan
    name, preset, settings = settings_of(spec, case.project)
    sets = plan.sets(case)
    outcome = unlearn(
        current,
        forget=sets["forget"],
        retain=sets["retain"],
        heldout=sets.get("heldout"),
        val=sets.get("val"),
        method=name,
        preset=preset,
        settings=settings,
        seed=derive(plan.base, plan.request, plan.number, judge.seed),
        rebuild=case.project.rebuild,
        on_epoch=lambda epoch, _: on_epoch(epoch),
        device=case.device,
        num_classes=case.sets["train"].num_classes,
    )
    signals: SplitSignals = {}
    try:
        signals = judge.signals(outcome.model) if outcome.diverged is None else signals
    except NotFiniteError as fault:
        outcome = replace(outcome, diverged=str(fault))
    if outcome.diverged is not None:
        return Attempt(spec, outcome, findings=(Finding("the run ends well", ALL, False, outcome.diverged),))
    audit, lost = judge.audit(signals), judge.drops(signals)
    return Attempt(spec, outcome, signals, audit, lost, judge.findings(audit, lost, outcome.method))


def leave_as_it_is(current: nn.Module) -> Attempt:
    """For records the model never trained on: nothing to unlearn and nothing to judge."""
    return Attempt(NOTHING_TO_UNLEARN, Outcome(current, NOTHING_TO_UNLEARN, {}, Cost(), [], None, {}))


def settings_of(spec: str, project: Project) -> tuple[str, str | None, dict[str, Any]]:
    """The method, preset and settings of `name@preset,key=value,...`; what it leaves open is the project's choice."""
    head, values = parse_spec(spec)
    name, _, preset = head.partition("@")
    recipe: Mapping[str, Any] = project.retrain if name == "retrain" and not preset else {}
    usual = project.family if project.family in get_method(name).presets else None
    return name, preset or usual, {**recipe, **values}


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
        judge = Judge(case, plan, rule, min(bootstrap, REHEARSED), 0, noise, first)
        found[scope] = facts(judge.evaluated(ALL, noise), judge.drops(noise))
    return found


def places(signals: SplitSignals) -> tuple[str, list[float]]:
    """For each forgotten record, the share of unseen ones (of which set) that look less like members, in percent."""
    against = next(name for name in UNSEEN if name in signals)
    return against, percentiles(signals["forget"].true_log_prob, signals[against].true_log_prob).tolist()


def _of_one(signals: SplitSignals, how: Resampling) -> Evaluation:
    """A single forgotten record: where its loss stands among those of unseen ones.

    Had the model never seen it, every place would be as likely as another, and 95 % of the time it would lie between
    2.5 and 97.5. The interval is that acceptance region turned around: it contains 50 just when the place is in it.
    """
    reach = 50.0 * how.level
    numbers = {f"{name}_acc": share(accuracy(one) / 100, len(one), how.level) for name, one in signals.items()}
    for against in (name for name in UNSEEN if name in signals):
        place = float(percentiles(signals["forget"].true_log_prob, signals[against].true_log_prob)[0])
        name = "smia_auc" if against == UNSEEN[0] else f"smia_auc_{against}"
        numbers[name] = Number(place, max(0.0, place - reach), min(100.0, place + reach))
    settings = {"bootstrap": how.resamples, "seed": how.seed, "level": how.level, "references": 0}
    return Evaluation(numbers, {}, {}, {}, (), claims(signals, False, 0, False), settings)


def _by_construction(finding: Finding) -> Finding:
    """A retrained model has nothing to forget: what the attacks say of it is shown, but decides nothing."""
    return replace(finding, passed=True, why=f"{finding.why} ({BY_CONSTRUCTION})")
