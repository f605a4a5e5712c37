"""The batched transforms against naive loops, Pillow and their own probabilities.

Where Pillow rounds and torchvision cuts off (grey, the mean of contrast), the tolerance is one or two grey levels.
"""

import colorsys
import json
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageChops, ImageEnhance, ImageOps
from torch import Tensor

from expect import error
from regun.data.augment import (
    BaseTransform,
    CentreCrop,
    ColorJitter,
    Flip,
    PadCrop,
    RandomErasing,
    RandomResizedCrop,
    Resize,
    as_float,
)
from regun.data.examples import Transform
from regun.data.randaugment import OPERATIONS, SIGNED, RandAugment
from regun.errors import DataError, SettingsError
from regun.rng import generator

RANDOM: list[Transform] = [
    PadCrop(2),
    Flip(),
    ColorJitter(0.4, 0.4, 0.4, 0.3),
    RandomResizedCrop(12),
    RandAugment(),
    RandomErasing(p=0.9),
]
EVERY: list[Transform] = [*RANDOM, Resize(11), CentreCrop(9)]


def pictures(count: int, height: int = 16, width: int = 16, channels: int = 3, seed: int = 0) -> Tensor:
    """Smooth colours with noise on top, so that neither interpolation nor histograms are trivial."""
    coarse = torch.rand(count, channels, 4, 4, generator=generator(seed, "coarse"))
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    noise = torch.rand(smooth.shape, generator=generator(seed, "noise"))
    return (255 * (0.8 * smooth + 0.2 * noise)).round().to(torch.uint8)


def to_pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def from_pil(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def difference(a: Tensor, b: Tensor) -> Tensor:
    return (a.double() - b.double()).abs()


def name(value: object) -> str:
    return type(value).__name__


# ------------------------------------------------------------------------------------------- what holds of every one


@pytest.mark.parametrize("transform", EVERY, ids=name)
def test_the_seed_decides_and_nothing_else_is_touched(transform: Transform) -> None:
    images = pictures(8)
    before, state = images.clone(), torch.get_rng_state()
    first, again = transform(images, generator(1)), transform(images, generator(1))
    assert torch.equal(first, again)
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(transform(images, generator(2)), first) == (transform not in RANDOM)


@pytest.mark.parametrize("transform", RANDOM, ids=name)
def test_identical_images_meet_different_fates(transform: Transform) -> None:
    out = transform(pictures(1).expand(64, -1, -1, -1), generator(0))
    assert len({row.numpy().tobytes() for row in out}) >= (2 if isinstance(transform, Flip) else 12)


@pytest.mark.parametrize("transform", EVERY, ids=name)
def test_a_sample_does_not_depend_on_the_others_in_its_batch(transform: Transform) -> None:
    images = pictures(9)
    others = images.clone()
    others[:4], others[5:] = 255 - others[:4], 0
    torch.testing.assert_close(transform(images, generator(3))[4], transform(others, generator(3))[4], rtol=0, atol=0)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("transform", EVERY, ids=name)
def test_memory_layout_is_kept_and_does_not_matter(transform: Transform, channels: int) -> None:
    images = pictures(6, 14, 10, channels)
    last = images.contiguous(memory_format=torch.channels_last)
    plain, out = transform(images, generator(4)), transform(last, generator(4))
    assert plain.is_contiguous()
    assert out.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out, plain, rtol=0, atol=1e-6 if plain.is_floating_point() else 1)
    sliced = images.repeat(2, 1, 1, 2)[::2, :, :, :10]
    assert transform(sliced, generator(4)).shape == plain.shape


@pytest.mark.parametrize("transform", [t for t in EVERY if not isinstance(t, RandAugment)], ids=name)
def test_floats_and_bytes_agree(transform: Transform) -> None:
    images = pictures(6)
    from_bytes, from_floats = as_float(transform(images, generator(5))), transform(as_float(images), generator(5))
    assert from_floats.dtype == torch.float32
    assert difference(from_bytes, from_floats).max() <= 1.01 / 255


@pytest.mark.parametrize("transform", EVERY, ids=name)
def test_description_is_json_and_tells_settings_apart(transform: Transform) -> None:
    assert isinstance(transform, BaseTransform)
    assert json.loads(json.dumps(transform.describe())) == transform.describe()
    assert transform.describe()["transform"] == name(transform)
    assert PadCrop(3).describe() != PadCrop(4).describe() == {"transform": "PadCrop", "padding": 4}


