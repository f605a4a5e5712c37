"""Models: a name and settings to a torch module that returns logits.

Belongs here: architectures, models of the user and of the Hugging Face format, and how any of them is called.
Does not: training, data or files of our own. May import: errors, settings, seeds.
"""

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
