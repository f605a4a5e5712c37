"""Execute a deletion request: plan, run the method, assess the model, write the receipt, commit.

Nothing is written while a request can still fail for a reason that the user can correct. Appending the ledger line is
the commit: after a crash a request is either committed or not recorded at all.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from torch import nn

from regun.artifacts import Store, state_digest
from regun.data.views import Selected
from regun.deletion.assess import Assessor, Attempt, dry_assessor, make_assessor
from regun.deletion.attempt import NO_METHOD, run_method, unseen_sets
from regun.deletion.folder import MODEL, PREPARED, Folder, check_folder, commit, opened, repair
from regun.deletion.ledger import ACCEPTED, ACCEPTED_INCONCLUSIVE, INCONCLUSIVE, LedgerLine
from regun.deletion.options import Callbacks, Options, configure_method
from regun.deletion.out_models import OutModels, find_out_models
from regun.deletion.plan import Plan, few, make_plan
from regun.deletion.project import USER_CODE, Project, no_exit, open_project
from regun.deletion.receipt import Receipt, make_files
from regun.deletion.request import DeletionRequest
from regun.deletion.signing import public_key_of
from regun.deletion.table import update_file
from regun.errors import DataError, RegunError
from regun.inputs import check_trainable
from regun.predict import predict
from regun.prepared import Prepared
from regun.rng import isolated
from regun.training.job import Cost, Epoch
from regun.unlearning import WITHOUT_HELDOUT, Outcome

CHECKED = 8
"""Records that the current model predicts before any work."""


@dataclass(frozen=True)
class DeletionResult:
    """The result of a request and the hash of the ledger's last line; without a folder there was nothing to do."""

    plan: Plan
    tip: str
    folder: Path | None = None
    receipt: Receipt | None = None

    @property
    def status(self) -> str:
        """`accepted`, `accepted inconclusive`, `rejected` or `inconclusive`."""
        return ACCEPTED if self.receipt is None else self.receipt["ledger"]["status"]

    @property
    def accepted(self) -> bool:
        """True if the model of this request is the current one now."""
        return self.status in (ACCEPTED, ACCEPTED_INCONCLUSIVE)


def history(out: Path | str) -> Sequence[LedgerLine]:
    """Return every request of a folder, in order."""
    return Folder(out).read_ledger().lines


