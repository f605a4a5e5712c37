"""What a request would do: which ids mean which examples, and which examples play which part."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from regun.data.examples import Examples, Indices
from regun.data.selected import Selected
from regun.errors import DataError, RegunError
from regun.requests.folder import REQUEST, Folder
from regun.requests.ids import Asked, Line
from regun.requests.ledger import Entry, Ledger
from regun.requests.naming import Naming
from regun.requests.project import Case
from regun.seeds import digest


@dataclass(frozen=True)
class Matched:
    """The lines to act on (the first that names each id) with the names their ids are written as, and the ids of
    those that are left out, by reason."""

    lines: tuple[Line, ...]
    names: tuple[str, ...]
    duplicate: tuple[str, ...]
    already: tuple[str, ...]
    unknown: tuple[str, ...]
    unseen: Mapping[str, tuple[str, ...]]
    """Ids of examples the model never trained on, by set."""


NOTHING = Matched((), (), (), (), (), {})


@dataclass(frozen=True)
class Place:
    """Where a request stands: its number, the hash of the ledger's line before it, and the very first model."""

    number: int
    tip: str
    base: str


@dataclass(frozen=True)
class Plan:
    """One request: rows of the training set that are new, forgotten in all, and retained; rows kept elsewhere."""

    place: Place
    matched: Matched
    names: tuple[str, ...]
    """The ids to forget as they are written down; `unseen`: those of examples the model never trained on, by set."""
    unseen: Mapping[str, Sequence[str]]
    new: Indices
    forget: Indices
    retain: Indices
    kept: Mapping[str, Indices]
    gone: int
    """Ids forgotten earlier whose examples are no longer in the data."""

    @property
    def number(self) -> int:
        return self.place.number

    @property
    def tip(self) -> str:
        return self.place.tip

    @property
    def base(self) -> str:
        return self.place.base

    @property
    def request(self) -> str:
        """What is asked, as a digest: the same ids in any order are the same request."""
        return digest(sorted([*self.names, *(one for some in self.unseen.values() for one in some)]))

    @property
    def empty(self) -> bool:
        """Whether nothing is asked that an earlier request has not done."""
        return not self.names and not any(self.unseen.values())


def forgotten_names(folder: Folder, ledger: Ledger, naming: Naming, case: Case) -> set[str]:
    """The written form of every id that an accepted request has forgotten; refused where ids mean something else."""
    names: set[str] = set()
    for entry in ledger.entries:
        refuse_other_ids(folder, entry, naming, case)
    now = set(naming.of(case.ids["train"])) if ledger.accepted else set[str]()
    for entry in ledger.accepted:
        trained, unseen = request_ids(folder, entry)
        if entry.data == case.sets["train"].digest and not now.issuperset(trained):
            raise RegunError(
                f"the training data are those of request {entry.number}, but ids that it has forgotten are no longer "
                f"among the project's: the ids were renamed, and the forgotten records would come back as retain data. "
                f"Give the ids of then, or start a new --out."
            )
        names.update(trained, *unseen.values())
    return names


def refuse_other_ids(folder: Folder, entry: Entry, naming: Naming, case: Case) -> None:
    """Raise unless the ids of a finished request can be compared with the project's."""
    naming.refuse_other(entry.naming, folder.ledger)
    if entry.ids != case.ids_are:
        raise RegunError(
            f"the ids of request {entry.number} are {entry.ids}, and the project's are {case.ids_are}: one cannot be "
            f"translated to the other, so forgotten records would come back as retain data. Use the project as it was "
            f"then, or start a new --out."
        )


def request_ids(folder: Folder, entry: Entry) -> tuple[list[str], dict[str, list[str]]]:
    """The ids of a finished request as they are written: trained on, and never trained on (by set)."""
    stored: dict[str, Any] = json.loads(folder.read(entry, REQUEST))
    return [str(line["id"]) for line in stored["lines"]], stored["unseen"]


def make_plan(case: Case, asked: Asked, folder: Folder, ledger: Ledger, naming: Naming) -> Plan:
    """Who plays which part; refuses another model than the ledger's and a request that leaves nothing to retain."""
    weights = case.weights
    base = ledger.entries[0].base if ledger.entries else weights
    current = ledger.accepted[-1].after if ledger.accepted else base
    if weights not in (base, current):
        raise RegunError(
            f"the project's model ({weights[:12]}) is neither the one that {folder.ledger} starts from ({base[:12]}) "
            f"nor its current one ({current[:12]}); give one of these, or start a new --out."
        )
    earlier = forgotten_names(folder, ledger, naming, case)
    _refuse_shifted_positions(case, ledger)
    matched = match(asked, case.ids, earlier, naming)
    unseen = {name: tuple(naming.of(some)) for name, some in matched.unseen.items()}
    place = Place(len(ledger.entries) + 1, ledger.tip, base)
    return plan_of(case, naming, place, matched.names, unseen, earlier, matched)


def plan_of(
    case: Case,
    naming: Naming,
    place: Place,
    names: tuple[str, ...],
    unseen: Mapping[str, Sequence[str]],
    earlier: set[str],
    matched: Matched,
) -> Plan:
    """The rows behind names: those of this request, of earlier ones, and all the others."""
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
    return Plan(place, matched, names, unseen, np.flatnonzero(new), forget, retain, kept, gone)


def match(asked: Asked, ids: Mapping[str, list[str]], earlier: set[str], naming: Naming) -> Matched:
    """Sort the lines: new, named before in the same file, forgotten already, unseen by the model, unknown."""
    known, elsewhere = set(ids["train"]), {name: set(some) for name, some in ids.items() if name != "train"}
    first: dict[str, Line] = {}
    duplicate: list[str] = []
    for line in asked.lines:
        if line.id in first:
            duplicate.append(line.id)
        else:
            first[line.id] = line
    written = dict(zip(first, naming.of(first), strict=True))
    already = {one for one, name in written.items() if name in earlier} if earlier else set[str]()
    lines = tuple(line for one, line in first.items() if one in known and one not in already)
    rest = [one for one in first if one not in known and one not in already]
    unseen = {name: tuple(one for one in rest if one in some) for name, some in elsewhere.items()}
    found = {one for some in unseen.values() for one in some}
    return Matched(
        lines,
        tuple(written[line.id] for line in lines),
        tuple(duplicate),
        tuple(one for one in first if one in already),
        tuple(one for one in rest if one not in found),
        {name: some for name, some in unseen.items() if some},
    )


def sets_of(plan: Plan, case: Case, forget: Indices | None = None) -> dict[str, Examples]:
    """The sets of unlearning and audit; `forget` may be a part of all that is forgotten."""
    train = case.sets["train"]
    chosen = plan.forget if forget is None else forget
    sets: dict[str, Examples] = {"retain": Selected(train, plan.retain), "forget": Selected(train, chosen)}
    for name, rows in plan.kept.items():
        if len(rows):
            sets[name] = Selected(case.sets[name], rows)
    return sets


def _among(written: Sequence[str], names: set[str]) -> npt.NDArray[np.bool_]:
    return np.fromiter((one in names for one in written), dtype=bool, count=len(written))


def _refuse_shifted_positions(case: Case, ledger: Ledger) -> None:
    if case.project.ids is None and ledger.entries and ledger.entries[-1].data != case.sets["train"].digest:
        raise RegunError(
            "the training data have changed since the last request and have no ids, so positions may now mean other "
            "examples, and those of earlier requests cannot be translated; use the data as they were then, or start a "
            "new --out (with ids)."
        )
