"""How long it takes to look into a store of many artifacts: list, find, check, clean up.

    python benchmarks/store.py [--artifacts 10000]

Manifests are of the size that real ones have (evaluations hold some hundred numbers), tensors are small.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from regun.artifacts import Contents, Store

SHARES = {"model": 0.1, "predictions": 0.6, "evaluation": 0.2, "score": 0.1}
"""As in a study: a model has signals on five splits, every unlearned one an evaluation."""


def fill(store: Store, count: int) -> None:
    numbers = {f"number_{n}": [50.0 + n / 7, 40.0, 60.0] for n in range(300)}
    for kind, share in SHARES.items():
        for n in range(round(share * count)):
            inputs = {"n": n, "data": "0" * 64, "recipe": {f"setting_{k}": k for k in range(20)}, "seed": n % 3}
            tensors = {"predictions": {"log_probs": torch.zeros(10)}} if kind in ("model", "predictions") else {}
            info = {"role": "base", "data_name": "digits", "examples": 100}
            more = {"evaluation": {"numbers": numbers}} if kind == "evaluation" else {}
            store.make(kind, inputs, lambda _, t=tensors, i={**info, **more}: Contents(t, i))


def timed(what: str, work: Callable[[], object]) -> None:
    started = time.perf_counter()
    found = work()
    print(f"{what:<42} {time.perf_counter() - started:8.2f} s   {found}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--artifacts", type=int, default=10_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        timed(f"make {args.artifacts:,} artifacts", lambda: fill(store, args.artifacts))
        key = store.artifacts("model")[0].key
        timed("list everything", lambda: f"{len(store.artifacts()):,} listed")
        timed("list the models", lambda: f"{len(store.artifacts('model')):,} listed")
        timed("find one by its first digits", lambda: store.find(key[:12], "model").key[:12])
        timed("gc", lambda: f"{len(store.gc().removed)} removed")
        timed("verify --quick", lambda: f"{store.verify(quick=True).checked:,} checked")
        timed("verify", lambda: f"{store.verify().checked:,} checked")
        left = sum(1 for name in (".regun-locks", ".regun-tmp") for _ in (store.root / name).iterdir())
        print(f"lock and temporary files left: {left}")


if __name__ == "__main__":
    main()
