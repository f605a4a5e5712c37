"""Speed of the batched transforms against one image at a time, in one run, interleaved.

python benchmarks/augment.py            a table
python benchmarks/augment.py --json     the same for machines
python benchmarks/augment.py --kornia   kornia beside it, where it is installed
"""

import argparse
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from regun.data.augment import ColorJitter, Flip, PadCrop, as_float
from regun.data.randaugment import RandAugment
from regun.data.registry import get_pipeline

TARGET = 8.0  # crop + flip + jitter must be this many times as fast as one image at a time


def pil_hue(image: Image.Image, shift: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.asarray(hue, dtype=np.int16) + round(shift * 255)).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")


def pil_jitter(image: Image.Image, rng: random.Random) -> Image.Image:
    ops: list[Callable[[Image.Image], Image.Image]] = [
        lambda x: ImageEnhance.Brightness(x).enhance(rng.uniform(0.9, 1.1)),
        lambda x: ImageEnhance.Contrast(x).enhance(rng.uniform(0.9, 1.1)),
        lambda x: ImageEnhance.Color(x).enhance(rng.uniform(0.9, 1.1)),
        lambda x: pil_hue(x, rng.uniform(-0.02, 0.02)),
    ]
    rng.shuffle(ops)
    for op in ops:
        image = op(image)
    return image


def one_at_a_time(images: list[Image.Image], rng: random.Random) -> Tensor:
    """Crop, flip and jitter with PIL, to a float tensor, stacked: what a per-sample loader does."""
    done: list[Tensor] = []
    for image in images:
        top, left = rng.randint(0, 8), rng.randint(0, 8)
        image = ImageOps.expand(image, 4).crop((left, top, left + 32, top + 32))
        if rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(pil_jitter(image, rng)))
        done.append(pixels.permute(2, 0, 1).contiguous().float().div(255))
    return torch.stack(done)


def medians(tasks: dict[str, Callable[[], object]], rounds: int, calls: int = 5) -> dict[str, list[float]]:
    """Median milliseconds of a call, for each task and round; in a round the tasks take turns of a few calls."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(rounds + 1):
        for name, task in tasks.items():
            stamps = [time.perf_counter()]
            for _ in range(calls):
                task()
                stamps.append(time.perf_counter())
            if turn:  # the first round warms up
                times[name].append(1e3 * statistics.median(b - a for a, b in itertools.pairwise(stamps)))
    return times


def batched_tasks(images: Tensor) -> dict[str, Callable[[], object]]:
    """Crop + flip + jitter on a batch, in the layout the data sets give (channels last) and in the other."""
    transforms = (PadCrop(4), Flip(), ColorJitter(0.1, 0.1, 0.1, 0.02))
    generator = torch.Generator().manual_seed(0)
    last = images.contiguous(memory_format=torch.channels_last)

    def run(batch: Tensor) -> Tensor:
        for transform in transforms:
            batch = transform(batch, generator)
        return batch

    return {
        "batched": lambda: run(last),
        "batched_nchw": lambda: run(images),
        "randaugment": lambda: RandAugment()(last, generator),
    }


def kornia_tasks(images: Tensor) -> dict[str, Callable[[], object]]:
    import kornia.augmentation as K  # pyright: ignore
    from kornia.augmentation.auto import RandAugment as KorniaRandAugment  # pyright: ignore

    usual = K.AugmentationSequential(
        K.RandomCrop((32, 32), padding=4), K.RandomHorizontalFlip(), K.ColorJitter(0.1, 0.1, 0.1, 0.02, p=1.0)
    )
    policy = KorniaRandAugment(n=2, m=9)
    return {"kornia": lambda: usual(as_float(images)), "kornia_randaugment": lambda: policy(as_float(images))}


def swin_task(images: Tensor) -> Callable[[], object]:
    """The whole train side of the `swin` pipeline."""
    transforms = get_pipeline("swin", "cifar10").train
    generator = torch.Generator().manual_seed(0)
    batch = images.contiguous(memory_format=torch.channels_last)

    def run() -> Tensor:
        out = batch
        for transform in transforms:
            out = transform(out, generator)
        return out

    return run


def measure(rounds: int, batch: int, with_kornia: bool) -> dict[str, Any]:
    pixels = np.random.default_rng(0).integers(0, 256, (batch, 32, 32, 3), dtype=np.uint8)
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    pil, rng = [Image.fromarray(image) for image in pixels], random.Random(0)
    tasks: dict[str, Callable[[], object]] = {"one_at_a_time": lambda: one_at_a_time(pil, rng), **batched_tasks(images)}
    if with_kornia:
        tasks |= kornia_tasks(images)
    ms = medians(tasks, rounds)
    swin = medians({"swin": swin_task(images)}, 5, calls=1)["swin"]
    ratios = {
        name: {
            "median": round(statistics.median(ms["one_at_a_time"]) / statistics.median(ms[name]), 1),
            "best": round(min(ms["one_at_a_time"]) / min(ms[name]), 1),  # what other processes took is left out
        }
        for name in ("batched", "batched_nchw")
    }
    return {
        "batch": batch,
        "threads": torch.get_num_threads(),
        "median_ms": {name: round(statistics.median(each), 3) for name, each in ms.items()},
        "best_ms": {name: round(min(each), 3) for name, each in ms.items()},
        "times_as_fast": ratios,
        "target": TARGET,
        "swin_images_per_second": {
            "median": round(1e3 * batch / statistics.median(swin)),
            "best": round(1e3 * batch / min(swin)),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--kornia", action="store_true", help="measure kornia too")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    result = measure(args.rounds, args.batch, args.kornia)
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result["median_ms"].items():
        print(f"{name:20} {value:8.2f} ms a batch of {args.batch}, {result['best_ms'][name]:8.2f} in the best round")
    for name, ratio in result["times_as_fast"].items():
        print(
            f"{name}: {ratio['median']}x as fast as one at a time, {ratio['best']}x in the best rounds; target {TARGET}x"
        )
    swin = result["swin_images_per_second"]
    print(f"swin pipeline: {swin['median']} images/s, {swin['best']} in the best round")


if __name__ == "__main__":
    main()
