"""Names to models: the one door through which every model of a run is made."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from regun.errors import RegunError, SettingsError, unknown
from regun.models.calls import logits_of
from regun.models.hf import HfSettings, build_hf, describe_hf
from regun.models.resnet import ResNetSettings, build_resnet18, build_resnet34
from regun.models.shapes import ImageSize, check_shapes
from regun.models.small import CnnSettings, MlpSettings, build_cnn, build_mlp
from regun.models.swin import SwinNanoSettings, SwinTinySettings, build_swin_nano, build_swin_tiny
from regun.models.user import find_user_model
from regun.models.vit import VitSettings, build_vit
from regun.seeds import isolated
from regun.settings import bind

Value = str | int | float | bool


@dataclass(frozen=True)
class Entry:
    """One architecture; raise `version` whenever its layers or its initialisation change, to part old from new."""

    summary: str
    settings: type[Any]
    build: Callable[[Any, int, ImageSize | None], nn.Module]
    version: int = 1


CATALOGUE: Mapping[str, Entry] = {
    "resnet18": Entry("ResNet-18 with a stem that suits the image size", ResNetSettings, build_resnet18),
    "resnet34": Entry("ResNet-34 with a stem that suits the image size", ResNetSettings, build_resnet34),
    "swin-t": Entry("Swin-T for 224x224 images (needs transformers)", SwinTinySettings, build_swin_tiny),
    "swin-nano": Entry("small Swin for 8 to 64 pixels (needs transformers)", SwinNanoSettings, build_swin_nano),
    "vit": Entry("vision transformer, small by default (needs transformers)", VitSettings, build_vit),
    "cnn": Entry("small convolutional network with batch norm, quick on a CPU", CnnSettings, build_cnn),
    "mlp": Entry("multi-layer perceptron for feature vectors or flattened images", MlpSettings, build_mlp),
}
HF_NAME, USER_NAME = "hf:PATH", "module:function"


@dataclass(frozen=True)
class ModelSpec:
    """A model's name and the settings that differ from its defaults.

    >>> ModelSpec("resnet18", {"width": 16}).describe()["settings"]
    {'width': 16, 'stem': 'auto'}
    """

    name: str
    settings: Mapping[str, Value] = field(default_factory=dict[str, Value])

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", dict(self.settings))

    def describe(self) -> dict[str, Any]:
        """All that defines the model before training, as JSON for the content key.

        `ModelSpec(d["name"], d["settings"])` gives the model back. Models from outside are described by the digests
        of their files: the function's source file; config and, if loaded, weights.
        """
        if self.name.startswith("hf:"):
            options = bind(HfSettings, self.settings, self.name)
            return {"name": self.name, "settings": _plain(options), **describe_hf(self.name[3:], options)}
        if ":" in self.name:
            model = find_user_model(self.name, self.settings)
            settings = {key: _as_value(value) for key, value in model.arguments.items()}
            return {"name": self.name, "settings": settings, "source": model.digest()}
        entry = _entry(self.name)
        options = bind(entry.settings, self.settings, self.name)
        return {"name": self.name, "version": entry.version, "settings": _plain(options)}


def build_model(spec: ModelSpec, num_classes: int, image_size: ImageSize | None, seed: int) -> nn.Module:
    """A new model in training mode, on the CPU, with logits (N, num_classes) and weights that depend on `seed` only.

    `image_size` is (channels, height, width) of what the model is fed, None for inputs that are not images. The
    caller's random state is left as it was.

    >>> build_model(ModelSpec("mlp"), 10, (1, 8, 8), seed=0)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    check_shapes(num_classes, image_size)
    with isolated(seed):  # a block of its own: what an import draws must not shift the weights
        build = _builder(spec)
    with isolated(seed):
        model = build(num_classes, image_size)
        if ":" in spec.name:
            _try_out(spec.name, model, num_classes, image_size)
        return model.train()


@dataclass(frozen=True)
class SettingHelp:
    """One setting: its name, its default as text, and what it does."""

    name: str
    default: str
    help: str


@dataclass(frozen=True)
class ModelHelp:
    """One model: its name, a line on it, and its settings."""

    name: str
    summary: str
    settings: tuple[SettingHelp, ...]


def models_help() -> tuple[ModelHelp, ...]:
    """What can be given as a model's name, with every setting, as data to be printed."""
    known = [ModelHelp(name, entry.summary, _settings_help(entry.settings)) for name, entry in CATALOGUE.items()]
    return (
        *known,
        ModelHelp(HF_NAME, "image classifier of a local directory or the Hugging Face hub", _settings_help(HfSettings)),
        ModelHelp(USER_NAME, "your own: also path/to/file.py:function; called with num_classes=K and its settings", ()),
    )


def _builder(spec: ModelSpec) -> Callable[[int, ImageSize | None], nn.Module]:
    if spec.name.startswith("hf:"):
        return partial(build_hf, spec.name[3:], bind(HfSettings, spec.settings, spec.name))
    if ":" in spec.name:
        return find_user_model(spec.name, spec.settings).build
    entry = _entry(spec.name)
    return partial(entry.build, bind(entry.settings, spec.settings, spec.name))


def _entry(name: str) -> Entry:
    if name not in CATALOGUE:
        raise SettingsError([unknown("model", name, [*CATALOGUE, HF_NAME, USER_NAME])])
    return CATALOGUE[name]


def _settings_help(settings: type[Any]) -> tuple[SettingHelp, ...]:
    fields = dataclasses.fields(settings)
    return tuple(SettingHelp(f.name, str(_as_value(f.default)).lower(), str(f.metadata["help"])) for f in fields)


def _plain(options: Any) -> dict[str, Value]:
    return {f.name: _as_value(vars(options)[f.name]) for f in dataclasses.fields(options)}


def _as_value(value: Any) -> Value:
    """A setting as it would be written: a tuple with slashes, an absent value as none."""
    if isinstance(value, tuple):
        return "/".join(map(str, value))  # type: ignore[reportUnknownArgumentType]
    return "none" if value is None else value


def _try_out(name: str, model: nn.Module, num_classes: int, image_size: ImageSize | None) -> None:
    """Refuse at once a model from outside that does not turn one image into `num_classes` logits."""
    if image_size is None:
        return
    with torch.no_grad():
        try:
            logits = logits_of(model.eval(), torch.zeros(1, *image_size))
        except (RuntimeError, ValueError, TypeError) as fault:
            reason = str(fault).strip().split("\n")[0]
            raise RegunError(
                f"{name} fails on images of size {image_size}: {type(fault).__name__}: {reason}"
            ) from fault
    if logits.shape != (1, num_classes):
        raise RegunError(
            f"{name} returns outputs of shape {tuple(logits.shape)} for one image; it must be (1, {num_classes})."
        )
