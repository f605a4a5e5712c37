"""What a run is about, from text: data, model, recipe, input pipeline, split, request, budget."""

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
from regun.settings import bind, parse_spec
from regun.splits import Reserve, reserve
from regun.training.job import Budget
from regun.training.recipes import Recipe


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a run is about, checked but not yet loaded; `preset` is the input pipeline that models are trained with."""

    data: DataSpec
    model: ModelSpec
    recipe: Recipe
    preset: str
    split_seed: int = 0
    heldout: float = 0.1
    val: float = 0.1
    stratified: bool = False
    unlearn_preset: str | None = None
    """The input pipeline to unlearn with; None for the one that goes with `preset`."""

    @classmethod
    def of(cls, artifact: Artifact, *, data_dir: str | None = None, augment: str | None = None) -> "Setup":
        """What a stored model is about, from its manifest; the data may lie elsewhere now, `augment` unlearns."""
        about = artifact.info
        name = trusted_name(about["data_name"], None, artifact.trusted, "--data")
        settings = {k: v for k, v in about["data_settings"].items() if k not in ("download", "cache")}
        recipe = artifact.inputs.get("recipe")
        return cls(
            data=DataSpec.read(name, settings).below(data_dir),
            model=model_of(artifact),
            recipe=bind(Recipe, recipe, "recipe") if recipe else Recipe(),
            preset=about["preset"],
            split_seed=about["split_seed"],
            heldout=about["heldout"],
            val=about["val"],
            stratified=about["stratified"],
            unlearn_preset=augment or about.get("unlearn_preset"),
        )

    def seen_by(self, method: Method, data: Data) -> Data:
        """The data as a method sees them: one that trains from scratch as the base did, others without the strong
        augmentation that the paper trains with."""
        if method.from_scratch:
            return data
        return with_pipeline(data, self.unlearn_preset or unlearning_preset(self.preset))

    def about(self) -> dict[str, Any]:
        """What a manifest should remember of it, so that the same data and split can be loaded again."""
        return {
            "data_name": self.data.name,
            "data_settings": self.data.to_json(),
            "preset": self.preset,
            "split_seed": self.split_seed,
            "heldout": self.heldout,
            "val": self.val,
            "stratified": self.stratified,
            "unlearn_preset": self.unlearn_preset,
        }

    def load(self, on_progress: Callable[[int, int], None] | None = None) -> tuple[Data, Reserve]:
        """The data, and what is set aside of them."""
        data = load_data(self.data, self.preset, on_progress)
        kept = reserve(
            data.train.labels, self.split_seed, heldout=self.heldout, val=self.val, stratified=self.stratified
        )
        return data, kept


def unlearning_preset(trained_with: str) -> str:
    """The input pipeline for unlearning from a model that was trained with this one."""
    preset = PIPELINES.get(trained_with)
    return preset.unlearn_with if preset and preset.unlearn_with else trained_with


def default_model(data: str) -> str:
    """The model of a data set unless one is named."""
    return _data_set(data).model


def default_recipe(model: str) -> str:
    """The recipe of a model unless one is named."""
    return _goes_with(model).recipe


def family_of(model: str) -> str:
    """Whose settings of the paper a model takes: those for ResNets or those for transformers."""
    return _goes_with(model).family


def default_preset(model: str, data: str) -> str:
    """The input pipeline a model and data set are used with unless one is named."""
    return _data_set(data).augment or _goes_with(model).augment


def checked_model(name: str, values: Mapping[str, Any]) -> ModelSpec:
    """The model's definition; complains about anything wrong in it."""
    spec = ModelSpec(name, values)
    spec.describe()
    return spec


def read_data(text: str, data_dir: str | None = None, folder: Path | str | None = None) -> DataSpec:
    """`name,key=value,...`; `data_dir` is where data sets have their files, `folder` where `file.py:function` is."""
    name, values = parse_spec(text)
    if data_dir is not None and takes_root(name, folder):
        values = {"root": data_dir, **values}
    return DataSpec.read(name, values, folder)


def read_budget(text: str) -> Budget:
    """`steps=N` or `samples=N`."""
    name, _, number = text.partition("=")
    if name not in ("steps", "samples") or not number.isdecimal() or len(number) > 18:
        raise SettingsError([f"budget is {text[:40]!r}; give steps=N or samples=N with a whole number N."])
    return Budget(**{name: int(number)})


def _data_set(name: str) -> DataSet:
    """Its record; what is wrong with a name that has none is said where the data set is read."""
    try:
        return data_set(name)
    except SettingsError:
        return DATA_SETS["folder"]


def _goes_with(model: str) -> Defaults:
    """What goes with a model; what is wrong with a name that has nothing is said where the model is read."""
    try:
        return defaults_of(model)
    except RegunError:
        return Defaults()
