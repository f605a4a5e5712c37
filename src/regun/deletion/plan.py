"""What a request would do: which ids mean which examples, which examples play which part, and how it will be judged."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from regun.data.examples import Examples
from regun.data.overlap import check_overlap, content_hashes, in_memory
from regun.data.views import Selected
from regun.deletion.folder import REQUEST, Folder
from regun.deletion.ledger import Ledger, LedgerLine
from regun.deletion.options import Chosen, Options
from regun.deletion.project import Case
from regun.deletion.request import DeletionRequest, RequestedRecord
from regun.deletion.rule import Rule, default_rule, read_rule
from regun.deletion.signing import Pseudonyms
from regun.errors import DataError, RegunError, StoreError
from regun.hashing import digest
from regun.methods._teacher import teacher_work
from regun.render.numbers import many
from regun.settings import read_json
from regun.types import Indices

NO_RULE = Rule(())


@dataclass(frozen=True)
class Matched:
    """The lines to act on (the first that names each id) and the ids of those that are left out, by reason."""

    lines: tuple[RequestedRecord, ...] = ()
    duplicate: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    unseen: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Ids of examples the model never trained on, by set."""
    days: frozenset[tuple[str, str]] = frozenset()
    """When all lines that name ids of `lines` and `unseen` were received and are due."""


@dataclass(frozen=True)
class Plan:
    """One request: of whose data and how, where it stands in the ledger, what it asks for, and the rows of each set by
    the part they play."""

    case: Case
    options: Options
    number: int
    tip: str
    """The hash of the ledger's line before it; `base`: the digest of the very first model."""
    base: str
    request: str
    """What is asked, as a digest: the same ids in any order are the same request."""
    names: tuple[str, ...]
    """The ids to forget as they are written down; `unseen`: those of examples the model never trained on, by set."""
    unseen: Mapping[str, Sequence[str]]
    new: Indices
    """Rows of the training set that this request forgets; `forget`, all forgotten so far; `retain`, the others."""
    forget: Indices
    retain: Indices
    kept: Mapping[str, Indices]
    """Rows of the unseen sets that are not forgotten."""
    gone: int
    """Ids forgotten earlier whose examples are no longer in the data."""
    copies: tuple[str, ...] = ()
    """Retained ids whose examples equal newly forgotten ones in content, where that was looked for; `all_copies`: ones
    of earlier requests too."""
    all_copies: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    """What looks odd in the sets, and is no fault for sure."""
    matched: Matched = Matched()
    methods: tuple[Chosen, ...] = ()
    """What is tried, one after the other, until a model is accepted."""
    rule: Rule = NO_RULE

    @property
    def empty(self) -> bool:
        """Whether nothing is asked that an earlier request has not done."""
        return not self.names and not any(self.unseen.values())

    @property
    def searched(self) -> bool:
        """Whether copies are looked for: in memory, where that is cheap, and wherever it is asked for."""
        return self.options.check_content or in_memory(self.case.sets["train"])

    @property
    def out_models(self) -> int:
        return self.case.project.out_models if self.options.out_models is None else self.options.out_models

    @property
    def role(self) -> str:
        return self.case.project.role if self.options.role is None else self.options.role

    @property
    def judging(self) -> str:
        """What else will be trained, to judge by, as far as that is known before the project's retrained models are
        asked for, or why nothing can be; empty if nothing is needed."""
        anew = all(how.method.from_scratch for how in self.methods)
        if not len(self.new) or not self.rule.asks_influence or anew:
            return ""
        project, trained = self.case.project, "no models that never saw the records"
        if self.out_models and self.case.why_no_fresh_model:
            trained = f"{trained}: {self.case.why_no_fresh_model}"
        elif self.out_models:
            recipe = project.out_recipe(len(self.retain))
            steps = teacher_work(recipe, len(self.retain)).steps
            each = f"{many(recipe.epochs, 'epoch')} or {many(steps, 'step')} each"
            trained = f"{many(self.out_models, 'short training')} on the retain set, {each}"
        trained = f"{trained}, unless the model is trained anew"
        return trained if project.retrained is None else f"the project's retrained models or, without, {trained}"

    @property
    def about_copies(self) -> str:
        """What there is to know of the copies of this request's records, where there are some."""
        held = f"train holds {many(len(self.copies), 'copy', 'copies')} of these records under other ids"
        return (
            f"{held} (the first: {few(self.copies)}), and the model goes on learning from them; add these ids to the "
            "request, or take them out of train"
        )

    @property
    def in_the_clear(self) -> list[str]:
        """What of the request is written as it was given although its ids are not."""
        lines = self.matched.lines
        kinds = {"reasons": (line.reason for line in lines), "dates": (line.received or line.due for line in lines)}
        return [name for name, texts in kinds.items() if self.options.naming.salt is not None and any(texts)]

    def sets(self) -> dict[str, Examples]:
        """The sets of unlearning and audit."""
        train = self.case.sets["train"]
        sets: dict[str, Examples] = {"retain": Selected(train, self.retain), "forget": Selected(train, self.forget)}
        return sets | {name: Selected(self.case.sets[name], rows) for name, rows in self.kept.items() if len(rows)}

    def digests(self) -> dict[str, str]:
        """The digest of every set, as ledger and receipt show it: of few rows, so keyed where there is a salt."""
        sets = self.case.sets
        rows = {"retain": ("train", self.retain), "forget": ("train", self.forget)}
        rows |= {name: (name, kept) for name, kept in self.kept.items()}
        own = {name: Selected(sets[of], some).digest for name, (of, some) in rows.items()}
        return {name: self.options.naming.digest(one) for name, one in {"train": sets["train"].digest, **own}.items()}


