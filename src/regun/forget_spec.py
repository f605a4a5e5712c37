"""`ForgetSpec`: which examples to forget, parsed once from text or built from values.

    0.1                    a random 10 % of the training and validation examples
    stratified:0.1         the same, each class in proportion
    class:3/5              every training example of classes 3 and 5
    class:3=0.5/5=0.1      half of class 3 and a tenth of class 5
    ids:FILE               the training examples whose ids the file lists, one per line or as a JSON list
    hard:0.1, easy:0.1     those with the highest or lowest loss early in training
    like:17,50             the 50 training examples nearest to example 17 in the base model's features
    cluster:1/8            the largest of 8 clusters of the training examples' features
    subclass:3/2/4         the second largest of 4 clusters within class 3

The first five need labels at most: `splits.make_splits` turns them into indices. The others need trained models
(`needs_model`): `artifacts.selection.resolve` turns them into a spec of ids.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regun.errors import SplitError, unknown
from regun.settings import read_json, shown

_EXAMPLES = {
    "stratified": "stratified:0.1",
    "class": "class:3/5 or class:3=0.5",
    "ids": "ids:FILE",
    "hard": "hard:0.1",
    "easy": "easy:0.1",
    "like": "like:17,50 (the 50 examples most like example 17)",
    "cluster": "cluster:1/8 (the largest of 8 clusters)",
    "subclass": "subclass:3/2/4 (the second largest of 4 clusters of class 3)",
}
KINDS = tuple(_EXAMPLES)
"""Prefixes before the colon."""
EARLY_KINDS = ("hard", "easy")
FEATURE_KINDS = ("like", "cluster", "subclass")


@dataclass(frozen=True)
class ForgetSpec:
    """Which examples to forget. Build it with `parse` or with one of the other class methods.

    Two specs are equal if they select the same examples; `text` is as the user wrote it.

    >>> spec = ForgetSpec.parse("like:17,50")
    >>> spec.text, spec.label, spec.needs_model
    ('like:17,50', '50 like example 17', True)
    >>> ForgetSpec.parse("0.10") == ForgetSpec.random(0.1)
    True
    """

    kind: str
    text: str = field(compare=False)
    fraction: float = 0.0
    classes: tuple[int, ...] = ()
    fractions: tuple[float, ...] = ()
    ids: tuple[int, ...] = field(default=(), repr=False)
    example: int = 0
    count: int = 0
    part: int = 1
    parts: int = 1

    @classmethod
    def parse(cls, text: str, folder: str | Path = ".") -> "ForgetSpec":
        """Return the spec that `text` describes; `ids:FILE` is read from `folder`."""
        kind, colon, rest = text.partition(":")
        if not colon:
            kind, rest = "random", text
        elif kind not in KINDS:
            raise SplitError(unknown("kind of forget set", kind, KINDS))
        if kind == "ids":
            return cls("ids", text, ids=tuple(_read_ids(Path(folder) / Path(rest).expanduser())))
        try:
            spec = cls._parse_values(kind, text, rest)
        except ValueError:
            example = _EXAMPLES.get(kind) or f"0.1 or one of {', '.join(_EXAMPLES.values())}"
            raise SplitError(f"cannot read {shown(text)} as a forget set; write {example}.") from None
        if kind in EARLY_KINDS and not 0 < spec.fraction < 1:  # make_splits checks other fractions against the data
            raise SplitError(f"the fraction of {shown(text)} is {spec.fraction}; give a number between 0 and 1.")
        if kind == "like" and not spec.count:
            raise SplitError(f"{shown(text)} names no examples; give a count of at least 1.")
        if not 1 <= spec.part <= spec.parts:
            raise SplitError(f"{shown(text)} names cluster {spec.part} of {spec.parts}; they count from 1.")
        return spec

    @classmethod
    def _parse_values(cls, kind: str, text: str, rest: str) -> "ForgetSpec":
        """Return the spec of one kind; raise a ValueError if `rest` is not of its form."""
        if kind in ("random", "stratified", *EARLY_KINDS):
            return cls(kind, text, fraction=float(rest))
        if kind == "class" and "=" in rest:
            pairs = [(int(c), float(f)) for c, f in (pair.split("=") for pair in rest.split("/"))]
            if len(dict(pairs)) < len(pairs):
                raise SplitError(f"{shown(text)} names a class twice; give each once.")
            return cls("class_fraction", text, classes=tuple(dict(pairs)), fractions=tuple(dict(pairs).values()))
        if not re.fullmatch("[0-9]{1,18}([/,][0-9]{1,18})*" if kind == "like" else "[0-9]{1,18}(/[0-9]{1,18})*", rest):
            raise ValueError
        numbers = [int(part) for part in re.split("[/,]", rest)]
        if kind == "class":
            return cls(kind, text, classes=tuple(numbers))
        if kind == "like":
            example, count = numbers
            return cls(kind, text, example=example, count=count)
        *classes, part, parts = numbers
        if len(classes) != (kind == "subclass"):
            raise ValueError
        return cls(kind, text, classes=tuple(classes), part=part, parts=parts)

    @classmethod
    def random(cls, fraction: float) -> "ForgetSpec":
        """Return a uniformly drawn `fraction` of everything but the held-out set (the paper's 1, 10 and 50 %)."""
        return cls("random", f"{fraction}", fraction=fraction)

    @classmethod
    def stratified(cls, fraction: float) -> "ForgetSpec":
        """Return the same as `random`, but each class gives its share to within one example."""
        return cls("stratified", f"stratified:{fraction}", fraction=fraction)

    @classmethod
    def of_ids(cls, ids: Sequence[int] | npt.NDArray[np.integer]) -> "ForgetSpec":
        """Return exactly these training examples."""
        return cls("ids", "ids", ids=tuple(int(i) for i in ids))

    @property
    def needs_early_models(self) -> bool:
        """True if briefly trained models must rank the examples."""
        return self.kind in EARLY_KINDS

    @property
    def needs_model(self) -> bool:
        """True if trained models must rank the examples before there are indices."""
        return self.kind in EARLY_KINDS or self.kind in FEATURE_KINDS

    @property
    def label(self) -> str:
        """The spec as tables show it: `10 %`, `class 3/5`.

        >>> [ForgetSpec.parse(text).label for text in ("0.1", "class:3/5", "hard:0.1", "subclass:3/2/4")]
        ['10 %', 'class 3/5', 'hardest 10 %', 'class 3, cluster 2 of 4']
        """
        cluster = f"cluster {self.part} of {self.parts}"
        labels = {
            "random": f"{100 * self.fraction:g} %",
            "hard": f"hardest {100 * self.fraction:g} %",
            "easy": f"easiest {100 * self.fraction:g} %",
            "like": f"{self.count} like example {self.example}",
            "cluster": cluster,
            "subclass": f"class {self.classes[0] if self.classes else ''}, {cluster}",
        }
        return labels.get(self.kind, self.text.replace(":", " ", 1))


def split_forget_list(text: str) -> tuple[str, ...]:
    """Return the specs of a comma-separated list; `like:17,50` holds a comma itself.

    >>> split_forget_list("0.1,like:17,50,class:3")
    ('0.1', 'like:17,50', 'class:3')
    """
    return tuple(re.findall(r"like:[0-9]+,[0-9]+|[^,]+", text))


def _read_ids(path: Path) -> list[int]:
    """Return the ids of a text file (separated by white space) or of a JSON list."""
    try:
        text = path.read_text()
    except (OSError, ValueError) as fault:
        raise SplitError(f"cannot read the ids of {path}: {fault}. Give a text file with one id per line.") from None
    items: list[Any] = read_json(text, str(path)) if text.lstrip().startswith("[") else text.split()
    bad = [i for i in items if not re.fullmatch("-?[0-9]{1,18}", str(i))]
    if bad:
        raise SplitError(f"{path} holds {shown(bad[0])}, which is not an id; ids are whole numbers, one per line.")
    return [int(i) for i in items]
