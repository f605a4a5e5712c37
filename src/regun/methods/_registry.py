"""Methods by name: a file in this folder, a user's file, or a user's function."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from regun.errors import RegunError, SettingsError, unknown
from regun.hashing import code_digest, digest
from regun.methods._contract import Needs, Ranges, Work
from regun.models.forward import counting
from regun.plugins import find_function, find_module, guarded
from regun.rng import isolated
from regun.settings import bind, parse_spec, read_toml, to_json
from regun.training.fit import Fitted
from regun.training.job import Budget, Job
from regun.training.recipes import Recipe

NO_NEEDS = Needs(retain=False)
TUNED = Path(__file__).parent / "tuned"


@dataclass(frozen=True)
class NoSettings:
    """For a function that takes the job alone."""


@dataclass(frozen=True)
class Method:
    """A way to unlearn: `unlearn(job, config)` with what describes it."""

    name: str
    title: str
    about: str
    unlearn: Callable[[Job, Any], Fitted | None]
    config: type[Any] = NoSettings
    needs: Needs = field(default_factory=Needs)
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    search: Ranges = field(default_factory=dict[str, Any])
    source: str | None = None
    work: Callable[..., Work] | None = None
    """What settings and sizes of forget and retain set take; a fourth argument, if it has one, is the base's recipe."""
    tradeoff: Mapping[str, Any] | None = None
    """Settings under which `w`, from 0 to 1, trades forgetting for utility; None if it does not."""
    from_scratch: bool = False
    """Whether it trains from scratch, and so sees the data as the base's training did."""
    required: tuple[str, ...] = ()
    """Settings that have no default which would mean anything: they must be said, by the user or by the base."""
    own_needs: Callable[[Any], Needs] | None = None
    """What given settings need, where that depends on them; `needs` is then what some settings need."""
    runs: "Callable[[Any], Sequence[tuple[Method, Any]]] | None" = None
    """Other methods that this one runs, with their settings: their code decides the result too."""

    def needs_of(self, config: Any) -> Needs:
        """What a run with these settings needs."""
        return self.own_needs(config) if self.own_needs is not None else self.needs

    def run(self, job: Job, config: Any) -> Fitted:
        """Unlearn: whatever the method draws, inside the loop or out of it, follows from the job's seed, and every
        forward pass counts as cost, a teacher's too; the caller's generators are left as they were."""
        users = guarded(f"the method {self.name}") if self.source else nullcontext()
        with users, isolated(job.derive("method"), job.device), counting(lambda n: job.cost.add(forward=n)):
            return self.unlearn(job, config) or Fitted()

    def planned(
        self, config: Any, forget: int, retain: int, budget: Budget | None = None, recipe: Recipe | None = None
    ) -> Work | None:
        """What a run on sets of these sizes takes, on a base of this recipe; None for a method that does not tell."""
        if self.work is None:
            return None
        asks = len(inspect.signature(self.work).parameters) > 3
        own = self.work(config, forget, retain, *((recipe,) if asks else ()))
        if budget is None or not own.steps:
            return own
        each = own.samples / own.steps
        if budget.steps is not None:
            return Work(budget.steps, round(budget.steps * each))
        samples = budget.samples or 0
        return Work(round(samples / each), samples)

    def configure(
        self, values: Mapping[str, Any], preset: str | None = None, start: Mapping[str, Any] | None = None
    ) -> Any:
        """Settings from `values` over a preset over `start` over the defaults; all mistakes at once."""
        if preset is not None and preset not in self.presets:
            raise SettingsError([unknown(f"preset of {self.name}", preset, self.presets)])
        under = {**(start or {}), **(self.presets[preset] if preset is not None else {})}
        unsaid = [name for name in self.required if name not in under and name not in values]
        if unsaid:
            raise SettingsError([_unsaid(self, unsaid)])
        return bind(self.config, values, self.name, bind(self.config, under, self.name))

    def describe(self, config: Any) -> dict[str, Any]:
        """The method and its settings as JSON, for the content key, with the digest of the code that decides it."""
        code = self.source or _own_code(self.name)
        if self.runs is not None:
            code = digest([code, *(method.describe(own)["code"] for method, own in self.runs(config))])
        return {"name": self.name, "config": to_json(config), "code": code}


