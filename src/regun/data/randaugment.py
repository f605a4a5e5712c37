"""RandAugment: a few operations per sample, each drawn at random from fourteen, at one magnitude.

Where Pillow and torchvision differ, torchvision is followed: grey is 0.2989 R + 0.587 G + 0.114 B, cut off to an
integer (Pillow rounds); the mean that contrast blends with is not rounded; shears hold the top left corner still.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regun.data.augment import BaseTransform, block_size, grey, match_layout
from regun.devices import send
from regun.errors import DataError, SettingsError
from regun.settings import setting

Operation = Callable[[Tensor, Tensor], Tensor]  # images (n, C, H, W) uint8 and strengths (n,) on the CPU, to images
SIGNED = frozenset(
    ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness")
)


@dataclass(frozen=True)
class RandAugment(BaseTransform):
    """Apply `n` operations in turn to each sample, each drawn uniformly, with a random sign where it has one."""

    n: int = setting(2, "operations per sample", low=0)
    magnitude: int = setting(9, "strength, 0 to bins - 1", low=0)
    bins: int = setting(31, "number of strengths", low=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.magnitude >= self.bins:
            raise SettingsError([f"RandAugment.magnitude is {self.magnitude}; the most allowed is {self.bins - 1}."])

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return operations (indices in OPERATIONS) and signs (-1 or 1), each (n, count)."""
        chosen = torch.randint(len(OPERATIONS), (self.n, count), generator=generator)
        return chosen, 1 - 2 * torch.randint(2, (self.n, count), generator=generator)

    def strengths(self, height: int, width: int) -> dict[str, float]:
        """Return the strength of every operation: shears are slopes, translations pixels, angles degrees."""
        share = self.magnitude / (self.bins - 1)
        table = dict.fromkeys(OPERATIONS, 0.0)
        table |= dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), 0.9 * share)
        table |= {"ShearX": 0.3 * share, "ShearY": 0.3 * share, "Rotate": 30.0 * share}
        table |= {"TranslateX": 150 / 331 * width * share, "TranslateY": 150 / 331 * height * share}
        return table | {
            "Posterize": float(8 - round(4 * share)),
            "Solarize": 255 * (self.bins - 1 - self.magnitude) / (self.bins - 1),
        }

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        if images.dtype != torch.uint8:
            raise DataError(f"RandAugment needs uint8 images, but got {images.dtype}; put it before float transforms.")
        strengths = self.strengths(images.shape[2], images.shape[3])
        out = images.clone(memory_format=torch.contiguous_format)
        for chosen, signs in zip(*self.draw(len(images), generator), strict=True):
            for index, (name, operation) in enumerate(OPERATIONS.items()):
                rows = (chosen == index).nonzero()[:, 0]
                sign = signs[rows].double() if name in SIGNED else torch.ones(len(rows), dtype=torch.float64)
                if name != "Identity":
                    _apply(operation, out, rows, strengths[name] * sign)
        return match_layout(out, images)


def _apply(operation: Operation, images: Tensor, rows: Tensor, strength: Tensor) -> None:
    """Apply one operation in place to `rows`, in blocks."""
    size = block_size(images)
    for part, strengths in zip(torch.split(rows, size), torch.split(strength, size), strict=True):
        if len(part):  # splitting nothing gives one empty part
            results = operation(images.index_select(0, send(part, images.device)), strengths)
            for row, result in zip(part, results, strict=True):  # ten times as fast as index_copy_ on uint8
                images[int(row)] = result


def warp(images: Tensor, inverse: Tensor) -> Tensor:
    """Return images whose pixel p is the nearest one at A p + b, 0 outside; `inverse` is (n, 2, 3), rows (A | b).

    Coordinates are those of pixel centres, (x + 0.5, y + 0.5).
    """
    count, channels, height, width = images.shape
    rows = send(inverse.float(), images.device)[..., None, None]
    across = torch.arange(width, device=images.device) + 0.5
    down = (torch.arange(height, device=images.device) + 0.5)[:, None]
    x, y = (((rows[:, i, 0] * across + rows[:, i, 2]) + rows[:, i, 1] * down).floor_() for i in range(2))
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    source = (y * width + x).mul_(inside).long().flatten(1)[:, None].expand(-1, channels, -1)
    return images.flatten(2).gather(2, source).view(count, channels, height, width).mul_(inside[:, None])


def shear_x(images: Tensor, strength: Tensor) -> Tensor:
    return warp(images, _affine(strength, xy=strength))


def shear_y(images: Tensor, strength: Tensor) -> Tensor:
    return warp(images, _affine(strength, yx=strength))


def translate_x(images: Tensor, strength: Tensor) -> Tensor:
    return warp(images, _affine(strength, x=-strength.trunc()))


def translate_y(images: Tensor, strength: Tensor) -> Tensor:
    return warp(images, _affine(strength, y=-strength.trunc()))


