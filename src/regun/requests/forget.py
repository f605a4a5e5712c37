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
from typing import Any

import safetensors.torch
from torch import nn

from regun.errors import DataError, RegunError, SettingsError
from regun.methods import get_method
from regun.methods.retrain import reset
from regun.requests.folder import MODEL, PAGE, RECEIPT, REQUEST, RISKS, Folder, commit, opened, refuse_foreign
from regun.requests.ids import Asked, Naming
from regun.requests.judge import Attempt, Judge, judge_for, leave_as_it_is, rehearsal, settings_of, try_method
from regun.requests.ledger import Ledger, LedgerLine, add_witness, read_ledger, read_witness, refuse_cut
from regun.requests.plan import RequestPlan, make_plan
from regun.requests.project import Case, Project, no_exit, open_case
from regun.requests.receipt import in_the_clear, request_file, risk_file, sections
from regun.requests.rule import Rule, default_rule, read_rule
from regun.requests.seal import Receipt, refuse_bad_key, seal, written
from regun.show.numbers import names
from regun.show.receipt import page
from regun.store import state_digest, weights_bytes
from regun.training.job import Epoch

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

    def __post_init__(self) -> None:
        if not 0 <= self.bootstrap <= MOST_RESAMPLES:
            raise SettingsError([f"bootstrap is {self.bootstrap}; give 0 to {MOST_RESAMPLES:,} resamples."])


@dataclass(frozen=True)
class Prepared:
    """A request that has been checked as far as it can be without working on it; `specs` are the methods to try."""

    case: Case
    asked: Asked
    options: Options
    specs: tuple[str, ...]
    rule: Rule
    plan: RequestPlan


@dataclass(frozen=True)
class Done:
    """What became of a request, and the hash of the ledger's last line; without a folder there was nothing to do."""

    plan: RequestPlan
    tip: str
    folder: Path | None = None
    receipt: Receipt | None = None

    @property
    def accepted(self) -> bool:
        return self.receipt is None or bool(self.receipt["acceptance"]["accepted"])


@no_exit(USERS)
def prepare(project: Project, asked: Asked, out: Path, options: Options | None = None) -> Prepared:
    """Check everything and plan; writes nothing."""
    options, folder = options or Options(), Folder(out.resolve())
    given = (project.method if options.method is None else options.method, options.fallback)
    specs = tuple(spec for spec in given if spec is not None)
    for spec in specs:
        name, preset, settings = settings_of(spec, project)
        get_method(name).configure(settings, preset)
    if options.sign is not None:
        refuse_bad_key(options.sign)
    case = open_case(project, check_content=options.check_content)
    rule = next(text for text in (options.accept, project.accept, default_rule(case.sets)) if text is not None)
    ledger = read_ledger(folder.ledger)
    refuse_foreign(folder, ledger, options.into_existing)
    refuse_cut(ledger, read_witness(options.witness), folder.ledger)
    plan = make_plan(case, asked, folder, ledger, options.naming)
    ready = Prepared(case, asked, options, specs, read_rule(rule), plan)
    if len(plan.new):
        _refuse_what_cannot_work(ready)
    return ready


