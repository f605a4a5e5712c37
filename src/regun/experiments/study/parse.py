"""Studies from files: parsed and checked once, every mistake named in one error."""

import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from regun.auditing.attacks import resolve_attack
from regun.auditing.metrics import resolve_metric
from regun.data.registry import get_pipeline
from regun.errors import Problems, RegunError, SettingsError, unknown
from regun.experiments.search.settings_file import parse_settings, read_settings
from regun.experiments.study.spec import FIRST_REFERENCE, Study, merged
from regun.forget_spec import ForgetSpec
from regun.methods import MethodSpec, tuned_files
from regun.settings import parse_spec, read_toml, to_json

LISTS = ("forget", "seeds", "methods", "unranked", "untuned", "attacks", "metrics")


def builtin_names() -> list[str]:
    """Return the names of the studies that ship with regun."""
    folder = resources.files("regun.experiments.study") / "builtin"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def read_study(name: str) -> Study:
    """Return a built-in study by name, or the study of a TOML file."""
    if name in builtin_names():
        text = (resources.files("regun.experiments.study") / "builtin" / f"{name}.toml").read_text()
        return parse_study(text, name, Path.cwd())
    if not name.endswith(".toml"):
        raise SettingsError([unknown("study", name, [*builtin_names(), "FILE.toml"])])
    path = Path(name).expanduser()
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RegunError(f"cannot read the study {path}: {error}. Give a TOML file.") from None
    return parse_study(text, str(path), path.resolve().parent)


def parse_study(text: str, source: str, folder: Path) -> Study:
    """Return the checked study of TOML text; files that it names are looked for in `folder`."""
    values = read_toml(text, source)
    if "folder" in values:
        raise SettingsError([f"{source} sets folder, which is no key of a study; files are looked for next to it."])
    study = Study.from_json({"name": Path(source).stem, **values, "folder": str(folder)})
    _check_shapes(study)
    check_study(study)
    _check_without_effect(study)
    if study.settings_from:
        blocks = read_settings(tuned_files().get(study.settings_from) or folder / study.settings_from)
        names = {*(spec.label for spec in study.method_specs.values()), *study.compared}
        fitting = {
            request: {method: block for method, block in methods.items() if method in names}
            for request, methods in blocks.items()
            if request in study.forget
        }
        if not any(fitting.values()):
            has = ", ".join(f"{request}: {'/'.join(methods)}" for request, methods in blocks.items()) or "nothing"
            raise SettingsError(
                [f"{study.settings_from} has no settings for this study's requests and methods ({has})."]
            )
        study = replace(study, settings=merged(fitting, study.settings), settings_from="")
        check_study(study)
    return study


def _check_shapes(study: Study) -> None:
    """Raise unless lists are lists, tables are tables and titles are text."""
    values: dict[str, Any] = {key: getattr(study, key) for key in (*LISTS, "titles", "tune")}
    problems = [f"study.{key} is {values[key]!r}; give a list." for key in LISTS if not isinstance(values[key], tuple)]
    for key in ("titles", "tune"):
        if not isinstance(values[key], dict):
            problems.append(f"study.{key} is {values[key]!r}; give a table.")
        elif key == "titles":
            wrong = {name: title for name, title in study.titles.items() if not isinstance(title, str)}  # pyright: ignore[reportUnnecessaryIsInstance]
            problems += [f"study.titles.{name} is {title!r}; give text." for name, title in wrong.items()]
    if problems:
        raise SettingsError(problems)
    if study.settings:
        parse_settings(study.settings, "the study")


