"""Requests of a study: what people call them, how large they are, and the tasks that are named after them."""

from regun.artifacts.ranking import Selection
from regun.artifacts.selection import KINDS as SELECTIONS
from regun.artifacts.selection import read_selection
from regun.splits import Indices, Request, Reserve, make_splits

PARTS = ("retain", "forget", "heldout", "val")


def request_label(forget: str) -> str:
    """A request for people: `10 %`, `class 3`.

    >>> request_label("0.1"), request_label("class:3/5"), request_label("hard:0.1"), request_label("like:17,50")
    ('10 %', 'class 3/5', 'hardest 10 %', '50 like example 17')
    """
    kind, _, rest = forget.partition(":")
    if kind not in SELECTIONS:
        return f"{kind} {rest}" if rest else f"{100 * float(kind):g} %" if _is_number(kind) else kind
    asked = read_selection(forget)
    cluster = f"cluster {asked.part} of {asked.parts}"
    return {
        "hard": f"hardest {100 * asked.fraction:g} %",
        "easy": f"easiest {100 * asked.fraction:g} %",
        "like": f"{asked.count} like example {asked.example}",
        "cluster": cluster,
        "subclass": f"class {asked.label}, {cluster}",
    }[kind]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def select_id(forget: str, split: int) -> str:
    """The task that says which examples a request means."""
    return f"select {forget}, split {split}"


def sizes_of(labels: Indices, asked: Request | Selection, kept: Reserve) -> dict[str, int]:
    """Examples by split; those of a request that models will answer as far as that can be told."""
    if isinstance(asked, Request):
        splits = make_splits(labels, asked, kept)
        return {name: len(getattr(splits, name)) for name in PARTS}
    forget = min(asked.size(labels, kept), len(kept.pool) - 1)
    return {
        "retain": len(kept.pool) - forget,
        "forget": forget,
        "heldout": len(kept.heldout),
        "val": len(kept.val),
    }


def relearn_id(model: str, forget: str, split: int) -> str:
    """The task that relearns a model."""
    return f"relearn {model}: {forget}, split {split}"