@no_exit(USERS)
def forget(
    project: Project,
    asked: Asked,
    out: Path,
    options: Options | None = None,
    *,
    on_plan: Callable[[RequestPlan], None] = lambda plan: None,
    on_note: Callable[[str], None] = lambda note: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Done:
    """Carry a request out; see `Options` for what can be chosen and `Done` for what comes back.

    >>> done = regun.forget(project, regun.asked_of(["b-12"]), Path("requests"))  # doctest: +SKIP
    """
    ready = prepare(project, asked, out, options)
    plan, options = ready.plan, ready.options
    on_plan(plan)
    refuse_unknown(ready)
    if plan.empty:
        return Done(plan, plan.tip)
    clear = in_the_clear(plan, options.naming)
    if clear:
        on_note(f"the salt hides ids and requesters; {names(clear)} are written as they were given")
    with opened(out, options.into_existing) as (folder, ledger, notes):
        for note in notes:
            on_note(note)
        refuse_cut(ledger, read_witness(options.witness), folder.ledger)
        if options.witness is not None:
            add_witness(options.witness, 0, "")  # whether it can be written, before the work
        if ledger.tip != plan.tip:  # somebody else's request has gone through since
            plan = make_plan(ready.case, asked, folder, ledger, options.naming)
            on_plan(plan)
        return Done(plan, plan.tip) if plan.empty else _carry_out(ready, plan, folder, ledger, on_note, on_epoch)


def refuse_unknown(ready: Prepared) -> None:
    """Ids that mean nothing are a mistake, unless the user says otherwise."""
    unknown = ready.plan.matched.unknown
    if unknown and not ready.options.ignore_unknown:
        shown = ", ".join(repr(one[:40]) for one in unknown[:3])
        raise DataError(
            f"{len(unknown):,} of the {len(ready.asked.lines):,} ids are unknown (the first: {shown}): no example has "
            f"them, and no earlier request has forgotten them. Nothing was done; correct them, or --ignore-unknown."
        )


def history(out: Path) -> Sequence[LedgerLine]:
    """Every request of a folder, in order."""
    return read_ledger(Folder(out.resolve()).ledger).lines


def model_after(project: Project, folder: Folder, line: LedgerLine | None) -> nn.Module:
    """A copy of the project's model with the weights that a request led to; as it is without a request."""
    model = copy.deepcopy(project.model)
    if line is not None:
        model.load_state_dict(safetensors.torch.load(folder.read(line, MODEL)))
    return model


def _refuse_what_cannot_work(ready: Prepared) -> None:
    """What the methods need and the rule names, before any work: a plan that is shown can be carried out."""
    case, plan = ready.case, ready.plan
    for spec in ready.specs:
        method = get_method(settings_of(spec, case.project)[0])
        if method.needs.heldout and not len(plan.kept.get("heldout", ())):
            raise RegunError(
                f"{method.title} needs a held-out set, labelled examples the model was never trained on; give the "
                f"project heldout=..., or use a method without it: finetune, neggrad_plus, salun, ssd, ..."
            )
        if method.needs.fresh_model and case.project.rebuild is None:
            reset(case.project.model, 0)
    if case.project.retrained is None:  # its models bring numbers of their own; the run asks them before its work
        ready.rule.judge(rehearsal(case, plan, ready.rule, ready.options.bootstrap))


def _carry_out(
    ready: Prepared,
    plan: RequestPlan,
    folder: Folder,
    ledger: Ledger,
    on_note: Callable[[str], None],
    on_epoch: Callable[[Epoch], None],
) -> Done:
    case, options = ready.case, ready.options
    current = model_after(case.project, folder, ledger.accepted[-1] if ledger.accepted else None)
    attempts: list[Attempt] = []
    if len(plan.new):
        judge = judge_for(case, plan, ready.rule, current, options.bootstrap, options.seed)
        judge.findings(judge.audited, judge.drops(judge.before), "")  # a rule that names what no audit gives
    else:  # records the model never trained on: a line in the ledger keeps them out of every set
        judge, attempts = Judge(case, plan, ready.rule, seed=options.seed), [leave_as_it_is(current)]
    for spec in ready.specs:
        if attempts and attempts[-1].accepted:
            break
        if attempts:
            failed = next(finding for finding in attempts[-1].findings if not finding.passed)
            on_note(f"{attempts[-1].spec} is rejected ({failed.condition}: {failed.why}); going on with {spec}")
        attempts.append(try_method(spec, current, judge, on_epoch))
    rejected = sum(line.request == plan.request and not line.accepted for line in ledger.lines)
    done = _commit(ready, judge, attempts, state_digest(current.state_dict()), rejected, folder)
    if options.witness is not None:
        try:
            add_witness(options.witness, plan.number, done.tip)
        except RegunError as fault:  # the request has happened, whatever becomes of the note about it
            on_note(f"{fault} Note the hash of line {plan.number} yourself: {done.tip}")
    return done


def _commit(
    ready: Prepared, judge: Judge, attempts: Sequence[Attempt], before: str, rejected: int, folder: Folder
) -> Done:
    case, plan, options, last = ready.case, judge.plan, ready.options, attempts[-1]
    state = last.outcome.model.state_dict()
    weights = {"base": plan.base, "before": before, "after": state_digest(state)}
    created = datetime.now(UTC).isoformat(timespec="seconds")
    files = {
        MODEL: weights_bytes(state),
        REQUEST: request_file(plan, options.naming, case.ids_are),
        RISKS: risk_file(judge, last, options.naming),
    }
    parts: dict[str, Any] = sections(
        judge,
        attempts,
        options.naming,
        created=created,
        rejected=rejected,
        weights=weights,
        checked=[*(["ids"] if case.project.ids is not None else []), *(["content"] if options.check_content else [])],
        signed=options.sign is not None,
        files=_digests(files),
    )
    receipt = seal(parts, options.sign)
    files |= {RECEIPT: written(receipt), PAGE: page(receipt).encode()}
    line = LedgerLine(
        number=plan.number,
        time=created,
        status="accepted" if last.accepted else "rejected",
        naming=options.naming.kind,
        request=plan.request,
        **weights,
        data=parts["data"]["sets"]["train"]["digest"],
        ids=case.ids_are,
        files=_digests(files),
        previous=plan.tip,
    )
    return Done(plan, line.hash(), commit(folder, line, files), receipt)


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
