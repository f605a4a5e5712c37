"""Models by name: `ModelSpec` describes one, `build_model` builds it."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from regun.errors import RegunError, SettingsError, unknown
from regun.hashing import code_digest
from regun.models.architecture import Architecture, Defaults, ImageSize
from regun.models.forward import logits_of
from regun.models.hf import PREFIX, HfSettings, build_hf, describe_hf
from regun.models.resnet import ResNetSettings, build_resnet
from regun.models.small import CnnSettings, MlpSettings, build_cnn, build_mlp
from regun.models.swin import SwinNanoSettings, SwinTinySettings, build_swin_nano, build_swin_tiny
from regun.models.user_models import build_user_model, find_user_model, user_defaults
from regun.models.vit import VitSettings, build_vit
from regun.plugins import file_digest, is_code, source_digest
from regun.rng import isolated
from regun.settings import bind

Value = str | int | float | bool

RESNET, SMALL = Defaults(recipe="resnet18"), Defaults(recipe="digits")
SWIN, SMALL_SWIN = Defaults("swin", "swin-t", "swin"), Defaults("swin", "swin-small", "swin-small")
CATALOGUE: Mapping[str, Architecture] = {
    "resnet18": Architecture("ResNet-18 with a stem that suits the image size", ResNetSettings, build_resnet, RESNET),
    "resnet34": Architecture("ResNet-34 with a stem that suits the image size", ResNetSettings, build_resnet, RESNET),
    "swin-t": Architecture("Swin-T for 224x224 images (needs transformers)", SwinTinySettings, build_swin_tiny, SWIN),
    "swin-nano": Architecture(
        "small Swin for 8 to 64 pixels (needs transformers)", SwinNanoSettings, build_swin_nano, SMALL_SWIN
    ),
    "vit": Architecture(
        "vision transformer, small by default (needs transformers)", VitSettings, build_vit, SMALL_SWIN
    ),
    "cnn": Architecture("small convolutional network with batch norm, quick on a CPU", CnnSettings, build_cnn, SMALL),
    "mlp": Architecture(
        "multi-layer perceptron for feature vectors or flattened images",
        MlpSettings,
        build_mlp,
        SMALL,
        images_only=False,
    ),
}
HF = Architecture(
    "image classifier of a local directory or the Hugging Face hub",
    HfSettings,
    build_hf,
    Defaults("swin", "swin-small"),
    images_only=False,
)
MOST_PARAMETERS = 2_000_000_000
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
        """Return what defines the model before training, as JSON for the content key.

        `ModelSpec(d["name"], d["settings"])` is the same model. The code that builds it is included as a digest, of
        regun's modules or of the user's file; so are the configuration and weights of a Hugging Face model.
        """
        if is_code(self.name):
            model = find_user_model(self.name, self.settings)
            user_defaults(self.name)  # raises here, with the other problems
            settings = {key: _as_value(value) for key, value in model.settings.items()}
            code = {"file": file_digest(self.name), "source": source_digest(model.function, self.name)}
            return {"name": self.name, "settings": settings, **code}
        record = _architecture(self.name)
        options = bind(record.settings, self.settings, self.name)
        files = describe_hf(self.name, options) if isinstance(options, HfSettings) else {}
        settings = {f.name: _as_value(vars(options)[f.name]) for f in dataclasses.fields(options)}
        return {"name": self.name, "settings": settings, **files, "code": code_digest(record.build.__module__)}


def defaults_of(name: str) -> Defaults:
    """Return family, recipe and input pipeline of a model; raise if there is no such model."""
    return user_defaults(name) if is_code(name) else _architecture(name).defaults


def build_model(spec: ModelSpec, num_classes: int, image_size: ImageSize | None, seed: int) -> nn.Module:
    """Return a new model in training mode, on the CPU, with logits (N, num_classes); weights depend on `seed` only.

    `image_size` is (channels, height, width) of the inputs, None for inputs that are not images. The caller's random
    state does not change.

    >>> build_model(ModelSpec("mlp"), 10, (1, 8, 8), seed=0)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    if num_classes < 2:
        raise RegunError(f"num_classes is {num_classes}; a classifier needs at least 2 classes.")
    if image_size is not None and (len(image_size) != 3 or min(image_size) < 1):
        raise RegunError(f"image_size is {image_size}; give (channels, height, width), all at least 1.")
    with isolated(seed):  # a separate block: random numbers drawn by an import must not shift the weights
        build = _builder(spec, image_size)
    external = ":" in spec.name
    if not external:
        _check_size(spec, build, num_classes, image_size)
    with isolated(seed):
        model = build(num_classes, image_size)
        if external and image_size is not None:
            _check_outputs(spec.name, model, num_classes, image_size)
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
    """Return the names of models, each with its settings."""
    models: list[ModelHelp] = []
    for name, record in {**CATALOGUE, HF_NAME: HF}.items():
        fields = dataclasses.fields(record.settings)
        settings = [SettingHelp(f.name, str(_as_value(f.default)).lower(), str(f.metadata["help"])) for f in fields]
        models.append(ModelHelp(name, record.about, tuple(settings)))
    about = "your function, also path/to/file.py:function; called with num_classes=K and its settings"
    return (*models, ModelHelp(USER_NAME, about, ()))


def _architecture(name: str) -> Architecture:
    if name.startswith(PREFIX):
        return HF
    if name not in CATALOGUE:
        raise SettingsError([unknown("model", name, [*CATALOGUE, HF_NAME, USER_NAME])])
    return CATALOGUE[name]


def _builder(spec: ModelSpec, image_size: ImageSize | None) -> Callable[[int, ImageSize | None], nn.Module]:
    """Return the function that builds the model, with its settings bound."""
    if is_code(spec.name):
        return partial(build_user_model, find_user_model(spec.name, spec.settings))
    record = _architecture(spec.name)
    options = bind(record.settings, spec.settings, spec.name)
    if record.images_only and image_size is None:
        raise RegunError(
            f"{spec.name} works on images, but the data has no image size (got None). "
            "Give image_size=(channels, height, width), or use the model 'mlp' for feature vectors."
        )
    return partial(record.build, spec.name, options)


def _as_value(value: Any) -> Value:
    """Return a setting as users write it: a tuple with slashes, None as none."""
    if isinstance(value, tuple):
        return "/".join(map(str, value))  # type: ignore[reportUnknownArgumentType]
    return "none" if value is None else value


def _check_size(
    spec: ModelSpec, build: Callable[[int, ImageSize | None], nn.Module], num_classes: int, image_size: ImageSize | None
) -> None:
    """Raise if a built-in model has too many parameters, before memory is allocated for them."""
    try:
        with isolated(0), torch.device("meta"):
            count = sum(p.numel() for p in build(num_classes, image_size).parameters())
    except RuntimeError:  # one layer alone is too large
        count = MOST_PARAMETERS + 1
    if count > MOST_PARAMETERS:
        raise RegunError(
            f"{spec.name} with {dict(spec.settings)} has more than {MOST_PARAMETERS:,} parameters; choose smaller ones."
        )


def _check_outputs(name: str, model: nn.Module, num_classes: int, image_size: ImageSize) -> None:
    """Raise if a user's or Hugging Face model does not return `num_classes` logits for one image."""
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
