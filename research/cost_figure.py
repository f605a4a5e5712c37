"""Draw the cost figure of a published study from its rows: gap and relearned forget accuracy against cost per request.

python research/cost_figure.py results/cifar10-long docs/cost.png
"""

import argparse
import csv
import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from regun.experiments.report.cost_figure import cost_figure
from regun.experiments.study.cost import RELEARNED, CostPanel, CostPoint

LABELS = {"gap_rftp": "Gap RFTP", RELEARNED: "forget accuracy after relearning"}
Rows = Sequence[Mapping[str, str]]


def over_seeds(rows: Rows, name: str) -> list[float]:
    """Return the mean over repeats of a number, one per training seed."""
    seeds: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        seeds[row["seed"]].append(float(row[name]))
    return [statistics.fmean(values) for values in seeds.values()]


def point(rows: Rows, name: str, retraining: float) -> CostPoint:
    values = over_seeds(rows, name)
    samples = statistics.fmean(over_seeds(rows, "forward")) + statistics.fmean(over_seeds(rows, "backward"))
    std = statistics.stdev(values) if len(values) > 1 else None
    return CostPoint(rows[0]["title"], 100 * samples / retraining, statistics.fmean(values), std)


def panels(folder: Path) -> list[CostPanel]:
    """Return the two panels of the first forget set of a study."""
    with (folder / "rows.csv").open(newline="", encoding="utf-8") as file:
        published = list(csv.DictReader(file))
    request = published[0]["forget"]
    methods: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in published:
        if row["forget"] == request:
            methods[row["title"]].append(row)
    floors = json.loads((folder / "about.json").read_text(encoding="utf-8"))["floors"][request]
    (retrain,) = (rows for rows in methods.values() if rows[0]["kind"] == "retrain")
    (base,) = (rows for rows in methods.values() if rows[0]["kind"] == "base")
    retraining = sum(statistics.fmean(over_seeds(retrain, part)) for part in ("forward", "backward"))
    made: list[CostPanel] = []
    for name, label in LABELS.items():
        points = {
            rows[0]["method"]: point(rows, name, retraining) for rows in methods.values() if rows[0]["kind"] == "method"
        }
        floor, truth = floors[name], statistics.fmean(over_seeds(retrain, name))
        is_gap = name == "gap_rftp"
        made.append(
            CostPanel(
                metric=name,
                label=label,
                methods=_by_cost(points, shortened=False),
                shortened=_by_cost(points, shortened=True),
                retrain=CostPoint("Retrain", 100.0, floor["mean"] if is_gap else truth),
                base=statistics.fmean(over_seeds(base, name)),
                band=(0.0 if is_gap else truth - floor["largest"], truth + floor["largest"]),
            )
        )
    return made


def _by_cost(points: Mapping[str, CostPoint], *, shortened: bool) -> tuple[CostPoint, ...]:
    chosen = [point for method, point in points.items() if method.startswith("retrain,") == shortened]
    return tuple(sorted(chosen, key=lambda point: point.share))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder of results/ with rows.csv and about.json")
    parser.add_argument("out", type=Path, help="the file to write; its ending decides the format")
    args = parser.parse_args()
    cost_figure(panels(args.folder)).savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
