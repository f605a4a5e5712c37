"""What a request would do: which ids mean which examples, and which examples play which part."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from regun.data.examples import Examples, Indices
from regun.data.views import Selected
from regun.errors import DataError, RegunError, StoreError
from regun.requests.folder import REQUEST, Folder
from regun.requests.ids import Asked, AskedLine
from regun.requests.ledger import Ledger, LedgerLine
from regun.requests.naming import Naming
from regun.requests.project import Case
from regun.seeds import digest


@dataclass(frozen=True)
class Matched:
    """The lines to act on (the first that names each id) and the ids of those that are left out, by reason."""

    lines: tuple[AskedLine, ...] = ()
    duplicate: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    unseen: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Ids of examples the model never trained on, by set."""


@dataclass(frozen=True)
class RequestPlan:
    """One request: where it stands in the ledger, what it asks for, and the rows of each set by the part they play."""

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
    matched: Matched = Matched()

    @property
    def empty(self) -> bool:
        """Whether nothing is asked that an earlier request has not done."""
        return not self.names and not any(self.unseen.values())

    def sets(self, case: Case) -> dict[str, Examples]:
        """The sets of unlearning and audit."""
        train = case.sets["train"]
        sets: dict[str, Examples] = {"retain": Selected(train, self.retain), "forget": Selected(train, self.forget)}
        return sets | {name: Selected(case.sets[name], rows) for name, rows in self.kept.items() if len(rows)}

    def digests(self, case: Case, naming: Naming) -> dict[str, str]:
        """The digest of every set, as ledger and receipt show it: of few rows, so keyed where there is a salt."""
        rows = {"retain": ("train", self.retain), "forget": ("train", self.forget)}
        rows |= {name: (name, kept) for name, kept in self.kept.items()}
        own = {name: Selected(case.sets[of], some).digest for name, (of, some) in rows.items()}
        return {name: naming.digest(plain) for name, plain in {"train": case.sets["train"].digest, **own}.items()}


def make_plan(case: Case, asked: Asked, folder: Folder, ledger: Ledger, naming: Naming) -> RequestPlan:
    """Who plays which part; refuses another model than the ledger's and a request that leaves nothing to retain."""
    weights = case.weights
    base = ledger.lines[0].base if ledger.lines else weights
    current = ledger.accepted[-1].after if ledger.accepted else base
    if weights not in (base, current):
        raise RegunError(
            f"the project's model ({weights[:12]}) is neither the one that {folder.ledger} starts from ({base[:12]}) "
            f"nor its current one ({current[:12]}); give one of these, or start a new --out."
        )
    earlier = forgotten_names(folder, ledger.lines, naming, case)
    _refuse_shifted_positions(case, ledger, naming)
    matched = match(asked, case.ids, earlier, naming)
    unseen = {name: naming.of(some) for name, some in matched.unseen.items()}
    names = tuple(naming.of(line.id for line in matched.lines))
    return replace(_plan(case, naming, (ledger.count + 1, ledger.tip, base), names, unseen, earlier), matched=matched)


def plan_again(case: Case, folder: Folder, lines: Sequence[LedgerLine], naming: Naming) -> RequestPlan:
    """The plan of the last of these requests, all of them finished, from what was written down."""
    *before, line = lines
    refuse_other_ids(folder, line, naming, case)
    names, unseen = _request_ids(folder, line)
    earlier = forgotten_names(folder, before, naming, case)
    return _plan(case, naming, (line.number, line.previous, line.base), tuple(names), unseen, earlier)


def forgotten_names(folder: Folder, lines: Iterable[LedgerLine], naming: Naming, case: Case) -> set[str]:
    """The written form of every id that an accepted request has forgotten; refused where ids mean something else."""
    names: set[str] = set()
    now: set[str] | None = None
    data = naming.digest(case.sets["train"].digest)
    for line in lines:
        refuse_other_ids(folder, line, naming, case)
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


def refuse_other_ids(folder: Folder, line: LedgerLine, naming: Naming, case: Case) -> None:
    """Raise unless the ids of a finished request can be compared with the project's."""
    naming.refuse_other(line.naming, folder.ledger)
    if line.ids != case.ids_are:
        raise RegunError(
            f"the ids of request {line.number} are {line.ids}, and the project's are {case.ids_are}: one cannot be "
            f"translated to the other, so forgotten records would come back as retain data. Use the project as it was "
            f"then, or start a new --out."
        )


def match(asked: Asked, ids: Mapping[str, list[str]], earlier: set[str], naming: Naming) -> Matched:
    """Sort the lines: new, named before in the same file, forgotten already, unseen by the model, unknown."""
    known, elsewhere = set(ids["train"]), {name: set(some) for name, some in ids.items() if name != "train"}
    first: dict[str, AskedLine] = {}
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
    return Matched(
        tuple(line for one, line in first.items() if one in known and one not in already),
        tuple(duplicate),
        tuple(one for one in first if one in already),
        tuple(one for one in rest if one not in found),
        {name: some for name, some in unseen.items() if some},
    )


def _plan(
    case: Case,
    naming: Naming,
    place: tuple[int, str, str],
    names: tuple[str, ...],
    unseen: Mapping[str, Sequence[str]],
    earlier: set[str],
) -> RequestPlan:
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
    request = naming.digest(digest(sorted([*names, *(one for some in unseen.values() for one in some)])))
    return RequestPlan(*place, request, names, unseen, np.flatnonzero(new), forget, retain, kept, gone)


def _request_ids(folder: Folder, line: LedgerLine) -> tuple[list[str], dict[str, list[str]]]:
    """The ids of a finished request as they are written: trained on, and never trained on (by set)."""
    try:
        stored: dict[str, Any] = json.loads(folder.read(line, REQUEST))
        unseen = {str(name): [str(one) for one in some] for name, some in stored["unseen"].items()}
        return [str(one["id"]) for one in stored["lines"]], unseen
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StoreError(f"{folder.request(line.number) / REQUEST} is not as regun writes it; restore it.") from None


def _among(written: Sequence[str], names: set[str]) -> npt.NDArray[np.bool_]:
    return np.fromiter((one in names for one in written), dtype=bool, count=len(written))


def _refuse_shifted_positions(case: Case, ledger: Ledger, naming: Naming) -> None:
    data = naming.digest(case.sets["train"].digest)
    if case.project.ids is None and ledger.lines and ledger.lines[-1].data != data:
        raise RegunError(
            "the training data have changed since the last request and have no ids, so positions may now mean other "
            "examples, and those of earlier requests cannot be translated; use the data as they were then, or start a "
            "new --out (with ids)."
        )
