"""`regun data`, `regun models`, `regun recipes`, `regun methods`: the names, and every setting with its meaning."""

import argparse
import dataclasses
from typing import Any

from regun.cli.terminal import emit, print_table
from regun.data.registry import DataSettings, data_help
from regun.methods import Choice, Method, Range, get_method, method_names
from regun.models import models_help
from regun.settings import Settings, to_json
from regun.training.recipes import RECIPES, Recipe


def data(args: argparse.Namespace) -> int:
    if args.json:
        emit({"data": data_help(), "settings": _settings(DataSettings)})
        return 0
    print_table(["data set", "description"], [[name, text] for name, text in data_help().items()])
    _print_settings(DataSettings)
    return 0


def models(args: argparse.Namespace) -> int:
    if args.json:
        emit([dataclasses.asdict(entry) for entry in models_help()])
        return 0
    for entry in models_help():
        print(f"{entry.name}: {entry.summary}")
        if entry.settings:
            print_table(["setting", "default", "meaning"], [[s.name, s.default, s.help] for s in entry.settings])
        print()
    return 0


def recipes(args: argparse.Namespace) -> int:
    if args.json:
        emit({"recipes": {name: to_json(r) for name, r in RECIPES.items()}, "settings": _settings(Recipe)})
        return 0
    default = to_json(Recipe())
    for name, recipe in RECIPES.items():
        changed = {k: v for k, v in to_json(recipe).items() if v != default[k]}
        print(f"{name}: " + ", ".join(f"{k}={v}" for k, v in changed.items()))
    _print_settings(Recipe)
    return 0


def methods(args: argparse.Namespace) -> int:
    chosen = [get_method(name) for name in ([args.name] if args.name else method_names())]
    if args.json:
        emit(
            [
                {
                    "name": method.name,
                    "title": method.title,
                    "about": method.about,
                    "needs": dataclasses.asdict(method.needs),
                    "settings": _settings(method.config),
                    "presets": {name: dict(values) for name, values in method.presets.items()},
                    "search": {
                        family: {name: dataclasses.asdict(values) for name, values in space.items()}
                        for family, space in method.search.items()
                    },
                }
                for method in chosen
            ]
        )
    elif args.name:
        _print_method(chosen[0])
    else:
        rows = [[m.name, m.about.splitlines()[0], _needs(m)] for m in chosen]
        print_table(["method", "description", "needs"], rows)
        print("\nregun methods NAME shows its formula, settings, presets and search ranges.")
    return 0


def _print_method(method: Method) -> None:
    print(method.about, end="\n\n")
    print(f"needs: {_needs(method)}\n")
    _print_settings(method.config)
    presets = [
        [f"{method.name}@{name}", ", ".join(f"{k}={v}" for k, v in values.items())]
        for name, values in method.presets.items()
    ]
    ranges = [
        [family, ", ".join(f"{k} {_range(r)}" for k, r in space.items()) or "fixed"]
        for family, space in method.search.items()
    ]
    for head, rows in ((["preset", "settings"], presets), (["search, family", "ranges"], ranges)):
        if rows:
            print()
            print_table(head, rows)


def _needs(method: Method) -> str:
    named = {
        "retain set": method.needs.retain,
        "held-out set": method.needs.heldout,
        "fresh model": method.needs.fresh_model,
        "prepared table": method.needs.out_of_fold,
    }
    return ", ".join(["forget set", *(name for name, needed in named.items() if needed)])


def _range(values: Choice | Range) -> str:
    if isinstance(values, Choice):
        return "{" + ", ".join(map(str, values.values)) + "}"
    return f"[{values.low:g}, {values.high:g}]" + (" log" if values.log else "")


def _settings(kind: type[Settings]) -> dict[str, Any]:
    return {
        f.name: {"default": f.default, "help": f.metadata["help"], "choices": f.metadata["choices"]}
        for f in dataclasses.fields(kind)
    }


def _print_settings(kind: type[Settings]) -> None:
    rows: list[list[str]] = []
    for name, entry in _settings(kind).items():
        choices = f": {', '.join(map(str, entry['choices']))}" if entry["choices"] else ""
        rows.append([name, str(entry["default"]), entry["help"] + choices])
    if rows:
        print_table(["setting", "default", "meaning"], rows)
