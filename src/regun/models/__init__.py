"""Models: a name and settings to a torch module that returns logits."""

from regun.models.adapters import binary, wrap
from regun.models.architecture import Defaults, ImageSize
from regun.models.forward import features_of, logits_of, twice_differentiable
from regun.models.registry import ModelHelp, ModelSpec, SettingHelp, build_model, defaults_of, models_help

__all__ = [
    "Defaults",
    "ImageSize",
    "ModelHelp",
    "ModelSpec",
    "SettingHelp",
    "binary",
    "build_model",
    "defaults_of",
    "features_of",
    "logits_of",
    "models_help",
    "twice_differentiable",
    "wrap",
]
