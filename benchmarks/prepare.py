"""What a prepared table costs besides the training of its models: time and memory over tabular rows.

    python benchmarks/prepare.py [--rows 1000000]

The model is a linear layer that is not trained, so everything measured is regun's: keys, folds, predictions, checks,
file and look-up.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import regun
from regun.data.sources import as_examples


def untrained(dataset: object, seed: int) -> nn.Module:
    return nn.Linear(20, 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(rows, 20, generator=draw), torch.randint(0, 10, (rows,), generator=draw)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prepared.safetensors"
        started = time.perf_counter()
        regun.prepare(untrained, (x, y), path=path)
        made = time.perf_counter()
        table = regun.Prepared.load(path)
        loaded = time.perf_counter()
        table.rows(as_examples((x[:100], y[:100]), 10, "forget"))
        found = time.perf_counter()
        size = path.stat().st_size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{rows:,} rows of 20 numbers, 10 classes, 4 folds")
    print(f"prepare {made - started:.1f} s, load {loaded - made:.1f} s, first look-up {found - loaded:.1f} s")
    print(f"file {size / 1e6:.0f} MB, memory above the data {(peak - before) / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
