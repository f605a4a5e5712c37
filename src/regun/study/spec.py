"""A study as data: what to train, forget and compare, from a TOML file or a built-in name.

Belongs here: `Study`, reading it with every mistake reported at once, and its methods resolved to settings.
Does not: which artefacts that takes (see plan). May import: setup, methods, tuned, job, models, settings, errors.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from regun.data.catalogue import DATA_SETS, DataSpec
from regun.data.presets import pipeline
from regun.errors import RegunError, SettingsError, unknown
from regun.job import Budget
from regun.methods import Method, get_method, read_method
from regun.models import ModelSpec
from regun.recipes import Recipe
from regun.settings import bind, check, parse_spec, setting, to_json
from regun.setup import (
    Setup,
    checked_model,
    default_model,
    default_preset,
    default_recipe,
    family_of,
    read_budget,
    read_recipe,
    read_request,
    unlearning_preset,
)
from regun.tuned import Blocks, method_name, parse_settings, read_settings

FIRST_REFERENCE = 1001
"""Training seed of the first reference model; the study's own seeds stay below."""


@dataclass(frozen=True)
class Study:
    """What to compare; every field but `folder` is a key of the study's file."""

    name: str = setting("study", "short name, for folders and messages")
    title: str = setting("", "a line that says what it is about")
    data: str = setting("digits", "data set, as `name,key=value` (its folder is given when the study runs)")
    model: str = setting("", "model, as `name,key=value`; default by data set")
    recipe: str = setting("", "recipe, as `name,key=value`; default by model")
    augment: str = setting("", "input pipeline for training; default by model and data")
    forget: tuple[str, ...] = setting(("0.1",), "what to forget: fractions or other requests")
    seeds: tuple[int, ...] = setting((0,), "seeds; each has its own split unless split_seed is set")
    split_seed: int | None = setting(None, "one split for all seeds (default: it moves with the seed, as in the paper)")
    heldout: float = setting(0.1, "fraction set aside as the unseen reference", low=0, high=0.9)
    val: float = setting(0.1, "fraction of the rest for validation", low=0, high=0.9)
    stratified: bool = setting(False, "draw held-out and validation class by class")
    methods: tuple[str, ...] = setting(("regun", "finetune"), "methods, as `name@preset,key=value`")
    references: int = setting(4, "reference models for each forget set and seed: noise floor and RMIA", low=0)
    budget: str = setting("", "`steps=N` or `samples=N` for every method (default: each method's own epochs)")
    bootstrap: int = setting(1000, "resamples behind the intervals", low=0)
    threads: int | None = setting(
        None, "threads of one task; results are the same bit for bit only with the same", low=1
    )
    settings_from: str = setting("", "file of tuned settings, as `regun tune` writes it")
    settings: Blocks = field(default_factory=dict[str, Any], metadata={"help": "tables [settings.REQUEST.METHOD]"})
    titles: Mapping[str, str] = field(default_factory=dict[str, str], metadata={"help": "row name = title"})
    tune: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"help": "trials, objective: see Tuning"})
    folder: str = "."

    def __post_init__(self) -> None:
        check(self, "study")

    @property
    def family(self) -> str:
        """Whose search ranges and presets of the paper apply."""
        return family_of(self._model()[0])

    @property
    def model_spec(self) -> ModelSpec:
        return checked_model(*self._model())

    @property
    def recipe_value(self) -> Recipe:
        return read_recipe(self.recipe or default_recipe(self.model_spec.name))

    @property
    def tuning(self) -> "Tuning | None":
        return bind(Tuning, self.tune, "study.tune") if self.tune else None

    @property
    def budget_value(self) -> Budget | None:
        return read_budget(self.budget) if self.budget else None

    def split_of(self, seed: int) -> int:
        """The split seed that goes with a training seed."""
        return seed if self.split_seed is None else self.split_seed

    def reference_seeds(self) -> tuple[int, ...]:
        """Training seeds of the references: the same for all seeds, so that a fixed split shares its references."""
        return tuple(FIRST_REFERENCE + n for n in range(self.references))

    def setup(self, seed: int, root: str | None, *, unlearning: bool = False) -> Setup:
        """Data, model and split of one seed; `root` is the folder of the data sets."""
        name, values = parse_spec(self.data)
        if name in DATA_SETS and name != "digits" and root:
            values = {"root": root, **values}
        model = self.model_spec
        preset = self.augment or default_preset(model.name, name)
        return Setup(
            DataSpec.read(name, values),
            model,
            self.recipe_value,
            unlearning_preset(preset) if unlearning else preset,
            self.split_of(seed),
            self.heldout,
            self.val,
            self.stratified,
        )

    def resolve(self, text: str, forget: str, more: Mapping[str, Any] | None = None) -> tuple[Method, Any]:
        """A method of the study with its settings for one request; `more`, tuned ones, win over all others."""
        block = self.settings.get(forget, {}).get(method_name(text), {})
        recipe = to_json(self.recipe_value) if method_name(text) == "retrain" else None
        method, config = read_method(self._found(text), self.family, recipe, block)
        return method, bind(method.config, more, method.name, config) if more else config

    def entries(self) -> dict[str, str]:
        """Unique row names to method texts: the text up to its first comma where that is enough."""
        shorts = [method_name(text) for text in self.methods]
        return {s if shorts.count(s) == 1 else text: text for s, text in zip(shorts, self.methods, strict=True)}

    def title_of(self, name: str) -> str:
        """The row's title: the study's own, or the method's; what tells two rows of one method apart is added."""
        return self._titles[name]

    @cached_property
    def _titles(self) -> dict[str, str]:
        texts = self.entries()
        plain = {n: get_method(method_name(self._found(text)).partition("@")[0]).title for n, text in texts.items()}
        several = {title for title in plain.values() if list(plain.values()).count(title) > 1}
        rest = {n: text.partition("@")[2] or text.partition(",")[2] for n, text in texts.items()}
        told = {n: f"{plain[n]} ({rest[n].replace(',', ', ')})" for n in texts if plain[n] in several and rest[n]}
        return {**plain, **told, **{n: title for n, title in self.titles.items() if n in texts}}

    def to_json(self) -> dict[str, Any]:
        """Plain values from which `from_json` makes the same study elsewhere, in another process say."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Study":
        return bind(cls, value, "study")

    def _model(self) -> tuple[str, dict[str, str]]:
        return parse_spec(self.model or default_model(parse_spec(self.data)[0]))

    def _found(self, text: str) -> str:
        """A method text whose Python file, if it names one, is looked for in the study's folder."""
        place, comma, rest = text.partition(",")
        head, at, preset = place.partition("@")
        file, colon, function = head.rpartition(":") if ".py:" in head else (head, "", "")
        path = Path(file).expanduser()
        if not file.endswith(".py") or path.is_absolute():
            return text
        return f"{Path(self.folder) / path}{colon}{function}{at}{preset}{comma}{rest}"


