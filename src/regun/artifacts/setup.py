"""Data, model, recipe, input pipeline and split of a run, from text or from a stored model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regun.artifacts import Artifact
from regun.artifacts.trainings import model_of
from regun.data.examples import Data
from regun.data.pipelines import PIPELINES, with_pipeline
from regun.data.registry import DATA_SETS, DataSet, DataSpec, data_set, load_data, takes_root
from regun.errors import RegunError, SettingsError
from regun.methods import Method
from regun.models import Defaults, ModelSpec, defaults_of
from regun.plugins import trusted_name
from regun.settings import bind, parse_spec, setting, to_json
from regun.splits import Reserve, reserve
from regun.training.job import Budget
from regun.training.recipes import Recipe
from regun.types import Indices


@dataclass(frozen=True)
class SplitSettings:
    """What is set aside before any training."""

    seed: int = setting(0, "seed of the held-out, validation and forget draws")
    heldout: float = setting(0.1, "fraction set aside as unseen examples", low=0, high=0.9)
    val: float = setting(0.1, "fraction of the rest for validation", low=0, high=0.9)
    stratified: bool = setting(False, "draw held-out and validation class by class")

    def reserve(self, labels: Indices) -> Reserve:
        """Return the examples set aside, and the others."""
        return reserve(labels, self.seed, heldout=self.heldout, val=self.val, stratified=self.stratified)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Data, model, recipe and split of a run, checked but not yet loaded; models train with the input `pipeline`."""

    data: DataSpec
    model: ModelSpec
    recipe: Recipe
    pipeline: str
    split: SplitSettings = SplitSettings()
    unlearn_pipeline: str | None = None
    """The input pipeline to unlearn with; None for the one that belongs to `pipeline`."""

    @classmethod
    def of(cls, artifact: Artifact, *, data_dir: str | None = None, pipeline: str | None = None) -> "Setup":
        """Return the setup of a stored model from its manifest.

        `data_dir` is where the data are now; `pipeline` is the input pipeline to unlearn with.
        """
        about = artifact.info
        name = trusted_name(about["data_name"], None, artifact.trusted, "--data")
        settings = {k: v for k, v in about["data_settings"].items() if k not in ("download", "cache")}
        recipe = artifact.inputs.get("recipe")
        return cls(
            data=DataSpec.read(name, settings).below(data_dir),
            model=model_of(artifact),
            recipe=bind(Recipe, recipe, "recipe") if recipe else Recipe(),
            pipeline=about["pipeline"],
            split=bind(SplitSettings, about["split"], "split"),
            unlearn_pipeline=pipeline or about.get("unlearn_pipeline"),
        )

    def data_for(self, method: Method, data: Data) -> Data:
        """Return the data with the method's input pipeline.

        A method that trains from scratch uses the base's, others one without the paper's strong augmentation.
        """
        if method.from_scratch or method.training_augmentation:
            return data
        return with_pipeline(data, self.unlearn_pipeline or unlearning_pipeline(self.pipeline))

    def about(self) -> dict[str, Any]:
        """Return what a manifest must hold so that `of` can load the same data and split again."""
        return {
            "data_name": self.data.name,
            "data_settings": self.data.to_json(),
            "pipeline": self.pipeline,
            "split": to_json(self.split),
            "unlearn_pipeline": self.unlearn_pipeline,
        }

    def load(self, on_progress: Callable[[int, int], None] | None = None) -> tuple[Data, Reserve]:
        """Return the data and the examples set aside."""
        data = load_data(self.data, self.pipeline, on_progress)
        return data, self.split.reserve(data.train.labels)


def unlearning_pipeline(trained_with: str) -> str:
    """Return the input pipeline to unlearn with, for a model that was trained with this one."""
    pipeline = PIPELINES.get(trained_with)
    return pipeline.unlearn_with if pipeline and pipeline.unlearn_with else trained_with


def default_model(data: str) -> str:
    """Return the default model of a data set."""
    return _data_set(data).model


def default_recipe(model: str) -> str:
    """Return the default recipe of a model."""
    return _model_defaults(model).recipe


def family_of(model: str) -> str:
    """Return which of the paper's settings apply to a model: those of `resnet` or `swin`."""
    return _model_defaults(model).family


def default_pipeline(model: str, data: str) -> str:
    """Return the default input pipeline of a model and data set."""
    return _data_set(data).pipeline or _model_defaults(model).pipeline


def checked_model(name: str, values: Mapping[str, Any]) -> ModelSpec:
    """Return the model's definition, after checking all its settings."""
    spec = ModelSpec(name, values)
    spec.describe()
    return spec


def read_data(text: str, data_dir: str | None = None, folder: Path | str | None = None) -> DataSpec:
    """Parse `name,key=value,...`; `data_dir` holds the data sets' files, `folder` the file of `file.py:function`."""
    name, values = parse_spec(text)
    if data_dir is not None and takes_root(name, folder):
        values = {"root": data_dir, **values}
    return DataSpec.read(name, values, folder)


def read_split(text: str | None) -> SplitSettings:
    """Parse `key=value,key=value`."""
    return bind(SplitSettings, parse_spec(f"split,{text}")[1], "split") if text else SplitSettings()


def read_budget(text: str) -> Budget:
    """Parse `steps=N` or `samples=N`."""
    name, _, number = text.partition("=")
    if name not in ("steps", "samples") or not number.isdecimal() or len(number) > 18:
        raise SettingsError([f"budget is {text[:40]!r}; give steps=N or samples=N with a whole number N."])
    return Budget(**{name: int(number)})


def _data_set(name: str) -> DataSet:
    """Return its record; an unknown name is reported where the data set is read."""
    try:
        return data_set(name)
    except SettingsError:
        return DATA_SETS["folder"]


def _model_defaults(model: str) -> Defaults:
    """Return a model's defaults; an unknown name is reported where the model is read."""
    try:
        return defaults_of(model)
    except RegunError:
        return Defaults()
