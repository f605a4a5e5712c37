"""Models: a name and settings to a torch module that returns logits."""

from regun.models.calls import Inputs, features_of, logits_of, twice_differentiable
from regun.models.catalogue import ModelHelp, ModelSpec, SettingHelp, build_model, models_help
from regun.models.shapes import ImageSize

__all__ = [
    "ImageSize",
    "Inputs",
    "ModelHelp",
    "ModelSpec",
    "SettingHelp",
    "build_model",
    "features_of",
    "logits_of",
    "models_help",
    "twice_differentiable",
]
