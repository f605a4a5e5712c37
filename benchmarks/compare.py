"""Which differences between two methods of a study are more than noise: paired over training seeds, next to the floor.

    python benchmarks/compare.py results/NAME [--to regun] [--number gap_rftp]

Runs share training seed, base and Retrain, so methods are compared seed by seed (means over the repeats). A difference
counts as told if its 95 % interval (Student, over seeds) excludes 0 *and* it exceeds the mean noise floor: how far two
retrained models are apart.
"""

import argparse
import csv
import json
import math
import statistics
from collections import defaultdict
from pathlib import Path

from scipy.stats import t

Seeds = dict[int, float]


def by_seed(folder: Path, number: str) -> dict[str, dict[str, Seeds]]:
    """Request and title to the mean over repeats of each seed."""
    values: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (folder / "rows.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row[number] and row["kind"] != "retrain":
                values[row["forget"], row["title"]][int(row["seed"])].append(float(row[number]))
    found: dict[str, dict[str, Seeds]] = defaultdict(dict)
    for (forget, title), seeds in values.items():
        found[forget][title] = {seed: statistics.mean(some) for seed, some in seeds.items()}
    return found


def compared(one: Seeds, other: Seeds) -> tuple[float, float]:
    """The mean difference over seeds that both have, and half of its 95 % interval."""
    change = [other[seed] - one[seed] for seed in one.keys() & other.keys()]
    if len(change) < 2:
        return statistics.mean(change), math.inf
    half = float(t.ppf(0.975, len(change) - 1)) * statistics.stdev(change) / math.sqrt(len(change))
    return statistics.mean(change), half


def table(folder: Path, to: str, number: str) -> str:
    floors = json.loads((folder / "about.json").read_text(encoding="utf-8"))["floors"]
    lines: list[str] = []
    for forget, rows in by_seed(folder, number).items():
        floor = floors[forget][number]["mean"]
        lines += [f"\nforget {forget}: {number}, against {to}; noise floor {floor:.2f}\n"]
        lines += [f"| method | {number} | difference to {to} | 95 % interval | told |", "|---|---:|---:|---|---|"]
        for title, seeds in sorted(rows.items(), key=lambda pair: statistics.mean(pair[1].values())):
            mean, half = compared(rows[to], seeds)
            told = "" if title == to else "yes" if abs(mean) > half and abs(mean) > floor else "no"
            ends = "" if title == to else f"{mean - half:+.2f} to {mean + half:+.2f}"
            lines.append(f"| {title} | {statistics.mean(seeds.values()):.2f} | {mean:+.2f} | {ends} | {told} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--to", default="ReGUn", help="the row to compare with, by its title")
    parser.add_argument("--number", default="gap_rftp")
    args = parser.parse_args()
    print(table(args.results, args.to, args.number))


if __name__ == "__main__":
    main()
