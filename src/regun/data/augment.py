"""Batched image transforms: one call per batch, one random draw per sample, all from the generator passed in.

Random numbers are drawn on the CPU and never depend on the images, so a sample's result depends on its own pixels, its
place in the batch and the generator only. Inputs are never changed in place.
"""

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from regun.devices import send
from regun.errors import DataError, SettingsError
from regun.settings import check, setting, to_json

GREY_WEIGHTS = (0.2989, 0.587, 0.114)
BLOCK = 2**17  # pixels worked on at a time
CONTRAST, SATURATION, HUE = 1, 2, 3  # brightness is 0


def as_float(images: Tensor) -> Tensor:
    """Return images in [0, 1]: uint8 is divided by 255, floats stay as they are."""
    return images if images.is_floating_point() else images.to(torch.float32).div_(255)


def grey(planes: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the luminance (N, H, W), 0.2989 R + 0.587 G + 0.114 B, of float planes (C, N, H, W) with C 3 or 1."""
    if len(planes) not in (1, 3):
        raise DataError(f"colour transforms need 1 or 3 channels, but the images have {len(planes)}.")
    red, *rest = planes.unbind(0)
    result = torch.mul(red, GREY_WEIGHTS[0] if rest else 1.0, out=out)
    for plane, weight in zip(rest, GREY_WEIGHTS[1:], strict=False):
        result.add_(plane, alpha=weight)
    return result


def block_size(images: Tensor) -> int:
    """Return how many images to process at once: few enough for the cache, enough to be worth the calls."""
    return max(1, BLOCK // (images.shape[2] * images.shape[3]))


def is_channels_last(images: Tensor) -> bool:
    """Return True if the channels are innermost in memory."""
    return images.is_contiguous(memory_format=torch.channels_last) and not images.is_contiguous()


def match_layout(result: Tensor, like: Tensor) -> Tensor:
    """Return the result in the memory layout of the images it came from."""
    return result.contiguous(memory_format=torch.channels_last if is_channels_last(like) else torch.contiguous_format)


@dataclass(frozen=True)
class BaseTransform:
    """Base of the transforms: checks the settings, and describes them by name."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        check(self, name)
        ranges: dict[str, Any] = {key: value for key, value in vars(self).items() if isinstance(value, tuple)}
        wrong = [f"{name}.{key} is {v!r}; give 0 < low <= high." for key, v in ranges.items() if not 0 < v[0] <= v[1]]
        if wrong:
            raise SettingsError(wrong)

    def describe(self) -> dict[str, Any]:
        """Return the transform's name and settings as JSON values."""
        return {"transform": type(self).__name__, **to_json(self)}


@dataclass(frozen=True)
class PadCrop(BaseTransform):
    """Pad with zeros on every side, then cut the original size at a random place: offsets uniform in 0..2 padding."""

    padding: int = setting(4, "zeros added on every side, in pixels", low=0)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        count, channels, height, width = images.shape
        if not count:
            return images.clone()
        offsets = torch.randint(2 * self.padding + 1, (count, 2), generator=generator)
        last = is_channels_last(images)
        # A line of a crop is contiguous in memory, W x C numbers of channels-last images and W of others: so the crop
        # is one gather of lines, from the view of the padded batch that has a line start at every number.
        planes = images.permute(0, 2, 3, 1) if last else images.reshape(-1, height, width, 1)
        padded = F.pad(planes, (0, 0, *[self.padding] * 4))
        down, across = padded.stride()[1:3]
        starts = (offsets[:, 0] * down + offsets[:, 1] * across).repeat_interleave(1 if last else channels)
        starts += torch.arange(len(planes)) * padded.stride(0)
        lines = send((starts[:, None] + torch.arange(height) * down).flatten(), images.device)
        cut = padded.flatten().unfold(0, width * across, 1).index_select(0, lines)
        return cut.view(count, height, width, channels).permute(0, 3, 1, 2) if last else cut.view(images.shape)


@dataclass(frozen=True)
class Flip(BaseTransform):
    """Mirror left and right with probability p."""

    p: float = setting(0.5, "probability of a flip", low=0, high=1)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        flips = torch.rand(len(images), generator=generator) < self.p
        source = torch.where(flips, len(images) - 1 + flips.cumsum(0), torch.arange(len(images)))
        mirrored = _take(images, send(flips.nonzero()[:, 0], images.device)).flip(-1)
        return _take(torch.cat([images, mirrored]), send(source, images.device))


@dataclass(frozen=True)
class ColorJitter(BaseTransform):
    """Change brightness, contrast, saturation and hue at random, in a random order per sample; the result is a float.

    Factors f ~ U[max(0, 1 - s), 1 + s] blend x <- clamp(f x + (1 - f) base) with base 0, mean grey or grey;
    the hue, a position on a circle of length 1, moves by U[-hue, hue]. One channel has neither saturation nor hue.
    """

    brightness: float = setting(0.1, "half width of the brightness factor around 1", low=0)
    contrast: float = setting(0.1, "half width of the contrast factor around 1", low=0)
    saturation: float = setting(0.1, "half width of the saturation factor around 1", low=0)
    hue: float = setting(0.02, "largest hue shift, in turns", low=0, high=0.5)

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return amounts (count, 4), three factors and a hue shift, and the turn (0 to 3) at which each is applied."""
        limits = [(max(0.0, 1 - s), 1 + s) for s in (self.brightness, self.contrast, self.saturation)]
        low, high = torch.tensor([*limits, (-self.hue, self.hue)]).unbind(1)
        draws = torch.rand(2, count, 4, generator=generator)
        return torch.lerp(low, high, draws[0]), draws[1].argsort(1)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        amounts, turns = self.draw(len(images), generator)
        blends = send(_blends(amounts, turns), images.device)
        out = torch.empty_like(images, dtype=images.dtype if images.is_floating_point() else torch.float32)
        size = block_size(images)
        with torch.inference_mode():
            # One plane per channel, and spare ones; made once, for fresh memory costs as much as the arithmetic
            work = out.new_empty(2 * images.shape[1] + 4, min(size, len(images)), *images.shape[2:])
            for start in range(0, len(images), size):
                here = slice(start, start + size)
                planes = self._jittered(images[here], blends[..., here, :, :], amounts[here], turns[here, HUE], work)
                out[here] = planes.transpose(0, 1)
        return out

    def _jittered(self, images: Tensor, blends: Tensor, amounts: Tensor, hue_turn: Tensor, work: Tensor) -> Tensor:
        # Sorted by the hue's turn, the blends before (after) the hue concern a suffix (prefix) of the batch: no gathers
        order = hue_turn.argsort()
        had_hue = cast("list[int]", torch.bincount(hue_turn, minlength=4).cumsum(0).tolist())
        shift, back = send(amounts[order, HUE], images.device), send(order.argsort(), images.device)
        order = send(order, images.device)
        planes, spare = work[: images.shape[1], : len(images)], work[images.shape[1] :, : len(images)]
        planes.copy_(_take(images, order).transpose(0, 1)).mul_(1 if images.is_floating_point() else 1 / 255)
        blends = blends.index_select(2, order)
        for turn, start in enumerate(had_hue[:3]):
            _blend(planes[:, start:], blends[turn, :, start:], spare[0, start:])
        steps = math.ceil(6 * self.hue) if len(planes) == 3 else 0
        for _ in range(steps):
            _shift_hue(planes, shift / steps, spare)
        for turn, stop in enumerate(had_hue[:3], start=1):
            _blend(planes[:, :stop], blends[turn, :, :stop], spare[0, :stop])
        return torch.index_select(planes, 1, back, out=spare[: len(planes)])


@dataclass(frozen=True)
class RandomResizedCrop(BaseTransform):
    """Cut a random box (share of the area in `scale`, width / height in `ratio`) and resize it to size x size.

    Ten tries for a box that fits, then the largest centred box within the ratio limits; bilinear with antialiasing.
    """

    size: int = setting(224, "height and width of the result", low=1)
    scale: tuple[float, float] = setting((0.6, 1.0), "least and largest share of the area")
    ratio: tuple[float, float] = setting((3 / 4, 4 / 3), "least and largest width / height, log-uniform")

    def boxes(self, count: int, height: int, width: int, generator: torch.Generator) -> Tensor:
        """Return boxes (count, 4) of top, left, height, width."""
        across, down = _tries(count, height * width, self.scale, self.ratio, generator)
        fits = (across > 0) & (across <= width) & (down > 0) & (down <= height)
        box = _placed(down, across, fits, height, width, generator)
        wide = min(width, round(height * self.ratio[1]))
        high = min(height, round(width / self.ratio[0]))
        box[~fits.any(1)] = torch.tensor([(height - high) // 2, (width - wide) // 2, high, wide])
        return box

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        boxes = cast("list[list[int]]", self.boxes(len(images), images.shape[2], images.shape[3], generator).tolist())
        size = (self.size, self.size)
        parts = [_resize(images[i : i + 1, :, t : t + h, x : x + w], size) for i, (t, x, h, w) in enumerate(boxes)]
        return match_layout(torch.cat(parts) if parts else images.new_zeros(0, images.shape[1], *size), images)


@dataclass(frozen=True)
class RandomErasing(BaseTransform):
    """With probability p, replace a random box by standard normal noise; the result is a float.

    The box takes a share of the area in `area` and has height / width in `ratio`; after ten misfits nothing is erased.
    """

    p: float = setting(0.25, "probability of erasing", low=0, high=1)
    area: tuple[float, float] = setting((0.02, 0.2), "least and largest share of the area")
    ratio: tuple[float, float] = setting((0.3, 3.3), "least and largest height / width, log-uniform")

    def boxes(self, count: int, height: int, width: int, generator: torch.Generator) -> Tensor:
        """Return boxes (count, 4) of top, left, height, width; all zeros where nothing is erased."""
        chosen = torch.rand(count, generator=generator) < self.p
        down, across = _tries(count, height * width, self.area, self.ratio, generator)
        fits = (down < height) & (across < width) & chosen[:, None]
        return _placed(down, across, fits, height, width, generator) * fits.any(1, keepdim=True)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        boxes = cast("list[list[int]]", self.boxes(len(images), images.shape[2], images.shape[3], generator).tolist())
        out = images.clone() if images.is_floating_point() else as_float(images)
        erased = [(i, box) for i, box in enumerate(boxes) if box[2] * box[3]]
        sizes = [images.shape[1] * high * wide for _, (_, _, high, wide) in erased]
        noise = torch.split(send(torch.randn(sum(sizes), generator=generator), out.device).to(out.dtype), sizes)
        for (i, (top, left, high, wide)), patch in zip(erased, noise, strict=True):
            out[i, :, top : top + high, left : left + wide] = patch.view(-1, high, wide)
        return out


@dataclass(frozen=True)
class Resize(BaseTransform):
    """Resize so that the shorter side becomes `shorter` and the other keeps the shape; bilinear with antialiasing."""

    shorter: int = setting(256, "length of the shorter side", low=1)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        height, width = images.shape[2:]
        least = min(height, width)
        return match_layout(_resize(images, (self.shorter * height // least, self.shorter * width // least)), images)


@dataclass(frozen=True)
class CentreCrop(BaseTransform):
    """Cut size x size from the middle."""

    size: int = setting(224, "height and width of the result", low=1)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        height, width = images.shape[2:]
        if min(height, width) < self.size:
            raise DataError(f"cannot cut {self.size} x {self.size} from images of {height} x {width}; resize first.")
        top, left = round((height - self.size) / 2), round((width - self.size) / 2)
        return match_layout(images[:, :, top : top + self.size, left : left + self.size], images)


def _blends(amounts: Tensor, turns: Tensor) -> Tensor:
    """Return the blends of every turn, (4, 3, N, 1, 1); that at the turn of the hue is not used."""
    kinds = turns.argsort(1)  # the operation of each sample at each turn
    factors = amounts.gather(1, kinds)
    on_grey, on_mean = (1 - factors) * (kinds == SATURATION), (1 - factors) * (kinds == CONTRAST)
    return torch.stack([factors, on_grey, on_mean]).permute(2, 0, 1)[..., None, None]


def _blend(planes: Tensor, blends: Tensor, spare: Tensor) -> None:
    """x <- clamp(f x + a grey(x) + b mean(grey(x))) in place; `blends` (3, N, 1, 1) holds f, a and b."""
    if planes.shape[1]:
        factor, on_grey, on_mean = blends.unbind(0)
        base = grey(planes, out=spare)
        shift = base.mean((1, 2), keepdim=True).mul_(on_mean)
        torch.addcmul(base.mul_(on_grey).add_(shift), planes, factor, out=planes).clamp_(0, 1)


def _shift_hue(planes: Tensor, shift: Tensor, spare: Tensor) -> None:
    """Shift the hue in place by `shift` turns, at most 1/6 either way, as in HSV but without the conversion.

    With M, m, d the largest, least and middle channel, R <- clamp(2 R - d - 6 shift (M - m) sign(G - B), m, M), and G,
    B alike with B - R, R - G. For 2 R - d is where the hue's hexagon would put R without its corners, it moves by
    6 shift (M - m) at most M - m, and the clamp cuts the corners. Ties do not matter: there the clamp decides.
    """
    red, green, blue = planes.unbind(0)
    lesser, larger, least, most, *ahead = spare.unbind(0)
    torch.minimum(red, green, out=lesser)
    torch.maximum(red, green, out=larger)
    torch.minimum(lesser, blue, out=least)
    torch.maximum(larger, blue, out=most)
    minus_middle = torch.maximum(lesser, torch.minimum(larger, blue, out=larger), out=lesser).neg_()
    reach = torch.sub(most, least, out=larger).mul_(-6 * shift[:, None, None])
    for target, first, second in zip(ahead, (green, blue, red), (blue, red, green), strict=True):
        torch.sub(first, second, out=target)
    torch.add(minus_middle, planes, alpha=2, out=planes).addcmul_(spare[4:].sign_(), reach)
    torch.clamp(planes, least, most, out=planes)


def _tries(
    count: int, area: int, share: tuple[float, float], ratio: tuple[float, float], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return ten candidate boxes per sample: sides sqrt(A r) and sqrt(A / r), rounded, each (count, 10)."""
    draws = torch.rand(2, count, 10, generator=generator, dtype=torch.float64)
    target = area * (share[0] + (share[1] - share[0]) * draws[0])
    log_ratio = math.log(ratio[0]) + math.log(ratio[1] / ratio[0]) * draws[1]
    return (target * log_ratio.exp()).sqrt().round().long(), (target / log_ratio.exp()).sqrt().round().long()


def _placed(down: Tensor, across: Tensor, fits: Tensor, height: int, width: int, generator: torch.Generator) -> Tensor:
    """Return the first candidate that fits, at a uniform position: (count, 4) of top, left, height, width."""
    first = fits.long().argmax(1, keepdim=True)
    size = torch.cat([down.gather(1, first), across.gather(1, first)], 1)
    positions = torch.tensor([height, width]) - size + 1
    draws = torch.rand(len(size), 2, generator=generator, dtype=torch.float64)
    return torch.cat([(draws * positions).long(), size], 1)


def _resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    if images.dtype == torch.uint8 and images.device.type != "cpu":  # only the CPU has a kernel for uint8
        return _resize(images.float(), size).round_().clamp_(0, 255).to(torch.uint8)
    return F.interpolate(images, size, mode="bilinear", antialias=True)


def _take(images: Tensor, rows: Tensor) -> Tensor:
    """Return images[rows]; channels-last images too are copied by whole samples, which index_select alone does not."""
    if images.is_contiguous():
        return images.index_select(0, rows)
    return images.permute(0, 2, 3, 1).index_select(0, rows).permute(0, 3, 1, 2)