@pytest.mark.parametrize("transform", EVERY, ids=name)
def test_an_empty_batch_stays_empty(transform: Transform) -> None:
    assert transform(pictures(2)[:0], generator(0)).shape[:2] == (0, 3)


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(10)
    whole = [t(images, generator(6)) for t in (ColorJitter(), RandAugment())]
    monkeypatch.setattr("regun.data.augment.BLOCK", 3 * 16 * 16)
    for transform, expected in zip((ColorJitter(), RandAugment()), whole, strict=True):
        torch.testing.assert_close(transform(images, generator(6)), expected, rtol=0, atol=1e-6)


# -------------------------------------------------------------------------------------------------- crops and flips


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_pad_crop_is_the_naive_loop(memory: torch.memory_format) -> None:
    images = pictures(20, 7, 9).contiguous(memory_format=memory)
    out = PadCrop(3)(images, generator(0))
    offsets = torch.randint(7, (20, 2), generator=generator(0)).tolist()
    for image, cut, (top, left) in zip(images, out, offsets, strict=True):
        padded = torch.zeros(3, 13, 15, dtype=torch.uint8)
        padded[:, 3:10, 3:12] = image
        assert torch.equal(cut, padded[:, top : top + 7, left : left + 9])


def test_pad_crop_offsets_are_uniform_and_independent() -> None:
    count, marker = 20_000, torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    marker[..., 4, 4] = 1
    places = PadCrop(4)(marker.expand(count, -1, -1, -1), generator(0)).flatten(1).argmax(1)
    frequency = torch.bincount(places, minlength=81) / count
    assert (frequency - 1 / 81).abs().max() < 5 * math.sqrt(1 / 81 / count)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_flip_mirrors_with_its_probability(p: float) -> None:
    image = pictures(1, 4, 4)
    out = Flip(p)(image.expand(5000, -1, -1, -1), generator(0))
    mirrored = (out == image.flip(-1)).all(1).all(1).all(1)
    assert torch.equal(out[~mirrored], image.expand(int((~mirrored).sum()), -1, -1, -1))
    assert abs(float(mirrored.double().mean()) - p) <= 5 * math.sqrt(p * (1 - p) / 5000)


def test_resized_crops_are_pillows() -> None:
    images, transform = pictures(12, 40, 30), RandomResizedCrop(24, scale=(0.2, 1.0))
    out = transform(images, generator(0))
    for image, cut, (t, x, h, w) in zip(images, out, transform.boxes(12, 40, 30, generator(0)).tolist(), strict=True):
        expected = to_pil(image).crop((x, t, x + w, t + h)).resize((24, 24), Image.Resampling.BILINEAR)
        assert difference(cut, from_pil(expected)).max() <= 1


def test_crop_boxes_follow_their_distribution() -> None:
    boxes = RandomResizedCrop(8, (0.25, 0.5), (0.5, 2.0)).boxes(20_000, 100, 100, generator(0)).double()
    top, left, high, wide = boxes.unbind(1)
    assert (boxes >= 0).all()
    assert (top + high <= 100).all()
    assert (left + wide <= 100).all()
    share, log_ratio = high * wide / 1e4, (wide / high).log()
    assert 0.24 < share.min() < 0.27
    assert 0.48 < share.max() < 0.51
    assert abs(float(share.mean()) - 0.375) < 0.005  # uniform area: every box fits
    assert abs(float(log_ratio.mean())) < 0.02  # log-uniform ratio: as often wide as high
    assert abs(float(log_ratio.std()) - 2 * math.log(2) / math.sqrt(12)) < 0.01
    assert abs(float(((top + 0.5) / (101 - high)).mean()) - 0.5) < 0.01


@pytest.mark.parametrize(
    ("size", "box"), [((8, 64), [0, 26, 8, 11]), ((64, 8), [26, 0, 11, 8]), ((20, 20), [0, 0, 20, 20])]
)
def test_a_box_that_never_fits_becomes_the_centre(size: tuple[int, int], box: list[int]) -> None:
    assert RandomResizedCrop(8, (1.5, 2.0)).boxes(2, *size, generator(0)).tolist() == [box, box]


