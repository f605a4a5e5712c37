"""One try at a request: a method run on the current model, and the result judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from regun.api import unlearn
from regun.evaluate import Evaluation
from regun.methods import get_method
from regun.requests.judge import Judges, Sets, drops, facts
from regun.requests.plan import sets_of
from regun.requests.project import Project
from regun.requests.rule import Finding, Rule
from regun.runs.unlearning import Outcome
from regun.seeds import derive
from regun.settings import parse_spec
from regun.training.job import Cost, Epoch

NOTHING_TO_UNLEARN = "none"
"""The method of a request whose records the model never trained on."""
BY_CONSTRUCTION = "by construction: trained anew without these records"


@dataclass(frozen=True)
class Bench:
    """What every attempt at one request shares: the model to start from, what it said, the judges and the rule."""

    current: nn.Module
    judges: Judges
    rule: Rule
    before: Sets
    first: Sets | None
    seed: int = 0
    on_epoch: Callable[[Epoch, nn.Module], None] = lambda epoch, model: None


@dataclass(frozen=True)
class Attempt:
    """A model, how it was made, what the audit found (nothing if the run diverged) and how the rule judged it."""

    spec: str
    outcome: Outcome
    signals: Sets
    audit: Mapping[str, Evaluation]
    drops: Mapping[str, float]
    findings: tuple[Finding, ...]

    @property
    def accepted(self) -> bool:
        return all(finding.passed for finding in self.findings)


def try_method(spec: str, bench: Bench) -> Attempt:
    """Run the method of `spec` (name@preset,key=value,...) and judge what comes out."""
    outcome = _run(spec, bench)
    if outcome.diverged:
        return Attempt(spec, outcome, {}, {}, {}, (Finding("the run ends well", "all", False, outcome.diverged),))
    signals = bench.judges.signals(outcome.model)
    audit = bench.judges.audit(signals)
    lost = drops(bench.before, signals, bench.first)
    findings = judged(bench.rule, audit, lost, outcome.method)
    return Attempt(spec, outcome, signals, audit, lost, findings)


def judged(rule: Rule, audit: Mapping[str, Evaluation], lost: Mapping[str, float], method: str) -> tuple[Finding, ...]:
    """The rule's findings on an audit; for a retrained model only those on utility decide."""
    findings = rule.judge({scope: facts(found, lost) for scope, found in audit.items()})
    if method != "retrain":
        return findings
    utility = {c.text for c in rule.conditions if c.about_utility}
    return tuple(f if f.condition in utility else _by_construction(f) for f in findings)


def leave_as_it_is(bench: Bench) -> Attempt:
    """For records the model never trained on: nothing to unlearn and nothing to judge."""
    outcome = Outcome(bench.current, NOTHING_TO_UNLEARN, {}, Cost(), [], None, {})
    return Attempt(NOTHING_TO_UNLEARN, outcome, {}, {}, {}, ())


def settings_of(spec: str, project: Project) -> tuple[str, str | None, dict[str, Any]]:
    """The method, preset and settings of `name@preset,key=value,...`; what it leaves open is the project's choice."""
    head, values = parse_spec(spec)
    name, _, preset = head.partition("@")
    recipe: Mapping[str, Any] = project.retrain if name == "retrain" and not preset else {}
    usual = project.family if project.family in get_method(name).presets else None
    return name, preset or usual, {**recipe, **values}


def _run(spec: str, bench: Bench) -> Outcome:
    plan, case = bench.judges.plan, bench.judges.case
    name, preset, settings = settings_of(spec, case.project)
    sets = sets_of(plan, case)
    return unlearn(
        bench.current,
        forget=sets["forget"],
        retain=sets["retain"],
        heldout=sets.get("heldout"),
        val=sets.get("val"),
        method=name,
        preset=preset,
        settings=settings,
        seed=derive(plan.base, plan.request, plan.number, bench.seed),
        rebuild=case.project.rebuild,
        on_epoch=bench.on_epoch,
        device=case.device,
        num_classes=case.sets["train"].num_classes,
    )


def _by_construction(finding: Finding) -> Finding:
    """A retrained model has nothing to forget: what the attacks say of it is shown, but decides nothing."""
    return replace(finding, passed=True, why=f"{finding.why} ({BY_CONSTRUCTION})")
