"""The plan of a request: which ids mean which examples, which examples play which part, and how it will be assessed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from regun.data.examples import Examples
from regun.data.overlap import check_overlap, content_hashes, in_memory
from regun.data.views import Selected
from regun.deletion.folder import REQUEST, Folder
from regun.deletion.ledger import Ledger, LedgerLine
from regun.deletion.options import ConfiguredMethod, Options
from regun.deletion.project import OpenedProject
from regun.deletion.pseudonyms import Pseudonyms
from regun.deletion.request import DeletionRequest, RequestedRecord
from regun.deletion.rule import ALL, NEW, Rule, default_rule, read_rule
from regun.deletion.table import CurrentTable, current_table
from regun.errors import DataError, RegunError, StoreError
from regun.hashing import digest
from regun.methods._teacher import teacher_work
from regun.render.numbers import many, names
from regun.settings import read_json
from regun.types import Indices

NO_RULE = Rule(())


@dataclass(frozen=True)
class MatchedRecords:
    """The records to act on (the first that names each id), and the ids that are left out, by reason."""

    records: tuple[RequestedRecord, ...] = ()
    duplicate: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    """Ids that an earlier request has forgotten."""
    unknown: tuple[str, ...] = ()
    unseen: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Ids of examples the model never trained on, by set."""
    days: frozenset[tuple[str, str]] = frozenset()
    """(received, due) of all records that name ids of `records` and `unseen`."""


