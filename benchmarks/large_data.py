"""Memory of data that do not fit: image folders decoded on the fly, and audits of many examples, at two sizes each.

python benchmarks/large_data.py                     # folders of 2,000 and 8,000 synthetic images
python benchmarks/large_data.py --root FOLDER       # an image folder of your own instead
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDERS = (2_000, 8_000)
AUDITS = ((20_000, 1_000), (80_000, 1_000))
SIZE = 64


def write_images(root: Path, count: int) -> None:
    """Write noise images of two classes."""
    import numpy as np
    from PIL import Image

    for part, many in (("train", count), ("val", 20)):
        for number in range(many):
            pixels = np.random.default_rng(number).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
            path = root / part / f"class{number % 2}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)


def read_folder(root: str, way: str) -> dict[str, float]:
    """Open a folder, read every training image once in batches of 128, and return seconds and bytes."""
    import numpy as np

    from regun.data.examples import InputPipeline
    from regun.data.image_folder import load_image_folder

    before = peak()
    with tempfile.TemporaryDirectory() as cache:
        started = time.perf_counter()
        pipeline = InputPipeline("none", (0.5,) * 3, (0.25,) * 3)
        limit = 0 if way == "on the fly" else 2**62
        train = load_image_folder(root, pipeline, cache=cache, workers=2, limit=limit).train
        opened = time.perf_counter()
        for _ in train.stream(np.array_split(np.arange(len(train)), len(train) // 128)):
            pass
        disk = sum(path.stat().st_size for path in Path(cache).rglob("*") if path.is_file())
        read = time.perf_counter() - opened
    return {"images": len(train), "opening_s": opened - started, "pass_s": read, "memory_MB": peak() - before,
            "disk_MB": disk / 1e6}  # fmt: skip


def audit(examples: int, classes: int) -> dict[str, float]:
    """Collect the predictions of one model batch by batch, compute what attacks need, and return memory and seconds."""
    import numpy as np

    from regun.auditing.predictions import LogProbs

    before, started = peak(), time.perf_counter()
    collected, rng = LogProbs(examples, classes), np.random.default_rng(0)
    for start in range(0, examples, 256):
        collected.add(rng.standard_normal((min(256, examples - start), classes), dtype=np.float32))
    labels = np.arange(examples) % classes
    predictions = collected.predictions(labels, np.arange(examples))
    for values in (
        predictions.true_log_prob,
        predictions.true_logit,
        predictions.modified_entropy,
        predictions.entropy,
    ):
        assert len(values) == examples
    return {"examples": examples, "classes": classes, "memory_MB": peak() - before,
            "seconds": time.perf_counter() - started, "all_log_probs_MB": examples * classes * 8 / 1e6}  # fmt: skip


def peak() -> float:
    """Return the largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measured(*arguments: object) -> None:
    """Run one measurement in a process of its own, and print it."""
    command = [sys.executable, __file__, "--one", json.dumps(arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    print(*arguments[:1], *arguments[2:3], done.stdout.strip())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        kind, *rest = json.loads(args.one)
        result = read_folder(*rest) if kind == "folder" else audit(*rest)
        print(", ".join(f"{name} {value:,.1f}" for name, value in result.items()))
        return
    with tempfile.TemporaryDirectory() as temporary:
        for count in FOLDERS if not args.root else (0,):
            root = Path(args.root or Path(temporary) / str(count))
            if not args.root:
                write_images(root, count)
            for way in ("decoded once", "on the fly"):
                measured("folder", str(root), way)
    for examples, classes in AUDITS:
        measured("audit", examples, classes)


if __name__ == "__main__":
    main()
