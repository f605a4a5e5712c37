"""One try at a request: a method run on the current model, and the model it led to judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from regun.api import unlearn
from regun.errors import NotFiniteError
from regun.evaluate import UNSEEN, Evaluation, Signals, SplitSignals
from regun.evaluate.influence import Influence
from regun.methods import Method, Needs, get_method
from regun.requests.change import Change, change
from regun.requests.judge import Judge
from regun.requests.outs import Shown
from regun.requests.project import Project
from regun.requests.rule import ALL, UTILITY, Finding, Verdict, verdict
from regun.runs.unlearning import Outcome
from regun.seeds import derive
from regun.settings import parse_spec, to_json
from regun.training.job import Cost

NOTHING_TO_UNLEARN = "none"
"""The method of a request whose records the model never trained on."""
BY_CONSTRUCTION = "by construction: trained anew without these records"


@dataclass(frozen=True)
class Attempt:
    """A method and the model it led to, what was found of it (nothing if the run diverged) and how the rule judged."""

    spec: str
    outcome: Outcome
    signals: SplitSignals = field(default_factory=dict[str, Signals])
    audit: Mapping[str, Evaluation] = field(default_factory=dict[str, Evaluation])
    drops: Mapping[str, float] = field(default_factory=dict[str, float])
    left: Mapping[str, Influence | str] = field(default_factory=dict[str, Influence | str])
    judged: Sequence[str] = ()
    """The unseen sets that it was judged by."""
    change: Change | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return verdict(self.findings)


def run_method(spec: str, current: nn.Module, judge: Judge, shown: Shown) -> Outcome:
    """Run the method of `spec` (name@preset,key=value,...) on the current model."""
    case, plan, project = judge.case, judge.plan, judge.case.project
    sets, how = plan.sets(case), chosen(spec, project)
    return unlearn(
        current,
        forget=sets["forget"],
        retain=sets["retain"],
        heldout=sets.get("heldout"),
        val=sets.get("val"),
        method=how.method.name,
        preset=how.preset,
        settings=how.said,
        seed=derive(plan.base, plan.request, plan.number, judge.seed),
        rebuild=project.rebuild,
        recipe=project.recipe,
        on_epoch=lambda epoch, _: shown.epoch(epoch),
        device=case.device,
        num_classes=case.sets["train"].num_classes,
    )


def judged(spec: str, outcome: Outcome, current: nn.Module, judge: Judge) -> Attempt:
    """What a run led to, judged."""
    signals: SplitSignals = {}
    try:
        signals = judge.signals(outcome.model) if outcome.diverged is None else signals
    except NotFiniteError as fault:
        outcome = replace(outcome, diverged=str(fault))
    if outcome.diverged is not None:
        return Attempt(spec, outcome, findings=(Finding("the run ends well", ALL, "failed", outcome.diverged),))
    fair = fair_sets(spec, judge.case.project, signals)
    audit = judge.audit(signals, fair)
    lost, left = judge.drops(signals), judge.left(audit)
    made = change(current, outcome.model, outcome.cost.steps, (judge.before, signals))
    findings = judge.findings(audit, lost)
    findings = by_construction(findings) if outcome.trained_anew else findings
    return Attempt(spec, outcome, signals, audit, lost, left, fair, made, (*made.refusals(), *findings))


def leave_as_it_is(current: nn.Module) -> Attempt:
    """For records the model never trained on: nothing to unlearn and nothing to judge."""
    return Attempt(NOTHING_TO_UNLEARN, Outcome(current, NOTHING_TO_UNLEARN, {}, Cost(), [], None, {}))


def by_construction(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """A retrained model has nothing to forget: what is found of that is shown, but only utility decides."""

    def why(finding: Finding) -> str:
        found = finding.answer != "cannot tell"
        return f"{finding.why.rstrip('.')} ({BY_CONSTRUCTION})" if found else BY_CONSTRUCTION

    return tuple(f if f.scope == UTILITY else replace(f, answer="passed", why=why(f)) for f in findings)


@dataclass(frozen=True)
class Chosen:
    """The method of `name@preset,key=value,...`, its preset and what is said of its settings, and all of these."""

    method: Method
    preset: str | None
    said: Mapping[str, Any]
    config: Any

    @property
    def needs(self) -> Needs:
        return self.method.needs_of(self.config)


def chosen(spec: str, project: Project) -> Chosen:
    """What a spec stands for; what it leaves open is the project's choice, and wrong settings are refused."""
    head, said = parse_spec(spec)
    name, _, preset = head.partition("@")
    method, recipe = get_method(name), project.recipe
    preset = preset or (project.family if project.family in method.presets else None)
    start = to_json(recipe) if recipe is not None and method.trains_anew and preset is None else None
    return Chosen(method, preset, said, method.configure(said, preset, start))


def fair_sets(spec: str, project: Project, sets: SplitSignals) -> list[str]:
    """The unseen sets to judge a method by: not the held-out one if it trains towards it, unless there is no other."""
    towards = chosen(spec, project).needs.looks
    unseen = [name for name in UNSEEN if name in sets]
    return [name for name in unseen if name != "heldout" or not towards] or unseen
