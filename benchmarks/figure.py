"""The picture of docs/methods.md: each method's distance to Retrain in forgetting and in utility.

python benchmarks/figure.py RESULTS.json docs/digits.svg        RESULTS.json from benchmarks/compare.py --json
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

NAMES = {"base": "Base", "regun": "ReGUn (paper)", "regun, wide retain": "ReGUn (wide)", "finetune": "Finetune", "neggrad": "NegGrad", "neggrad_plus": "NegGrad+",
         "l1_sparse": "l1-sparse", "ssd": "SSD", "salun": "SalUn", "amun": "AMUN", "lur": "LUR", "scrub": "SCRUB"}  # fmt: skip


def draw(results: dict, target: Path) -> None:
    plt.rcParams.update({"svg.hashsalt": "regun", "font.size": 10})
    figure, axes = plt.subplots(figsize=(7.2, 3.6))
    gaps = {n: [run["results"][n]["test"]["gap_rftp"] for run in results["runs"]] for n in NAMES}
    order = sorted(gaps, key=lambda n: np.mean(gaps[n]))
    colours = ["#0072b2" if n.startswith("regun") else "#999999" for n in order]
    axes.bar(range(len(order)), [np.mean(gaps[n]) for n in order], color=colours, zorder=2)
    for place, name in enumerate(order):
        axes.plot([place] * len(gaps[name]), gaps[name], "o", color="black", markersize=3, zorder=3)
    floor = np.mean([run["floor"] for run in results["runs"]], axis=0)
    band = axes.axhspan(0, floor[1], color="#e69f00", alpha=0.3, linewidth=0, zorder=0)
    line = axes.axhline(floor[0], color="#e69f00", zorder=4)
    axes.legend([line, band], ["noise floor: mean of two retrained models", "... and the largest"], frameon=False)
    axes.set_xticks(range(len(order)), [NAMES[n] for n in order], rotation=30, ha="right")
    axes.set_ylabel("Gap RFTP to Retrain (points)")
    axes.set_title(f"Noisy digits, 10 % forgotten, {results['steps'] or 'own'} steps each; dots are seeds")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