@dataclass(frozen=True)
class Plan:
    """One request: the project, its place in the ledger, its ids, and the rows of each set by the part they play."""

    opened: OpenedProject
    options: Options
    number: int
    tip: str
    """The hash of the ledger line before it."""
    base: str
    """The digest of the very first model."""
    request: str
    """The digest of the ids: the same ids in any order are the same request."""
    names: tuple[str, ...]
    """The ids to forget as they are written (under a salt, pseudonyms)."""
    unseen: Mapping[str, Sequence[str]]
    """The same for examples the model never trained on, by set."""
    new: Indices
    """Rows of the training set that this request forgets."""
    forget: Indices
    """All rows forgotten so far, this request included."""
    retain: Indices
    remaining: Mapping[str, Indices]
    """Rows of the unseen sets that are not forgotten."""
    gone: int
    """Ids forgotten earlier whose examples are no longer in the data."""
    methods: tuple[ConfiguredMethod, ...] = ()
    """Tried one after the other until a model is accepted."""
    matched: MatchedRecords = MatchedRecords()
    rule: Rule = NO_RULE
    table: CurrentTable | None = None
    """The prepared table, if there is one."""
    remarks: tuple[str, ...] = ()
    """What looks odd in the sets without being an error."""

    @property
    def empty(self) -> bool:
        """True if earlier requests have done all of it."""
        return not self.names and not any(self.unseen.values())

    @property
    def searches_copies(self) -> bool:
        """True if copies are searched: for data in memory, where that is cheap, and where requested."""
        return self.options.check_content or in_memory(self.opened.sets["train"])

    @cached_property
    def copies(self) -> Mapping[str, tuple[str, ...]]:
        """Retained ids whose examples equal forgotten ones (`all`, `new`) in content; empty if that is not searched."""
        if not self.searches_copies or not (len(self.new) or (len(self.forget) and self.options.check_content)):
            return {ALL: (), NEW: ()}
        train, ids = self.opened.sets["train"], self.opened.ids["train"]
        forgotten, retained = (content_hashes(Selected(train, rows)) for rows in (self.forget, self.retain))
        scopes = {ALL: forgotten, NEW: forgotten[np.isin(self.forget, self.new)]}
        return {
            scope: tuple(ids[int(row)] for row in self.retain[np.isin(retained, hashes)])
            for scope, hashes in scopes.items()
        }

    @property
    def out_models(self) -> int:
        return self.opened.project.out_models if self.options.out_models is None else self.options.out_models

    @property
    def role(self) -> str:
        return self.opened.project.role if self.options.role is None else self.options.role

    @property
    def trains_out_models(self) -> bool:
        """True if short models are trained to judge a model that is not retrained from scratch."""
        needed = bool(self.rule.needs_influence and self.out_models and self.table is None)
        return needed and not self.opened.why_no_fresh_model

    @property
    def judging(self) -> str:
        """Which models will be used or trained to judge by, as far as that is known; empty if none are needed."""
        if not len(self.new) or not self.rule.needs_influence or all(m.method.from_scratch for m in self.methods):
            return ""
        project, text = self.opened.project, "no out-of-sample models"
        if self.table is not None:
            about = self.table.prepared.about
            return f"the prepared table ({about['folds']} folds, {many(about['repeats'], 'repeat')}); no other training"
        if self.out_models and self.opened.why_no_fresh_model:
            text = f"{text}: {self.opened.why_no_fresh_model}"
        elif self.trains_out_models:
            recipe = project.out_recipe(len(self.retain))
            steps = teacher_work(recipe, len(self.retain)).steps
            each = f"{many(recipe.epochs, 'epoch')} or {many(steps, 'step')} each"
            text = f"{many(self.out_models, 'short training')} on the retain set, {each}"
        text = f"{text}, unless the model is retrained from scratch"
        return text if project.retrained is None else f"the project's retrained models or, without, {text}"

    @property
    def in_the_clear(self) -> list[str]:
        """What of the request is written as it is although a salt hides its ids."""
        records = self.matched.records
        kinds = {"reasons": (r.reason for r in records), "dates": (r.received or r.due for r in records)}
        return [name for name, texts in kinds.items() if self.options.pseudonyms.salt is not None and any(texts)]

    @property
    def notes(self) -> list[str]:
        """What the operator should know before the work."""
        notes: list[str] = []
        copies = self.copies[NEW]
        if copies:
            notes.append(
                f"train holds {many(len(copies), 'copy', 'copies')} of these records under other ids (the first: "
                f"{few(copies)}), and the model goes on learning from them; add these ids to the request, or "
                "remove them from train"
            )
        if self.in_the_clear:
            notes.append(f"the salt hides ids and requesters; {names(self.in_the_clear)} are written in the clear")
        return notes

    @property
    def parts(self) -> dict[str, tuple[str, Indices]]:
        """The sets of unlearning and audit (retain, forget, heldout, val, test): a set of the project and its rows."""
        unseen = {name: (name, rows) for name, rows in self.remaining.items()}
        return {"retain": ("train", self.retain), "forget": ("train", self.forget), **unseen}

    def sets(self) -> dict[str, Examples]:
        """Return the sets of unlearning and audit that have examples."""
        return {part: Selected(self.opened.sets[of], rows) for part, (of, rows) in self.parts.items() if len(rows)}

    def forgotten(self) -> dict[str, Indices]:
        """Return all forgotten rows by set, those of unseen sets included."""
        sizes = {name: len(self.opened.sets[name].labels) for name in self.remaining}
        unseen = {name: np.setdiff1d(np.arange(size), self.remaining[name]) for name, size in sizes.items()}
        return {"train": self.forget, **unseen}

    def digests(self) -> dict[str, str]:
        """Return the digest of every set as ledger and receipt show it: keyed where there is a salt."""
        sets = self.opened.sets
        digests = {"train": sets["train"].digest}
        digests |= {part: Selected(sets[of], rows).digest for part, (of, rows) in self.parts.items()}
        return {name: self.options.pseudonyms.digest(digest) for name, digest in digests.items()}


