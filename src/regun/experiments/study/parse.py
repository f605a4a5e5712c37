"""Studies from files: read, checked, every mistake named at once."""

from contextlib import suppress
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from regun.artifacts.setup import default_preset
from regun.auditing.attacks import resolve_attack
from regun.auditing.metrics import resolve_metric
from regun.data.registry import pipeline
from regun.errors import RegunError, SettingsError, unknown
from regun.experiments.search.settings_file import Blocks, parse_settings, read_settings
from regun.experiments.study.spec import FIRST_REFERENCE, Study, merged
from regun.forget_spec import ForgetSpec
from regun.methods import tuned_files
from regun.settings import parse_spec, read_toml, to_json


def builtin_names() -> list[str]:
    """The studies that ship with regun."""
    folder = resources.files("regun.experiments.study") / "builtin"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def read_study(name: str) -> Study:
    """A built-in study by name, or one of the user's from its TOML file."""
    if name in builtin_names():
        text = (resources.files("regun.experiments.study") / "builtin" / f"{name}.toml").read_text()
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
    values = read_toml(text, where)
    if "folder" in values:
        raise SettingsError([f"{where} sets folder; that is no key of a study: files are looked for beside it."])
    study = Study.from_json({"name": Path(where).stem, **values, "folder": str(folder)})
    check_shapes(study)
    check_bad(study)
    _check_overruled(study)
    if study.settings_from:
        shipped = tuned_files().get(study.settings_from)
        study = _with_settings(study, read_settings(shipped or folder / study.settings_from))
        check_bad(study)
    return study


def _with_settings(study: Study, found: Blocks) -> Study:
    """The study over those blocks of a settings file that are for its requests and methods."""
    wanted = {*(study.spec(text).label for text in study.compared), *study.compared}
    fitting = {
        request: {method: block for method, block in blocks.items() if method in wanted}
        for request, blocks in found.items()
        if request in study.forget
    }
    if not any(fitting.values()):
        has = ", ".join(f"{request}: {'/'.join(blocks)}" for request, blocks in found.items()) or "nothing"
        raise SettingsError([f"{study.settings_from} has no settings for this study's requests and methods ({has})."])
    return replace(study, settings=merged(fitting, study.settings), settings_from="")


def check_shapes(study: Study) -> None:
    """Raise unless lists are lists, tables are tables and titles are text."""
    problems = [
        f"study.{key} is {getattr(study, key)!r}; give a list."
        for key in ("forget", "seeds", "methods", "attacks", "metrics")
        if not isinstance(getattr(study, key), tuple)
    ]
    tables: dict[str, Any] = {"titles": study.titles, "tune": study.tune}
    if isinstance(tables["titles"], dict):
        titles: dict[str, Any] = {**tables["titles"]}
        problems += [f"study.titles.{k} is {v!r}; give text." for k, v in titles.items() if not isinstance(v, str)]
    problems += [
        f"study.{key} is {value!r}; give a table." for key, value in tables.items() if not isinstance(value, dict)
    ]
    if problems:
        raise SettingsError(problems)
    if study.settings:
        parse_settings(study.settings, "the study")


def check_bad(study: Study) -> None:
    """Raise one error that lists everything wrong in a study, before any data are read."""
    problems = [
        f"study.{key} is empty; give at least one." for key in ("forget", "seeds", "methods") if not getattr(study, key)
    ]
    for key in ("forget", "seeds", "methods", "attacks", "metrics"):
        values = list(getattr(study, key))
        problems += [f"study.{key} names {v!r} twice; give each once." for v in values if values.count(v) > 1][:1]
    requests: dict[ForgetSpec, str] = {}
    for text in study.forget:
        with suppress(RegunError):  # a text that cannot be read is named below
            same = requests.setdefault(study.request(text), text)
            if same != text:
                problems.append(f"study.forget names {same!r} and {text!r}, which are the same; give each once.")
    if (
        not study.name
        or study.name.startswith(".")
        or set(study.name) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
    ):
        problems.append(
            f"study.name is {study.name!r}; use letters, digits, dots, dashes and underscores, no dot at the front."
        )
    problems += [
        f"study.seeds holds {seed}; give whole numbers from 0 to {FIRST_REFERENCE - 1}."
        for seed in study.seeds
        if not 0 <= seed < FIRST_REFERENCE
    ]
    problems += _untunable(study)
    data = parse_spec(study.data)[0]
    checks = [
        lambda: study.data_spec("."),
        lambda: study.model_spec,
        lambda: study.recipe_value,
        lambda: study.budget_value,
        lambda: study.tuning,
        *(lambda text=text: study.request(text) for text in study.forget),
        *(lambda m=m, f=f: study.resolve(m, f) for m in study.compared for f in study.forget),
        lambda: pipeline(study.augment or default_preset(study.model_spec.name, data), data),
        *(lambda text=text: resolve_attack(text) for text in study.audit_attacks or ()),
        *(lambda text=text: resolve_metric(text) for text in study.audit_metrics),
    ]
    for attempt in checks:
        try:
            attempt()
        except SettingsError as fault:
            problems += fault.problems
        except RegunError as fault:
            problems.append(str(fault))
    with suppress(SettingsError):  # of a method's text, named above
        problems += _strays(study)
    if problems:
        raise SettingsError(list(dict.fromkeys(problems)))


def _untunable(study: Study) -> list[str]:
    """What a search would lack."""
    if not study.tune:
        return []
    if study.tune.get("objective", "gap") == "gap":
        lacks = [name for name, there in (("references", study.references), ("val", study.val)) if not there]
        return [f"study.tune has the objective gap, which needs {name}; set it above 0." for name in lacks]
    if not study.val and not study.heldout:
        return ["study.tune needs unseen examples to score on; set val or heldout above 0."]
    return []


def _strays(study: Study) -> list[str]:
    """Blocks and titles that belong to nothing in the study: a typing mistake would silently have no effect."""
    names = {*(study.spec(text).label for text in study.compared), *study.compared}
    blocks = [(request, method) for request, found in study.settings.items() for method in found]
    problems = [
        f"settings.{request!r}.{method} is for no request and method of this study "
        f"(requests {', '.join(study.forget)}; methods {', '.join(sorted(names))})."
        for request, method in blocks
        if request not in study.forget or method not in names
    ]
    known = {"retrain", "base", *study.entries()}
    return problems + [unknown("row in titles", name, known) for name in study.titles if name not in known]


def _check_overruled(study: Study) -> None:
    """Raise if a setting of the study's own blocks has no effect, since every method that it is for says otherwise."""
    problems: list[str] = []
    for request, blocks in study.settings.items():
        for name, block in blocks.items():
            texts = [text for text in study.compared if name in (text, study.spec(text).label)]
            configs = {text: to_json(study.resolve(text, request)[1]) for text in texts}
            problems += [
                f"settings.{request!r}.{name}.{key} is {value!r} and has no effect: a method's text wins, "
                f"{' and '.join(map(repr, texts))}. Leave {key} out of one of the two."
                for key, value in block.items()
                if all(key in study.spec(text).settings and configs[text][key] != value for text in texts)
            ]
    if problems:
        raise SettingsError(problems)
