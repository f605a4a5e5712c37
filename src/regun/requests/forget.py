"""One deletion request from a list of ids to a receipt.

Order: plan (nothing is written while it can still fail for a reason the user can put right), lock, unlearn from the
current model, models to judge by, audit, judge, write the request's folder, add one line to the ledger. With that line
it has happened.
"""

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import safetensors.torch
from torch import nn

from regun.errors import RegunError
from regun.requests.attempt import Attempt, judged, leave_as_it_is, run_method
from regun.requests.dates import Dates, now
from regun.requests.folder import MODEL, OUTS, PAGE, RECEIPT, REQUEST, RISKS, Folder, commit, opened
from regun.requests.ids import Asked
from regun.requests.judge import Judge, judge_for, with_outs
from regun.requests.ledger import (
    ACCEPTED,
    CANNOT_TELL,
    UNTESTABLE,
    Ledger,
    LedgerLine,
    add_witness,
    read_ledger,
    read_witness,
    refuse_cut,
)
from regun.requests.outs import SHORT, Shown, packed
from regun.requests.plan import RequestPlan, make_plan
from regun.requests.prepare import USERS, Options, Prepared, prepare, refuse_unknown
from regun.requests.project import Project, no_exit
from regun.requests.receipt import Circumstances, in_the_clear, request_file, risk_file, sections
from regun.requests.seal import Receipt, seal, written
from regun.show.numbers import names
from regun.show.receipt import page
from regun.store import state_digest, weights_bytes
from regun.training.job import Epoch


@dataclass(frozen=True)
class Done:
    """What became of a request, and the hash of the ledger's last line; without a folder there was nothing to do."""

    plan: RequestPlan
    tip: str
    folder: Path | None = None
    receipt: Receipt | None = None

    @property
    def status(self) -> str:
        """`accepted`, `accepted untestable`, `rejected` or `cannot tell`."""
        return ACCEPTED if self.receipt is None else self.receipt["acceptance"]["status"]

    @property
    def accepted(self) -> bool:
        """Whether the model of this request is the current one now."""
        return self.status in (ACCEPTED, UNTESTABLE)