def make_plan(
    opened: OpenedProject,
    methods: tuple[ConfiguredMethod, ...],
    request: DeletionRequest,
    folder: Folder,
    ledger: Ledger,
    options: Options,
) -> Plan:
    """Match ids to rows; raise for a model that is not the ledger's and for a request that leaves nothing to retain."""
    weights, pseudonyms = opened.weights, options.pseudonyms
    base = ledger.lines[0].base if ledger.lines else weights
    current = ledger.current.after if ledger.current else base
    if weights not in (base, current):
        raise RegunError(
            f"the project's model ({weights[:12]}) is neither the one that {folder.ledger} starts from ({base[:12]}) "
            f"nor its current one ({current[:12]}); give one of these, or start a new out=."
        )
    earlier = forgotten_names(folder, ledger.lines, pseudonyms, opened)
    data = pseudonyms.digest(opened.sets["train"].digest)
    if opened.project.ids is None and ledger.lines and ledger.lines[-1].data != data:
        raise RegunError(
            "the training data have changed since the last request and have no ids, so positions may mean other "
            "examples now; use the data as they were then, or start a new out= with ids."
        )
    matched = match_records(request, opened.ids, earlier, pseudonyms)
    unseen = {name: pseudonyms.of(ids) for name, ids in matched.unseen.items()}
    names = tuple(pseudonyms.of(record.id for record in matched.records))
    plan = _assign_rows(opened, options, (len(ledger.lines) + 1, ledger.tip, base), names, unseen, earlier)
    default = default_rule({name: len(rows) for name, rows in plan.remaining.items()})
    rule = next(text for text in (options.accept, opened.project.accept, default) if text is not None)
    table = current_table(opened, folder, ledger.lines, pseudonyms)
    if table is not None and not plan.empty:
        table.check(np.sort(np.concatenate([plan.retain, plan.new])), plan.remaining)
    plan = replace(plan, matched=matched, methods=methods, rule=read_rule(rule), table=table)
    if plan.copies[ALL] and options.check_content:
        raise DataError(
            f"{describe_copies(plan.copies[ALL])}, so training would learn them again. Add these ids to the request, "
            "or remove them from train."
        )
    return replace(plan, remarks=_overlap_remarks(plan))


def replan(opened: OpenedProject, folder: Folder, lines: Sequence[LedgerLine], options: Options) -> Plan:
    """Return the plan of the last of these committed requests, from its files."""
    *before, line = lines
    check_same_ids(folder, line, options.pseudonyms, opened)
    names, unseen = _read_request(folder, line)
    earlier = forgotten_names(folder, before, options.pseudonyms, opened)
    return _assign_rows(opened, options, (line.number, line.previous, line.base), tuple(names), unseen, earlier)


def describe_copies(ids: Sequence[str]) -> str:
    """Return that train holds copies of forgotten records under these ids."""
    copies = many(len(ids), "copy", "copies")
    return f"train holds {copies} of forgotten records under other ids (the first: {few(ids)})"


def few(texts: Sequence[str]) -> str:
    """Return the first few ids as text.

    >>> few(["a", "b", "c", "d"])
    "'a', 'b', 'c', ..."
    """
    different = list(dict.fromkeys(texts))
    shown = ", ".join(repr(text[:40]) for text in different[:3])
    return f"{shown}, ..." if len(different) > 3 else shown


def match_records(
    request: DeletionRequest, ids: Mapping[str, list[str]], earlier: set[str], pseudonyms: Pseudonyms
) -> MatchedRecords:
    """Sort the records: new, named before in the same file, forgotten already, unseen by the model, unknown."""
    trained, unseen_ids = set(ids["train"]), {name: set(texts) for name, texts in ids.items() if name != "train"}
    first: dict[str, RequestedRecord] = {}
    duplicate: list[str] = []
    for record in request.records:
        if record.id in first:
            duplicate.append(record.id)
        else:
            first[record.id] = record
    written = zip(first, pseudonyms.of(first), strict=True) if earlier else ()
    already = {id for id, name in written if name in earlier}
    rest = [id for id in first if id not in trained and id not in already]
    unseen = {name: tuple(id for id in rest if id in texts) for name, texts in unseen_ids.items()}
    unknown = tuple(id for id in rest if not any(id in texts for texts in unseen_ids.values()))
    left_out = already.union(unknown)
    return MatchedRecords(
        records=tuple(record for id, record in first.items() if id in trained and id not in already),
        duplicate=tuple(duplicate),
        already=tuple(id for id in first if id in already),
        unknown=unknown,
        unseen={name: ids for name, ids in unseen.items() if ids},
        days=frozenset((record.received, record.due) for record in request.records if record.id not in left_out),
    )


