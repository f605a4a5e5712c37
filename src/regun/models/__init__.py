"""Models: a name and settings to a torch module that returns logits."""

from regun.models.calls import Inputs, features_of, logits_of, twice_differentiable
from regun.models.catalogue import ModelHelp, ModelSpec, SettingHelp, build_model, defaults_of, models_help
from regun.models.outputs import binary, wrap
from regun.models.record import Defaults, ImageSize

__all__ = [
    "Defaults",
    "ImageSize",
    "Inputs",
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