def make_plan(
    case: Case, methods: tuple[Chosen, ...], asked: DeletionRequest, folder: Folder, ledger: Ledger, options: Options
) -> Plan:
    """Who plays which part; refuses another model than the ledger's and a request that leaves nothing to retain."""
    weights, naming = case.weights, options.naming
    base = ledger.lines[0].base if ledger.lines else weights
    current = ledger.accepted[-1].after if ledger.accepted else base
    if weights not in (base, current):
        raise RegunError(
            f"the project's model ({weights[:12]}) is neither the one that {folder.ledger} starts from ({base[:12]}) "
            f"nor its current one ({current[:12]}); give one of these, or start a new --out."
        )
    earlier = forgotten_names(folder, ledger.lines, naming, case)
    _check_shifted_positions(case, ledger, naming)
    matched = match(asked, case.ids, earlier, naming)
    unseen = {name: naming.of(some) for name, some in matched.unseen.items()}
    names = tuple(naming.of(line.id for line in matched.lines))
    plan = _plan(case, options, (ledger.count + 1, ledger.tip, base), names, unseen, earlier)
    usual = default_rule({name: len(rows) for name, rows in plan.kept.items()})
    rule = next(text for text in (options.accept, case.project.accept, usual) if text is not None)
    plan = _with_copies(replace(plan, matched=matched, methods=methods, rule=read_rule(rule)))
    if plan.all_copies and options.check_content:
        raise DataError(
            f"train holds {many(len(plan.all_copies), 'copy', 'copies')} of forgotten records, under other ids (the "
            f"first: {few(plan.all_copies)}): what is forgotten would be trained on again. Add these ids to the "
            "request, or take them out of train."
        )
    return replace(plan, remarks=_remarks(plan))


def few(texts: Sequence[str]) -> str:
    """The first few of some ids.

    >>> few(["a", "b", "c", "d"])
    "'a', 'b', 'c', ..."
    """
    different = list(dict.fromkeys(texts))
    shown = ", ".join(repr(text[:40]) for text in different[:3])
    return f"{shown}, ..." if len(different) > 3 else shown


def _with_copies(plan: Plan) -> Plan:
    """The plan with the retained records that equal forgotten ones."""
    train = plan.case.sets["train"]
    if not plan.searched or not (len(plan.new) or (len(plan.forget) and plan.options.check_content)):
        return plan
    forgotten, retained = (content_hashes(Selected(train, rows)) for rows in (plan.forget, plan.retain))
    ids = plan.case.ids["train"]
    copies, everything = (
        tuple(ids[int(row)] for row in plan.retain[np.isin(retained, hashes)])
        for hashes in (forgotten[np.isin(plan.forget, plan.new)], forgotten)
    )
    return replace(plan, copies=copies, all_copies=everything)


def _remarks(plan: Plan) -> tuple[str, ...]:
    """Refuse unseen records that a method may learn from or watch and that were trained on; test is for judging."""
    if not len(plan.new) or plan.options.check_content:  # then all of them were compared before
        return ()
    sets = {name: some for name, some in plan.sets().items() if name != "test"}
    rows = {"forget": ("train", plan.forget), "retain": ("train", plan.retain)}
    rows |= {name: (name, kept) for name, kept in plan.kept.items() if name in sets}
    given: Mapping[str, list[str]] = plan.case.ids if plan.case.project.ids is not None else {}
    ids = {name: [given[of][int(row)] for row in some] for name, (of, some) in rows.items() if of in given}
    hint = "give the project ids, and unseen_ids for these sets: by them they are told apart."
    return tuple(check_overlap(sets, sets, ids, way_out=hint))


def plan_again(case: Case, folder: Folder, lines: Sequence[LedgerLine], options: Options) -> Plan:
    """The plan of the last of these requests, all of them finished, from what was written down."""
    *before, line = lines
    check_other_ids(folder, line, options.naming, case)
    names, unseen = _request_ids(folder, line)
    earlier = forgotten_names(folder, before, options.naming, case)
    return _with_copies(_plan(case, options, (line.number, line.previous, line.base), tuple(names), unseen, earlier))


