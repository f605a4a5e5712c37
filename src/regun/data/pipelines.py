"""BaseTransform input pipelines: which transforms go together, and in which order.

Order in training: geometry, flip, RandAugment (all on uint8), color jitter, erasing (on floats), then normalization.
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
class PipelineSpec:
    """One input pipeline, independent of a data set."""

    name: str
    about: str
    train: Transforms = ()
    evaluation: Transforms = ()
    large: bool = False
    """Images become 224x224 and are normalized with the constants of ImageNet."""
    unlearn_with: str | None = None
    """The pipeline that goes with this one for unlearning; None: the same."""
    train_on: Mapping[str, Transforms] = field(default_factory=dict[str, Transforms])
    """Train transforms that replace `train` on single data sets."""

    def on(self, data_name: str, constants: Constants) -> InputPipeline:
        """Return the pipeline for the images of a data set with these means and standard deviations."""
        if self.large and len(constants[0]) == 1:
            raise SettingsError(
                [f"the pipeline {self.name!r} needs color images, but {data_name} is gray; use 'none'."]
            )
        train = self.train_on.get(data_name, self.train)
        return InputPipeline(self.name, *(IMAGENET if self.large else constants), train, self.evaluation)


CROP, LARGE_CROP, FLIP = PadCrop(4), RandomResizedCrop(224, (0.6, 1.0), (3 / 4, 4 / 3)), Flip(0.5)
JITTER, ERASING = ColorJitter(0.1, 0.1, 0.1, 0.02), RandomErasing(0.25, (0.02, 0.2), (0.3, 3.3))
STRONG = RandAugment(n=2, magnitude=9, bins=31)
CENTRE = (Resize(256), CentreCrop(224))

OWN = PipelineSpec("own", "only what your data set does itself")
PIPELINES: dict[str, PipelineSpec] = {
    spec.name: spec
    for spec in (
        PipelineSpec("none", "no augmentation"),
        OWN,
        PipelineSpec("digits", "no augmentation: at 8x8 pixels a shift or a flip makes another digit"),
        PipelineSpec("flip", "flip only: the weakest, for few images", (FLIP,)),
        PipelineSpec("resnet", "pad-crop 4, flip, colour jitter, as the paper's text says", (CROP, FLIP, JITTER)),
        PipelineSpec(
            "resnet-code",
            "pad-crop 4, flip; colour jitter on Tiny-ImageNet only, as the authors' code does",
            (CROP, FLIP),
            train_on={"tiny-imagenet": (CROP, FLIP, JITTER)},
        ),
        PipelineSpec(
            "swin-small",
            "resnet with RandAugment and erasing: for Swin variants at the images' own size",
            (CROP, FLIP, STRONG, JITTER, ERASING),
            unlearn_with="resnet",
        ),
        PipelineSpec(
            "swin",
            "224x224 from a random resized crop, flip, RandAugment, colour jitter, erasing",
            (LARGE_CROP, FLIP, STRONG, JITTER, ERASING),
            CENTRE,
            large=True,
            unlearn_with="swin-unlearn",
        ),
        PipelineSpec(
            "swin-unlearn",
            "swin without RandAugment and erasing, as the paper unlearns",
            (LARGE_CROP, FLIP, JITTER),
            CENTRE,
            large=True,
        ),
    )
}


def get_pipeline_spec(name: str) -> PipelineSpec:
    """Return the named input pipeline."""
    if name not in PIPELINES:
        raise SettingsError([unknown("input pipeline", name, PIPELINES)])
    return PIPELINES[name]


def with_pipeline(data: Data, name: str) -> Data:
    """Return the same examples with another input pipeline; examples that are not stored images stay as they are."""
    train, test = data.train, data.test
    if not isinstance(train, ArrayExamples) or name == train.pipeline.name:
        return data
    original = data.original_pipeline or train.pipeline
    inputs = original if name == OWN.name else get_pipeline_spec(name).on(data.name, (original.mean, original.std))
    return replace(
        data,
        train=train.with_pipeline(inputs),
        test=test.with_pipeline(inputs) if isinstance(test, ArrayExamples) else test,
        original_pipeline=original,
    )
