"""Methods by name: a file in this folder, a user's file, or a user's function."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from regun.errors import RegunError, SettingsError, unknown
from regun.hashing import digest
from regun.methods._contract import Method, Needs
from regun.plugins import find_function, find_module, in_folder
from regun.settings import parse_spec, read_toml, to_json
from regun.training.fit import Fitted
from regun.training.recipes import Recipe

NO_NEEDS = Needs(retain=False)
TUNED = Path(__file__).parent / "tuned"


def method_names() -> list[str]:
    """Return the methods of this package."""
    return sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if not m.name.startswith("_"))


def get_method(method: str | Callable[..., Any]) -> Method:
    """Return a method by name, `file.py`, `module:function` or `file.py:function`, or a function itself."""
    if callable(method):
        return _from_function(method, f"{method.__module__}:{getattr(method, '__qualname__', 'method')}")
    if method in method_names():
        return _from_module(importlib.import_module(f"regun.methods.{method}"), method, built_in=True)
    if method.endswith(".py"):
        return _from_module(find_module(method), method, built_in=False)
    if ":" in method:
        return _from_function(find_function(method, "unlearns: unlearn(job)"), method)
    raise SettingsError([unknown("method", method, [*method_names(), "file.py", "module:function"])])


@dataclass(frozen=True)
class MethodSpec:
    """A method as users write it, parsed once: `name`, `name@preset` or `name@preset,key=value,...`.

    A function in place of text has no preset and no settings. A relative `file.py` is looked for in `folder`.

    >>> spec = MethodSpec.parse("regun@wide_retain, lr=0.1")
    >>> spec.name, spec.preset, spec.settings, spec.label
    ('regun', 'wide_retain', {'lr': '0.1'}, 'regun@wide_retain')
    >>> spec.text, spec.title, spec.configure().lr
    ('regun@wide_retain,lr=0.1', 'ReGUn', 0.1)
    """

    name: str
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    folder: str | None = None
    function: Callable[..., Any] | None = None

    @classmethod
    def parse(cls, method: "str | Callable[..., Any] | MethodSpec", folder: Path | str | None = None) -> "MethodSpec":
        """Read a method's text; only its form is checked, nothing is imported."""
        if isinstance(method, MethodSpec):
            return method
        if not isinstance(method, str):
            return cls(f"{method.__module__}:{getattr(method, '__qualname__', 'method')}", function=method)
        label, settings = parse_spec(method)
        name, _, preset = label.partition("@")
        return cls(name, preset or None, settings, None if folder is None else str(folder))

    @property
    def label(self) -> str:
        """`name@preset`: what settings are filed under, and a short row name."""
        return f"{self.name}@{self.preset}" if self.preset else self.name

    @property
    def text(self) -> str:
        """`name@preset,key=value,...`, from which `parse` makes the same spec."""
        return ",".join([self.label, *(f"{key}={value}" for key, value in self.settings.items())])

    @property
    def location(self) -> str:
        """The name, with the path of a relative Python file completed by `folder`."""
        return self.name if self.folder is None else in_folder(self.name, self.folder)

    @cached_property
    def method(self) -> Method:
        """The method itself; a user's code is imported."""
        return get_method(self.function or self.location)

    @property
    def title(self) -> str:
        return self.method.title

    def preset_for(self, family: str | None) -> str | None:
        """Return the preset that applies: the one named, else the paper's for the model's family, if any."""
        return self.preset or (family if family in self.method.presets else None)

    def configure(
        self,
        family: str | None = None,
        recipe: Mapping[str, Any] | Recipe | None = None,
        under: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the checked settings: those of the text, over `under` (tuned ones, say), over the preset.

        A method that trains from scratch starts from the base's `recipe` where no preset applies.
        """
        preset, start = self.preset_for(family), None
        if recipe is not None and preset is None and self.method.from_scratch:
            start = to_json(recipe) if isinstance(recipe, Recipe) else recipe
        return self.method.configure({**(under or {}), **self.settings}, preset, start)


def tuned_files() -> dict[str, Path]:
    """Return the files of settings that `regun tune` found on real data, by name (docs/results.md)."""
    return {path.stem: path for path in sorted(TUNED.glob("*.toml"))}


@cache
def _tuned() -> dict[str, Any]:
    return {
        name: read_toml(path.read_text(encoding="utf-8"), str(path))["settings"] for name, path in tuned_files().items()
    }


def _searched(module: ModuleType, name: str) -> dict[str, dict[str, Any]]:
    """Return a method's presets from those files.

    `cifar10-small-10` is for 10 % forgotten, `cifar10-small-10-teacher` the same over the preset `teacher`.
    """
    presets: dict[str, dict[str, Any]] = {}
    for file, requests in _tuned().items():
        for request, blocks in requests.items():
            for text, block in blocks.items():
                spec = MethodSpec.parse(text)
                if spec.name == name:
                    under: Mapping[str, Any] = module.PRESETS[spec.preset] if spec.preset else {}
                    title = "-".join(part for part in (file, f"{100 * float(request):g}", spec.preset) if part)
                    presets[title] = {**under, **block, **spec.settings}
    return presets


def _from_module(module: ModuleType, name: str, *, built_in: bool) -> Method:
    missing = [n for n in ("Config", "unlearn") if not hasattr(module, n)]
    if missing:
        raise RegunError(f"the method file {name} lacks {' and '.join(missing)}; it must have Config and unlearn.")
    doc = inspect.getdoc(module) or ""
    return Method(
        name=name,
        title=getattr(module, "TITLE", Path(name).stem),
        about=doc,
        unlearn=module.unlearn,
        config=module.Config,
        needs=getattr(module, "NEEDS", Needs()),
        presets={**getattr(module, "PRESETS", {}), **(_searched(module, name) if built_in else {})},
        search=getattr(module, "SEARCH", {}),
        source=None if built_in else digest(inspect.getsource(module)),
        work=getattr(module, "work", None),
        table_helps=getattr(module, "table_helps", None),
        tradeoff=getattr(module, "TRADEOFF", None),
        from_scratch=getattr(module, "FROM_SCRATCH", False),
        training_augmentation=getattr(module, "TRAINING_AUGMENTATION", False),
        required=getattr(module, "REQUIRED", ()),
        own_needs=getattr(module, "needs", None),
        is_loss=getattr(module, "is_loss", lambda config: False),
        runs=getattr(module, "runs", None),
    )


def _from_function(function: Any, name: str) -> Method:
    try:
        source = digest(inspect.getsource(function))
    except (OSError, TypeError):  # typed at a prompt, or a callable object
        source = digest(name)
    title = getattr(function, "__name__", name)
    about = inspect.getdoc(function) or ""
    return Method(
        name,
        title,
        about,
        lambda job, _: cast("Fitted | None", function(job)),
        needs=NO_NEEDS,
        source=source,
        is_loss=lambda _: True,  # up to its call of `fit`
    )
