"""What the page needs to know about results: a row's number over its seeds, the noise floor, verdicts, costs."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from regun.evaluate import ATTACKS, Evaluation, FloorSummary, spread
from regun.evaluate.floor import Verdict
from regun.study.results import Block, Entry, Run

GAP_NAMES = ("gap_rftp", "gap_rfvp", "gap_tp", "gap_vp")
ATTACK_NAMES = ("rmia", "rmia_offline", "lira", "smia")


@dataclass(frozen=True)
class Cell:
    """A number of a row: the mean over `seeds` of them, with its sample deviation, or one value with its interval."""

    value: float
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 1
    verdicts: tuple[Verdict, ...] = ()


def judged(entry: Entry) -> list[Evaluation]:
    """The evaluations of the runs that could be evaluated."""
    return [run.evaluation for run in entry.runs if run.evaluation is not None]


def methods(block: Block) -> list[Entry]:
    return [entry for entry in block.entries if entry.kind == "method"]


def of_kind(block: Block, kind: str) -> Entry | None:
    return next((entry for entry in block.entries if entry.kind == kind), None)


def cell(block: Block, entry: Entry, name: str) -> Cell | None:
    """The number of that name in the entry's row; None where no run has it."""
    if entry.kind == "retrain":
        return None if name in GAP_NAMES or name.endswith("_div") else _retrained(block, entry, name)
    found = [evaluation for evaluation in judged(entry) if name in evaluation.numbers]
    if not found:
        return None
    known: tuple[Verdict, ...] = tuple(v for e in found if name in e.gaps and (v := e.gaps[name].verdict) is not None)
    if len(found) == 1:
        number = found[0].numbers[name]
        return Cell(number.value, None, number.low, number.high, 1, known)
    mean, deviation = spread([e.numbers[name].value for e in found])
    return Cell(mean, deviation, seeds=len(found), verdicts=known)


def _retrained(block: Block, entry: Entry, name: str) -> Cell | None:
    """Retrain's own number: from its evaluation or, where there is none, from those of models compared with it."""
    own = [e.numbers[name] for e in judged(entry) if name in e.numbers]
    if len(own) == 1:
        return Cell(own[0].value, None, own[0].low, own[0].high)
    values = [n.value for n in own] or list(_by_seed(block, lambda e: e.retrain.get(name)).values())
    if not values:
        return None
    mean, deviation = spread(values)
    return Cell(mean, deviation, seeds=len(values))


def _by_seed(block: Block, read: Callable[[Evaluation], float | None]) -> dict[int, float]:
    """For every seed, the first value that `read` finds in an evaluation of it."""
    found: dict[int, float] = {}
    for run in (run for entry in block.entries if entry.kind != "retrain" for run in entry.runs):
        value = read(run.evaluation) if run.evaluation is not None else None
        if value is not None:
            found.setdefault(run.seed, value)
    return found


def floor(block: Block, name: str) -> FloorSummary | None:
    """How far two retrained models are apart in this number, averaged over the seeds; None without a noise floor."""

    def part(field: Callable[[Evaluation], float | None]) -> float | None:
        values = list(_by_seed(block, field).values())
        return math.fsum(values) / len(values) if values else None

    mean = part(lambda e: e.gaps[name].floor_mean if name in e.gaps else None)
    largest = part(lambda e: e.gaps[name].floor_largest if name in e.gaps else None)
    limit = part(lambda e: e.gaps[name].floor_limit if name in e.gaps else None)
    return None if mean is None or largest is None or limit is None else FloorSummary(mean, largest, limit)


def main_gap(block: Block) -> str | None:
    """The gap by which methods are ranked: RFTP, or the nearest to it that was measured."""
    return next((g for g in GAP_NAMES if any(cell(block, e, g) for e in methods(block))), None)


def main_attack(block: Block) -> str | None:
    """The attack (and split) the page looks at closely: RMIA where there are references, the loss otherwise."""
    measured = {name: None for entry in block.entries for e in judged(entry) for name in e.attacks}
    wanted = [f"{name}{split}" for name in ATTACK_NAMES for split in ("", "_heldout", "_val")]
    return next((name for name in (*wanted, *measured) if name in measured), None)


def attack_parts(name: str) -> tuple[str, str]:
    """An attack's name in results as that of the attack and the suffix of the split it was run against."""
    suffix = next((s for s in ("_heldout", "_val") if name.endswith(s)), "")
    return name.removesuffix(suffix), suffix


def attack_label(name: str) -> str:
    """The label of an attack under the name results have it: `RMIA` for `rmia` and `rmia_val`."""
    plain = attack_parts(name)[0]
    return ATTACKS[plain].label if plain in ATTACKS else plain.replace("_", " ")


def cost(entry: Entry, name: str) -> Cell | None:
    """Mean over seeds of a cost (steps, forward, backward, seconds)."""
    values = [float(run.cost[name]) for run in entry.runs if name in run.cost]
    if not values:
        return None
    mean, deviation = spread(values)
    return Cell(mean, deviation, seeds=len(values))


def share(block: Block, entry: Entry, name: str) -> float | None:
    """The entry's cost in percent of retraining."""
    retrain = of_kind(block, "retrain")
    ours, theirs = cost(entry, name), cost(retrain, name) if retrain else None
    return 100.0 * ours.value / theirs.value if ours and theirs and theirs.value > 0 else None


def diverged(entry: Entry) -> list[Run]:
    return [run for run in entry.runs if run.diverged is not None or run.evaluation is None]


def fixed(value: float, digits: int = 2) -> str:
    """The value with so many digits, a true minus sign, no minus zero, thousands apart, or what it is if not finite.

    >>> fixed(-0.001), fixed(1234.5, 1)
    ('0.00', '1,234.5')
    """
    if not math.isfinite(value):
        return "not finite"
    text = f"{value:,.{digits}f}"
    return text.replace("-", "−") if any(c in "123456789" for c in text) else text.removeprefix("-")


def seconds(value: float) -> str:
    """A duration for people.

    >>> seconds(0.04), seconds(7.62), seconds(75), seconds(8000)
    ('under 0.1 s', '7.6 s', '1 min 15 s', '2 h 13 min')
    """
    if value < 0.1:
        return "under 0.1 s"
    if value < 59.5:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    if value < 3570:
        whole = round(value)
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 and whole < 600 else "")
    minutes = round(value / 60)
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def percent(value: float) -> str:
    """A share for people.

    >>> percent(0.2), percent(7.6), percent(38.4), percent(250)
    ('under 1 %', '8 %', '38 %', '250 %')
    """
    return "under 1 %" if 0 < value < 0.95 else f"{value:,.0f} %"


def names(titles: Iterable[str], last: str = "and") -> str:
    """`A`, `A and B`, `A, B and C`."""
    given = list(titles)
    return given[0] if len(given) == 1 else f"{', '.join(given[:-1])} {last} {given[-1]}" if given else ""


def many(count: int, one: str, several: str | None = None) -> str:
    """`1 method`, `2 methods`."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def ranked(block: Block, gap: str, entries: Sequence[Entry]) -> list[tuple[Entry, Cell]]:
    """Entries that have the gap and a finite one, the closest to Retrain first."""
    found = [(entry, cell(block, entry, gap)) for entry in entries]
    known = [(entry, c) for entry, c in found if c is not None and math.isfinite(c.value)]
    return sorted(known, key=lambda pair: pair[1].value)
