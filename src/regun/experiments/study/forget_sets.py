"""Requests of a study: what people call them, how large they are, and the tasks that are named after them."""

from regun.errors import SplitError
from regun.forget_spec import ForgetSpec
from regun.splits import Reserve, make_splits
from regun.types import Indices

PARTS = ("retain", "forget", "heldout", "val")


def request_label(forget: str) -> str:
    """A request for people: `10 %`, `class 3`.

    >>> request_label("0.1"), request_label("class:3/5"), request_label("hard:0.1"), request_label("like:17,50")
    ('10 %', 'class 3/5', 'hardest 10 %', '50 like example 17')
    """
    if forget.startswith("ids:"):
        return forget.replace(":", " ", 1)  # the label does not need the file
    try:
        return ForgetSpec.parse(forget).label
    except SplitError:
        return forget  # named as wrong where the study is checked


def select_id(forget: str, split: int) -> str:
    """The task that says which examples a request means."""
    return f"select {forget}, split {split}"


def sizes_of(labels: Indices, spec: ForgetSpec, reserved: Reserve) -> dict[str, int]:
    """Return the number of examples per split; an estimate where models must rank the examples first."""
    if not spec.needs_model:
        splits = make_splits(labels, spec, reserved)
        return {name: len(getattr(splits, name)) for name in PARTS}
    if spec.needs_early_models:
        forget = round(spec.fraction * (len(reserved.val) + len(reserved.pool)))
    elif spec.kind == "like":
        forget = spec.count
    else:
        members = labels[reserved.pool] == spec.classes[0] if spec.classes else reserved.pool >= 0
        forget = max(1, int(members.sum()) // spec.parts)
    forget = min(forget, len(reserved.pool) - 1)
    return {
        "retain": len(reserved.pool) - forget,
        "forget": forget,
        "heldout": len(reserved.heldout),
        "val": len(reserved.val),
    }


def relearn_id(model: str, forget: str, split: int) -> str:
    """The task that relearns a model."""
    return f"relearn {model}: {forget}, split {split}"
