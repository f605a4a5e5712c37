"""Copy the results of a finished study into the repository: rows, and a table that a test checks against them.

    regun study run STUDY --data-dir DIR --store STORE --out OUT
    regun tradeoff STUDY --data-dir DIR --store STORE --out OUT       # where w is to be swept
    python research/publish.py STUDY OUT results/NAME

It writes study.toml, rows.csv (one row per run: the paper's numbers, gaps, verdicts and costs), sweep.csv (the same for
a sweep over w), table.md, and about.json (versions, processor, seconds, noise floors). Other tables and figures follow
from the rows. Tuned settings belong in src/regun/methods/tuned.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from regun.experiments.study.results import COSTS, PAPER_COLUMNS

NAMED = ("study", "forget", "method", "title", "kind", "seed", "repeat", "key", "verdict", "worst", "diverged", *COSTS)
MORE = ("forget_div", "val_acc", "gap_rfvp", "influence_left")


def rows(source: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Of every number that a run has, those that the tables and the reading use."""
    with source.open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    wanted = (*NAMED, *PAPER_COLUMNS, *MORE)
    head = [name for name in read[0] if name in wanted or name.startswith("relearn")]
    return head, [{name: row[name] for name in head} for row in read]


def write_rows(target: Path, head: list[str], published: list[dict[str, str]]) -> None:
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, head, lineterminator="\n")
        writer.writeheader()
        writer.writerows(published)


def about(table: dict[str, Any], published: list[dict[str, str]], columns: list[str]) -> dict[str, Any]:
    facts = {name: table[name] for name in ("title", "about", "seeds", "repeats", "versions", "machine", "missing")}
    floors = {
        block["forget"]: {name: floor for name, floor in block["floors"].items() if name in columns}
        for block in table["requests"]
    }
    seconds = sum(float(row["seconds"] or 0) for row in published)
    return {**facts, "seconds of all runs shown": round(seconds), "floors": floors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help="a built-in study's name, or its file")
    parser.add_argument("out", type=Path, help="where `regun study run --out` has put its files")
    parser.add_argument("results", type=Path)
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    shown = [sys.executable, "-m", "regun", "study", "show", args.study]
    study = subprocess.run(shown, check=True, capture_output=True, text=True).stdout
    (args.results / "study.toml").write_text(study, encoding="utf-8")
    head, published = rows(args.out / "rows.csv")
    write_rows(args.results / "rows.csv", head, published)
    if (args.out / "sweep.csv").exists():
        write_rows(args.results / "sweep.csv", *rows(args.out / "sweep.csv"))
    facts = about(json.loads((args.out / "table.json").read_text(encoding="utf-8")), published, head)
    (args.results / "about.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shutil.copyfile(args.out / "table.md", args.results / "table.md")


if __name__ == "__main__":
    main()
