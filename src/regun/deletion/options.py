"""The options of a request, the method they name, and the callbacks that report progress."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regun.deletion.project import MAX_OUT_MODELS, Project
from regun.deletion.pseudonyms import Pseudonyms
from regun.deletion.request import LONGEST
from regun.errors import SettingsError
from regun.methods import Method, MethodSpec, Needs
from regun.training.job import Epoch

MAX_BOOTSTRAP = 1_000_000


@dataclass(frozen=True)
class Options:
    """How a request is executed; None leaves the choice to the project."""

    method: str | None = None
    accept: str | None = None
    """The acceptance rule."""
    fallback: str | None = None
    """The method to try where the first one is not accepted."""
    seed: int = 0
    bootstrap: int = 1000
    sign: Path | None = None
    """An Ed25519 private key (PEM)."""
    pseudonyms: Pseudonyms = field(default_factory=Pseudonyms)
    ignore_unknown: bool = False
    check_content: bool = False
    """Search all data for copies of forgotten records and refuse them; without, only data in memory are searched."""
    accept_inconclusive: bool = False
    """Take a model although the tests are inconclusive; ledger and receipt record it."""
    out_models: int | None = None
    role: str | None = None

    def __post_init__(self) -> None:
        problems: list[str] = []
        if not 0 <= self.bootstrap <= MAX_BOOTSTRAP:
            problems.append(f"bootstrap is {self.bootstrap}; give 0 to {MAX_BOOTSTRAP:,} resamples.")
        if self.out_models is not None and not 0 <= self.out_models <= MAX_OUT_MODELS:
            problems.append(f"out_models is {self.out_models}; give 0 to {MAX_OUT_MODELS:,} models.")
        if self.role is not None and len(self.role) > LONGEST:
            problems.append(f"role has {len(self.role):,} characters; give at most {LONGEST:,}.")
        if problems:
            raise SettingsError(problems)


@dataclass(frozen=True)
class Callbacks:
    """Functions called during a request: with notes for the operator, the name of each stage, and each epoch."""

    on_note: Callable[[str], None] = lambda note: None
    on_stage: Callable[[str], None] = lambda stage: None
    on_epoch: Callable[[Epoch], None] = lambda epoch: None


@dataclass(frozen=True)
class ConfiguredMethod:
    """A method with its settings, as a request runs it."""

    spec: MethodSpec
    preset: str | None
    config: Any

    @property
    def method(self) -> Method:
        return self.spec.method

    @property
    def needs(self) -> Needs:
        return self.method.needs_of(self.config)


def configure_method(spec: str, project: Project) -> ConfiguredMethod:
    """Return the method of a spec; the project decides what the spec leaves open, and wrong settings raise."""
    parsed = MethodSpec.parse(spec)
    return ConfiguredMethod(parsed, parsed.preset_for(project.family), parsed.configure(project.family, project.recipe))
