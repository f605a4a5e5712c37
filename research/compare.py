"""Compare the methods of a study, paired over training seeds, with the noise floor.

    python research/compare.py results/NAME [--to ReGUn] [--number gap_rftp] [--paper resnet18-cifar10]
    python research/compare.py results/NAME --details          # the gap, what it is made of, its cost, the verdicts
    python research/compare.py results/NAME --sweep [--number test_acc]       # means over seeds for every weight w
    python research/compare.py results/NAME results/OTHER --overview          # a column for each study and request

Runs share training seed, base and Retrain, so methods are compared seed by seed (means over the repeats). Intervals are
Student's over seeds, p is Holm's over all comparisons of the table. A difference is significant if it exceeds the mean
noise floor (the distance between two retrained models) and p is below 0.05. "uncorrected": it exceeds the floor and its
own interval excludes 0, which happens in one of twenty comparisons of equal methods. --details marks the first with *
and the second with (*). --paper adds the paper's number of that study, --forget selects one request. Samples are the
mean of forward and backward samples, as a share of Retrain's.
"""

import argparse
import csv
import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import t

from regun.experiments.study.paper import Paper, paper_numbers

Seeds = dict[int, float]


@dataclass(frozen=True)
class Row:
    """A method's number, seed by seed, and its spread over the repeats of one seed, where there are some."""

    method: str
    seeds: Seeds
    within: float | None

    @property
    def mean(self) -> float:
        return statistics.mean(self.seeds.values())

    def text(self) -> str:
        spread = f" ± {statistics.stdev(self.seeds.values()):.2f}" if len(self.seeds) > 1 else ""
        return f"{self.mean:.2f}{spread}" + ("" if self.within is None else f" / {self.within:.2f}")


def read(folder: Path, number: str, file_name: str = "rows.csv") -> dict[str, dict[str, Row]]:
    """Request and title to its row; Retrain's too, where the number is not a distance to it."""
    values: dict[tuple[str, str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (folder / file_name).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row[number] and not (row["kind"] == "retrain" and number.startswith("gap")):
                values[row["forget"], row["title"], row["method"]][int(row["seed"])].append(float(row[number]))
    rows: dict[str, dict[str, Row]] = defaultdict(dict)
    for (forget, title, method), seeds in values.items():
        spreads = [statistics.variance(some) for some in seeds.values() if len(some) > 1]
        means = {seed: statistics.mean(some) for seed, some in seeds.items()}
        rows[forget][title] = Row(method, means, math.sqrt(statistics.mean(spreads)) if spreads else None)
    return rows


def request_head(forget: str) -> str:
    """A request as the head of a table."""
    return f"{100 * float(forget):g} % forgotten" if forget[:1].isdigit() else forget


@dataclass(frozen=True)
class Difference:
    """The mean over seeds that both have, half of its 95 % interval, and the p of no difference."""

    mean: float
    half: float
    p: float


def compared(one: Seeds, other: Seeds) -> Difference:
    change = [other[seed] - one[seed] for seed in one.keys() & other.keys()]
    mean = statistics.mean(change)
    if len(change) < 2:
        return Difference(mean, math.inf, 1.0)
    error = statistics.stdev(change) / math.sqrt(len(change))
    p = 2 * float(t.sf(abs(mean) / error, len(change) - 1)) if error else float(mean == 0)
    return Difference(mean, float(t.ppf(0.975, len(change) - 1)) * error, p)


@dataclass(frozen=True)
class Compared:
    """A difference, its p corrected for all comparisons of the table, and whether it is significant."""

    difference: Difference
    p: float
    significant: str

    def cells(self) -> list[str]:
        one = self.difference
        span = f"{one.mean - one.half:+.2f} to {one.mean + one.half:+.2f}"
        return [f"{one.mean:+.2f}", span, f"{self.p:.3f}", self.significant]


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Each p as large as it has to be for all of them to hold at once.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    adjusted: dict[str, float] = {}
    least = 0.0
    for place, (name, p) in enumerate(sorted(p_values.items(), key=lambda pair: pair[1])):
        least = max(least, min(1.0, (len(p_values) - place) * p))
        adjusted[name] = least
    return adjusted


def significant(one: Difference, p: float, floor: float) -> str:
    """Return whether a difference is significant, given its p corrected for all comparisons.

    >>> significant(Difference(3.0, 1.0, 0.01), 0.2, floor=1.5)
    'uncorrected'
    """
    if abs(one.mean) <= floor or one.p >= 0.05:
        return "no"
    return "yes" if p < 0.05 else "uncorrected"


def comparison(folder: Path, forget: str, to: str, number: str, rows: Mapping[str, Row]) -> dict[str, Compared]:
    """Return, for every other row of a request, its difference to the row `to`."""
    floor = json.loads((folder / "about.json").read_text(encoding="utf-8"))["floors"][forget][number]["mean"]
    apart = {title: compared(rows[to].seeds, row.seeds) for title, row in rows.items() if title != to}
    corrected = holm({title: one.p for title, one in apart.items()})
    return {
        title: Compared(one, corrected[title], significant(one, corrected[title], floor))
        for title, one in apart.items()
    }


def table(folder: Path, to: str, number: str, paper: str | None = None, only: str | None = None) -> str:
    known = paper_numbers(paper) if paper else None
    parts: list[str] = []
    for forget, rows in read(folder, number).items():
        if only not in (None, forget):
            continue
        heads = [request_head(forget), number, *(["the paper's"] if known else [])]
        heads += [f"difference to {to}", "95 % interval", "p (Holm)", "significant"]
        lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 4)}---|---:|---|"]
        against = comparison(folder, forget, to, number, rows)
        floor = json.loads((folder / "about.json").read_text(encoding="utf-8"))["floors"][forget][number]["mean"]
        lines = [f"forget {forget}: {number}, against {to}; noise floor {floor:.2f}", "", *lines]
        for title, row in sorted(rows.items(), key=lambda pair: pair[1].mean):
            cells = [title, row.text(), *([paper_cell(known, forget, row, number)] if known else [])]
            cells += against[title].cells() if title in against else [""] * 4
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def paper_cell(known: Paper, forget: str, row: Row, number: str) -> str:
    theirs = known.number(forget, row.method, number)
    return f"{theirs.mean:.2f}" if theirs else ""


