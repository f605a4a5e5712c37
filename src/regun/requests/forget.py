"""One deletion request from a list of ids to a receipt.

Order: plan (nothing is written while it can still fail for a reason the user can put right), lock, unlearn from the
current model, audit, judge, write the request's folder, add one line to the ledger. With that line it has happened.
"""

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import safetensors.torch
from torch import nn

from regun.errors import DataError, RegunError
from regun.evaluate import Evaluation
from regun.methods import get_method
from regun.methods.retrain import reset
from regun.requests.attempt import Attempt, Bench, leave_as_it_is, settings_of, try_method
from regun.requests.folder import MODEL, PAGE, RECEIPT, REQUEST, RISKS, Folder, commit, opened
from regun.requests.ids import Asked
from regun.requests.judge import Judges, drops, facts, judges_for, rehearsal
from regun.requests.ledger import Entry, Ledger, read_ledger, refuse_damaged
from regun.requests.naming import Naming
from regun.requests.page import page
from regun.requests.plan import Plan, make_plan
from regun.requests.project import Case, Project, open_case
from regun.requests.receipt import Receipt, seal, written
from regun.requests.rule import Rule, default_rule, read_rule
from regun.requests.sections import Work, request_file, risk_file, sections
from regun.requests.signing import refuse_bad_key
from regun.store import state_digest, weights_bytes
from regun.training.job import Epoch


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
    ignore_unknown: bool = False
    check_content: bool = False


@dataclass(frozen=True)
class Watch:
    """What to tell the person who waits: the plan, notes, and epochs."""

    on_plan: Callable[[Plan], None] = lambda plan: None
    on_note: Callable[[str], None] = lambda note: None
    on_epoch: Callable[[Epoch], None] = lambda epoch: None


@dataclass(frozen=True)
class Done:
    """What became of a request; without a folder there was nothing to do."""

    plan: Plan
    folder: Path | None = None
    receipt: Receipt | None = None

    @property
    def accepted(self) -> bool:
        return self.receipt is None or bool(self.receipt["acceptance"]["accepted"])


@dataclass(frozen=True)
class Prepared:
    """A request that has been checked as far as it can be without working on it."""

    case: Case
    asked: Asked
    root: Path
    options: Options
    method: str
    rule: Rule
    plan: Plan


def prepare(project: Project, asked: Asked, out: Path, options: Options | None = None) -> Prepared:
    """Check everything and plan; writes nothing."""
    options = options or Options()
    spec = options.method or project.method
    for text in (spec, *([options.fallback] if options.fallback else [])):
        name, preset, settings = settings_of(text, project)
        get_method(name).configure(settings, preset)
    if options.sign is not None:
        refuse_bad_key(options.sign)
    case = open_case(project, check_content=options.check_content)
    rule = read_rule(options.accept or project.accept or default_rule(case.sets))
    folder = Folder(out.resolve())
    ledger = read_ledger(folder.ledger)
    refuse_damaged(ledger, folder.ledger)
    ready = Prepared(case, asked, out, options, spec, rule, make_plan(case, asked, folder, ledger, options.naming))
    if len(ready.plan.new):
        _refuse_what_cannot_work(ready)
    return ready


def _refuse_what_cannot_work(ready: Prepared) -> None:
    """What the methods need and the rule names, before any work: a plan that is shown can be carried out."""
    project, plan = ready.case.project, ready.plan
    for text in (ready.method, *([ready.options.fallback] if ready.options.fallback else [])):
        method = get_method(settings_of(text, project)[0])
        if method.needs.heldout and not len(plan.kept.get("heldout", ())):
            raise RegunError(
                f"{method.title} needs a held-out set, labelled examples the model was never trained on; give the "
                f"project heldout=..., or use a method without it: finetune, neggrad_plus, salun, ssd, ..."
            )
        if method.needs.fresh_model and project.rebuild is None:
            reset(project.model, 0)
    if project.retrained is None:  # its models bring numbers of their own; the run asks them before its work
        ready.rule.judge(rehearsal(plan, ready.case, ready.options.bootstrap))


def forget(
    project: Project, asked: Asked, out: Path, options: Options | None = None, watch: Watch | None = None
) -> Done:
    """Carry a request out; see `Options` for what can be chosen and `Done` for what comes back.

    >>> done = regun.forget(project, regun.asked_of(["b-12"]), Path("requests"))  # doctest: +SKIP
    """
    watch = watch or Watch()
    ready = prepare(project, asked, out, options)
    watch.on_plan(ready.plan)
    refuse_unknown(ready)
    if ready.plan.empty:
        return Done(ready.plan)
    with opened(out) as (folder, ledger, notes):
        for note in notes:
            watch.on_note(note)
        plan = ready.plan
        if ledger.tip != plan.tip:  # somebody else's request has gone through since
            plan = make_plan(ready.case, asked, folder, ledger, ready.options.naming)
            watch.on_plan(plan)
        return Done(plan) if plan.empty else _carry_out(ready, plan, folder, ledger, watch)


