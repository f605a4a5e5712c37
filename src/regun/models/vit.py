"""A vision transformer (ViT) built by transformers from a configuration, sized for small images."""

from dataclasses import dataclass

from torch import nn

from regun.errors import RegunError, SettingsError
from regun.models.adapters import TransformersAdapter, silent_transformers
from regun.models.architecture import ImageSize
from regun.settings import check, setting


@dataclass(frozen=True)
class VitSettings:
    """Settings of `vit`."""

    patch: int | None = setting(None, "side of a patch in pixels; none: chosen to give 8x8 patches, or 14x14", low=1)
    dim: int = setting(128, "length of a token vector; a multiple of heads", low=1, high=65536)
    depth: int = setting(6, "number of transformer blocks", low=1, high=1000)
    heads: int = setting(4, "attention heads of each block", low=1, high=65536)
    mlp_ratio: float = setting(4.0, "hidden units of a block's MLP over dim", above=0)
    dropout: float = setting(0.0, "dropout after attention and MLP", low=0, high=0.9)

    def __post_init__(self) -> None:
        check(self, "vit")
        if self.dim % self.heads:
            raise SettingsError([f"vit.dim is {self.dim}; give a multiple of vit.heads, which is {self.heads}."])


def build_vit(name: str, settings: VitSettings, num_classes: int, image_size: ImageSize) -> nn.Module:
    """Return a ViT: patches to tokens, a class token, pre-norm blocks, a linear head on the class token."""
    channels, height, width = image_size
    patch = settings.patch or _patch_for(height, width)
    if height % patch or width % patch or patch == max(height, width):
        raise RegunError(
            f"{name} cannot cut an image of {height}x{width} pixels into patches of {patch}x{patch}. "
            "Set vit.patch to a divisor of both sides, or resize the images."
        )
    with silent_transformers(name) as transformers:
        config = transformers.ViTConfig(
            image_size=(height, width),
            patch_size=patch,
            num_channels=channels,
            hidden_size=settings.dim,
            num_hidden_layers=settings.depth,
            num_attention_heads=settings.heads,
            intermediate_size=round(settings.dim * settings.mlp_ratio),
            hidden_dropout_prob=settings.dropout,
            num_labels=num_classes,
            attn_implementation="sdpa",
        )
        return TransformersAdapter(transformers.ViTForImageClassification(config))


def _patch_for(height: int, width: int) -> int:
    """Return the smallest patch from 2 that divides both sides into at most 8 (up to 72 pixels) or 14 patches.

    A patch of one pixel is used only if nothing else divides a small image.
    """
    longest = max(height, width)
    most = 8 if longest <= 72 else 14
    fitting = (p for p in range(2, longest) if height % p == 0 and width % p == 0 and longest // p <= most)
    return next(fitting, 1 if longest <= most else longest)
