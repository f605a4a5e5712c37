"""Named input pipelines: which transforms go together, and in which order.

Order in training: geometry, flip, RandAugment (all on uint8), colour jitter, erasing (on floats), then normalisation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from regun.data.arrays import ArrayExamples
from regun.data.augment import CentreCrop, ColorJitter, Flip, PadCrop, RandomErasing, RandomResizedCrop, Resize
from regun.data.examples import Data, InputPipeline, Transform
from regun.data.randaugment import RandAugment
from regun.errors import SettingsError, unknown

Transforms = tuple[Transform, ...]
Constants = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of every channel."""

IMAGENET: Constants = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class Preset:
    """One input pipeline, before it is known whose images it is for."""

    name: str
    about: str
    train: Transforms = ()
    evaluation: Transforms = ()
    large: bool = False
    """Whether images become 224x224, normalised with ImageNet's constants instead of their own."""
    unlearn_with: str | None = None
    """The pipeline that goes with this one for unlearning; None: the same."""
    train_on: Mapping[str, Transforms] = field(default_factory=dict[str, Transforms])
    """Other train transforms for single data sets."""

    def on(self, data_name: str, constants: Constants) -> InputPipeline:
        """The pipeline for the images of a data set, whose mean and std are given."""
        if self.large and len(constants[0]) == 1:
            raise SettingsError(
                [f"the pipeline {self.name!r} needs colour images, but {data_name} is grey; use 'none'."]
            )
        train = self.train_on.get(data_name, self.train)
        return InputPipeline(self.name, *(IMAGENET if self.large else constants), train, self.evaluation)


CROP, LARGE_CROP, FLIP = PadCrop(4), RandomResizedCrop(224, (0.6, 1.0), (3 / 4, 4 / 3)), Flip(0.5)
JITTER, ERASING = ColorJitter(0.1, 0.1, 0.1, 0.02), RandomErasing(0.25, (0.02, 0.2), (0.3, 3.3))
STRONG = RandAugment(n=2, magnitude=9, bins=31)
CENTRE = (Resize(256), CentreCrop(224))

OWN = Preset("own", "what a data set of your own does by itself; no augmentation of the others")
PIPELINES: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("none", "no augmentation"),
        OWN,
        Preset("digits", "no augmentation: at 8x8 pixels a shift or a flip makes another digit"),
        Preset("flip", "flip only: the weakest, for few images", (FLIP,)),
        Preset("resnet", "pad-crop 4, flip, colour jitter, as the paper's text says", (CROP, FLIP, JITTER)),
        Preset(
            "resnet-code",
            "pad-crop 4, flip; colour jitter on Tiny-ImageNet only, as the authors' code does",
            (CROP, FLIP),
            train_on={"tiny-imagenet": (CROP, FLIP, JITTER)},
        ),
        Preset(
            "swin-small",
            "resnet with RandAugment and erasing: for Swin variants at the images' own size",
            (CROP, FLIP, STRONG, JITTER, ERASING),
            unlearn_with="resnet",
        ),
        Preset(
            "swin",
            "224x224 from a random resized crop, flip, RandAugment, colour jitter, erasing",
            (LARGE_CROP, FLIP, STRONG, JITTER, ERASING),
            CENTRE,
            large=True,
            unlearn_with="swin-unlearn",
        ),
        Preset(
            "swin-unlearn",
            "swin without RandAugment and erasing, as the paper unlearns",
            (LARGE_CROP, FLIP, JITTER),
            CENTRE,
            large=True,
        ),
    )
}


def find_preset(name: str) -> Preset:
    """The named input pipeline."""
    if name not in PIPELINES:
        raise SettingsError([unknown("input pipeline", name, PIPELINES)])
    return PIPELINES[name]


def with_pipeline(data: Data, preset: str) -> Data:
    """The same examples through another input pipeline; examples that are not stored images are left as they are."""
    train, test = data.train, data.test
    if not isinstance(train, ArrayExamples) or preset == train.pipeline.name:
        return data
    own = data.own or train.pipeline
    inputs = own if preset == OWN.name else find_preset(preset).on(data.name, (own.mean, own.std))
    return replace(
        data,
        train=train.with_pipeline(inputs),
        test=test.with_pipeline(inputs) if isinstance(test, ArrayExamples) else test,
        own=own,
    )