def refuse_unknown(ready: Prepared) -> None:
    """Ids that mean nothing are a mistake, unless the user says otherwise."""
    unknown = ready.plan.matched.unknown
    if unknown and not ready.options.ignore_unknown:
        shown = ", ".join(repr(one[:40]) for one in unknown[:3])
        raise DataError(
            f"{len(unknown):,} of the {len(ready.asked.lines):,} ids are unknown (the first: {shown}): no example has "
            f"them, and no earlier request has forgotten them. Nothing was done; correct them, or --ignore-unknown."
        )


def current_model(project: Project, folder: Folder, ledger: Ledger) -> nn.Module:
    """A copy of the project's model with the weights that the ledger says are current."""
    model = copy.deepcopy(project.model)
    if ledger.accepted:
        model.load_state_dict(safetensors.torch.load(folder.read(ledger.accepted[-1], MODEL)))
    return model


def _carry_out(ready: Prepared, plan: Plan, folder: Folder, ledger: Ledger, watch: Watch) -> Done:
    case, options = ready.case, ready.options
    current = current_model(case.project, folder, ledger)
    if len(plan.new):
        bench = _bench(ready, plan, current, watch)
        audited = bench.judges.audit(bench.before)
        _refuse_unknown_numbers(bench, audited)
        attempts = _attempts(ready.method, options.fallback, bench, watch)
    else:  # records the model never trained on: a line in the ledger keeps them out of every set
        bench, audited = Bench(current, Judges(plan, case), ready.rule, {}, None, options.seed), {}
        attempts = [leave_as_it_is(bench)]
    state = attempts[-1].outcome.model.state_dict()
    weights = {"before": bench.current.state_dict(), "after": state}
    digests = {"base": plan.base, **{name: state_digest(some) for name, some in weights.items()}}
    created = datetime.now(UTC).isoformat(timespec="seconds")
    checked = [*(["ids"] if case.project.ids is not None else []), *(["content"] if options.check_content else [])]
    rejected = sum(entry.request == plan.request and not entry.accepted for entry in ledger.entries)
    signed = options.sign is not None
    work = Work(bench, attempts, audited, options.naming, created, digests, signed, checked, rejected)
    return _commit(work, weights_bytes(state), folder, options.sign)


def _bench(ready: Prepared, plan: Plan, current: nn.Module, watch: Watch) -> Bench:
    """What all attempts share; the first model's answers only where the project still has that model."""
    case, options = ready.case, ready.options
    judges = judges_for(plan, case, options.bootstrap, options.seed)
    before = judges.signals(current)
    first = None
    if case.weights == plan.base:
        same = state_digest(current.state_dict()) == plan.base
        first = before if same else judges.signals(case.project.model)
    return Bench(current, judges, ready.rule, before, first, options.seed, lambda epoch, _: watch.on_epoch(epoch))


def _refuse_unknown_numbers(bench: Bench, audited: Mapping[str, Evaluation]) -> None:
    """Judge the model as it is: a rule that names what no audit gives is found before the work, not after it."""
    lost = drops(bench.before, bench.before, bench.first)
    bench.rule.judge({scope: facts(found, lost) for scope, found in audited.items()})


def _attempts(method: str, fallback: str | None, bench: Bench, watch: Watch) -> list[Attempt]:
    tried: list[Attempt] = []
    for spec in (method, *([fallback] if fallback else [])):
        if tried:
            watch.on_note(f"{tried[-1].spec} is rejected ({_first_failure(tried[-1])}); going on with {spec}")
        tried.append(try_method(spec, bench))
        if tried[-1].accepted:
            break
    return tried


def _first_failure(attempt: Attempt) -> str:
    failed = next(finding for finding in attempt.findings if not finding.passed)
    return f"{failed.condition}: {failed.why}"


def _commit(work: Work, weights: bytes, folder: Folder, key: Path | None) -> Done:
    plan = work.plan
    files = {MODEL: weights, REQUEST: request_file(plan, work.naming, work.case.ids_are), RISKS: risk_file(work)}
    receipt = seal(sections(work, _digests(files)), key)
    files |= {RECEIPT: written(receipt), PAGE: page(receipt).encode()}
    entry = Entry(
        number=plan.number,
        time=work.created,
        status="accepted" if work.last.accepted else "rejected",
        naming=work.naming.kind,
        request=plan.request,
        base=work.digests["base"],
        before=work.digests["before"],
        after=work.digests["after"],
        data=work.case.sets["train"].digest,
        ids=work.case.ids_are,
        files=_digests(files),
        previous=plan.tip,
    )
    return Done(plan, commit(folder, entry, files), receipt)


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def history(out: Path) -> Sequence[Entry]:
    """Every request of a folder, in order."""
    return read_ledger(Folder(out.resolve()).ledger).entries
