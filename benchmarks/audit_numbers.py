"""Seconds and peak memory of everything in an audit after the forward passes.

    python benchmarks/audit_numbers.py [--classes 100] [--references 4] [--bootstrap 1000]
    python benchmarks/audit_numbers.py --examples 1000000 --references 2          # large: what does the audit add?

Sizes are those of CIFAR-100 with a tenth forgotten: 40,000 retain, 4,500 forget, 10,000 test, 4,500 val and 5,000
held-out examples; one audited model, the one before it, Retrain and the references. Limits: 10 seconds and 2 GB. With
--examples, sets of that many in the same proportions. The limit is then 2 kB of memory per example on top of the empty
program, however many classes there are: predictions are in files. Memory is all that the process has mapped (VmRSS).
"""

import argparse
import sys
import threading
import time
from pathlib import Path

import numpy as np

from regun.auditing import Predictions, evaluate
from regun.auditing.intervals import bootstrap_contrast
from regun.auditing.predictions import LogProbs
from regun.auditing.roc import Contrast

SIZES = {"retain": 40_000, "forget": 4_500, "test": 10_000, "val": 4_500, "heldout": 5_000}
BATCH = 10_000
LIMIT_SECONDS, LIMIT_GIGABYTES, LIMIT_KILOBYTES = 10.0, 2.0, 2.0


def make_model(seed: int, classes: int, members: tuple[str, ...], scale: float = 1.0) -> dict[str, Predictions]:
    """Logits that share each example's difficulty between models and are raised for what the model trained on."""
    model: dict[str, Predictions] = {}
    for number, (split, usual) in enumerate(SIZES.items()):
        size = round(scale * usual)
        said, labels = LogProbs(size, classes), np.empty(size, np.int64)
        for first in range(0, size, BATCH):
            rows = slice(first, min(first + BATCH, size))
            n = rows.stop - first
            shared, own = np.random.default_rng([number, first]), np.random.default_rng([seed, number, first])
            labels[rows] = shared.integers(0, classes, n)
            logits = shared.standard_normal((n, classes), dtype=np.float32)
            logits += np.float32(0.5) * own.standard_normal((n, classes), dtype=np.float32)
            logits[np.arange(n), labels[rows]] += shared.normal(4.0, 2.0, n) + (4.0 if split in members else 0.0)
            said.add(logits)
        model[split] = Predictions(said.values, labels, np.arange(size))
    return model


class Memory(threading.Thread):
    """The peak memory of the process, sampled every 10 milliseconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0

    def run(self) -> None:
        while True:
            self.peak = max(self.peak, held())
            time.sleep(0.01)


def held() -> float:
    """Return the gigabytes of memory that the process has mapped."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) / 1024**2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--references", type=int, default=4)
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument("--examples", type=int, help="of all sets together, in place of CIFAR-100's 64,000")
    args = parser.parse_args()
    scale = args.examples / sum(SIZES.values()) if args.examples else 1.0

    empty = held()
    rng = np.random.default_rng(0)
    contrast = Contrast.of(rng.normal(0.3, 1.0, 5_000), rng.normal(0.0, 1.0, 5_000))
    start = time.perf_counter()
    bootstrap_contrast(contrast, 1000, seed=0)
    print(f"bootstrap, 1,000 resamples of 10,000 scores: {time.perf_counter() - start:.2f} s")

    retrains = [make_model(seed, args.classes, ("retain",), scale) for seed in range(args.references + 1)]
    target, before = (make_model(seed, args.classes, ("retain", "forget"), scale) for seed in (98, 99))
    said = len([*retrains, target, before]) * sum(signals.log_probs.nbytes for signals in target.values()) / 1024**3
    memory, start_held = Memory(), held()
    memory.start()
    start, start_cpu = time.perf_counter(), time.process_time()
    found = evaluate(target, retrains[0], retrains[1:], before=before, bootstrap=args.bootstrap)
    seconds, cpu, peak = time.perf_counter() - start, time.process_time() - start_cpu, memory.peak
    print(f"{len(found.numbers)} numbers, {len(found.attacks)} attacks, {len(found.gaps)} gaps: {found.verdict}")
    print(f"seconds after the forward passes: {seconds:.2f} (limit {LIMIT_SECONDS:.0f}), processor {cpu:.2f}")
    print(f"memory: {peak:.2f} GB (limit {LIMIT_GIGABYTES:.0f}), of which before the audit: {start_held:.2f} GB")
    each = (peak - empty) * 1024**2 / (scale * sum(SIZES.values()))
    print(f"memory per example: {each:.2f} kB (limit {LIMIT_KILOBYTES}); predictions in files: {said:.2f} GB")
    if args.examples:
        return int(each > LIMIT_KILOBYTES)
    return int(seconds > LIMIT_SECONDS or peak > LIMIT_GIGABYTES)


if __name__ == "__main__":
    sys.exit(main())
