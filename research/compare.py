"""Compare the methods of a study, paired over training seeds, with the noise floor.

    python research/compare.py results/NAME [--to ReGUn] [--number gap_rftp] [--paper resnet18-cifar10]
    python research/compare.py results/NAME --details          # what a gap is made of, what it took, and the verdicts
    python research/compare.py results/NAME --sweep [--number test_acc]       # means over seeds for every weight w
    python research/compare.py results/NAME results/OTHER --overview          # a column for each study and request

Runs share training seed, base and Retrain, so methods are compared seed by seed (means over the repeats). Intervals are
Student's over seeds, p is Holm's over all comparisons of the table. A difference is significant if it exceeds the mean
noise floor (the distance between two retrained models) and p is below 0.05. "uncorrected": it exceeds the floor and its
own interval excludes 0, which happens in one of twenty comparisons of equal methods. --paper adds the paper's number of
that study. Samples are the mean of forward and backward samples, as a share of Retrain's.
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

from regun.experiments.study.paper import paper_numbers

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
    found: dict[str, dict[str, Row]] = defaultdict(dict)
    for (forget, title, method), seeds in values.items():
        spreads = [statistics.variance(some) for some in seeds.values() if len(some) > 1]
        means = {seed: statistics.mean(some) for seed, some in seeds.items()}
        found[forget][title] = Row(method, means, math.sqrt(statistics.mean(spreads)) if spreads else None)
    return found


def asked(forget: str) -> str:
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


def holm(found: Mapping[str, float]) -> dict[str, float]:
    """Each p as large as it has to be for all of them to hold at once.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    adjusted: dict[str, float] = {}
    least = 0.0
    for place, (name, p) in enumerate(sorted(found.items(), key=lambda pair: pair[1])):
        least = max(least, min(1.0, (len(found) - place) * p))
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


def table(folder: Path, to: str, number: str, paper: str | None = None) -> str:
    floors = json.loads((folder / "about.json").read_text(encoding="utf-8"))["floors"]
    known = paper_numbers(paper) if paper else None
    parts: list[str] = []
    for forget, rows in read(folder, number).items():
        floor = floors[forget][number]["mean"]
        heads = [
            asked(forget),
            number,
            *(["the paper's"] if known else []),
            f"difference to {to}",
            "95 % interval",
            "p (Holm)",
            "significant",
        ]
        lines = [f"forget {forget}: {number}, against {to}; noise floor {floor:.2f}", ""]
        lines += [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 4)}---|---:|---|"]
        apart = {title: compared(rows[to].seeds, row.seeds) for title, row in rows.items() if title != to}
        sure = holm({title: one.p for title, one in apart.items()})
        for title, row in sorted(rows.items(), key=lambda pair: pair[1].mean):
            against = [""] * 4
            if title in apart:
                one, p = apart[title], sure[title]
                span = f"{one.mean - one.half:+.2f} to {one.mean + one.half:+.2f}"
                against = [f"{one.mean:+.2f}", span, f"{p:.3f}", significant(one, p, floor)]
            theirs = known.number(forget, row.method, number) if known else None
            paper_cell = [f"{theirs.mean:.2f} ± {theirs.std:.2f}" if theirs else ""] if known else []
            lines.append(f"| {' | '.join([title, row.text(), *paper_cell, *against])} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


DETAILS = {
    "retain_acc": "retain",
    "forget_acc": "forget",
    "test_acc": "test",
    "rmia_auc": "RMIA AUC",
    "relearn_forget_acc": "relearned forget",
    "relearn_rmia_auc": "relearned RMIA",
    "influence_left": "influence left",
    "retain_div": "retain div.",
    "forget_div": "forget div.",
    "gap_tp": "Gap TP",
}


def details(folder: Path) -> str:
    """Means over seeds and runs of what a gap is made of and of what it leaves out, in the order of the study."""
    parts: list[str] = []
    with (folder / "rows.csv").open(newline="", encoding="utf-8") as file:
        held = set(next(csv.reader(file)))
    shown = {name: head for name, head in DETAILS.items() if name in held}
    numbers = {name: read(folder, name) for name in (*shown, "forward", "backward")}
    floors = json.loads((folder / "about.json").read_text(encoding="utf-8"))["floors"]
    for forget, rows in numbers["test_acc"].items():
        heads = [asked(forget), *shown.values(), "samples", "verdicts"]
        lines = [f"forget {forget}", "", f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 2)}---|"]
        whole = sum(numbers[name][forget]["Retrain"].mean for name in ("forward", "backward"))
        for title in rows:
            found = [numbers[name][forget].get(title) for name in shown]
            took = sum(numbers[name][forget][title].mean for name in ("forward", "backward"))
            cells = [f"{abs(row.mean) if abs(row.mean) < 0.05 else row.mean:.1f}" if row else "" for row in found]
            cells.append(f"{100 * took / whole:.0f} %")
            lines.append(f"| {' | '.join([title, *cells, _verdicts(folder, forget, title)])} |")
        apart = [f"{floors[forget][name]['mean']:.1f}" if name in floors[forget] else "" for name in shown]
        lines.append(f"| {' | '.join(['two retrained models apart', *apart, '', ''])} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _verdicts(folder: Path, forget: str, title: str) -> str:
    with (folder / "rows.csv").open(newline="", encoding="utf-8") as file:
        found = [row for row in csv.DictReader(file) if (row["forget"], row["title"]) == (forget, title)]
    counts = Counter(row["verdict"] for row in found if row["kind"] != "retrain")
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
            f"| {asked(forget)}, w | {' | '.join(weights)} |",
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
            columns[f"{folder.name}, {asked(forget)}"] = {"two retrained models apart": apart, **means}
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
    found: list[str] = []
    with (folder / "rows.csv").open(newline="", encoding="utf-8") as file:
        titles = list(dict.fromkeys(row["title"] for row in csv.DictReader(file)))
    if to not in titles:
        found.append(f"--to is {to!r}; {folder} has the rows {', '.join(map(repr, titles))}.")
    floors = json.loads((folder / "about.json").read_text(encoding="utf-8"))["floors"]
    if any(number not in known for known in floors.values()):
        known = sorted(set.intersection(*(set(known) for known in floors.values())))
        found.append(f"--number is {number!r}; {folder} has a noise floor for {', '.join(known)}.")
    return found


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
    parser.add_argument("--overview", action="store_true", help="the number of all studies side by side")
    args = parser.parse_args(words)
    if not args.overview and len(args.results) > 1:
        parser.error(f"{len(args.results)} folders of results; give one, or --overview.")
    to = "Retrain" if args.overview or args.details else args.to
    wrong = [text for folder in args.results for text in problems(folder, to, args.number, args.sweep)]
    if wrong:
        parser.error(" ".join(wrong))
    if args.overview:
        return overview(args.results, args.number)
    (folder,) = args.results
    if args.sweep:
        return sweep(folder, args.number)
    return details(folder) if args.details else table(folder, args.to, args.number, args.paper)


if __name__ == "__main__":
    print(printed())
