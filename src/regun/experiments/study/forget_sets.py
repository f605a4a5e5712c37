"""Forget requests of a study: their labels and their sizes."""

from regun.artifacts.ranking import Selection
from regun.artifacts.selection import KINDS as SELECTIONS
from regun.artifacts.selection import read_selection
from regun.splits import Indices, Request, Reserve, make_splits

PARTS = ("retain", "forget", "heldout", "val")


def request_label(forget: str) -> str:
    """Return a request for people: `10 %`, `class 3`.

    >>> request_label("0.1"), request_label("class:3/5"), request_label("hard:0.1"), request_label("like:17,50")
    ('10 %', 'class 3/5', 'hardest 10 %', '50 like example 17')
    """
    kind, _, rest = forget.partition(":")
    if kind not in SELECTIONS:
        return f"{kind} {rest}" if rest else f"{100 * float(kind):g} %" if _is_number(kind) else kind
    selection = read_selection(forget)
    cluster = f"cluster {selection.part} of {selection.parts}"
    return {
        "hard": f"hardest {100 * selection.fraction:g} %",
        "easy": f"easiest {100 * selection.fraction:g} %",
        "like": f"{selection.count} like example {selection.example}",
        "cluster": cluster,
        "subclass": f"class {selection.label}, {cluster}",
    }[kind]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def sizes_of(labels: Indices, request: Request | Selection, reserved: Reserve) -> dict[str, int]:
    """Return the number of examples by split; an estimate where models decide which examples to forget."""
    if isinstance(request, Request):
        splits = make_splits(labels, request, reserved)
        return {name: len(getattr(splits, name)) for name in PARTS}
    forget = min(request.size(labels, reserved), len(reserved.pool) - 1)
    return {
        "retain": len(reserved.pool) - forget,
        "forget": forget,
        "heldout": len(reserved.heldout),
        "val": len(reserved.val),
    }