def _unsaid(method: Method, names: Sequence[str]) -> str:
    example = ",".join(f"{name}=..." for name in method.required)
    return (
        f"{method.name} is the truth only by the recipe that the model was trained by, and of that "
        f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not known. Say how it was trained, "
        f"'{method.name},{example}' with whatever else differs from the defaults (optimizer, batch_size, momentum, "
        f"weight_decay, schedule, ...), in Python also recipe=..., of a Project retrain=...; or name a preset: "
        f"{', '.join(f'{method.name}@{p}' for p in method.presets)}."
    )


def _own_code(name: str) -> str:
    return code_digest(f"regun.methods.{name}")


def method_names() -> list[str]:
    """The methods of this package."""
    return sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if not m.name.startswith("_"))


def get_method(method: str | Callable[..., Any]) -> Method:
    """A method by name, `file.py`, `module:function` or `file.py:function`, or a function itself."""
    if callable(method):
        return _from_function(method, f"{method.__module__}:{getattr(method, '__qualname__', 'method')}")
    if method in method_names():
        return _from_module(importlib.import_module(f"regun.methods.{method}"), method, own=True)
    if method.endswith(".py"):
        return _from_module(find_module(method), method, own=False)
    if ":" in method:
        return _from_function(find_function(method, "unlearns: unlearn(job)"), method)
    raise SettingsError([unknown("method", method, [*method_names(), "file.py", "module:function"])])


def read_method(
    text: str,
    family: str = "resnet",
    recipe: Mapping[str, Any] | None = None,
    under: Mapping[str, Any] | None = None,
) -> tuple[Method, Any]:
    """`name`, `name@preset`, `name@preset,key=value,...` to a method and its settings.

    Without a preset, a method takes the paper's settings for the model's `family`; Retrain takes the base's `recipe`.
    Settings in `under` (tuned ones, say) are over those and under what the text itself says.
    """
    spec, values = parse_spec(text)
    name, _, preset = spec.partition("@")
    method = get_method(name)
    usual = family if family in method.presets else None
    return method, method.configure(
        {**(under or {}), **values}, preset or usual, recipe if method.name == "retrain" and not preset else None
    )


def tuned_files() -> dict[str, Path]:
    """Settings that were searched for on real data, as files that `regun tune` writes, by name (docs/results.md)."""
    return {path.stem: path for path in sorted(TUNED.glob("*.toml"))}


@cache
def _tuned() -> dict[str, Any]:
    return {
        name: read_toml(path.read_text(encoding="utf-8"), str(path))["settings"] for name, path in tuned_files().items()
    }


def _searched(module: ModuleType, name: str) -> dict[str, dict[str, Any]]:
    """A method's presets from those files: `cifar10-small-10` was found for 10 % forgotten, `cifar10-small-10-teacher`
    over the preset `teacher`."""
    found: dict[str, dict[str, Any]] = {}
    for file, requests in _tuned().items():
        for request, blocks in requests.items():
            for text, block in blocks.items():
                spec, said = parse_spec(text)
                method, _, preset = spec.partition("@")
                if method == name:
                    under: Mapping[str, Any] = module.PRESETS[preset] if preset else {}
                    title = "-".join(part for part in (file, f"{100 * float(request):g}", preset) if part)
                    found[title] = {**under, **block, **said}
    return found


def _from_module(module: ModuleType, name: str, *, own: bool) -> Method:
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
        presets={**getattr(module, "PRESETS", {}), **(_searched(module, name) if own else {})},
        search=getattr(module, "SEARCH", {}),
        source=None if own else digest(inspect.getsource(module)),
        work=getattr(module, "work", None),
        tradeoff=getattr(module, "TRADEOFF", None),
        from_scratch=getattr(module, "FROM_SCRATCH", False),
        required=getattr(module, "REQUIRED", ()),
        own_needs=getattr(module, "needs", None),
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
        name, title, about, lambda job, _: cast("Fitted | None", function(job)), needs=NO_NEEDS, source=source
    )