@pytest.mark.parametrize("size", [(60, 40), (20, 33), (24, 24)])
def test_evaluation_transforms_are_pillows(size: tuple[int, int]) -> None:
    images = pictures(2, *size)
    resized = Resize(24)(images, generator(0))
    assert resized.shape[2:] == (24 * size[0] // min(size), 24 * size[1] // min(size))
    for image, out in zip(images, resized, strict=True):
        expected = to_pil(image).resize((out.shape[2], out.shape[1]), Image.Resampling.BILINEAR)
        assert difference(out, from_pil(expected)).max() <= 1
    top, left = round((resized.shape[2] - 16) / 2), round((resized.shape[3] - 16) / 2)
    cut = CentreCrop(16)(resized, generator(0))
    assert torch.equal(cut, resized[:, :, top : top + 16, left : left + 16])


# ----------------------------------------------------------------------------------------------------- colour jitter


def jitter_one(image: Tensor, amounts: list[float], turns: list[int]) -> Tensor:
    """One sample the slow way, in double precision: the operations in their order, hue through HSV."""
    x = image.double() / 255
    for kind in sorted(range(4), key=lambda k: turns[k]):
        grey = (x * torch.tensor([0.2989, 0.587, 0.114], dtype=torch.float64)[:, None, None]).sum(0, keepdim=True)
        if kind == 3:
            hsv = [colorsys.rgb_to_hsv(*pixel) for pixel in x.flatten(1).T.tolist()]
            turned = [colorsys.hsv_to_rgb((h + amounts[3]) % 1.0, s, v) for h, s, v in hsv]
            x = torch.tensor(turned, dtype=torch.float64).T.reshape(x.shape)
        else:
            base = (torch.zeros_like(grey), grey.mean(), grey)[kind]
            x = (amounts[kind] * x + (1 - amounts[kind]) * base).clamp(0, 1)
    return x


@pytest.mark.parametrize(
    "jitter", [ColorJitter(0.1, 0.1, 0.1, 0.02), ColorJitter(0.8, 0.9, 2.5, 0.5), ColorJitter(0, 0, 0, 1 / 6)]
)
def test_colour_jitter_is_the_slow_loop(jitter: ColorJitter) -> None:
    images = pictures(40, 8, 8)
    images[:, :, 0] = torch.randint(0, 2, (40, 3, 8), generator=generator(1)).to(torch.uint8) * 255  # corners, ties
    images[:, :, 1] = 77  # grey pixels have no hue
    amounts, turns = jitter.draw(40, generator(7))
    out = jitter(images, generator(7))
    expected = torch.stack(
        [jitter_one(i, a, t) for i, a, t in zip(images, amounts.tolist(), turns.tolist(), strict=True)]
    )
    assert difference(out, expected).max() < 2e-6


def test_jitter_amounts_and_orders_have_their_distribution() -> None:
    amounts, turns = ColorJitter(0.4, 0.2, 1.5, 0.1).draw(24_000, generator(0))
    for amount, (low, high) in zip(amounts.T, [(0.6, 1.4), (0.8, 1.2), (0, 2.5), (-0.1, 0.1)], strict=True):
        shares = (amount - low) / (high - low)
        assert shares.min() >= 0
        assert shares.max() <= 1
        histogram = torch.histc(shares, 10, 0, 1) / len(shares)
        assert (histogram - 0.1).abs().max() < 5 * math.sqrt(0.09 / len(shares))
    _, counts = turns.unique(dim=0, return_counts=True)
    assert len(counts) == 24
    assert (counts - 1000).abs().max() < 5 * math.sqrt(1000)


@pytest.mark.parametrize(
    ("jitter", "kind", "enhance", "levels"),
    [
        (ColorJitter(0.5, 0, 0, 0), 0, ImageEnhance.Brightness, 1),
        (ColorJitter(0, 0.5, 0, 0), 1, ImageEnhance.Contrast, 1.5),
        (ColorJitter(0, 0, 0.5, 0), 2, ImageEnhance.Color, 1.5),
    ],
)
def test_jitter_factors_are_pillows(
    jitter: ColorJitter, kind: int, enhance: Callable[[Image.Image], ImageEnhance._Enhance], levels: float
) -> None:
    images = pictures(10)
    amounts, _ = jitter.draw(10, generator(8))
    out = jitter(images, generator(8))
    for image, made, factor in zip(images, out, amounts[:, kind].tolist(), strict=True):
        assert difference(255 * made, from_pil(enhance(to_pil(image)).enhance(factor))).max() <= levels


def test_hue_is_pillows_up_to_its_eight_bit_hsv() -> None:
    images, jitter = pictures(10), ColorJitter(0, 0, 0, 0.3)
    amounts, _ = jitter.draw(10, generator(9))
    for image, made, shift in zip(images, jitter(images, generator(9)), amounts[:, 3].tolist(), strict=True):
        hue, saturation, value = to_pil(image).convert("HSV").split()
        turned = Image.fromarray((np.array(hue, dtype=np.int16) + round(shift * 255)).astype(np.uint8))
        expected = from_pil(Image.merge("HSV", (turned, saturation, value)).convert("RGB"))
        assert difference(255 * made, expected).mean() < 2.5
        assert difference(255 * made, expected).max() < 12


# ---------------------------------------------------------------------------------------------------------- erasing


def test_erasing_fills_boxes_with_noise_and_leaves_the_rest() -> None:
    transform = RandomErasing(p=0.25, area=(0.02, 0.2), ratio=(0.3, 3.3))
    images = pictures(1, 48, 48).expand(4000, -1, -1, -1)
    boxes, out = transform.boxes(4000, 48, 48, generator(0)), transform(images, generator(0))
    erased = boxes[:, 2] > 0
    assert abs(float(erased.double().mean()) - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 4000)
    rows, columns = torch.arange(48)[None, :, None], torch.arange(48)[None, None]
    top, left, high, wide = (boxes[:, i, None, None] for i in range(4))
    inside = (rows >= top) & (rows < top + high) & (columns >= left) & (columns < left + wide)
    changed = (out != as_float(images)).all(1)
    assert torch.equal(changed, inside)
    noise = out.permute(0, 2, 3, 1)[inside]
    assert abs(float(noise.mean())) < 0.01
    assert abs(float(noise.std()) - 1) < 0.01
    high, wide = boxes[erased, 2].double(), boxes[erased, 3].double()
    area = high * wide / 48**2
    assert 0.015 < area.min() < 0.03
    assert 0.18 < area.max() < 0.21
    assert abs(float(area.mean()) - 0.11) < 0.01
    assert ((high / wide) > 0.25).all()
    assert ((high / wide) < 4).all()


def test_erasing_gives_up_on_boxes_that_do_not_fit() -> None:
    images = pictures(4)
    assert torch.equal(RandomErasing(1.0, (1.2, 1.5), (1.0, 1.0))(images, generator(0)), as_float(images))
    assert torch.equal(RandomErasing(0.0)(images, generator(0)), as_float(images))


# ------------------------------------------------------------------------------------------------------- RandAugment


def shifted(image: Image.Image, x: int, y: int) -> Image.Image:
    """Pillow's cyclic offset, with what came round the edge painted black."""
    out = np.array(ImageChops.offset(image, x, y))
    out[:, : max(x, 0)], out[:, out.shape[1] + min(x, 0) :] = 0, 0
    out[: max(y, 0)], out[out.shape[0] + min(y, 0) :] = 0, 0
    return Image.fromarray(out)


def affine(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


PILLOW: dict[str, tuple[Callable[[Image.Image, float], Image.Image], list[float], float]] = {
    "ShearX": (lambda i, s: affine(i, (1, s, 0, 0, 1, 0)), [0.09, -0.27], 0),
    "ShearY": (lambda i, s: affine(i, (1, 0, 0, s, 1, 0)), [0.09, -0.27], 0),
    "TranslateX": (lambda i, s: shifted(i, int(s), 0), [4.35, -4.35, 0.5], 0),
    "TranslateY": (lambda i, s: shifted(i, 0, int(s)), [4.35, -4.35], 0),
    "Brightness": (lambda i, s: ImageEnhance.Brightness(i).enhance(1 + s), [0.27, -0.27, 0.9], 0),
    "Color": (lambda i, s: ImageEnhance.Color(i).enhance(1 + s), [0.27, -0.9, 0.9], 2),
    "Contrast": (lambda i, s: ImageEnhance.Contrast(i).enhance(1 + s), [0.27, -0.9, 0.9], 2),
    "Sharpness": (lambda i, s: ImageEnhance.Sharpness(i).enhance(1 + s), [0.27, -0.9, 0.9], 0),
    "Posterize": (lambda i, s: ImageOps.posterize(i, int(s)), [8, 7, 4], 0),
    "Solarize": (lambda i, s: ImageOps.solarize(i, math.ceil(s)), [178.5, 255, 0], 0),
    "AutoContrast": (lambda i, s: ImageOps.autocontrast(i), [0], 1),
    "Equalize": (lambda i, s: ImageOps.equalize(i), [0], 0),
}


@pytest.mark.parametrize("operation", PILLOW)
def test_operations_are_pillows(operation: str) -> None:
    expected, strengths, levels = PILLOW[operation]
    images = torch.cat([pictures(3, 21, 32), torch.full((1, 3, 21, 32), 90, dtype=torch.uint8)])
    images[0, 1] = images[0, 1] // 3 + 60  # a narrow range
    images[1, 2] = 200  # a flat channel
    for strength in strengths:
        out = OPERATIONS[operation](images, torch.full((4,), float(strength), dtype=torch.float64))
        for image, made in zip(images, out, strict=True):
            assert difference(made, from_pil(expected(to_pil(image), strength))).max() <= levels


@pytest.mark.parametrize("degrees", [9.0, -30.0, 90.0])
def test_rotation_is_pillows_but_for_ties(degrees: float) -> None:
    image = pictures(1, 33, 33)
    out = OPERATIONS["Rotate"](image, torch.tensor([degrees], dtype=torch.float64))[0]
    expected = from_pil(to_pil(image[0]).rotate(degrees, Image.Resampling.NEAREST))
    assert (out != expected).any(0).double().mean() < 0.01


@pytest.mark.parametrize("operation", sorted(SIGNED))
def test_strengths_differ_within_a_batch(operation: str) -> None:
    images, strengths = pictures(2), torch.tensor([0.27, -0.27], dtype=torch.float64)
    strengths *= 10 if operation.startswith("Translate") else 1
    alone = [OPERATIONS[operation](images[i : i + 1], strengths[i : i + 1]) for i in range(2)]
    assert torch.equal(OPERATIONS[operation](images, strengths), torch.cat(alone))


def test_magnitudes_are_torchvisions() -> None:
    table = RandAugment(2, 9, 31).strengths(64, 32)
    expected = {"ShearX": 0.09, "ShearY": 0.09, "TranslateX": 150 / 331 * 32 * 0.3, "TranslateY": 150 / 331 * 64 * 0.3}
    expected |= {"Rotate": 9.0, "Posterize": 7.0, "Solarize": 178.5, "Identity": 0, "AutoContrast": 0, "Equalize": 0}
    expected |= dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), 0.27)
    assert table == pytest.approx(expected)
    posterize = [RandAugment(1, m, 31).strengths(1, 1)["Posterize"] for m in range(31)]
    assert posterize == [8 - int((torch.tensor(m / 7.5)).round()) for m in range(31)]


