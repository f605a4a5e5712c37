"""Best and second best, by one rule for our rows and the paper's."""

from collections.abc import Mapping
from typing import Literal

Mark = Literal["best", "second"]

_RANKS: dict[int, Mark] = {0: "best", 1: "second"}
_ROUNDING = 1e-9


def marks(distances: Mapping[str, float]) -> dict[str, Mark]:
    """The smallest and second smallest of two or more distances to Retrain, by how many others are smaller.

    Equal distances share a mark, so where two share `best` there is no `second`.

    >>> marks({"a": 2.0, "b": 1.0, "c": 2.0, "d": 3.0})
    {'a': 'second', 'b': 'best', 'c': 'second'}
    """
    if len(distances) < 2:
        return {}
    closer = {name: sum(other < own - _ROUNDING for other in distances.values()) for name, own in distances.items()}
    return {name: _RANKS[n] for name, n in closer.items() if n in _RANKS}