DETAILS = {
    "retain_acc": "retain",
    "forget_acc": "forget",
    "test_acc": "test",
    "rmia_auc": "RMIA AUC",
    "relearn_forget_acc": "relearned forget",
    "relearn_rmia_auc": "relearned RMIA",
    "influence_left": "influence left",
}
MARKS = {"yes": " *", "uncorrected": " (*)", "no": ""}


def details(folder: Path, to: str, paper: str | None = None, only: str | None = None) -> str:
    """Return the gap and what it is made of, means over seeds and runs, nearest to Retrain first."""
    with (folder / "rows.csv").open(newline="", encoding="utf-8") as file:
        held = set(next(csv.reader(file)))
    shown = {name: head for name, head in DETAILS.items() if name in held}
    numbers = {name: read(folder, name) for name in ("gap_rftp", *shown, "forward", "backward")}
    floors = json.loads((folder / "about.json").read_text(encoding="utf-8"))["floors"]
    known = paper_numbers(paper) if paper else None
    parts: list[str] = []
    for forget, rows in numbers["gap_rftp"].items():
        if only not in (None, forget):
            continue
        heads = [request_head(forget), "Gap RFTP", *(["the paper's"] if known else []), f"to {to}"]
        heads += [*shown.values(), "samples", "verdicts"]
        lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 2)}---|"]
        against = comparison(folder, forget, to, "gap_rftp", rows)
        whole = sum(numbers[name][forget]["Retrain"].mean for name in ("forward", "backward"))
        for title in ("Retrain", *sorted(rows, key=lambda title: rows[title].mean)):
            row = rows.get(title)
            cells = [
                title,
                row.text() if row else "",
                *([paper_cell(known, forget, row, "gap_rftp") if row else ""] if known else []),
            ]
            one = against.get(title)
            cells.append(f"{one.difference.mean:+.2f}{MARKS[one.significant]}" if one else "")
            by_number = [numbers[name][forget].get(title) for name in shown]
            cells += [f"{abs(row.mean) if abs(row.mean) < 0.05 else row.mean:.1f}" if row else "" for row in by_number]
            samples = sum(numbers[name][forget][title].mean for name in ("forward", "backward"))
            cells += [f"{100 * samples / whole:.0f} %", _verdicts(folder, forget, title)]
            lines.append(f"| {' | '.join(cells)} |")
        apart = [f"{floors[forget][name]['mean']:.1f}" if name in floors[forget] else "" for name in shown]
        cells = [
            "two retrained models apart",
            f"{floors[forget]['gap_rftp']['mean']:.2f}",
            *([""] if known else []),
            "",
        ]
        lines.append(f"| {' | '.join([*cells, *apart, '', ''])} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _verdicts(folder: Path, forget: str, title: str) -> str:
    with (folder / "rows.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row["forget"], row["title"]) == (forget, title)]
    counts = Counter(row["verdict"] for row in rows if row["kind"] != "retrain")
    return ", ".join(
        f"{counts[verdict]} {verdict}" for verdict in ("passed", "inconclusive", "failed") if counts[verdict]
    )


def sweep(folder: Path, number: str) -> str:
    """A row for each method that was swept, a column for each of its weights."""
    parts: list[str] = []
    for forget, rows in read(folder, number, "sweep.csv").items():
        curves: dict[str, dict[str, float]] = defaultdict(dict)
        for title, row in rows.items():
            method, swept, w = title.rpartition(", w ")
            if swept:
                curves[method][w] = row.mean
        weights = sorted({w for curve in curves.values() for w in curve}, key=float)
        lines = [
            f"forget {forget}: {number}",
            "",
            f"| {request_head(forget)}, w | {' | '.join(weights)} |",
            f"|---|{'---:|' * len(weights)}",
        ]
        for method, curve in curves.items():
            lines.append(f"| {method} | {' | '.join(f'{curve[w]:.2f}' if w in curve else '' for w in weights)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def overview(folders: Sequence[Path], number: str) -> str:
    """Means over seeds of every study and request side by side, below how far two retrained models are apart."""
    columns: dict[str, dict[str, str]] = {}
    for folder in folders:
        floors = json.loads((folder / "about.json").read_text(encoding="utf-8"))["floors"]
        for forget, rows in read(folder, number).items():
            apart = f"{floors[forget][number]['mean']:.2f}"
            means = {title: f"{row.mean:.2f}" for title, row in rows.items()}
            columns[f"{folder.name}, {request_head(forget).removesuffix(' forgotten')}"] = {
                "two retrained models apart": apart,
                **means,
            }
    titles = list(dict.fromkeys(title for column in columns.values() for title in column))
    lines = [f"| {number} | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    lines += [f"| {title} | {' | '.join(column.get(title, '') for column in columns.values())} |" for title in titles]
    return "\n".join(lines)


def problems(folder: Path, to: str, number: str, swept: bool) -> list[str]:
    """What is wrong with the words of a command, before any of its numbers is looked for."""
    if not (folder / "about.json").exists():
        return [f"{folder} holds no results; give a folder that research/publish.py has written."]
    if swept:
        return [] if (folder / "sweep.csv").exists() else [f"{folder} has no sweep over w (sweep.csv)."]
    faults: list[str] = []
    with (folder / "rows.csv").open(newline="", encoding="utf-8") as file:
        titles = list(dict.fromkeys(row["title"] for row in csv.DictReader(file)))
    if to not in titles:
        faults.append(f"--to is {to!r}; {folder} has the rows {', '.join(map(repr, titles))}.")
    floors = json.loads((folder / "about.json").read_text(encoding="utf-8"))["floors"]
    if any(number not in known for known in floors.values()):
        known = sorted(set.intersection(*(set(known) for known in floors.values())))
        faults.append(f"--number is {number!r}; {folder} has a noise floor for {', '.join(known)}.")
    return faults


def printed(words: Sequence[str] | None = None) -> str:
    """What the command prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "results", type=Path, nargs="+", help="folders of finished studies; several for --overview only"
    )
    parser.add_argument("--to", default="ReGUn", help="the row to compare with, by its title")
    parser.add_argument("--number", default="gap_rftp")
    parser.add_argument("--paper", metavar="STUDY", help="the built-in study whose numbers the paper prints")
    parser.add_argument("--details", action="store_true", help="what gaps are made of, in place of the comparison")
    parser.add_argument("--sweep", action="store_true", help="the number for every weight of a sweep")
    parser.add_argument("--forget", help="one request of several, as rows.csv writes it (0.1)")
    parser.add_argument("--overview", action="store_true", help="the number of all studies side by side")
    args = parser.parse_args(words)
    if not args.overview and len(args.results) > 1:
        parser.error(f"{len(args.results)} folders of results; give one, or --overview.")
    to = "Retrain" if args.overview else args.to
    wrong = [text for folder in args.results for text in problems(folder, to, args.number, args.sweep)]
    if wrong:
        parser.error(" ".join(wrong))
    if args.overview:
        return overview(args.results, args.number)
    (folder,) = args.results
    if args.sweep:
        return sweep(folder, args.number)
    if args.details:
        return details(folder, args.to, args.paper, args.forget)
    return table(folder, args.to, args.number, args.paper, args.forget)


if __name__ == "__main__":
    print(printed())
