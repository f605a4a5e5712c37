"""The acceptance rule: what must hold before an unlearned model takes the place of the current one.

    smia_auc~50, val_drop<1

A rule is a list of conditions; all must hold. `NAME~50`: the interval of the number contains 50. `NAME<1`, `<=`, `>`,
`>=`: its value is below 1, and so on. NAME is a number of the audit (`regun audit --all` lists them) or SET_drop, the
accuracy lost on retain, val, test or heldout in points (SET_drop_total: since before the first request). In place of
50, `retrain` stands for the retrained model's value; `NAME<=floor` asks that the number's distance to it be within the
noise floor.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from regun.errors import SettingsError, unknown
from regun.evaluate import Gap, Number, describe
from regun.show.numbers import fixed, interval

_CONDITION = re.compile(
    r"\s*([A-Za-z][A-Za-z0-9_]*)\s*(~|<=|>=|<|>)\s*([A-Za-z]+|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*"
)
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
WORDS = {"~": "the interval contains", "<": "below", "<=": "at most", ">": "above", ">=": "at least"}
_UTILITY = ("retain_acc", "val_acc", "test_acc", "heldout_acc")


@dataclass(frozen=True)
class Facts:
    """What a rule is judged by: numbers with intervals, the retrained model's values, gaps with their noise floor."""

    numbers: Mapping[str, Number]
    retrain: Mapping[str, float]
    gaps: Mapping[str, Gap]


@dataclass(frozen=True)
class Finding:
    """One condition judged on one set of facts; `meaning` says in words what it asks, `why` what was found."""

    condition: str
    scope: str
    passed: bool
    why: str
    meaning: str = ""


@dataclass(frozen=True)
class Condition:
    """`name sign bound`; the bound is a number, `retrain` or `floor`."""

    name: str
    sign: str
    bound: float | str

    @property
    def text(self) -> str:
        return f"{self.name}{self.sign}{_exact(self.bound)}"

    @property
    def meaning(self) -> str:
        """The condition in words."""
        split, drop, total = self.name.partition("_drop")
        since = "since the first model" if total else "in this request"
        what = f"points of {split} accuracy lost {since}" if drop else describe(self.name).label
        if self.bound == "floor":
            return f"{what}: within the noise floor of the retrained model's"
        bound = "the retrained model's" if self.bound == "retrain" else _exact(self.bound)
        return f"{what}: {WORDS[self.sign]} {bound}"

    @property
    def about_utility(self) -> bool:
        """Whether it asks what the model still can, rather than what it has forgotten."""
        return self.name in _UTILITY or "_drop" in self.name

    def judge(self, facts: Facts, scope: str) -> Finding:
        """Whether it holds; a number that the audit does not have is an error, never a pass."""
        if self.bound == "floor":
            return self._within_floor(facts, scope)
        if self.name not in facts.numbers:
            raise SettingsError([unknown("number in the acceptance rule", self.name, facts.numbers)])
        number, bound = facts.numbers[self.name], self._value(facts)
        if self.sign != "~":
            passed = _COMPARE[self.sign](number.value, bound)
            return Finding(self.text, scope, passed, fixed(number.value), self.meaning)
        if number.low is None or number.high is None:
            raise SettingsError([f"{self.name} has no interval, so {self.text} cannot be judged; use < or >."])
        inside = number.low <= bound <= number.high
        verb = "contains" if inside else "does not contain"
        ends = interval(number.low, number.high, 2)
        why = f"{fixed(number.value)}, interval {ends} {verb} {_exact(round(bound, 4))}"
        return Finding(self.text, scope, inside, why, self.meaning)

    def _value(self, facts: Facts) -> float:
        if isinstance(self.bound, float):
            return self.bound
        if self.name not in facts.retrain:
            raise SettingsError([f"{self.text} needs a retrained model's {self.name}; give retrained models."])
        return facts.retrain[self.name]

    def _within_floor(self, facts: Facts, scope: str) -> Finding:
        gap = facts.gaps.get(self.name)
        if gap is None or gap.floor_limit is None:
            raise SettingsError(
                [f"{self.text} needs a noise floor for {self.name}: a retrained model and at least 2 more of them."]
            )
        passed = gap.value <= gap.floor_limit
        why = f"{fixed(gap.value)} from retraining, noise up to {fixed(gap.floor_limit)}"
        return Finding(self.text, scope, passed, why, self.meaning)


@dataclass(frozen=True)
class Rule:
    """Conditions that must all hold."""

    conditions: tuple[Condition, ...]

    @property
    def text(self) -> str:
        return ", ".join(c.text for c in self.conditions)

    def judge(self, scopes: Mapping[str, Facts]) -> tuple[Finding, ...]:
        """Every condition on every set of facts; those about utility once, since they do not depend on what is new."""
        found: list[Finding] = []
        for condition in self.conditions:
            if condition.about_utility:
                found.append(condition.judge(next(iter(scopes.values())), "utility"))
            else:
                found += [condition.judge(facts, scope) for scope, facts in scopes.items()]
        return tuple(found)


def read_rule(text: str) -> Rule:
    """A rule from text; all that cannot be read is reported at once.

    >>> read_rule("smia_auc ~ 50, val_drop < 1").text
    'smia_auc~50, val_drop<1'
    """
    parts = [part for part in text.split(",") if part.strip()]
    if not parts:
        raise SettingsError(["the acceptance rule is empty; give conditions such as smia_auc~50, val_drop<1."])
    found = [(part, _CONDITION.fullmatch(part)) for part in parts]
    problems = [
        f"the acceptance rule has {part.strip()!r}; a condition is NAME~50, NAME<1, NAME<=1, NAME>1 or NAME>=1 "
        f"(retrain or floor may stand for the number)."
        for part, match in found
        if match is None
    ]
    conditions: list[Condition] = []
    for match in (match for _, match in found if match is not None):
        name, sign, bound = match.groups()
        word = bound if bound[0].isalpha() else None
        if word is not None and word != "retrain" and (word, sign) != ("floor", "<="):
            problems.append(f"the acceptance rule has {match[0].strip()!r}; words are NAME~retrain and NAME<=floor.")
        if word is None and not math.isfinite(float(bound)):
            problems.append(f"the acceptance rule has {match[0].strip()!r}; its bound is too large for a number.")
        conditions.append(Condition(name, sign, word or float(bound)))
    if problems:
        raise SettingsError(problems)
    return Rule(tuple(conditions))


def _exact(bound: float | str) -> str:
    """The bound in full: what is shown can be read again as the same rule."""
    return bound if isinstance(bound, str) else repr(bound).removesuffix(".0")


def default_rule(sets: Mapping[str, object]) -> str:
    """The attack on the loss cannot tell forgotten from unseen examples, and less than a point of accuracy is lost."""
    attacked = next(name for name in ("test", "heldout", "val") if name in sets)
    watched = next(name for name in ("val", "test", "heldout") if name in sets)
    return f"smia_auc{'' if attacked == 'test' else f'_{attacked}'}~50, {watched}_drop<1"
