"""Swin transformers: `swin-t` as torchvision defines it, and `swin-nano` for images of 8 to 64 pixels."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regun.errors import RegunError, SettingsError
from regun.models.adapters import TransformersAdapter, silent_transformers
from regun.models.architecture import ImageSize
from regun.settings import check, setting


@dataclass(frozen=True)
class SwinTinySettings:
    """Settings of `swin-t`."""

    drop_path: float = setting(0.2, "stochastic depth of the last block, rising linearly from 0", low=0, high=0.9)

    def __post_init__(self) -> None:
        check(self, "swin-t")


@dataclass(frozen=True)
class SwinNanoSettings:
    """Settings of `swin-nano`."""

    embed_dim: int = setting(32, "channels of the first stage; doubled by each further stage", low=1, high=8192)
    depths: tuple[int, ...] = setting((2, 2), "blocks of each stage, written 2/2")
    heads: tuple[int, ...] = setting((2, 4), "attention heads of each stage, written 2/4")
    window: int | None = setting(None, "side of an attention window in patches; none: fitted to the image", low=2)
    patch: int | None = setting(None, "side of a patch in pixels; none: fitted to the image", low=1)
    drop_path: float = setting(0.1, "stochastic depth of the last block, rising linearly from 0", low=0, high=0.9)

    def __post_init__(self) -> None:
        check(self, "swin-nano")
        problems: list[str] = []
        if not self.depths or len(self.depths) != len(self.heads):
            problems.append(
                f"swin-nano.depths is {self.depths} and swin-nano.heads is {self.heads}; "
                "give both one number per stage, as in depths=2/2 and heads=2/4."
            )
        if not all(1 <= depth <= 1000 for depth in self.depths):
            problems.append(f"swin-nano.depths is {self.depths}; give 1 to 1000 blocks per stage.")
        for stage, count in enumerate(self.heads):
            channels = self.embed_dim * 2**stage
            if count < 1 or channels % count:
                problems.append(
                    f"swin-nano.heads is {self.heads}; in stage {stage + 1} give a divisor of its {channels} channels, "
                    f"not {count}."
                )
        if problems:
            raise SettingsError(problems)


@dataclass(frozen=True)
class StochasticDepth:
    """Forward hook that, in training, drops a module's output for each example with probability `rate`.

    transformers drops the attention branch of a block but not its MLP branch; torchvision drops both.
    """

    rate: float

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        if not module.training:
            return output
        shape = (output.shape[0],) + (1,) * (output.ndim - 1)
        mask = torch.rand(shape, device=output.device) >= self.rate
        return output * mask / (1 - self.rate)


class MeanPool(nn.Module):
    """Mean over the last dimension; AdaptiveAvgPool1d returns the same, but torch.func.vmap does not support it."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.mean(x, dim=-1, keepdim=True)


def build_swin_tiny(name: str, settings: SwinTinySettings, num_classes: int, size: ImageSize) -> nn.Module:
    """Return Swin-T for 224 pixels: patch 4, window 7, 96 channels; with 200 classes it has 27,673,154 parameters."""
    shape = _Shape(patch=4, window=7, embed_dim=96, depths=(2, 2, 6, 2), heads=(3, 6, 12, 24))
    _check_fit(name, shape, size, "It is made for 224x224: resize the images, or use the model 'swin-nano'.")
    return _build(name, shape, settings.drop_path, num_classes, size)


def build_swin_nano(name: str, settings: SwinNanoSettings, num_classes: int, size: ImageSize) -> nn.Module:
    """Return a Swin whose patch (at least 2, for a grid of at most 16x16) and window (at most 7) fit the image."""
    patch = settings.patch or max(2, math.ceil(max(size[1:]) / 16))
    window = settings.window or _window_for(_grids(size, patch, len(settings.depths)))
    shape = _Shape(patch, window, settings.embed_dim, settings.depths, settings.heads)
    _check_fit(name, shape, size, "Use larger images, a smaller patch, a smaller window or fewer depths.")
    return _build(name, shape, settings.drop_path, num_classes, size)


@dataclass(frozen=True)
class _Shape:
    patch: int
    window: int
    embed_dim: int
    depths: tuple[int, ...]
    heads: tuple[int, ...]


def _build(name: str, shape: _Shape, drop_path: float, num_classes: int, size: ImageSize) -> nn.Module:
    """Return a Swin transformer of this shape, built by transformers and initialized like torchvision's."""
    with silent_transformers(name) as transformers:
        config = transformers.SwinConfig(
            image_size=size[1:],
            patch_size=shape.patch,
            num_channels=size[0],
            embed_dim=shape.embed_dim,
            depths=shape.depths,
            num_heads=shape.heads,
            window_size=shape.window,
            mlp_ratio=4.0,
            drop_path_rate=drop_path,
            num_labels=num_classes,
            attn_implementation="sdpa",
        )
        model = transformers.SwinForImageClassification(config)
    # initialize patch embedding and position biases, and drop MLP branches, as torchvision does
    swin: Any = model.swin
    swin.pooler = MeanPool()
    swin.embeddings.patch_embeddings.projection.reset_parameters()
    blocks = [block for stage in swin.encoder.layers for block in stage.blocks]
    for index, block in enumerate(blocks):
        nn.init.trunc_normal_(block.attention.relative_position_bias.relative_position_bias_table, std=0.02)
        rate = drop_path * index / max(len(blocks) - 1, 1)
        if rate > 0:
            block.mlp.register_forward_hook(StochasticDepth(rate))
    return TransformersAdapter(model)


def _grids(size: ImageSize, patch: int, stages: int) -> list[tuple[int, int]]:
    """Return the number of patches (high, wide) at each stage; incomplete patches and pairs are padded."""
    grids = [(math.ceil(size[1] / patch), math.ceil(size[2] / patch))]
    for _ in range(stages - 1):
        grids.append((math.ceil(grids[-1][0] / 2), math.ceil(grids[-1][1] / 2)))
    return grids


def _window_for(grids: list[tuple[int, int]]) -> int:
    """Return the largest window up to 7 that divides every grid, else the largest up to 4 that fits, with padding."""
    common = math.gcd(*(side for grid in grids for side in grid))
    dividing = (w for w in range(7, 1, -1) if common % w == 0)
    return next(dividing, max(2, min(4, *grids[-1])))


def _check_fit(name: str, shape: _Shape, size: ImageSize, advice: str) -> None:
    """Raise if the last stage has fewer patches than one window."""
    last = _grids(size, shape.patch, len(shape.depths))[-1]
    if min(last) < shape.window:
        raise RegunError(
            f"{name} does not fit images of {size[1]}x{size[2]} pixels: with patch {shape.patch} and "
            f"{len(shape.depths)} stages the last grid has {last[0]}x{last[1]} patches, "
            f"less than its window of {shape.window}. {advice}"
        )
