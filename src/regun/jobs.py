"""From the arguments of `regun.unlearn` to a job: checked model and data, the method with its settings, callbacks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regun.arguments import InputOptions, RunOptions, check_arguments
from regun.crossfit import TrainFunction, function_digest, subset_of
from regun.data.sources import Source
from regun.data.views import Joined
from regun.errors import RegunError
from regun.guards import lost_in_precision
from regun.hashing import digest
from regun.inputs import (
    CheckedInputs,
    call_rebuild,
    check_finite_weights,
    check_trainable,
    data_warnings,
    inspect_inputs,
    restore_dtype,
    unwrap,
    wrap_model,
)
from regun.methods import MethodSpec, Teacher, as_teacher
from regun.parallel import current, is_writer
from regun.prepared import Prepared
from regun.progress import ProgressLine
from regun.settings import shown
from regun.splits import Splits
from regun.training.fit import Fitted
from regun.training.job import Epoch, Job, private_copy, uncompiled
from regun.training.recipes import Recipe, as_recipe
from regun.training.weights import misfits
from regun.types import Indices
from regun.unlearning import Outcome, log_warnings, not_finite

NO_ROWS: Indices = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class ReadyJob:
    """Checked arguments of one unlearning: a job, a method and its settings."""

    model: nn.Module
    """The user's model."""
    job: Job
    spec: MethodSpec
    """The method, its preset and the settings that the user has set."""
    config: Any
    warnings: tuple[str, ...]
    line: ProgressLine | None

    def finish(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the model as the user has it, and log its warnings."""
        if self.line is not None:
            self.line.close()
        model = restore_dtype(outcome.model, self.model)
        warnings = (*outcome.warnings, *lost_in_precision(uncompiled(self.model), model))
        log_warnings(warnings)
        diverged = outcome.diverged or not_finite(model)
        return replace(outcome, model=model, warnings=(*self.warnings, *warnings), diverged=diverged)


def ready_job(
    model: nn.Module,
    sources: Mapping[str, Source | None],
    *,
    method: str | Callable[..., Any],
    settings: Mapping[str, Any] | None,
    recipe: Recipe | Mapping[str, Any] | str | None,
    rebuild: Callable[[int], nn.Module] | None,
    teacher: Teacher | None,
    prepared: Prepared | None = None,
    seed: int,
    inputs: InputOptions | None,
    run: RunOptions,
) -> ReadyJob:
    """Check the arguments of `unlearn` and return the job to run."""
    check_arguments(locals())
    checked = inspect_inputs({"model": model}, sources, inputs)
    check_finite_weights(model)
    spec = MethodSpec.parse(method)
    spec = replace(spec, settings={**spec.settings, **(settings or {})})
    known_recipe = as_recipe(recipe) if recipe is not None else None
    config = spec.configure(recipe=known_recipe)
    warnings = _check_method(spec, config, checked)
    examples = Joined(tuple(checked.sets.values()))
    rows = {name: examples.indices(number) for number, name in enumerate(checked.sets)}
    line = ProgressLine(spec.method.title) if run.progress and is_writer() else None

    def on_epoch(epoch: Epoch, current: nn.Module) -> None:
        if line is not None:
            line.epoch(epoch)
        if run.on_epoch is not None:
            run.on_epoch(epoch, unwrap(current))

    def rebuild_wrapped(seed: int) -> nn.Module:
        assert rebuild is not None
        return wrap_model(call_rebuild(rebuild, seed, model), inputs.logits if inputs is not None else None)

    job = Job(
        model=private_copy(checked.model, checked.device),
        examples=examples,
        splits=Splits(**{name: rows.get(name, NO_ROWS) for name in sources}, total=len(examples)),
        seed=int(seed),
        device=checked.device,
        on_epoch=on_epoch,
        on_progress=line.progress if line is not None else (lambda _: None),
        budget=run.budget,
        teacher=private_copy(as_teacher(teacher, checked.num_classes), checked.device) if teacher is not None else None,
        rebuild=rebuild_wrapped if rebuild is not None else None,
        recipe=known_recipe,
        out_of_fold=_out_of_fold(prepared, checked, inputs) if prepared is not None else None,
    )
    _check_processes(job, spec.text if spec.function is None else spec.name)
    return ReadyJob(model, job, spec, config, warnings, line)


def _check_method(spec: MethodSpec, config: Any, checked: CheckedInputs) -> tuple[str, ...]:
    """Raise if the method cannot train the model; log and return warnings about model and data."""
    method = spec.method
    if method.source is None:  # a user's own method may need no gradients
        check_trainable(checked.model, checked.batch)
    uses_heldout = method.needs_of(config).heldout
    about_data = data_warnings(checked, uses_model=not method.from_scratch, uses_heldout=uses_heldout)
    warnings = (*checked.warnings, *about_data)
    log_warnings(warnings)
    return warnings


def _check_processes(job: Job, method: str) -> None:
    """Give all processes that share a run the weights of the first; raise if their data, method or seed differ."""
    processes = current()
    if processes is not None:
        sizes = {name: len(getattr(job.splits, name)) for name in ("forget", "retain", "heldout", "val")}
        labels = digest(job.examples.labels_at(job.indices("forget")))
        processes.check_same("data, method or seed", [sizes, labels, method, job.seed])
        processes.broadcast_weights(job.model)


def _out_of_fold(prepared: Prepared, checked: CheckedInputs, inputs: InputOptions | None) -> Tensor:
    """Return the table's probabilities for the forgotten examples."""
    check_table(prepared, checked)
    ids = (inputs.ids or {}).get("forget") if inputs is not None else None
    return prepared.probabilities(prepared.rows(checked.sets["forget"], ids))


def check_table(prepared: Prepared, checked: CheckedInputs) -> None:
    """Raise unless the table was made for so many classes."""
    check_arguments({"prepared": prepared}, {"prepared": ((Prepared,), "regun.Prepared.load(path)")})
    if prepared.num_classes != checked.num_classes:
        raise RegunError(
            f"the prepared table has {prepared.num_classes} classes and the model {checked.num_classes}; give the "
            f"table that was made for this model."
        )


def own_training(
    train: TrainFunction,
    method: str | Callable[..., Any],
    model: nn.Module,
    retain: Source | None,
    seed: int,
    unused: Mapping[str, Any],
) -> Callable[[Job], Fitted]:
    """Return the method that replaces the model's weights by those of the user's training on `retain`.

    `unused` are the arguments of `unlearn` that must not be given with `train`.
    """
    if not callable(train):
        raise RegunError(f"train is a {type(train).__name__}; give a function (dataset, seed) -> model.")
    if method != "retrain":
        raise RegunError(f"train= is for method='retrain'; method is {shown(method)}.")
    superfluous = [name for name, value in unused.items() if value is not None]
    if superfluous or retain is None:
        problem = f"leave out {', '.join(superfluous)}" if superfluous else "give retain=, the records to train on"
        raise RegunError(f"train= decides how the model is trained; {problem}.")
    name = getattr(train, "__qualname__", type(train).__name__)

    def retrain(job: Job) -> Fitted:
        trained = train(subset_of(retain, np.arange(len(job.indices("retain")))), seed)
        if not isinstance(trained, nn.Module) or trained is model:
            what = "the model that is to be unlearned" if trained is model else f"a {type(trained).__name__}"
            raise RegunError(f"train returned {what}; return a new torch module, trained on the dataset alone.")
        current = unwrap(job.model)
        before: dict[str, Tensor] = current.state_dict()
        after: dict[str, Tensor] = uncompiled(trained).state_dict()
        wrong = misfits(after, before)
        if wrong:
            raise RegunError(
                f"train returned a model that does not fit: {'; '.join(wrong[:3])}. Return a model of the same kind "
                "as model."
            )
        if all(torch.equal(before[key].cpu(), after[key].cpu().to(before[key].dtype)) for key in before):
            raise RegunError("train returned the weights of the model itself; build a new model and train it.")
        current.load_state_dict(after)
        price = {"retraining": None, "branch": "retrained", "reason": f"by your own function {name}"}
        trained_by = {"train": name, "source": function_digest(train, name), "seed": seed}
        return Fitted(notes={"trained_by": trained_by, "price": price})

    return retrain