def forgotten_names(folder: Folder, lines: Iterable[LedgerLine], naming: Pseudonyms, case: Case) -> set[str]:
    """The written form of every id that an accepted request has forgotten; refused where ids mean something else."""
    names: set[str] = set()
    now: set[str] | None = None
    data = naming.digest(case.sets["train"].digest)
    for line in lines:
        check_other_ids(folder, line, naming, case)
        if not line.accepted:
            continue
        now = set(naming.of(case.ids["train"])) if now is None else now
        trained, unseen = _request_ids(folder, line)
        if line.data == data and not now.issuperset(trained):
            raise RegunError(
                f"the training data are those of request {line.number}, but ids that it has forgotten are no longer "
                f"among the project's: the ids were renamed, and the forgotten records would come back as retain data. "
                f"Give the ids of then, or start a new --out."
            )
        names.update(trained, *unseen.values())
    return names


def check_other_ids(folder: Folder, line: LedgerLine, naming: Pseudonyms, case: Case) -> None:
    """Raise unless the ids of a finished request can be compared with the project's."""
    naming.check_other(line.naming, folder.ledger)
    if line.ids != case.ids_are:
        raise RegunError(
            f"the ids of request {line.number} are {line.ids}, and the project's are {case.ids_are}: one cannot be "
            f"translated to the other, so forgotten records would come back as retain data. Use the project as it was "
            f"then, or start a new --out."
        )


def match(asked: DeletionRequest, ids: Mapping[str, list[str]], earlier: set[str], naming: Pseudonyms) -> Matched:
    """Sort the lines: new, named before in the same file, forgotten already, unseen by the model, unknown."""
    known, elsewhere = set(ids["train"]), {name: set(some) for name, some in ids.items() if name != "train"}
    first: dict[str, RequestedRecord] = {}
    duplicate: list[str] = []
    for line in asked.lines:
        if line.id in first:
            duplicate.append(line.id)
        else:
            first[line.id] = line
    written = zip(first, naming.of(first), strict=True) if earlier else ()
    already = {one for one, name in written if name in earlier}
    rest = [one for one in first if one not in known and one not in already]
    unseen = {name: tuple(one for one in rest if one in some) for name, some in elsewhere.items()}
    found = {one for some in unseen.values() for one in some}
    lines = tuple(line for one, line in first.items() if one in known and one not in already)
    left = already.union(one for one in rest if one not in found)
    return Matched(
        lines,
        tuple(duplicate),
        tuple(one for one in first if one in already),
        tuple(one for one in rest if one not in found),
        {name: some for name, some in unseen.items() if some},
        frozenset((line.received, line.due) for line in asked.lines if line.id not in left),
    )


def _plan(
    case: Case,
    options: Options,
    place: tuple[int, str, str],
    names: tuple[str, ...],
    unseen: Mapping[str, Sequence[str]],
    earlier: set[str],
) -> Plan:
    """The rows behind names: those of this request, of earlier ones, and all the others."""
    naming = options.naming
    written = {name: naming.of(ids) for name, ids in case.ids.items()}
    before, new = _among(written["train"], earlier), _among(written["train"], set(names))
    everything = earlier.union(names, *unseen.values())
    kept = {
        name: np.flatnonzero(~_among(written[name], everything))
        if name in written
        else np.arange(len(case.sets[name].labels))
        for name in case.unseen
    }
    forget, retain = np.flatnonzero(before | new), np.flatnonzero(~(before | new))
    if not len(retain):
        raise DataError("the request names every training example that is left; nothing would be left to retain.")
    gone = len(earlier.difference(*written.values()))
    request = naming.digest(digest(sorted([*names, *(one for some in unseen.values() for one in some)])))
    return Plan(case, options, *place, request, names, unseen, np.flatnonzero(new), forget, retain, kept, gone)


def _request_ids(folder: Folder, line: LedgerLine) -> tuple[list[str], dict[str, list[str]]]:
    """The ids of a finished request as they are written: trained on, and never trained on (by set)."""
    content = folder.read(line, REQUEST)
    try:
        stored: dict[str, Any] = read_json(content, REQUEST)
        unseen = {str(name): [str(one) for one in some] for name, some in stored["unseen"].items()}
        return [str(one["id"]) for one in stored["lines"]], unseen
    except (RegunError, KeyError, TypeError, AttributeError):
        raise StoreError(f"{folder.request(line.number) / REQUEST} is not as regun writes it; restore it.") from None


def _among(written: Sequence[str], names: set[str]) -> npt.NDArray[np.bool_]:
    return np.fromiter((one in names for one in written), dtype=bool, count=len(written))


def _check_shifted_positions(case: Case, ledger: Ledger, naming: Pseudonyms) -> None:
    data = naming.digest(case.sets["train"].digest)
    if case.project.ids is None and ledger.lines and ledger.lines[-1].data != data:
        raise RegunError(
            "the training data have changed since the last request and have no ids, so positions may now mean other "
            "examples, and those of earlier requests cannot be translated; use the data as they were then, or start a "
            "new --out (with ids)."
        )