def _assign_rows(
    opened: OpenedProject,
    options: Options,
    place: tuple[int, str, str],
    names: tuple[str, ...],
    unseen: Mapping[str, Sequence[str]],
    earlier: set[str],
) -> Plan:
    """Return the plan with the rows behind names: those of this request, of earlier ones, and all others."""
    pseudonyms = options.pseudonyms
    written = {name: pseudonyms.of(ids) for name, ids in opened.ids.items()}
    new = np.flatnonzero(_is_named(written["train"], set(names)))
    remaining = remaining_rows(opened, earlier.union(names, *unseen.values()), written)
    retain = remaining.pop("train")
    forget = np.setdiff1d(np.arange(len(written["train"])), retain)
    if not len(retain):
        raise DataError("the request names every training example that is left; nothing would remain to retain.")
    gone = len(earlier.difference(*written.values()))
    request = pseudonyms.digest(digest(sorted([*names, *(name for group in unseen.values() for name in group)])))
    return Plan(opened, options, *place, request, names, unseen, new, forget, retain, remaining, gone)


def remaining_rows(
    opened: OpenedProject, forgotten: set[str], written: Mapping[str, Sequence[str]]
) -> dict[str, Indices]:
    """Return the rows of every set whose ids, as they are `written`, are not among the forgotten ones."""
    return {
        name: np.flatnonzero(~_is_named(written[name], forgotten))
        if name in written
        else np.arange(len(opened.sets[name].labels))
        for name in ("train", *opened.unseen)
    }


def _is_named(written: Sequence[str], names: set[str]) -> npt.NDArray[np.bool_]:
    return np.fromiter((name in names for name in written), dtype=bool, count=len(written))


def _overlap_remarks(plan: Plan) -> tuple[str, ...]:
    """Raise where unseen records that a method may learn from were trained on; test records only serve the audit."""
    if not len(plan.new) or plan.options.check_content:  # then all of them were compared before
        return ()
    sets = {part: examples for part, examples in plan.sets().items() if part != "test"}
    ids: dict[str, list[str]] = {}
    for part, (of, rows) in plan.parts.items():
        if part in sets and of in plan.opened.ids and plan.opened.project.ids is not None:
            ids[part] = [plan.opened.ids[of][int(row)] for row in rows]
    hint = "give the project ids, and unseen_ids for these sets, which distinguish them."
    return tuple(check_overlap(sets, sets, ids, way_out=hint))


# --------------------------------------------------------------------------------------------------- earlier requests


def forgotten_names(
    folder: Folder, lines: Iterable[LedgerLine], pseudonyms: Pseudonyms, opened: OpenedProject
) -> set[str]:
    """Return the written form of every id that an accepted request has forgotten; raise where ids changed meaning."""
    names: set[str] = set()
    train: set[str] | None = None
    data = pseudonyms.digest(opened.sets["train"].digest)
    for line in lines:
        check_same_ids(folder, line, pseudonyms, opened)
        if not line.accepted:
            continue
        train = set(pseudonyms.of(opened.ids["train"])) if train is None else train
        trained, unseen = _read_request(folder, line)
        if line.data == data and not train.issuperset(trained):
            raise RegunError(
                f"the training data are those of request {line.number}, but ids that it has forgotten are missing from "
                f"the project's ids: they were renamed, and the forgotten records would become retain data. Give the "
                f"ids of then, or start a new out=."
            )
        names.update(trained, *unseen.values())
    return names


def check_same_ids(folder: Folder, line: LedgerLine, pseudonyms: Pseudonyms, opened: OpenedProject) -> None:
    """Raise unless the ids of a committed request can be compared with the project's."""
    pseudonyms.check_same(line.pseudonyms, folder.ledger)
    if line.ids != opened.ids_are:
        raise RegunError(
            f"the ids of request {line.number} are {line.ids}, and the project's are {opened.ids_are}, so forgotten "
            f"records would become retain data. Use the project as it was then, or start a new out=."
        )


def _read_request(folder: Folder, line: LedgerLine) -> tuple[list[str], dict[str, list[str]]]:
    """Return the ids of a committed request as they are written: trained on, and never trained on (by set)."""
    content = folder.read(line, REQUEST)
    try:
        stored: dict[str, Any] = read_json(content, REQUEST)
        unseen = {str(name): [str(id) for id in ids] for name, ids in stored["unseen"].items()}
        return [str(record["id"]) for record in stored["records"]], unseen
    except (RegunError, KeyError, TypeError, AttributeError):
        raise StoreError(f"{folder.place(line.number) / REQUEST} is not as regun writes it; restore it.") from None
