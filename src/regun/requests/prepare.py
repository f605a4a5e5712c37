"""What can be chosen for a request, and all that is checked before any work: nothing here writes."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from regun.errors import DataError, RegunError, SettingsError
from regun.requests.attempt import chosen
from regun.requests.folder import Folder, refuse_foreign
from regun.requests.ids import LONGEST, Asked
from regun.requests.judge import rehearsal
from regun.requests.ledger import read_ledger, read_witness, refuse_cut
from regun.requests.naming import Naming
from regun.requests.outs import out_plan, why_no_fresh_model
from regun.requests.plan import RequestPlan, make_plan
from regun.requests.project import MOST_OUTS, Case, Project, no_exit, open_case
from regun.requests.rule import Rule, default_rule, read_rule
from regun.requests.seal import refuse_bad_key
from regun.runs.unlearning import WAYS_OUT

MOST_RESAMPLES = 1_000_000
USERS = "code of the project (its model, its data or its method)"


@dataclass(frozen=True)
class Options:
    """How a request is carried out; None leaves the choice to the project."""

    method: str | None = None
    accept: str | None = None
    fallback: str | None = None
    seed: int = 0
    bootstrap: int = 1000
    sign: Path | None = None
    naming: Naming = field(default_factory=Naming)
    witness: Path | None = None
    """A file that gets the hash of the ledger's last line and is kept elsewhere; all it holds must be in the ledger."""
    into_existing: bool = False
    """Whether to write into a folder that holds other things."""
    ignore_unknown: bool = False
    check_content: bool = False
    accept_untestable: bool = False
    """Whether a model takes the place of the current one although nobody can tell if it has forgotten; recorded."""
    out_models: int | None = None
    role: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.bootstrap <= MOST_RESAMPLES:
            raise SettingsError([f"bootstrap is {self.bootstrap}; give 0 to {MOST_RESAMPLES:,} resamples."])
        if self.out_models is not None and not 0 <= self.out_models <= MOST_OUTS:
            raise SettingsError([f"out_models is {self.out_models}; give 0 to {MOST_OUTS:,} models."])
        if self.role is not None and len(self.role) > LONGEST:
            raise SettingsError([f"the role has {len(self.role):,} characters; give at most {LONGEST:,}."])


@dataclass(frozen=True)
class Prepared:
    """A request that has been checked as far as it can be without working on it; `specs` are the methods to try,
    `judging` says what else will be trained, or why nothing can be."""

    case: Case
    asked: Asked
    options: Options
    specs: tuple[str, ...]
    rule: Rule
    plan: RequestPlan
    judging: str = ""

    @property
    def out_models(self) -> int:
        return self.case.project.out_models if self.options.out_models is None else self.options.out_models


@no_exit(USERS)
def prepare(project: Project, asked: Asked, out: Path, options: Options | None = None) -> Prepared:
    """Check everything and plan; writes nothing."""
    options, folder = options or Options(), Folder(out.resolve())
    given = (project.method if options.method is None else options.method, options.fallback)
    specs = tuple(spec for spec in given if spec is not None)
    for spec in specs:
        chosen(spec, project)
    if options.sign is not None:
        refuse_bad_key(options.sign)
    case = open_case(project, check_content=options.check_content)
    ledger = read_ledger(folder.ledger)
    refuse_foreign(folder, ledger, options.into_existing)
    refuse_cut(ledger, read_witness(options.witness), folder.ledger)
    plan = make_plan(case, asked, folder, ledger, options.naming)
    usual = default_rule({name: len(rows) for name, rows in plan.kept.items()})
    rule = next(text for text in (options.accept, project.accept, usual) if text is not None)
    ready = Prepared(case, asked, options, specs, read_rule(rule), plan)
    if not len(plan.new):
        return ready
    _refuse_what_cannot_work(ready)
    return replace(ready, judging=_judging(ready))


def refuse_unknown(ready: Prepared) -> None:
    """Ids that mean nothing are a mistake, unless the user says otherwise."""
    unknown = ready.plan.matched.unknown
    if unknown and not ready.options.ignore_unknown:
        shown = ", ".join(repr(one[:40]) for one in unknown[:3])
        raise DataError(
            f"{len(unknown):,} of the {len(ready.asked.lines):,} ids are unknown (the first: {shown}): no example has "
            f"them, and no earlier request has forgotten them. Nothing was done; correct them, or --ignore-unknown."
        )


def _refuse_what_cannot_work(ready: Prepared) -> None:
    """What the methods need and the rule names, before any work: a plan that is shown can be carried out."""
    case, plan = ready.case, ready.plan
    if not any(len(rows) for rows in plan.kept.values()):
        raise DataError(
            "the request leaves no unseen examples to judge by; give the project heldout, val or test data."
        )
    for spec in ready.specs:
        how = chosen(spec, case.project)
        if how.needs.heldout and not len(plan.kept.get("heldout", ())):
            raise RegunError(f"{how.method.title} needs a held-out set, the project's heldout=...: {WAYS_OUT}")
        fault = why_no_fresh_model(case) if how.needs.fresh_model else ""
        if fault:
            raise RegunError(fault)
    if case.project.retrained is None:  # its models bring numbers of their own; the run asks them before its work
        rehearsed = rehearsal(case, plan, ready.rule, ready.options.bootstrap)
        ready.rule.judge({scope: replace(one, before=one) for scope, one in rehearsed.items()})


def _judging(ready: Prepared) -> str:
    """What will be trained to judge by, as far as that is known before the project's retrained models are asked for."""
    if not ready.rule.asks_influence or all(
        chosen(spec, ready.case.project).method.trains_anew for spec in ready.specs
    ):
        return ""
    trained = out_plan(ready.case, ready.plan, ready.out_models) or "no models that never saw the records"
    fault = why_no_fresh_model(ready.case)
    trained = f"no models that never saw the records: {fault}" if fault and ready.out_models else trained
    trained = f"{trained}, unless the model is trained anew"
    return trained if ready.case.project.retrained is None else f"the project's retrained models or, without, {trained}"