def check_study(study: Study) -> None:
    """Raise one error that lists everything wrong in a study, before any data are read."""
    problems = Problems()
    attempt = problems.attempt
    problems.add(*(f"study.{key} is empty; give at least one." for key in LISTS[:3] if not getattr(study, key)))
    for key in LISTS:
        values = list(getattr(study, key))
        problems.add(*[f"study.{key} names {v!r} twice; give each once." for v in values if values.count(v) > 1][:1])
    if not re.fullmatch(r"[\w-][\w.-]*", study.name, re.ASCII):
        problems.add(f"study.name is {study.name!r}; use letters, digits, dots (not first), dashes and underscores.")
    wrong = [seed for seed in study.seeds if not 0 <= seed < FIRST_REFERENCE]
    problems.add(*(f"study.seeds holds {n}; give whole numbers from 0 to {FIRST_REFERENCE - 1}." for n in wrong))
    requests: dict[ForgetSpec, str] = {}
    for text in study.forget:
        spec = attempt(lambda text=text: ForgetSpec.parse(text, study.folder))
        same = requests.setdefault(spec, text) if spec is not None else text
        if same != text:
            problems.add(f"study.forget names {same!r} and {text!r}, which are the same; give each once.")
    specs = {text: attempt(lambda text=text: MethodSpec.parse(text, study.folder)) for text in study.compared}
    attempt(lambda: study.data_spec("."))
    for key in ("model_spec", "recipe_value", "budget_value", "tuning"):
        attempt(lambda key=key: getattr(study, key))
    attempt(lambda: get_pipeline(study.pipeline_name, parse_spec(study.data)[0]))
    for text in study.audit_attacks or ():
        attempt(lambda text=text: resolve_attack(text))
    for text in study.audit_metrics:
        attempt(lambda text=text: resolve_metric(text))
    problems.add(*_tuning_problems(study))
    if all(specs.values()):
        ranked = {study.method_specs[text].text for text in study.methods}
        problems.add(
            *(
                f"study.unranked names {text!r}, which study.methods names too; give it in one of the two."
                for text in study.unranked
                if study.method_specs[text].text in ranked
            )
        )
        for text in study.compared:
            for forget in study.forget:
                attempt(lambda text=text, forget=forget: study.resolve(text, forget))
        problems.add(*(attempt(lambda: _strays(study)) or ()))
    problems.stop_if_any()


def _tuning_problems(study: Study) -> list[str]:
    """Return what a search would lack, and methods excluded from it that are not there."""
    strangers = [text for text in study.untuned if text not in study.compared]
    problems = [unknown("method in study.untuned", text, study.compared) for text in strangers]
    if not study.tune:
        unused = "study.untuned has no effect without study.tune; leave it out."
        return [*problems, unused] if study.untuned else problems
    if study.tune.get("objective", "gap") == "gap":
        lacks = [name for name, value in (("references", study.references), ("val", study.val)) if not value]
        return problems + [f"study.tune has the objective gap, which needs {name}; set it above 0." for name in lacks]
    if not study.val and not study.heldout:
        problems.append("study.tune needs unseen examples to score on; set val or heldout above 0.")
    return problems


def _strays(study: Study) -> list[str]:
    """Return an error for each block and title that belongs to nothing in the study, and so would have no effect."""
    names = {*(spec.label for spec in study.method_specs.values()), *study.compared}
    blocks = [(request, method) for request, methods in study.settings.items() for method in methods]
    problems = [
        f"settings.{request!r}.{method} is for no request and method of this study "
        f"(requests {', '.join(study.forget)}; methods {', '.join(sorted(names))})."
        for request, method in blocks
        if request not in study.forget or method not in names
    ]
    rows = {"retrain", "base", *study.rows}
    return problems + [unknown("row in titles", name, rows) for name in study.titles if name not in rows]


def _check_without_effect(study: Study) -> None:
    """Raise if a setting of the study's own blocks has no effect, since every method that it is for overrides it."""
    problems: list[str] = []
    for request, blocks in study.settings.items():
        for name, block in blocks.items():
            specs = {text: spec for text, spec in study.method_specs.items() if name in (text, spec.label)}
            configs = {text: to_json(study.resolve(text, request)[1]) for text in specs}
            problems += [
                f"settings.{request!r}.{name}.{key} is {value!r} and has no effect: a method's text wins, "
                f"{' and '.join(map(repr, specs))}. Leave {key} out of one of the two."
                for key, value in block.items()
                if all(key in spec.settings and configs[text][key] != value for text, spec in specs.items())
            ]
    if problems:
        raise SettingsError(problems)
