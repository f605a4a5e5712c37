"""The overlap check by content: seconds for a training set and a test set without ids.

python benchmarks/overlap.py [--rows 1000000] [--columns 20]
"""

import argparse
import time

import torch

from regun.data import TensorExamples
from regun.data.overlap import check_overlap

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=20)
    args = parser.parse_args()
    x = torch.randn(args.rows, args.columns, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(args.rows, dtype=torch.int64).numpy()
    cut = args.rows * 4 // 5
    sets = {"retain": TensorExamples(x[:cut], y[:cut], 2), "test": TensorExamples(x[cut:], y[cut:], 2)}
    started = time.perf_counter()
    check_overlap({}, sets, None)
    print(f"{args.rows:,} rows of {args.columns} numbers: {time.perf_counter() - started:.2f} s (goal: 2 s)")