def rotate(images: Tensor, strength: Tensor) -> Tensor:
    """Turn by `strength` degrees against the clock, around the centre."""
    angle = strength * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    x, y = images.shape[3] / 2, images.shape[2] / 2
    shift_x, shift_y = x - cos * x + sin * y, y - sin * x - cos * y
    return warp(images, _affine(strength, xx=cos, xy=-sin, x=shift_x, yx=sin, yy=cos, y=shift_y))


def brightness(images: Tensor, strength: Tensor) -> Tensor:
    return blend(torch.zeros((), device=images.device), images, strength)


def colour(images: Tensor, strength: Tensor) -> Tensor:
    return blend(grey(images.float().transpose(0, 1)).floor_()[:, None], images, strength)


def contrast(images: Tensor, strength: Tensor) -> Tensor:
    return blend(grey(images.float().transpose(0, 1)).floor_().mean((1, 2))[:, None, None, None], images, strength)


def sharpness(images: Tensor, strength: Tensor) -> Tensor:
    """Blend with the blurred image: weights 1 around 5, divided by 13; the outermost pixels are not blurred."""
    blurred = images.float()
    lines = blurred[:, :, :-2] + blurred[:, :, 1:-1] + blurred[:, :, 2:]
    total = lines[..., :-2] + lines[..., 1:-1] + lines[..., 2:]
    inner = blurred[:, :, 1:-1, 1:-1]
    inner.copy_(total.add_(inner, alpha=4).div_(13).round_())
    return blend(blurred, images, strength)


def blend(base: Tensor, images: Tensor, strength: Tensor) -> Tensor:
    """Return base + (1 + strength) (x - base), clamped to 0..255 and cut off to an integer."""
    factor = _per_sample(1 + strength, images)
    return torch.addcmul(base, images - base, factor).clamp_(0, 255).to(torch.uint8)


def posterize(images: Tensor, strength: Tensor) -> Tensor:
    """Return the images with only the `strength` highest bits."""
    return images & _per_sample(256 - 2 ** (8 - strength), images).to(torch.uint8)


def solarize(images: Tensor, strength: Tensor) -> Tensor:
    """Invert values at or above `strength`."""
    bright = images >= _per_sample(strength.ceil(), images).to(torch.uint8)
    return images ^ bright.view(torch.uint8).neg_()  # x ^ 255 = 255 - x; seven times as fast as torch.where


def autocontrast(images: Tensor, strength: Tensor) -> Tensor:
    """Stretch each channel to 0..255: floor(255 (x - low) / (high - low)); a flat channel stays as it is."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    span = (high - low).clamp_(min=1)
    return torch.where(low == high, images, ((images - low) * 255.0).div_(span).to(torch.uint8))


def equalize(images: Tensor, strength: Tensor) -> Tensor:
    """Spread each channel's histogram: value v becomes (s // 2 + number of pixels below v) // s.

    s = (pixels below the largest value) // 255; where s = 0 the channel stays as it is.
    """
    values = images.flatten(2).long()
    planes = torch.arange(values.shape[0] * values.shape[1], device=images.device).view(*values.shape[:2], 1)
    # not `bincount`, for which the host waits on an accelerator
    histogram = torch.zeros(*planes.shape[:2], 256, dtype=torch.long, device=images.device)
    histogram.scatter_add_(2, values, torch.ones_like(values))
    step = (values.shape[2] - histogram.gather(2, values.amax(2, keepdim=True))) // 255
    table = (histogram.cumsum(2) - histogram + step // 2) // step.clamp(min=1)
    table = torch.where(step > 0, table, torch.arange(256, device=images.device)).clamp_(0, 255)
    return table.to(torch.uint8).gather(2, values).view(images.shape)


def _affine(like: Tensor, **entries: Tensor) -> Tensor:
    """Return (n, 2, 3) matrices from their entries xx, xy, x, yx, yy, y; the rest as in the identity."""
    one, zero = torch.ones_like(like), torch.zeros_like(like)
    names = {"xx": one, "xy": zero, "x": zero, "yx": zero, "yy": one, "y": zero} | entries
    return torch.stack(list(names.values()), 1).view(-1, 2, 3)


def _per_sample(numbers: Tensor, images: Tensor) -> Tensor:
    return send(numbers.float(), images.device)[:, None, None, None]


OPERATIONS: dict[str, Operation] = {  # in torchvision's order
    "Identity": lambda images, strength: images,
    "ShearX": shear_x,
    "ShearY": shear_y,
    "TranslateX": translate_x,
    "TranslateY": translate_y,
    "Rotate": rotate,
    "Brightness": brightness,
    "Color": colour,
    "Contrast": contrast,
    "Sharpness": sharpness,
    "Posterize": posterize,
    "Solarize": solarize,
    "AutoContrast": autocontrast,
    "Equalize": equalize,
}