@dataclass(frozen=True)
class Tuning:
    """How a study tunes its methods: once for each request, on the first seed, frozen for all seeds."""

    trials: int = setting(20, "settings tried for each method, the default among them", low=1)
    objective: str = setting("gap", "what makes settings good", choices=("gap", "reference"))
    seed: int = setting(0, "seed of the search", low=0)

    def __post_init__(self) -> None:
        check(self, "study.tune")


def builtin_names() -> list[str]:
    """The studies that ship with regun."""
    folder = resources.files("regun.study") / "builtin"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def read_study(name: str) -> Study:
    """A built-in study by name, or one of the user's from its TOML file."""
    if name in builtin_names():
        text = (resources.files("regun.study") / "builtin" / f"{name}.toml").read_text()
        return parse_study(text, name, Path.cwd())
    if not name.endswith(".toml"):
        raise SettingsError([unknown("study", name, [*builtin_names(), "FILE.toml"])])
    path = Path(name).expanduser()
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as fault:
        raise RegunError(f"cannot read the study {path}: {fault}. Give a TOML file.") from None
    return parse_study(text, str(path), path.resolve().parent)


def parse_study(text: str, where: str, folder: Path) -> Study:
    """A study from TOML text; files it names are looked for in `folder`."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise RegunError(f"{where} is not valid TOML: {fault}.") from None
    study = Study.from_json({"name": Path(where).stem, **values, "folder": str(folder)})
    refuse_shapes(study)
    if study.settings_from:
        tuned = read_settings(folder / study.settings_from)
        study = replace(study, settings=merged(tuned, study.settings), settings_from="")
    refuse_bad(study)
    return study


def refuse_shapes(study: Study) -> None:
    """Raise unless lists are lists and tables are tables."""
    problems = [
        f"study.{key} is {getattr(study, key)!r}; give a list."
        for key in ("forget", "seeds", "methods")
        if not isinstance(getattr(study, key), tuple)
    ]
    tables: dict[str, Any] = {"titles": study.titles, "tune": study.tune}
    problems += [
        f"study.{key} is {value!r}; give a table." for key, value in tables.items() if not isinstance(value, dict)
    ]
    if problems:
        raise SettingsError(problems)
    if study.settings:
        parse_settings(study.settings, "the study")


def refuse_bad(study: Study) -> None:
    """Raise one error that lists everything wrong in a study, before any data are read."""
    problems = [
        f"study.{key} is empty; give at least one." for key in ("forget", "seeds", "methods") if not getattr(study, key)
    ]
    for key in ("forget", "seeds", "methods"):
        values = list(getattr(study, key))
        problems += [f"study.{key} names {v!r} twice; give each once." for v in values if values.count(v) > 1][:1]
    if not study.name or set(study.name) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."):
        problems.append(f"study.name is {study.name!r}; use letters, digits, dots, dashes and underscores only.")
    problems += [
        f"study.seeds holds {seed}; give whole numbers from 0 to {FIRST_REFERENCE - 1}."
        for seed in study.seeds
        if not 0 <= seed < FIRST_REFERENCE
    ]
    if study.tune and study.tune.get("objective", "gap") == "gap" and study.references < 1:
        problems.append("study.tune has the objective gap, which needs references; set references to 1 or more.")
    data, values = parse_spec(study.data)
    checks = [
        lambda: DataSpec.read(data, {"root": "." if data != "digits" else None, **values}),
        lambda: study.model_spec,
        lambda: study.recipe_value,
        lambda: study.budget_value,
        lambda: study.tuning,
        *(lambda text=text: read_request(text) for text in study.forget),
        *(lambda m=m, f=f: study.resolve(m, f) for m in study.methods for f in study.forget),
        lambda: pipeline(study.augment or default_preset(study.model_spec.name, data), data),
    ]
    for attempt in checks:
        try:
            attempt()
        except SettingsError as fault:
            problems += fault.problems
        except RegunError as fault:
            problems.append(str(fault))
    problems += _strays(study)
    if problems:
        raise SettingsError(list(dict.fromkeys(problems)))


def merged(under: Blocks, over: Blocks) -> Blocks:
    """Blocks of settings, single settings of `over` winning."""
    return {
        request: {
            method: {**under.get(request, {}).get(method, {}), **over.get(request, {}).get(method, {})}
            for method in {**under.get(request, {}), **over.get(request, {})}
        }
        for request in {**under, **over}
    }


def _strays(study: Study) -> list[str]:
    """Blocks and titles that belong to nothing in the study: a typing mistake would silently have no effect."""
    shorts = {method_name(text) for text in study.methods}
    blocks = [(request, method) for request, found in study.settings.items() for method in found]
    problems = [
        f"settings.{request!r}.{method} is for no request and method of this study "
        f"(requests {', '.join(study.forget)}; methods {', '.join(sorted(shorts))})."
        for request, method in blocks
        if request in study.forget and method not in shorts
    ]
    known = {"retrain", "base", *study.entries()}
    return problems + [unknown("row in titles", name, known) for name in study.titles if name not in known]
