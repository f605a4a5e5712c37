"""A study as data: what to train, forget and compare."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import count
from typing import Any

from regun.artifacts.out_of_fold import SHARE
from regun.artifacts.setup import (
    Setup,
    SplitSettings,
    checked_model,
    default_model,
    default_pipeline,
    default_recipe,
    family_of,
    read_budget,
    read_data,
)
from regun.auditing import ATTACKS, METRICS, UNSEEN
from regun.auditing.attack_results import attack_metrics
from regun.auditing.attacks import resolve_attack
from regun.data.registry import DataSpec
from regun.errors import RegunError
from regun.experiments.search.settings_file import Blocks
from regun.forget_spec import ForgetSpec
from regun.methods import Method, MethodSpec
from regun.models import ModelSpec
from regun.plugins import in_folder, is_code
from regun.settings import bind, check, parse_spec, setting, to_json
from regun.splits import Reserve
from regun.training.job import Budget
from regun.training.recipes import Recipe, Updates, read_recipe
from regun.types import Indices

FIRST_REFERENCE = 1001
"""Training seed of the first reference model; the seeds of a study are smaller."""
TUNE_SEED = 100
"""The seed that settings are searched on unless a study names one, or reports this one."""
UPDATES_OF_BASE = ("optimizer", "momentum", "nesterov", "beta1", "beta2", "weight_decay", "decay", "schedule")
"""Settings of base training that unlearning uses with `updates = "base"`: not the learning rate, which belongs to the
method, and no warm-up, which a trained model does not need."""
REPEAT_STEP = 10_000
"""Distance between the unlearning seeds of two repeats; training seeds are smaller."""


@dataclass(frozen=True)
class MethodRow:
    """A method of a study, under the name and title that its row has in tables."""

    name: str
    """The text up to its first comma; the whole text where that is not unique."""
    text: str
    spec: MethodSpec
    title: str
    unranked: bool


@dataclass(frozen=True)
class Study:
    """What to compare. Every field but `folder` is a key of the study's file; the properties are its parsed form."""

    name: str = setting("study", "short name, for folders and messages")
    title: str = setting("", "a line that says what it is about")
    data: str = setting("digits", "data set, as `name,key=value` (data_dir= or REGUN_DATA names its folder)")
    model: str = setting("", "model, as `name,key=value`; default by data set")
    recipe: str = setting("", "recipe, as `name,key=value`; default by model")
    pipeline: str = setting("", "input pipeline for training; default by model and data")
    forget: tuple[str, ...] = setting(("0.1",), "what to forget: fractions or other requests")
    seeds: tuple[int, ...] = setting((0,), "training seeds; each has its own split unless split_seed is set")
    repeats: int = setting(1, "unlearning runs for each training seed, each from its own seed", low=1, high=1000)
    split_seed: int | None = setting(None, "one split for all seeds (default: it moves with the seed, as in the paper)")
    heldout: float = setting(0.1, "fraction set aside as unseen examples", low=0, high=0.9)
    val: float = setting(0.1, "fraction of the rest for validation", low=0, high=0.9)
    stratified: bool = setting(False, "draw held-out and validation class by class")
    methods: tuple[str, ...] = setting(("regun", "finetune"), "methods, as `name@preset,key=value`")
    unranked: tuple[str, ...] = setting((), "further methods, which are tuned and evaluated alike but not ranked")
    untuned: tuple[str, ...] = setting(
        (), "methods of the two lists that run with the settings of the study, without a search"
    )
    table_share: float = setting(
        SHARE, "share of the epochs that a model of the prepared table is trained for", above=0, high=1
    )
    references: int = setting(4, "reference models for each forget set and seed: noise floor and RMIA", low=0)
    updates: str = setting(
        "method",
        "optimizer settings of unlearning: method (each method's own) or base (as in base training, except the rate)",
        choices=("method", "base"),
    )
    budget: str = setting("", "`steps=N` or `samples=N` for every method (default: each method's own epochs)")
    bootstrap: int = setting(1000, "resamples behind the intervals", low=0, high=1_000_000)
    attacks: tuple[str, ...] = setting((), "further attacks: `file.py:function`")
    metrics: tuple[str, ...] = setting((), "further columns: numbers of the audit, or metrics as `file.py:function`")
    relearn: bool = setting(False, "also run the relearning check on every model")
    threads: int | None = setting(None, "threads per task; equal numbers give equal results bit for bit", low=1)
    settings_from: str = setting("", "file of tuned settings, as `regun tune` writes it, or the name of shipped ones")
    settings: Blocks = field(default_factory=dict[str, Any], metadata={"help": "tables [settings.REQUEST.METHOD]"})
    titles: Mapping[str, str] = field(default_factory=dict[str, str], metadata={"help": "row name = title"})
    tune_seed: int | None = setting(
        None, "seed that settings are searched on (default: 100, or the next that is free)", low=0
    )
    tune: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"help": "trials, objective, seed"})
    folder: str = "."

    def __post_init__(self) -> None:
        check(self, "study")

    @cached_property
    def family(self) -> str:
        """The model family, whose search ranges and presets apply."""
        return family_of(self._model[0])

    @cached_property
    def model_spec(self) -> ModelSpec:
        return checked_model(*self._model)

    @cached_property
    def recipe_value(self) -> Recipe:
        return read_recipe(self.recipe or default_recipe(self.model_spec.name))

    @cached_property
    def pipeline_name(self) -> str:
        """The input pipeline for training."""
        return self.pipeline or default_pipeline(self.model_spec.name, parse_spec(self.data)[0])

    @cached_property
    def tuning(self) -> "TuneSpec | None":
        return bind(TuneSpec, self.tune, "study.tune") if self.tune else None

    @cached_property
    def budget_value(self) -> Budget | None:
        return read_budget(self.budget) if self.budget else None

    @cached_property
    def requests(self) -> dict[str, ForgetSpec]:
        """What to forget, by the text of the study; a file of ids is read from the study's folder."""
        return {text: ForgetSpec.parse(text, self.folder) for text in self.forget}

    @cached_property
    def method_specs(self) -> dict[str, MethodSpec]:
        """All methods, by the text of the study; a Python file is looked for in the study's folder."""
        return {text: MethodSpec.parse(text, self.folder) for text in self.compared}

    @cached_property
    def audit_attacks(self) -> tuple[str, ...] | None:
        """The attacks of every audit: the built-in ones that can run, then the study's own; None for the former."""
        if not self.attacks:
            return None
        able = [a.name for a in ATTACKS.values() if a.references <= self.references and (self.val or not a.population)]
        return (*able, *(self._in_folder(text) for text in self.attacks))

    @cached_property
    def audit_metrics(self) -> tuple[str, ...]:
        """The metrics of every audit besides the built-in ones."""
        measured = {*METRICS, *self.attack_numbers}
        return tuple(self._in_folder(text) for text in self.metrics if text not in measured)

    @cached_property
    def attack_numbers(self) -> tuple[str, ...]:
        """The numbers of the study's own attacks (`margin_auc`, `margin_tpr1`, ...), which `metrics` may name."""
        names: list[str] = []
        for text in self.attacks:
            with suppress(RegunError):  # reported where attacks are checked
                attack = resolve_attack(self._in_folder(text))
                names += [name for against in UNSEEN for name in attack_metrics(attack, against)]
        return tuple(names)

    def columns(self, measured: Iterable[str]) -> list[str]:
        """Return the further columns of the study: metrics that it names, its own metrics, AUCs of its own attacks."""
        custom = [name for name in measured if name not in METRICS]
        if "relearn_rmia_auc" in custom:
            custom.remove("relearn_smia_auc")  # the weaker attack on the same
        details = ("_tpr1", "_tpr01", "_bacc", "_advantage", "_heldout", "_val")
        named = [name for name in self.metrics if name in METRICS or name in self.attack_numbers]
        return named + [name for name in custom if not name.endswith(details) and name not in named]

    @property
    def tuned_on(self) -> int:
        """The seed that settings are searched on: by default none of those reported."""
        if self.tune_seed is not None:
            return self.tune_seed
        return next(seed for seed in count(TUNE_SEED) if seed not in self.seeds)

    def unlearning_seed(self, seed: int, repeat: int) -> int:
        """Return the seed of an unlearning run; the first run of a training seed has that seed itself."""
        return seed + REPEAT_STEP * repeat

    def reserve(self, labels: Indices, split: int) -> Reserve:
        """Return what is set aside before any training, by the split's seed."""
        return self.split_settings(split).reserve(labels)

    def split_settings(self, split: int) -> SplitSettings:
        return SplitSettings(split, self.heldout, self.val, self.stratified)

    def split_of(self, seed: int) -> int:
        """Return the split seed that goes with a training seed."""
        return seed if self.split_seed is None else self.split_seed

    @property
    def reference_seeds(self) -> tuple[int, ...]:
        """Training seeds of the references: the same for all seeds, so that a fixed split shares its references."""
        return tuple(FIRST_REFERENCE + n for n in range(self.references))

    def data_spec(self, data_dir: str | None) -> DataSpec:
        """Return the data set; `data_dir` is the folder of those that have files."""
        return read_data(self.data, data_dir, self.folder)

    def setup(self, split: int, data_dir: str | None) -> Setup:
        """Return data, model and one split; `data_dir` is the folder of the data sets."""
        return Setup(
            data=self.data_spec(data_dir),
            model=self.model_spec,
            recipe=self.recipe_value,
            pipeline=self.pipeline_name,
            split=self.split_settings(split),
        )

    def resolve(self, text: str, forget: str, searched: Mapping[str, Any] | None = None) -> tuple[Method, Any]:
        """Return a method of the study and its settings for one request; `searched` settings win over all others."""
        blocks, spec = self.settings.get(forget, {}), self.method_specs[text]
        block = {**self._updates_of_base(spec), **blocks.get(spec.label, {}), **blocks.get(text, {})}
        config = spec.configure(self.family, self.recipe_value if spec.method.from_scratch else None, block)
        return spec.method, bind(spec.method.config, searched, spec.method.name, config) if searched else config

    def _updates_of_base(self, spec: MethodSpec) -> dict[str, Any]:
        """Return the settings of base training that the method takes over: those whose default it has not changed."""
        method = spec.method
        if self.updates == "method" or method.from_scratch:  # which has a recipe anyway
            return {}
        usual = {one.name: one.default for one in fields(Updates) if one.name in UPDATES_OF_BASE}
        defaults = {one.name: one.default for one in fields(method.config) if one.name in usual}
        recipe, preset = to_json(self.recipe_value), method.presets.get(spec.preset or "", {})
        return {
            name: recipe[name] for name, default in defaults.items() if default == usual[name] and name not in preset
        }

    @property
    def compared(self) -> tuple[str, ...]:
        """The texts of all methods, unranked ones last."""
        return self.methods + self.unranked

    @cached_property
    def rows(self) -> dict[str, MethodRow]:
        """The methods by row name. Titles are the study's own or the method's, made unique by preset or settings."""
        specs = self.method_specs.values()
        labels, plain = [spec.label for spec in specs], [spec.title for spec in specs]
        rows: dict[str, MethodRow] = {}
        for (text, spec), title in zip(self.method_specs.items(), plain, strict=True):
            name = text if labels.count(spec.label) > 1 or spec.label == "retrain" else spec.label
            details = text.partition("@")[2] or text.partition(",")[2]
            longer = f"{title} ({details.replace(',', ', ')})" if plain.count(title) > 1 and details else title
            rows[name] = MethodRow(name, text, spec, self.titles.get(name, longer), text in self.unranked)
        return rows

    def title_of(self, name: str) -> str:
        """Return the title of a row, `retrain` and `base` included."""
        if name in self.rows:
            return self.rows[name].title
        return self.titles.get(name, {"retrain": "Retrain", "base": "Base"}[name])

    def to_json(self) -> dict[str, Any]:
        """Return plain values from which `from_json` makes the same study in another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Study":
        return bind(cls, value, "study")

    @cached_property
    def _model(self) -> tuple[str, dict[str, str]]:
        return parse_spec(self._in_folder(self.model) or default_model(parse_spec(self.data)[0]))

    def user_code(self) -> tuple[str, ...]:
        """Return the user's code that the study names; models of the store may be built with it."""
        methods = [spec.location for spec in self.method_specs.values()]
        return tuple(name for name in (self._model[0], *methods) if is_code(name))

    def _in_folder(self, text: str) -> str:
        """Return the text with its Python file, if it names one, looked for in the study's folder."""
        name, comma, rest = text.partition(",")
        return f"{in_folder(name, self.folder)}{comma}{rest}"


@dataclass(frozen=True)
class TuneSpec:
    """How a study tunes its methods: once for each request, on one seed, for all seeds."""

    trials: int = setting(20, "settings tried for each method, the default among them", low=1)
    objective: str = setting("gap", "what makes settings good", choices=("gap", "reference"))
    seed: int = setting(0, "seed of the search", low=0)

    def __post_init__(self) -> None:
        check(self, "study.tune")


def merged(under: Blocks, over: Blocks) -> Blocks:
    """Return both blocks of settings; where both have a setting, `over` wins."""
    return {
        request: {
            method: {**under.get(request, {}).get(method, {}), **over.get(request, {}).get(method, {})}
            for method in {**under.get(request, {}), **over.get(request, {})}
        }
        for request in {**under, **over}
    }
