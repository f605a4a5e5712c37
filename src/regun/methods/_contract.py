"""What a method is: `unlearn(job, config)` with what its file exports besides."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from typing import Any

from regun.errors import SettingsError, unknown
from regun.hashing import code_digest, digest
from regun.models.forward import counting
from regun.plugins import user_code
from regun.rng import isolated
from regun.settings import bind, to_json
from regun.training.fit import Fitted
from regun.training.job import Budget, Job
from regun.training.recipes import Recipe


@dataclass(frozen=True)
class Needs:
    """What a method asks of the user besides the model and the forget set."""

    retain: bool = True
    heldout: bool = False
    fresh_model: bool = False
    out_of_fold: bool = False
    """Whether it needs a prepared table (`regun.prepare`)."""
    out_of_fold_helps: bool = False
    """Whether a prepared table is used where there is one."""
    heldout_helps: bool = False
    """Whether held-out examples are used where there are some."""

    @property
    def uses_heldout(self) -> bool:
        """True if the method may learn from held-out examples; then these cannot judge its result."""
        return self.heldout or self.heldout_helps

    @property
    def uses_out_of_fold(self) -> bool:
        """True if the method uses a prepared table where there is one."""
        return self.out_of_fold or self.out_of_fold_helps

    @classmethod
    def either(cls, *needs: "Needs") -> "Needs":
        """Return all that any of several methods needs."""
        return cls(**{one.name: any(getattr(each, one.name) for each in needs) for one in fields(cls)})


@dataclass(frozen=True)
class Choice:
    """Searched: one of these values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """Searched: a number between `low` and `high`, on a logarithmic scale if `log`."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Work:
    """What a run will take: optimizer steps, and samples through backward passes (an estimate)."""

    steps: int
    samples: int

    def __add__(self, other: "Work") -> "Work":
        return Work(self.steps + other.steps, self.samples + other.samples)


def passes(epochs: int, examples: int, batch: int) -> Work:
    """Return the work of epochs over one set."""
    return Work(epochs * -(-examples // batch), epochs * examples)


def paired_passes(epochs: int, forget: int, retain: int, batches: tuple[int, int], epoch: str) -> Work:
    """Return the work of epochs of steps with a forget and a retain batch, ended as by `streams.paired`."""
    first, second = -(-forget // batches[0]), -(-retain // batches[1])
    steps = epochs * {"forget": first, "retain": second, "shorter": min(first, second)}[epoch]
    return Work(steps, round(steps * (forget / first + retain / second)))


Ranges = Mapping[str, Mapping[str, Choice | Range]]

RESNET_LR = Choice((1e-1, 5e-2, 1e-2, 5e-3))
SWIN_LR = Choice((1e-3, 5e-4, 1e-4))

SWIN: Mapping[str, Any] = {"optimizer": "adamw", "epochs": 20, "lr": 1e-4}
"""The paper's settings for Swin-T while unlearning; one parameter group, no decay, constant rate."""


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
    """What settings and sizes of forget and retain set take; a fourth argument, if it has one, is the base's recipe,
    a fifth whether there is a prepared table."""
    table_helps: Callable[[Any, int, int, Recipe | None], bool] | None = None
    """Whether a run on sets of these sizes would use a prepared table, for methods with `out_of_fold_helps`."""
    tradeoff: Mapping[str, Any] | None = None
    """Settings under which `w`, from 0 to 1, trades forgetting for utility; None if it does not."""
    from_scratch: bool = False
    """Whether it trains from scratch, and so sees the data as the base's training did."""
    training_augmentation: bool = False
    """Whether it sees the data through the base's training pipeline, although it starts from the base."""
    required: tuple[str, ...] = ()
    """Settings that have no default which would mean anything: they must be said, by the user or by the base."""
    own_needs: Callable[[Any], Needs] | None = None
    """What given settings need, where that depends on them; `needs` is then what some settings need."""
    is_loss: Callable[[Any], bool] = lambda config: False
    """Whether a run with these settings is one loss per step, with nothing after the last: any loop can run it."""
    runs: "Callable[[Any], Sequence[tuple[Method, Any]]] | None" = None
    """Other methods that this one runs, with their settings: their code decides the result too."""

    def needs_of(self, config: Any) -> Needs:
        """Return what a run with these settings needs."""
        return self.own_needs(config) if self.own_needs is not None else self.needs

    def uses_table(self, config: Any, forget: int, retain: int, recipe: Recipe | None) -> bool:
        """Return True if a run on sets of these sizes uses a prepared table where there is one."""
        needs = self.needs_of(config)
        if needs.out_of_fold or not needs.out_of_fold_helps or self.table_helps is None:
            return needs.uses_out_of_fold
        return self.table_helps(config, forget, retain, recipe)

    def run(self, job: Job, config: Any) -> Fitted:
        """Unlearn: whatever the method draws, inside the loop or out of it, follows from the job's seed, and every
        forward pass counts as cost, a teacher's too; the caller's generators are left as they were."""
        users = user_code(f"the method {self.name}") if self.source else nullcontext()
        with users, isolated(job.derive("method"), job.device), counting(lambda n: job.cost.add(forward=n)):
            return self.unlearn(job, config) or Fitted()

    def planned(
        self,
        config: Any,
        forget: int,
        retain: int,
        budget: Budget | None = None,
        recipe: Recipe | None = None,
        table: bool = False,
    ) -> Work | None:
        """Return the work of a run on sets of these sizes, on a base of this recipe, with or without a prepared table.

        None if it is unknown.
        """
        if self.work is None:
            return None
        optional = (recipe, table)[: len(inspect.signature(self.work).parameters) - 3]
        work = self.work(config, forget, retain, *optional)
        if budget is None or not work.steps:
            return work
        samples_per_step = work.samples / work.steps
        if budget.steps is not None:
            return Work(budget.steps, round(budget.steps * samples_per_step))
        samples = budget.samples or 0
        return Work(round(samples / samples_per_step), samples)

    def configure(
        self, values: Mapping[str, Any], preset: str | None = None, start: Mapping[str, Any] | None = None
    ) -> Any:
        """Return settings from `values` over a preset over `start` over the defaults; raise all mistakes at once."""
        if preset is not None and preset not in self.presets:
            raise SettingsError([unknown(f"preset of {self.name}", preset, self.presets)])
        under = {**(start or {}), **(self.presets[preset] if preset is not None else {})}
        missing = [name for name in self.required if name not in under and name not in values]
        if missing:
            example = ",".join(f"{name}=..." for name in self.required)
            problem = (
                f"{self.name} needs the recipe that the model was trained by; {' and '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing. Write '{self.name},{example}' with whatever else "
                "differs from the defaults (optimizer, batch_size, momentum, weight_decay, schedule, ...); in Python "
                "also recipe=..., in a Project retrain=...; or name a preset: "
                f"{', '.join(f'{self.name}@{preset}' for preset in self.presets)}."
            )
            raise SettingsError([problem])
        return bind(self.config, {**under, **values}, self.name)

    def describe(self, config: Any) -> dict[str, Any]:
        """Return method and settings as JSON, for the content key, with the digest of the deciding code."""
        code = self.source or code_digest(f"regun.methods.{self.name}")
        if self.runs is not None:
            code = digest([code, *(method.describe(settings)["code"] for method, settings in self.runs(config))])
        return {"name": self.name, "config": to_json(config), "code": code}
