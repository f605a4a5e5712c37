"""Does the verdict by the noise floor keep its error rate? A retrained model is audited by 3, 4 and 6 others.

    python research/calibration.py simulated [--worlds 32 --first 2]     # 60 records, shifts of 0.1 and 0.4; about 10 minutes
    python research/calibration.py mlp [--worlds 6]            # research/users.py's tabular MLP, 3 % forgotten

Printed by number of retrained models: how often a retrained model, one half-way to the base (simulated only) and the base
pass, fail or are inconclusive, and which tests failed.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from users import USERS, forgotten, train

import regun
from regun.auditing import Evaluation, evaluate

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "auditing"))
JUDGES = (3, 4, 6)
MODELS = 12
"""Retrained MLPs per world; every third is audited, by those that follow it."""


def simulated(seed: int) -> Iterator[tuple[int, str, Evaluation]]:
    from worlds import World, half_way, said

    for shifts in (0.1, 0.4):
        for judges in JUDGES:
            world = World(1000 * judges + seed, 60, retain=60, shifts=shifts)
            base, retrained = world.odds(1.0), world.odds()
            truth, *references = world.models(judges)
            models = {"retrained": said(retrained), "half-way": half_way(base, retrained), "base": said(base)}
            for kind, model in models.items():
                yield judges, kind, evaluate(model, truth, references, before=said(base), bootstrap=0)


def mlp(seed: int) -> Iterator[tuple[int, str, Evaluation]]:
    user = USERS["mlp"]
    sets = user.data(seed, None)
    x, y = sets["train"]
    gone = forgotten(len(y), "3%", seed)
    retained = torch.ones(len(y), dtype=torch.bool)
    retained[gone] = False
    base = train(user.build(seed), x, y, user.recipe, seed)
    seeds = [1000 + 100 * seed + k for k in range(MODELS)]
    models = [train(user.build(s), x[retained], y[retained], user.recipe, s) for s in seeds]
    parts: dict[str, Any] = {"forget": (x[gone], y[gone]), "retain": (x[retained], y[retained])}
    parts |= {"test": sets["test"], "heldout": sets["heldout"], "before": base, "bootstrap": 0}
    for judges in JUDGES:
        for k in range(0, MODELS, 3):
            others = [models[(k + 1 + i) % MODELS] for i in range(judges)]
            yield judges, "retrained", regun.audit(models[k], retrained=others, **parts)
        yield judges, "base", regun.audit(base, retrained=models[:judges], **parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("simulated", "mlp"))
    parser.add_argument("--worlds", type=int, default=6)
    parser.add_argument("--first", type=int, default=0, help="number of the first world")
    options = parser.parse_args()
    torch.set_num_threads(1)
    verdicts: dict[tuple[int, str], Counter[str | None]] = {}
    failed: Counter[tuple[int, str, str]] = Counter()
    for seed in range(options.first, options.first + options.worlds):
        for judges, kind, found in (simulated if options.kind == "simulated" else mlp)(seed):
            verdicts.setdefault((judges, kind), Counter())[found.verdict] += 1
            parts = found.judgement.parts if found.judgement else ()
            failed.update((judges, kind, part.name) for part in parts if part.verdict == "failed")
    for (judges, kind), count in sorted(verdicts.items()):
        by = {name: n for (j, k, name), n in failed.items() if (j, k) == (judges, kind)}
        print(f"{judges} retrained models, {kind}: {dict(count)}; failed by {by}", flush=True)


if __name__ == "__main__":
    main()