def test_operations_and_signs_are_uniform_and_independent() -> None:
    chosen, signs = RandAugment(n=2).draw(28_000, generator(0))
    frequency = torch.bincount(chosen[0] * 14 + chosen[1], minlength=196) / 28_000
    assert (frequency - 1 / 196).abs().max() < 5 * math.sqrt(1 / 196 / 28_000)
    assert set(signs.unique().tolist()) == {-1, 1}
    assert signs.double().mean(1).abs().max() < 5 / math.sqrt(28_000)


def test_each_sample_gets_the_operations_drawn_for_it() -> None:
    images, transform = pictures(60, 20, 20), RandAugment(n=3, magnitude=20)
    strengths = transform.strengths(20, 20)
    chosen, signs = transform.draw(60, generator(0))
    out = transform(images, generator(0))
    for row in range(60):
        image = images[row : row + 1]
        for operation, sign in zip(
            [list(OPERATIONS)[int(o)] for o in chosen[:, row]], signs[:, row].tolist(), strict=True
        ):
            strength = strengths[operation] * (sign if operation in SIGNED else 1)
            image = OPERATIONS[operation](image, torch.tensor([strength], dtype=torch.float64))
        assert torch.equal(out[row], image[0])


# ------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: PadCrop(-1), "PadCrop.padding -1 0"),
        (lambda: Flip(1.5), "Flip.p 1.5 1"),
        (lambda: ColorJitter(hue=0.6), "ColorJitter.hue 0.6 0.5"),
        (lambda: RandomResizedCrop(8, (0.9, 0.5)), "RandomResizedCrop.scale (0.9"),
        (lambda: RandomErasing(ratio=(0.0, 1.0)), "RandomErasing.ratio (0.0"),
        (lambda: RandAugment(2, 31, 31), "RandAugment.magnitude 31 30"),
    ],
)
def test_settings_outside_their_limits_are_refused(make: Callable[[], Transform], text: str) -> None:
    with error(SettingsError, *text.split()):
        make()


def test_images_a_transform_cannot_take_are_refused() -> None:
    with error(DataError, "RandAugment", "uint8", "torch.float32"):
        RandAugment()(as_float(pictures(1)), generator(0))
    with error(DataError, 24, 16):
        CentreCrop(24)(pictures(1), generator(0))
    with error(DataError, 1, 3, 2):
        ColorJitter()(pictures(1, channels=2), generator(0))
