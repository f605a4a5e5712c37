"""The acceptance rule: what must hold before an unlearned model takes the place of the current one.

    forgotten, val_drop<3.1

A rule is a list of conditions. Each is passed, failed or inconclusive: a condition on forgetting that the model before
unlearning meets as well shows nothing. `forgotten`: the influence left, measured with out-of-sample models against
every unseen set. `NAME~50`: the interval of the number contains 50. `NAME<1`, `<=`, `>`, `>=`: its value is below 1 ...
NAME is a number of the audit (`regun audit --all` lists them) or SET_drop, the accuracy lost on retain, val, test or
heldout in points (SET_drop_total: since before the first request). In place of 50, `retrain` stands for the retrained
model's value; `NAME<=floor` asks that the number's distance to it be within the noise floor.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from regun.auditing import Estimate, Gap, describe
from regun.auditing.influence import Influence
from regun.auditing.text import part_name
from regun.auditing.verdict import OF_INFLUENCE, Verdict
from regun.errors import SettingsError, unknown
from regun.render.numbers import fixed, interval

FORGOTTEN = "forgotten"
ALL, NEW, UTILITY = "all", "new", "utility"
"""Scopes of a finding: all records forgotten so far, those of this request, and the utility of the model."""
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
_UTILITY = ("retain_", "val_", "test_", "heldout_")
"""Prefixes of numbers that are not about forgetting."""
_LOST, _NOISE = 1.0, 52.0
"""Points of accuracy that may be lost, and what sampling noise adds: 1.64 standard errors of the difference of two
models that disagree on one example in ten, 1.64 * 100 * sqrt(0.1 / n) = 52 / sqrt(n)."""


@dataclass(frozen=True)
class Facts:
    """What a rule is judged by: numbers with intervals, the retrained model's values, gaps with their noise floor, the
    influence left (or why it is unknown), and the same facts of the model before unlearning."""

    numbers: Mapping[str, Estimate]
    retrain: Mapping[str, float]
    gaps: Mapping[str, Gap]
    influence: Influence | str = "it was not measured"
    before: "Facts | None" = None


@dataclass(frozen=True)
class Finding:
    """One condition judged on one scope; `meaning` is the condition in words, `why` the numbers behind the result."""

    condition: str
    scope: str
    result: Verdict
    why: str
    meaning: str = ""


@dataclass(frozen=True)
class Forgotten:
    """`forgotten`: the records have lost their influence on the model."""

    text = FORGOTTEN
    meaning = "the records are treated like records the model never saw"
    about_utility = False

    def judge(self, facts: Facts, scope: str) -> Finding:
        influence = facts.influence
        if isinstance(influence, str):
            return Finding(self.text, scope, "inconclusive", influence, self.meaning)
        return Finding(self.text, scope, OF_INFLUENCE[influence.verdict], influence.why, self.meaning)


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
        """True for a condition on the utility of the model, not on forgetting."""
        return self.name.startswith(_UTILITY)

    def judge(self, facts: Facts, scope: str) -> Finding:
        """Judge the condition; one on forgetting passes only if the model before unlearning fails it."""
        met, why = self._met(facts)
        if not met or self.about_utility:
            return Finding(self.text, scope, "passed" if met else "failed", why, self.meaning)
        if facts.before is None:
            return Finding(self.text, scope, "inconclusive", f"{why}; no model before it to compare", self.meaning)
        already, was = self._met(facts.before)
        if already:
            why = f"{why}; but the model before unlearning meets it too ({was}), so the test has no power"
        return Finding(self.text, scope, "inconclusive" if already else "passed", why, self.meaning)

    def _met(self, facts: Facts) -> tuple[bool, str]:
        """Return whether the condition holds, with the numbers; a number that the audit lacks is an error, never a
        pass."""
        if self.bound == "floor":
            return self._within_floor(facts)
        if self.name not in facts.numbers:
            raise SettingsError([unknown("number in the acceptance rule", self.name, [FORGOTTEN, *facts.numbers])])
        if self.bound == "retrain" and self.name not in facts.retrain:
            raise SettingsError([f"{self.text} needs a retrained model's {self.name}; give retrained models."])
        number = facts.numbers[self.name]
        bound = self.bound if isinstance(self.bound, float) else facts.retrain[self.name]
        if self.sign != "~":
            points = f"{fixed(abs(number.value))} points {'gained' if number.value < 0 else 'lost'}"
            return _COMPARE[self.sign](number.value, bound), points if "_drop" in self.name else fixed(number.value)
        if number.low is None or number.high is None:
            raise SettingsError([f"{self.name} has no interval, so {self.text} cannot be judged; use < or >."])
        inside = number.low <= bound <= number.high
        verb = "contains" if inside else "does not contain"
        ends = interval(number.low, number.high, 2)
        return inside, f"{fixed(number.value)}, interval {ends} {verb} {_exact(round(bound, 4))}"

    def _within_floor(self, facts: Facts) -> tuple[bool, str]:
        gap = facts.gaps.get(self.name)
        if gap is None or gap.floor_limit is None:
            raise SettingsError(
                [f"{self.text} needs a noise floor for {self.name}: a retrained model and at least 2 more of them."]
            )
        distance = f"{fixed(gap.value)} from retraining"
        if gap.worst is None:
            return gap.value <= gap.floor_limit, f"{distance}, noise up to {fixed(gap.floor_limit)}"
        # a gap has the verdict of the audit: by its worst part, at limits corrected for the number of tests
        worst, failed = part_name(gap.worst), gap.verdict == "failed"
        return not failed, f"{distance}; its {worst} is {'beyond' if failed else 'nearest to'} the limit of noise"


NO_EVIDENCE = Finding(
    "(forgetting)", ALL, "inconclusive", "no condition of the rule is about forgetting", "a test of forgetting"
)
"""The finding of a rule without any condition on forgetting."""


@dataclass(frozen=True)
class Rule:
    """Conditions that must all hold."""

    conditions: tuple[Condition | Forgotten, ...]

    @property
    def text(self) -> str:
        return ", ".join(c.text for c in self.conditions)

    @property
    def needs_influence(self) -> bool:
        """True if out-of-sample models are needed."""
        return any(isinstance(c, Forgotten) for c in self.conditions)

    def judge(self, scopes: Mapping[str, Facts]) -> tuple[Finding, ...]:
        """Judge every condition on every scope; those on utility once, since they do not depend on the scope."""
        findings: list[Finding] = []
        for condition in self.conditions:
            if condition.about_utility:
                findings.append(condition.judge(next(iter(scopes.values())), UTILITY))
            else:
                findings += [condition.judge(facts, scope) for scope, facts in scopes.items()]
        return tuple(findings) if any(f.scope != UTILITY for f in findings) else (NO_EVIDENCE, *findings)


def read_rule(text: str) -> Rule:
    """Parse a rule; all mistakes are reported at once.

    >>> read_rule("forgotten, smia_auc ~ 50, val_drop < 1").text
    'forgotten, smia_auc~50, val_drop<1'
    """
    parts = [part for part in text.split(",") if part.strip()]
    if not parts:
        raise SettingsError(["the acceptance rule is empty; give conditions such as forgotten, val_drop<2."])
    problems: list[str] = []
    conditions: list[Condition | Forgotten] = []
    for part in parts:
        if part.strip() == FORGOTTEN:
            conditions.append(Forgotten())
            continue
        match, where = _CONDITION.fullmatch(part), f"the acceptance rule has {part.strip()!r}"
        if match is None:
            problems.append(
                f"{where}; a condition is forgotten, NAME~50, NAME<1, NAME<=1, NAME>1 or NAME>=1 (retrain or floor may "
                f"stand for the number)."
            )
            continue
        name, sign, bound = match.groups()
        word = bound if bound[0].isalpha() else None
        if word is not None and word != "retrain" and (word, sign) != ("floor", "<="):
            problems.append(f"{where}; words are NAME~retrain and NAME<=floor.")
        if word is None and not math.isfinite(float(bound)):
            problems.append(f"{where}; its bound is too large for a number.")
        conditions.append(Condition(name, sign, word or float(bound)))
    if problems:
        raise SettingsError(problems)
    return Rule(tuple(conditions))


def _exact(bound: float | str) -> str:
    """Return the bound in full, so that the text parses as the same rule."""
    return bound if isinstance(bound, str) else repr(bound).removesuffix(".0")


def default_rule(sizes: Mapping[str, int]) -> str:
    """Return the default rule: no influence left, and no more accuracy lost than a retrained model might lose.

    Accuracy is measured on validation or test examples, whichever are more; on held-out ones if there are no others.

    >>> default_rule({"val": 100, "test": 100, "heldout": 900}), default_rule({"val": 100, "test": 10_000})
    ('forgotten, val_drop<6.2', 'forgotten, test_drop<1.5')
    """
    split = max(("val", "test"), key=lambda name: sizes.get(name, 0))
    split = split if sizes.get(split) else "heldout"
    limit = round(_LOST + _NOISE / math.sqrt(max(1, sizes.get(split, 0))), 1)
    return f"{FORGOTTEN}, {split}_drop<{_exact(limit)}"
