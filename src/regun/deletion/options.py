"""How a request is carried out: what can be chosen, the method that a choice stands for, and who is told."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regun.deletion.project import MOST_OUTS, Project
from regun.deletion.request import LONGEST
from regun.deletion.signing import Pseudonyms
from regun.errors import SettingsError
from regun.methods import Method, MethodSpec, Needs
from regun.training.job import Epoch

MOST_RESAMPLES = 1_000_000


@dataclass(frozen=True)
class Options:
    """How a request is carried out; None leaves the choice to the project."""

    method: str | None = None
    accept: str | None = None
    fallback: str | None = None
    seed: int = 0
    bootstrap: int = 1000
    sign: Path | None = None
    naming: Pseudonyms = field(default_factory=Pseudonyms)
    witness: Path | None = None
    """A file that gets the hash of the ledger's last line and is kept elsewhere; all it holds must be in the ledger."""
    into_existing: bool = False
    """Whether to write into a folder that holds other things."""
    ignore_unknown: bool = False
    check_content: bool = False
    accept_untestable: bool = False
    """Whether a model takes the place of the current one although nobody can tell if it has forgotten; recorded."""
    out_models: int | None = None
    role: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.bootstrap <= MOST_RESAMPLES:
            raise SettingsError([f"bootstrap is {self.bootstrap}; give 0 to {MOST_RESAMPLES:,} resamples."])
        if self.out_models is not None and not 0 <= self.out_models <= MOST_OUTS:
            raise SettingsError([f"out_models is {self.out_models}; give 0 to {MOST_OUTS:,} models."])
        if self.role is not None and len(self.role) > LONGEST:
            raise SettingsError([f"the role has {len(self.role):,} characters; give at most {LONGEST:,}."])


@dataclass(frozen=True)
class Listener:
    """Who is told what nobody should miss, what is being done, and how far it has come."""

    note: Callable[[str], None] = lambda text: None
    stage: Callable[[str], None] = lambda text: None
    epoch: Callable[[Epoch], None] = lambda epoch: None


@dataclass(frozen=True)
class Chosen:
    """The method of `name@preset,key=value,...`, its preset and what is said of its settings, and all of these."""

    spec: MethodSpec
    preset: str | None
    config: Any

    @property
    def method(self) -> Method:
        return self.spec.method

    @property
    def needs(self) -> Needs:
        return self.method.needs_of(self.config)


def chosen(spec: str, project: Project) -> Chosen:
    """What a spec stands for; what it leaves open is the project's choice, and wrong settings are refused."""
    parsed = MethodSpec.parse(spec)
    return Chosen(parsed, parsed.preset_for(project.family), parsed.configure(project.family, project.recipe))
