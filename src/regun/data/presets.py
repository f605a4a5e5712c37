"""Named input pipelines: which transforms go together, in which order, and each data set's mean and std.

Order in training: geometry, flip, RandAugment (all on uint8), colour jitter, erasing (on floats), then normalisation.
"""

from regun.data.augment import CentreCrop, ColorJitter, Flip, PadCrop, RandomErasing, RandomResizedCrop, Resize
from regun.data.examples import InputPipeline, Transform
from regun.data.randaugment import RandAugment
from regun.errors import SettingsError, unknown

Transforms = tuple[Transform, ...]
Constants = tuple[tuple[float, ...], tuple[float, ...]]

IMAGENET: Constants = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CONSTANTS: dict[str, Constants] = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "tiny-imagenet": ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
    "digits": ((0.5,), (0.5,)),
    "folder": IMAGENET,
}
PIPELINES: dict[str, str] = {
    "none": "no augmentation",
    "digits": "no augmentation: at 8x8 pixels a shift or a flip makes another digit",
    "resnet": "pad-crop 4, flip, colour jitter, as the paper's text says",
    "resnet-code": "pad-crop 4, flip; colour jitter on Tiny-ImageNet only, as the authors' code does",
    "swin-small": "resnet with RandAugment and erasing: for Swin variants at the images' own size",
    "swin": "224x224 from a random resized crop, flip, RandAugment, colour jitter, erasing",
    "swin-unlearn": "swin without RandAugment and erasing, as the paper unlearns",
}


def pipeline(name: str, data_name: str) -> InputPipeline:
    """The input pipeline `name` with the constants of the data set `data_name`; the 224x224 ones use ImageNet's.

    >>> pipeline("resnet", "cifar10").describe()["train"][0]
    {'transform': 'PadCrop', 'padding': 4}
    """
    problems = [] if name in PIPELINES else [unknown("input pipeline", name, PIPELINES)]
    problems += [] if data_name in CONSTANTS else [unknown("data set", data_name, CONSTANTS)]
    if problems:
        raise SettingsError(problems)
    large = name in ("swin", "swin-unlearn")
    if large and len(CONSTANTS[data_name][0]) != 3:
        raise SettingsError([f"the pipeline {name!r} needs colour images, but {data_name} is grey; use 'none'."])
    mean, std = IMAGENET if large else CONSTANTS[data_name]
    evaluation: Transforms = (Resize(256), CentreCrop(224)) if large else ()
    return InputPipeline(name, mean, std, _train(name, data_name), evaluation)


def _train(name: str, data_name: str) -> Transforms:
    crop, large_crop, flip = PadCrop(4), RandomResizedCrop(224, (0.6, 1.0), (3 / 4, 4 / 3)), Flip(0.5)
    jitter, erasing = ColorJitter(0.1, 0.1, 0.1, 0.02), RandomErasing(0.25, (0.02, 0.2), (0.3, 3.3))
    strong = RandAugment(n=2, magnitude=9, bins=31)
    match name:
        case "resnet":
            return crop, flip, jitter
        case "resnet-code":
            return (crop, flip, jitter) if data_name == "tiny-imagenet" else (crop, flip)
        case "swin-small":
            return crop, flip, strong, jitter, erasing
        case "swin":
            return large_crop, flip, strong, jitter, erasing
        case "swin-unlearn":
            return large_crop, flip, jitter
        case _:
            return ()