@no_exit(USER_CODE)
def forget(
    project: Project,
    request: DeletionRequest,
    out: Path | str,
    options: Options | None = None,
    *,
    on_plan: Callable[[Plan], None] = lambda plan: None,
    on_note: Callable[[str], None] = lambda note: None,
    on_stage: Callable[[str], None] = lambda stage: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> DeletionResult:
    """Execute a request: unlearn, audit, decide, and write model, receipt and ledger line to the folder `out`.

    Args:
        project: the trained model and its data.
        request: the records to forget.
        out: the folder of requests; a new or empty one for the first request.
        options: method, acceptance rule, fallback, pseudonyms and signature of this request.
        on_plan: called with the plan before any work.
        on_note: called with messages for the operator, such as a fallback that is tried.
        on_stage: called with the name of each stage.
        on_epoch: called after each epoch.

    >>> request = regun.DeletionRequest.of(["b-12"])                     # doctest: +SKIP
    >>> regun.forget(project, request, "deletions").status               # doctest: +SKIP
    'accepted'
    """
    out = Path(out)
    plan = plan_request(project, request, out, options)
    on_plan(plan)
    check_unknown(plan, request)
    if plan.empty:  # the same command again, perhaps after a kill right behind the commit
        for note in repair(out):
            on_note(note)
        if plan.table is not None:
            _update_project_file(project, plan.table.prepared, on_note)
        return DeletionResult(plan, plan.tip)
    for note in plan.notes:
        on_note(note)
    with opened(out) as (folder, ledger, recovered):
        for note in recovered:
            on_note(note)
        if ledger.tip != plan.tip:  # another request was committed since
            plan = make_plan(plan.opened, plan.methods, request, folder, ledger, plan.options)
            on_plan(plan)
        if plan.empty:
            return DeletionResult(plan, plan.tip)
        if plan.table is not None:  # a killed request may not have come to it
            _update_project_file(project, plan.table.prepared, on_note)
        current = model_after(project, folder, ledger.current)
        assessor, attempts = _attempts(plan, current, folder, Callbacks(on_note, on_stage, on_epoch))
        before, status = state_digest(current.state_dict()), _status(attempts[-1], plan.options)
        line, files, receipt = make_files(assessor, attempts, before, status, ledger.lines)
        place = commit(folder, line, files)
        if PREPARED in files:
            _update_project_file(project, Prepared.load(place / PREPARED), on_note)
        return DeletionResult(plan, line.hash, place, receipt)


def _update_project_file(project: Project, newest: Prepared, on_note: Callable[[str], None]) -> None:
    """Erase the forgotten records from the project's own file of the table, too; the next request tries again."""
    if not isinstance(project.prepared, str | Path):
        return
    try:
        update_file(Path(project.prepared), newest)
    except RegunError as fault:
        on_note(f"the project's prepared table still holds forgotten records: {fault}")


def _attempts(plan: Plan, current: nn.Module, folder: Folder, callbacks: Callbacks) -> tuple[Assessor, list[Attempt]]:
    """Try every method until a model is accepted; return what they were assessed with, and all attempts."""
    if not len(plan.new):  # the model never trained on these: the ledger line alone keeps them out of every set
        return Assessor(plan), [Attempt(NO_METHOD, Outcome(current, NO_METHOD, {}, Cost(), [], None, {}))]
    copies = {scope: len(ids) for scope, ids in plan.copies.items()}
    assessor, out_models = make_assessor(plan, current, copies), OutModels()
    attempts, store = list[Attempt](), Store(folder.work)
    assessor.check_rule()
    for method in plan.methods:
        if attempts:
            last = attempts[-1]
            result = "failed" if last.verdict == "rejected" else "inconclusive"
            why = next(finding for finding in last.findings if finding.result == result)
            callbacks.on_note(f"{last.spec} is {last.verdict} ({why.condition}: {why.why}); trying {method.spec.text}")
        outcome = run_method(method, current, plan, store, callbacks)
        if not out_models.predictions:
            out_models = find_out_models(plan, assessor.retrained, outcome, store, callbacks)
        unseen = unseen_sets(method, assessor.before)
        attempts.append(assessor.assess(method.spec.text, outcome, unseen, out_models, current))
        if _status(attempts[-1], plan.options) in (ACCEPTED, ACCEPTED_INCONCLUSIVE):
            break
    return assessor, attempts


def _status(attempt: Attempt, options: Options) -> str:
    inconclusive = attempt.verdict == INCONCLUSIVE
    return ACCEPTED_INCONCLUSIVE if inconclusive and options.accept_inconclusive else attempt.verdict


def model_after(project: Project, folder: Folder, line: LedgerLine | None) -> nn.Module:
    """Return a copy of the project's model with the weights of a committed request; unchanged without one."""
    model = copy.deepcopy(project.model)
    if line is not None:
        model.load_state_dict(safetensors.torch.load(folder.read(line, MODEL)))
    return model


# ---------------------------------------------------------------------------------------------------- before any work


@no_exit(USER_CODE)
def plan_request(project: Project, request: DeletionRequest, out: Path | str, options: Options | None = None) -> Plan:
    """Check everything that can be checked without work, and return the plan; writes nothing."""
    options, folder = options or Options(), Folder(out)
    specs = (project.method if options.method is None else options.method, options.fallback)
    methods = tuple(configure_method(spec, project) for spec in specs if spec is not None)
    public_key_of(options.sign)  # raises for a key that cannot sign
    ledger = folder.read_ledger()
    check_folder(folder, ledger)
    opened_project = open_project(project, check_content=options.check_content)
    plan = make_plan(opened_project, methods, request, folder, ledger, options)
    if not plan.empty:
        current = model_after(project, folder, ledger.current)
        if len(plan.new):
            _check_feasible(plan, current)
    return plan


def check_unknown(plan: Plan, request: DeletionRequest) -> None:
    """Raise for ids that mean nothing, unless the options ignore them."""
    unknown = plan.matched.unknown
    if unknown and not plan.options.ignore_unknown:
        raise DataError(
            f"{len(unknown):,} of the {len(request.records):,} ids are unknown (the first: {few(unknown)}): no example "
            f"has them, and no earlier request has forgotten them. Correct them, or set ignore_unknown=."
        )


def _check_feasible(plan: Plan, current: nn.Module) -> None:
    """Raise for what would fail in the run: data a method needs, numbers the rule names, what model and rebuild do."""
    opened = plan.opened
    if not any(len(rows) for rows in plan.remaining.values()):
        raise DataError("the request leaves no unseen examples to judge by; give the project heldout, val or test.")
    for method in plan.methods:
        if method.needs.heldout and not len(plan.remaining.get("heldout", ())):
            raise RegunError(
                f"{method.method.title} needs a held-out set, the project's heldout=...: {WITHOUT_HELDOUT}"
            )
        if method.needs.out_of_fold and plan.table is None:
            raise RegunError(
                f"{method.method.title} needs a prepared table, the project's prepared=...: make it with regun prepare."
            )
        if method.needs.fresh_model and opened.why_no_fresh_model:
            raise RegunError(opened.why_no_fresh_model)
        if method.method.source is None:
            check_trainable(current)
    if opened.project.rebuild is not None:
        with isolated(0):
            opened.project.rebuild(0)
    predict(current, Selected(opened.sets["train"], plan.forget[:CHECKED]), device=opened.device)
    dry_assessor(plan).check_rule()
