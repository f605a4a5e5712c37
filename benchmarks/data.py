"""Loading: peak memory of CIFAR-10 against its array, and opening a decoded image folder again.

python benchmarks/data.py [--cifar DIR] [--images 2000]      without --cifar a data set of the same size is made up
"""

import argparse
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from regun.data.image_folder import load_image_folder
from regun.data.registry import get_pipeline

MEASURE = """
import sys
from pathlib import Path
import numpy as np
from regun.data.cifar import load_cifar
from regun.data.registry import get_pipeline
peak = lambda: int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) / 1024
before = peak()
data = load_cifar(Path(sys.argv[1]), 10, get_pipeline("none", "cifar10"))
arrays = (data.train.images.nbytes + data.test.images.nbytes) / 2**20
print(peak() - before, arrays)
"""


def make_cifar(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        rows = {
            b"data": rng.integers(0, 256, (10_000, 3072), dtype=np.uint8),
            b"labels": [k % 10 for k in range(10_000)],
        }
        (folder / name).write_bytes(pickle.dumps(rows, protocol=2))
    names = {b"label_names": [str(k).encode() for k in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol=2))


def cifar(folder: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder)], capture_output=True, text=True, check=True
    ).stdout
    used, arrays = map(float, shown.split())
    print(f"CIFAR-10: {used:.0f} MB at the peak for {arrays:.0f} MB of images: {used / arrays:.2f}x (under 2.2)")


def folder(root: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    for part, share in (("train", count), ("test", count // 10)):
        for k in range(share):
            target = root / part / f"class{k % 10}"
            target.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(target / f"{k}.jpg")
    times = []
    for _ in range(2):
        started = time.perf_counter()
        load_image_folder(root, get_pipeline("none", "folder"))
        times.append(time.perf_counter() - started)
    print(
        f"image folder of {count:,}: first opening {times[0]:.2f} s, second {times[1]:.3f} s: {times[0] / times[1]:.0f}x"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar", type=Path)
    parser.add_argument("--images", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary) / "cifar-10-batches-py"
        made.mkdir()
        if args.cifar is None:
            make_cifar(made)
        cifar(args.cifar or made)
        folder(Path(temporary) / "folder", args.images)
