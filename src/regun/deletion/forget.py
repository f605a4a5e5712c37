"""One deletion request from a list of ids to a receipt.

Order: prepare (nothing is written while it can still fail for a reason the user can put right), lock, unlearn from the
current model, models to judge by, audit, judge, write the request's folder, add one line to the ledger. With that line
it has happened.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from torch import nn

from regun.artifacts import state_digest
from regun.data.views import Selected
from regun.deletion.assess import Judge, judge_for, rehearsal, with_outs
from regun.deletion.attempt import Attempt, fair_sets, judged, leave_as_it_is
from regun.deletion.folder import MODEL, Folder, check_foreign, check_lost_lines, commit, opened
from regun.deletion.ledger import (
    ACCEPTED,
    INCONCLUSIVE,
    TAKEN,
    UNTESTABLE,
    Ledger,
    LedgerLine,
    add_witness,
    check_cut,
    read_ledger,
    read_witness,
)
from regun.deletion.options import Listener, Options, chosen
from regun.deletion.plan import Plan, make_plan
from regun.deletion.project import USERS, Project, no_exit, open_case
from regun.deletion.receipt import finished
from regun.deletion.request import DeletionRequest
from regun.deletion.resume import run_or_kept
from regun.deletion.signing import Receipt, check_bad_key
from regun.errors import DataError, RegunError, SettingsError
from regun.inputs import check_trainable
from regun.predict import predict
from regun.render.numbers import names
from regun.rng import isolated
from regun.training.job import Epoch
from regun.unlearning import WITHOUT_HELDOUT

ASKED = 8
"""Records that the current model is asked about before any work."""


@dataclass(frozen=True)
class Done:
    """What became of a request, and the hash of the ledger's last line; without a folder there was nothing to do."""

    plan: Plan
    tip: str
    folder: Path | None = None
    receipt: Receipt | None = None

    @property
    def status(self) -> str:
        """`accepted`, `accepted untestable`, `rejected` or `inconclusive`."""
        return ACCEPTED if self.receipt is None else self.receipt["acceptance"]["status"]

    @property
    def accepted(self) -> bool:
        """Whether the model of this request is the current one now."""
        return self.status in TAKEN


def history(out: Path) -> Sequence[LedgerLine]:
    """Every request of a folder, in order."""
    return read_ledger(Folder(out.resolve()).ledger).lines


# ---------------------------------------------------------------------------------------------------- before any work


@no_exit(USERS)
def prepare(project: Project, asked: DeletionRequest, out: Path, options: Options | None = None) -> Plan:
    """Check everything that can be checked without work, and plan; writes nothing."""
    options, folder = options or Options(), Folder(out.resolve())
    specs = (project.method if options.method is None else options.method, options.fallback)
    methods = tuple(chosen(spec, project) for spec in specs if spec is not None)
    if options.sign is not None:
        check_bad_key(options.sign)
    if options.witness is not None and folder.root in options.witness.resolve().parents:
        raise SettingsError([f"the witness {options.witness} is inside {out}, which it watches; keep it elsewhere."])
    case = open_case(project, check_content=options.check_content)
    ledger = read_ledger(folder.ledger)
    check_foreign(folder, ledger, options.into_existing)
    check_lost_lines(folder, ledger)
    check_cut(ledger, read_witness(options.witness), folder.ledger)
    plan = make_plan(case, methods, asked, folder, ledger, options)
    if not plan.empty:
        current = model_after(case.project, folder, ledger.accepted[-1] if ledger.accepted else None)
        if len(plan.new):
            _check_what_cannot_work(plan, current)
    return plan


def check_unknown(plan: Plan, asked: DeletionRequest) -> None:
    """Ids that mean nothing are a mistake, unless the user says otherwise."""
    unknown = plan.matched.unknown
    if unknown and not plan.options.ignore_unknown:
        shown = ", ".join(repr(one[:40]) for one in unknown[:3])
        raise DataError(
            f"{len(unknown):,} of the {len(asked.lines):,} ids are unknown (the first: {shown}): no example has "
            f"them, and no earlier request has forgotten them. Nothing was done; correct them, or --ignore-unknown."
        )


def _check_what_cannot_work(plan: Plan, current: nn.Module) -> None:
    """What the methods need, the rule names and the model and `rebuild` must do: a plan that is shown can be carried
    out."""
    case = plan.case
    if not any(len(rows) for rows in plan.kept.values()):
        raise DataError(
            "the request leaves no unseen examples to judge by; give the project heldout, val or test data."
        )
    for how in plan.methods:
        if how.needs.heldout and not len(plan.kept.get("heldout", ())):
            raise RegunError(f"{how.method.title} needs a held-out set, the project's heldout=...: {WITHOUT_HELDOUT}")
        if how.needs.fresh_model and case.why_no_fresh_model:
            raise RegunError(case.why_no_fresh_model)
        if how.method.source is None:
            check_trainable(current)
    if case.project.rebuild is not None:
        with isolated(0):
            case.project.rebuild(0)
    predict(current, Selected(case.sets["train"], plan.forget[:ASKED]), device=case.device)
    rehearsal(plan).check_unknown_numbers()


