"""`regun data`, `regun models`, `regun recipes`: what there is, and every setting with its meaning."""

import argparse
import dataclasses
from typing import Any

from regun.cli.terminal import emit, table
from regun.data.catalogue import DATA_SETS, DataSettings
from regun.models import models_help
from regun.recipes import RECIPES, Recipe
from regun.settings import Settings, to_json


def data(args: argparse.Namespace) -> int:
    if args.json:
        emit({"data": DATA_SETS, "settings": _settings(DataSettings)})
        return 0
    print(table(["data set", "what it is"], [[name, text] for name, text in DATA_SETS.items()]))
    _print_settings(DataSettings)
    return 0


def models(args: argparse.Namespace) -> int:
    if args.json:
        emit([dataclasses.asdict(entry) for entry in models_help()])
        return 0
    for entry in models_help():
        print(f"{entry.name}: {entry.summary}")
        if entry.settings:
            print(
                table(["  setting", "default", "meaning"], [[f"  {s.name}", s.default, s.help] for s in entry.settings])
            )
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


def _settings(kind: type[Settings]) -> dict[str, Any]:
    return {f.name: {"default": f.default, "help": f.metadata["help"]} for f in dataclasses.fields(kind)}


def _print_settings(kind: type[Settings]) -> None:
    rows = [[name, str(entry["default"]), entry["help"]] for name, entry in _settings(kind).items()]
    if rows:
        print(table(["setting", "default", "meaning"], rows))
