"""The named pipelines: their order, their constants and how they refuse."""

import json

import pytest
import torch

from expect import error
from regun.data.augment import CentreCrop, ColorJitter, Flip, PadCrop, RandomErasing, RandomResizedCrop, Resize
from regun.data.examples import InputPipeline
from regun.data.pipelines import IMAGENET, PIPELINES, with_pipeline
from regun.data.randaugment import RandAugment
from regun.data.registry import DATA_SETS, DataSpec, get_pipeline, load_data
from regun.errors import SettingsError
from regun.hashing import canonical_json, code_digest
from regun.rng import generator

JITTER = ColorJitter(0.1, 0.1, 0.1, 0.02)
LARGE = RandomResizedCrop(224, (0.6, 1.0), (3 / 4, 4 / 3))
STRONG = RandAugment(2, 9, 31)
ERASING = RandomErasing(0.25, (0.02, 0.2), (0.3, 3.3))


def run(inputs: InputPipeline, images: torch.Tensor, train: bool) -> torch.Tensor:
    for transform in inputs.train if train else inputs.evaluation:
        images = transform(images, generator(0))
    return images


@pytest.mark.parametrize(
    ("name", "data", "train"),
    [
        ("none", "cifar10", ()),
        ("digits", "digits", ()),
        ("flip", "cifar100", (Flip(0.5),)),
        ("resnet", "cifar10", (PadCrop(4), Flip(0.5), JITTER)),
        ("resnet-code", "cifar10", (PadCrop(4), Flip(0.5))),
        ("resnet-code", "cifar100", (PadCrop(4), Flip(0.5))),
        ("resnet-code", "tiny-imagenet", (PadCrop(4), Flip(0.5), JITTER)),
        ("swin-small", "cifar10", (PadCrop(4), Flip(0.5), STRONG, JITTER, ERASING)),
        ("swin", "cifar10", (LARGE, Flip(0.5), STRONG, JITTER, ERASING)),
        ("swin-unlearn", "tiny-imagenet", (LARGE, Flip(0.5), JITTER)),
    ],
)
def test_the_order_is_the_papers(name: str, data: str, train: tuple[object, ...]) -> None:
    assert get_pipeline(name, data).train == train


@pytest.mark.parametrize(
    ("data", "mean", "std"),
    [
        ("cifar10", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        ("cifar100", (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
        ("tiny-imagenet", (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
        ("digits", (0.5,), (0.5,)),
        ("folder", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ],
)
def test_constants_belong_to_the_data_but_at_224_to_imagenet(data: str, mean: object, std: object) -> None:
    assert (get_pipeline("resnet", data).mean, get_pipeline("resnet", data).std) == (mean, std)
    if data != "digits":
        assert (get_pipeline("swin", data).mean, get_pipeline("swin", data).std) == IMAGENET


@pytest.mark.parametrize("data", DATA_SETS)
@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_runs_and_describes_itself_the_same_way_twice(name: str, data: str) -> None:
    channels = len(DATA_SETS[data].constants[0])
    if channels == 1 and name in ("swin", "swin-unlearn"):
        pytest.skip("refused, see below")
    inputs, again = get_pipeline(name, data), get_pipeline(name, data)
    assert inputs == again
    assert inputs.name == name
    assert canonical_json(inputs.describe()) == canonical_json(again.describe())
    assert json.loads(json.dumps(inputs.describe())) == inputs.describe()
    size = 8 if data == "digits" else 32
    images = torch.randint(0, 256, (3, channels, size, size), dtype=torch.uint8, generator=generator(1))
    expected = (3, channels, 224, 224) if name in ("swin", "swin-unlearn") else images.shape
    assert run(inputs, images, train=True).shape == expected
    assert run(inputs, images, train=False).shape == expected


def test_different_pipelines_have_different_descriptions() -> None:
    texts = {canonical_json(get_pipeline(name, "tiny-imagenet").describe()) for name in PIPELINES}
    assert len(texts) == len(PIPELINES) - 3  # none, own and digits are one; resnet-code is resnet on this data


def test_evaluation_at_224_resizes_and_cuts_the_centre() -> None:
    assert get_pipeline("swin", "cifar10").evaluation == (Resize(256), CentreCrop(224))
    described = get_pipeline("swin", "cifar10").describe()["evaluation"]
    code = {"code": code_digest("regun.data.augment")}
    assert described == [
        {"transform": "Resize", "shorter": 256, **code},
        {"transform": "CentreCrop", "size": 224, **code},
    ]
    assert get_pipeline("resnet", "cifar10").evaluation == ()


def test_unknown_names_are_refused_together_with_what_was_meant() -> None:
    with pytest.raises(SettingsError) as caught:
        get_pipeline("resnet-cod", "cifar-10")
    assert len(caught.value.problems) == 2
    assert "unknown input pipeline 'resnet-cod'. Did you mean 'resnet-code'?" in caught.value.problems[0]
    assert "unknown data set 'cifar-10'. Did you mean 'cifar10'?" in caught.value.problems[1]


def test_large_pipelines_refuse_grey_images() -> None:
    with error(SettingsError, "'swin'", "digits", "'none'"):
        get_pipeline("swin", "digits")


def test_data_change_their_pipeline_under_a_name_that_there_is() -> None:
    data = load_data(DataSpec("digits"), "digits")
    changed = with_pipeline(data, "resnet-code")
    assert (changed.train.pipeline, changed.test.pipeline) == (get_pipeline("resnet-code", "digits"),) * 2
    assert changed.train.digest == data.train.digest
    assert with_pipeline(changed, "resnet-code") is changed
    with error(SettingsError, "'resnt'", "'resnet'"):
        with_pipeline(data, "resnt")
    with error(SettingsError, "'swin'", "digits"):
        with_pipeline(data, "swin")