# ---------------------------------------------------------------------------------------------------------- the request


@no_exit(USERS)
def forget(
    project: Project,
    asked: DeletionRequest,
    out: Path,
    options: Options | None = None,
    *,
    on_plan: Callable[[Plan], None] = lambda plan: None,
    on_note: Callable[[str], None] = lambda note: None,
    on_stage: Callable[[str], None] = lambda stage: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Done:
    """Carry a request out; see `Options` for what can be chosen and `Done` for what comes back.

    `on_note` hears what nobody should miss, `on_stage` what is being done, `on_epoch` how far it has come.

    >>> done = regun.forget(project, regun.deletion_request(["b-12"]), Path("requests"))  # doctest: +SKIP
    """
    plan = prepare(project, asked, out, options)
    on_plan(plan)
    check_unknown(plan, asked)
    if plan.empty:
        return Done(plan, plan.tip)
    if plan.copies:
        on_note(plan.about_copies)
    if plan.in_the_clear:
        on_note(f"the salt hides ids and requesters; {names(plan.in_the_clear)} are written as they were given")
    witness = plan.options.witness
    with opened(out, plan.options.into_existing) as (folder, ledger, notes):
        for note in notes:
            on_note(note)
        check_cut(ledger, read_witness(witness), folder.ledger)
        if witness is not None:
            add_witness(witness, 0, "")  # whether it can be written, before the work
        if ledger.tip != plan.tip:  # somebody else's request has gone through since
            plan = make_plan(plan.case, plan.methods, asked, folder, ledger, plan.options)
            on_plan(plan)
        if plan.empty:
            return Done(plan, plan.tip)
        done = _carry_out(plan, folder, ledger, Listener(on_note, on_stage, on_epoch))
        if witness is not None:
            try:
                add_witness(witness, plan.number, done.tip)
            except RegunError as fault:  # the request has happened, whatever becomes of the note about it
                on_note(f"{fault} Note the hash of line {plan.number} yourself: {done.tip}")
        return done


def _carry_out(plan: Plan, folder: Folder, ledger: Ledger, listener: Listener) -> Done:
    current = model_after(plan.case.project, folder, ledger.accepted[-1] if ledger.accepted else None)
    if len(plan.new):
        judge = judge_for(plan, current)
        judge.check_unknown_numbers()
        judge, attempts = _tried(judge, current, folder, listener)
    else:  # records the model never trained on: a line in the ledger keeps them out of every set
        judge, attempts = Judge(plan), [leave_as_it_is(current)]
    before, status = state_digest(current.state_dict()), _status(attempts[-1], plan.options)
    line, files, receipt = finished(judge, attempts, before, status, ledger.lines)
    return Done(plan, line.hash(), commit(folder, line, files), receipt)


def _tried(judge: Judge, current: nn.Module, folder: Folder, listener: Listener) -> tuple[Judge, list[Attempt]]:
    """Every method until the model of one can take the place of the current one, and the judge of them all."""
    plan, attempts = judge.plan, list[Attempt]()
    for how in plan.methods:
        if attempts:
            listener.note(f"{_outcome_in_words(attempts[-1])}; going on with {how.spec.text}")
        outcome = run_or_kept(how, current, plan, folder, listener)
        judge = with_outs(judge, outcome, folder, listener)
        attempts.append(judged(how.spec.text, outcome, fair_sets(how, judge.before), current, judge))
        if _status(attempts[-1], plan.options) in TAKEN:
            break
    return judge, attempts


def model_after(project: Project, folder: Folder, line: LedgerLine | None) -> nn.Module:
    """A copy of the project's model with the weights that a request led to; as it is without a request."""
    model = copy.deepcopy(project.model)
    if line is not None:
        model.load_state_dict(safetensors.torch.load(folder.read(line, MODEL)))
    return model


def _status(attempt: Attempt, options: Options) -> str:
    return UNTESTABLE if attempt.verdict == INCONCLUSIVE and options.accept_untestable else attempt.verdict


def _outcome_in_words(attempt: Attempt) -> str:
    wanted = "failed" if attempt.verdict == "rejected" else "inconclusive"
    finding = next(finding for finding in attempt.findings if finding.answer == wanted)
    what = "is rejected" if attempt.verdict == "rejected" else "cannot be told to have forgotten"
    return f"{attempt.spec} {what} ({finding.condition}: {finding.why})"