@no_exit(USERS)
def forget(
    project: Project,
    asked: Asked,
    out: Path,
    options: Options | None = None,
    *,
    on_plan: Callable[[Prepared], None] = lambda ready: None,
    on_note: Callable[[str], None] = lambda note: None,
    on_stage: Callable[[str], None] = lambda stage: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Done:
    """Carry a request out; see `Options` for what can be chosen and `Done` for what comes back.

    `on_note` hears what nobody should miss, `on_stage` what is being done, `on_epoch` how far it has come.

    >>> done = regun.forget(project, regun.asked_of(["b-12"]), Path("requests"))  # doctest: +SKIP
    """
    ready = prepare(project, asked, out, options)
    plan, options = ready.plan, ready.options
    on_plan(ready)
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
            ready = replace(ready, plan=plan)
            on_plan(ready)
        if plan.empty:
            return Done(plan, plan.tip)
        return _carry_out(ready, folder, ledger, on_note, Shown(on_stage, on_epoch))


def history(out: Path) -> Sequence[LedgerLine]:
    """Every request of a folder, in order."""
    return read_ledger(Folder(out.resolve()).ledger).lines


def model_after(project: Project, folder: Folder, line: LedgerLine | None) -> nn.Module:
    """A copy of the project's model with the weights that a request led to; as it is without a request."""
    model = copy.deepcopy(project.model)
    if line is not None:
        model.load_state_dict(safetensors.torch.load(folder.read(line, MODEL)))
    return model


def _carry_out(ready: Prepared, folder: Folder, ledger: Ledger, on_note: Callable[[str], None], shown: Shown) -> Done:
    case, options, plan = ready.case, ready.options, ready.plan
    current = model_after(case.project, folder, ledger.accepted[-1] if ledger.accepted else None)
    attempts: list[Attempt] = []
    if len(plan.new):
        judge = judge_for(case, plan, ready.rule, current, options.bootstrap, options.seed)
        judge.findings(judge.audited, judge.drops(judge.before))  # all that the rule names is there
    else:  # records the model never trained on: a line in the ledger keeps them out of every set
        judge, attempts = Judge(case, plan, ready.rule, seed=options.seed), [leave_as_it_is(current)]
    for spec in ready.specs:
        if attempts and _settled(attempts[-1], options):
            break
        if attempts:
            on_note(f"{_outcome_in_words(attempts[-1])}; going on with {spec}")
        shown.stage(f"{spec} on the current model")
        outcome = run_method(spec, current, judge, shown)
        judge = with_outs(judge, outcome, ready.out_models, folder.work(plan.number), shown)
        attempts.append(judged(spec, outcome, current, judge))
    done = _commit(ready, judge, attempts, state_digest(current.state_dict()), ledger, folder)
    if options.witness is not None:
        try:
            add_witness(options.witness, plan.number, done.tip)
        except RegunError as fault:  # the request has happened, whatever becomes of the note about it
            on_note(f"{fault} Note the hash of line {plan.number} yourself: {done.tip}")
    return done


def _settled(attempt: Attempt, options: Options) -> bool:
    """Whether its model can take the place of the current one."""
    return _status(attempt, options) in (ACCEPTED, UNTESTABLE)


def _status(attempt: Attempt, options: Options) -> str:
    return UNTESTABLE if attempt.verdict == CANNOT_TELL and options.accept_untestable else attempt.verdict


def _outcome_in_words(attempt: Attempt) -> str:
    wanted = "failed" if attempt.verdict == "rejected" else "cannot tell"
    finding = next(finding for finding in attempt.findings if finding.answer == wanted)
    what = "is rejected" if attempt.verdict == "rejected" else "cannot be told to have forgotten"
    return f"{attempt.spec} {what} ({finding.condition}: {finding.why})"


def _commit(
    ready: Prepared, judge: Judge, attempts: Sequence[Attempt], before: str, ledger: Ledger, folder: Folder
) -> Done:
    case, plan, options, last = ready.case, judge.plan, ready.options, attempts[-1]
    state = last.outcome.model.state_dict()
    weights = {"base": plan.base, "before": before, "after": state_digest(state)}
    status, created = _status(last, options), now()
    files = {
        MODEL: weights_bytes(state),
        REQUEST: request_file(plan, options.naming, case.ids_are),
        RISKS: risk_file(judge, last, options.naming),
    }
    if judge.outs.kind == SHORT:
        files[OUTS] = packed(judge.outs.said)
    parts = sections(
        judge,
        attempts,
        options.naming,
        Circumstances(
            created=created,
            dates=_dates(ready.asked, plan, created),
            status=status,
            role=case.project.role if options.role is None else options.role,
            earlier=tuple(ledger.lines),
            weights=weights,
            checked=(
                *(["ids"] if case.project.ids is not None else []),
                *(["content"] if options.check_content else []),
            ),
            signed=options.sign is not None,
            files=_digests(files),
        ),
    )
    receipt = seal(parts, options.sign)
    files |= {RECEIPT: written(receipt), PAGE: page(receipt).encode()}
    line = LedgerLine(
        number=plan.number,
        time=created,
        status=status,
        naming=options.naming.kind,
        request=plan.request,
        **weights,
        data=parts["data"]["sets"]["train"]["digest"],
        ids=case.ids_are,
        files=_digests(files),
        previous=plan.tip,
    )
    return Done(plan, line.hash(), commit(folder, line, files), receipt)


def _dates(asked: Asked, plan: RequestPlan, created: str) -> Dates:
    """When what this request does was received and is due; lines that it leaves out do not count."""
    acted = {line.id for line in plan.matched.lines}.union(*plan.matched.unseen.values())
    lines = ((line.received, line.due) for line in asked.lines if line.id in acted)
    return Dates.of(lines, datetime.fromisoformat(created).date())


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
