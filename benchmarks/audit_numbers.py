"""Seconds and peak memory of everything in an audit after the forward passes.

    python benchmarks/audit_numbers.py [--classes 100] [--references 4] [--bootstrap 1000]
    python benchmarks/audit_numbers.py --examples 1000000 --references 2          # large: what does the audit add?

Sizes are those of CIFAR-100 with a tenth forgotten: 40,000 retain, 4,500 forget, 10,000 test, 4,500 val and 5,000
held-out examples; one audited model, the one before it, Retrain and the references. Limits: 10 seconds and 2 GB. With
--examples, sets of that many in the same proportions; the limit is then on what the audit adds to what the models said:
1.5 kB an example, however many classes there are.
"""

import argparse
import resource
import sys
import time

import numpy as np

from regun.evaluate import Signals, evaluate
from regun.evaluate.intervals import bootstrap_contrast
from regun.evaluate.roc import Contrast

SIZES = {"retain": 40_000, "forget": 4_500, "test": 10_000, "val": 4_500, "heldout": 5_000}
LIMIT_SECONDS, LIMIT_GIGABYTES, LIMIT_KILOBYTES = 10.0, 2.0, 1.5


def make_model(seed: int, classes: int, members: tuple[str, ...], scale: float = 1.0) -> dict[str, Signals]:
    """Logits that share each example's difficulty between models and are raised for what the model trained on."""
    model: dict[str, Signals] = {}
    for number, (split, usual) in enumerate(SIZES.items()):
        size = round(scale * usual)
        shared, own = np.random.default_rng(number), np.random.default_rng([seed, number])
        labels = shared.integers(0, classes, size)
        logits = shared.standard_normal((size, classes), dtype=np.float32)
        logits += np.float32(0.5) * own.standard_normal((size, classes), dtype=np.float32)
        logits[np.arange(size), labels] += shared.normal(4.0, 2.0, size) + (4.0 if split in members else 0.0)
        model[split] = Signals.from_logits(logits, labels, np.arange(size))
    return model


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--references", type=int, default=4)
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument("--examples", type=int, help="of all sets together, in place of CIFAR-100's 64,000")
    args = parser.parse_args()
    scale = args.examples / sum(SIZES.values()) if args.examples else 1.0

    rng = np.random.default_rng(0)
    contrast = Contrast.of(rng.normal(0.3, 1.0, 5_000), rng.normal(0.0, 1.0, 5_000))
    start = time.perf_counter()
    bootstrap_contrast(contrast, 1000, seed=0)
    print(f"bootstrap, 1,000 resamples of 10,000 scores: {time.perf_counter() - start:.2f} s")

    retrains = [make_model(seed, args.classes, ("retain",), scale) for seed in range(args.references + 1)]
    target, before = (make_model(seed, args.classes, ("retain", "forget"), scale) for seed in (98, 99))
    inputs, one = peak_gigabytes(), sum(signals.log_probs.nbytes for signals in target.values()) / 1024**3
    start, start_cpu = time.perf_counter(), time.process_time()
    found = evaluate(target, retrains[0], retrains[1:], before=before, bootstrap=args.bootstrap)
    seconds, cpu, peak = time.perf_counter() - start, time.process_time() - start_cpu, peak_gigabytes()
    print(f"{len(found.numbers)} numbers, {len(found.attacks)} attacks, {len(found.gaps)} gaps: {found.verdict}")
    print(f"seconds after the forward passes: {seconds:.2f} (limit {LIMIT_SECONDS:.0f}), processor {cpu:.2f}")
    print(f"peak memory: {peak:.2f} GB (limit {LIMIT_GIGABYTES:.0f}), of which before the audit: {inputs:.2f} GB")
    added = (peak - inputs) * 1024**2 / (scale * sum(SIZES.values()))
    print(f"added by the audit: {added:.2f} kB an example (limit {LIMIT_KILOBYTES}); what one model said: {one:.2f} GB")
    if args.examples:
        return int(added > LIMIT_KILOBYTES)
    return int(seconds > LIMIT_SECONDS or peak > LIMIT_GIGABYTES)


if __name__ == "__main__":
    sys.exit(main())
