"""Unlearning and auditing of a user's own model and data, in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regun.arguments import InputOptions, RunOptions, as_model, as_models, as_tuple, check_arguments
from regun.auditing import UNSEEN, Attack, Evaluation, Measure, Metric, Scorer, evaluate
from regun.auditing.durability import Relearned
from regun.auditing.predictions import Predictions
from regun.crossfit import TrainFunction, function_digest, subset_of
from regun.data.plain import check_no_augmentation
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
from regun.parallel import current, is_writer, joined
from regun.predict import predict_each
from regun.prepared import Prepared
from regun.progress import ProgressLine
from regun.relearning import relearn as relearn_models
from regun.relearning import relearn_updates
from regun.settings import bind, shown
from regun.splits import Splits
from regun.training.fit import Fitted
from regun.training.job import Epoch, Job, private_copy, uncompiled
from regun.training.recipes import Recipe, Updates, as_recipe
from regun.types import Indices
from regun.unlearning import Outcome, log_warnings, not_finite, unlearn_job

NOTHING: Indices = np.zeros(0, dtype=np.int64)


@joined()
def unlearn(
    model: nn.Module,
    *,
    forget: Source,
    retain: Source | None = None,
    heldout: Source | None = None,
    val: Source | None = None,
    method: str | Callable[..., Any] = "auto",
    settings: Mapping[str, Any] | None = None,
    recipe: Recipe | Mapping[str, Any] | str | None = None,
    rebuild: Callable[[int], nn.Module] | None = None,
    teacher: Teacher | None = None,
    prepared: Prepared | None = None,
    train: TrainFunction | None = None,
    seed: int = 0,
    inputs: InputOptions | None = None,
    run: RunOptions | None = None,
) -> Outcome:
    """Return a copy of `model` from which the influence of `forget` is removed; `model` itself stays as it is.

    Each set is a torch Dataset, a DataLoader or a pair of tensors (inputs, labels). Sets that share examples are an
    error.

    Args:
        model: the trained classifier.
        forget: the training examples to forget.
        retain: the rest of the training data.
        heldout: labelled examples the model was not trained on; ReGUn learns from them.
        val: examples that only `RunOptions(keep="best")` looks at.
        method: a name as on the command line (`regun@wide_retain,lr=0.02`; see `regun methods`) or a function of a Job.
        settings: settings of the method, by name.
        recipe: how the model was trained (`{"epochs": 30, "lr": 0.1}`), for methods that train from scratch.
        rebuild: function of a seed that returns a new, untrained model of the same kind.
        teacher: a model, or a function of a batch of inputs, that never saw `forget`.
        prepared: out-of-fold predictions of the records (`regun.prepare`); with it `auto` trains no other model.
        train: your own training, (dataset, seed) -> model, for method="retrain": it is called with `retain`.
        seed: seed of every random number of the run.
        inputs: how model and data are read.
        run: how long the run is, which epoch is returned, and who watches it.

    A compiled or half-precision model is trained as a plain float32 copy; the result has the precision of `model`.
    What looks wrong in the inputs or the result is logged and listed in `outcome.warnings`.

    >>> outcome = regun.unlearn(model, forget=(x_f, y_f), retain=(x_r, y_r), heldout=(x_h, y_h))  # doctest: +SKIP
    >>> model.load_state_dict(outcome.model.state_dict())  # to change the model in place  # doctest: +SKIP
    """
    run = run if run is not None else RunOptions()
    if train is not None:
        others = {"settings": settings, "recipe": recipe, "rebuild": rebuild, "teacher": teacher, "prepared": prepared}
        method = _own_training(train, method, model, retain, int(seed), others)
    ready = ready_job(
        model, {"forget": forget, "retain": retain, "heldout": heldout, "val": val},
        method=method, settings=settings, recipe=recipe, rebuild=rebuild, teacher=teacher, prepared=prepared, seed=seed,
        inputs=inputs, run=run,
    )  # fmt: skip
    chosen = ready.spec.method
    if train is not None:
        chosen = replace(chosen, name="retrain", title="Retrain", from_scratch=True)
    outcome = unlearn_job(ready.job, chosen, ready.config, keep=run.keep, criterion=run.criterion)
    return ready.finish(outcome)


def _own_training(
    train: TrainFunction,
    method: str | Callable[..., Any],
    model: nn.Module,
    retain: Source | None,
    seed: int,
    others: Mapping[str, Any],
) -> Callable[[Job], Fitted]:
    """Return the method that replaces the model's weights by those of the user's training on `retain`."""
    if not callable(train):
        raise RegunError(f"train is a {type(train).__name__}; give a function (dataset, seed) -> model.")
    if method != "retrain":
        raise RegunError(f"train= is for method='retrain'; method is {shown(method)}.")
    given = [name for name, value in others.items() if value is not None]
    if given or retain is None:
        problem = f"leave out {', '.join(given)}" if given else "give retain=, the records to train on"
        raise RegunError(f"train= decides how the model is trained; {problem}.")
    name = getattr(train, "__qualname__", type(train).__name__)

    def retrain(job: Job) -> Fitted:
        made = train(subset_of(retain, np.arange(len(job.indices("retain")))), seed)
        if not isinstance(made, nn.Module) or made is model:
            what = "the model that is to be unlearned" if made is model else f"a {type(made).__name__}"
            raise RegunError(f"train returned {what}; return a new torch module, trained on the dataset alone.")
        weights, current = uncompiled(made).state_dict(), unwrap(job.model)
        own = current.state_dict()
        other = [key for key in own.keys() | weights.keys() if key not in weights or key not in own]
        other += [key for key in own if key in weights and own[key].shape != weights[key].shape]
        if other:
            raise RegunError(
                f"train returned a model whose weights differ in name or shape (the first: {min(other)}); return a "
                "model of the same kind as model."
            )
        if all(torch.equal(own[key].cpu(), weights[key].cpu().to(own[key].dtype)) for key in own):
            raise RegunError("train returned the weights of the model itself; build a new model and train it.")
        current.load_state_dict(weights)
        price = {"retraining": None, "branch": "retrained", "reason": f"by your own function {name}"}
        trained_by = {"train": name, "source": function_digest(train, name), "seed": seed}
        return Fitted(notes={"trained_by": trained_by, "price": price})

    return retrain


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
        made = restore_dtype(outcome.model, self.model)
        found = (*outcome.warnings, *lost_in_precision(uncompiled(self.model), made))
        log_warnings(found)
        return replace(
            outcome,
            model=made,
            warnings=(*self.warnings, *found),
            diverged=outcome.diverged or not_finite(made),
        )


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
    trained_by = as_recipe(recipe) if recipe is not None else None
    chosen, config = spec.method, spec.configure(recipe=trained_by)
    if chosen.source is None:  # a user's own method may need no gradients
        check_trainable(checked.model, checked.batch)
    uses_heldout = chosen.needs_of(config).heldout
    warnings = (
        *checked.warnings,
        *data_warnings(checked, uses_model=not chosen.from_scratch, uses_heldout=uses_heldout),
    )
    log_warnings(warnings)
    joined = Joined(tuple(checked.sets.values()))
    parts = {name: joined.indices(number) for number, name in enumerate(checked.sets)}
    line = ProgressLine(chosen.title) if run.progress and is_writer() else None
    read = inputs.logits if inputs is not None else None

    def on_epoch(epoch: Epoch, current: nn.Module) -> None:
        if line is not None:
            line.epoch(epoch)
        if run.on_epoch is not None:
            run.on_epoch(epoch, unwrap(current))

    def rebuild_wrapped(seed: int) -> nn.Module:
        assert rebuild is not None
        return wrap_model(call_rebuild(rebuild, seed, model), read)

    device = checked.device
    job = Job(
        model=private_copy(checked.model, device),
        examples=joined,
        splits=Splits(**{name: parts.get(name, NOTHING) for name in sources}, total=len(joined)),
        seed=int(seed),
        device=device,
        on_epoch=on_epoch,
        on_progress=line.progress if line is not None else (lambda _: None),
        budget=run.budget,
        teacher=private_copy(as_teacher(teacher, checked.num_classes), device) if teacher is not None else None,
        rebuild=rebuild_wrapped if rebuild is not None else None,
        recipe=trained_by,
        out_of_fold=_out_of_fold(prepared, checked, inputs) if prepared is not None else None,
    )
    _check_processes(job, spec.text if spec.function is None else spec.name)
    return ReadyJob(model, job, spec, config, warnings, line)


def _check_processes(job: Job, method: str) -> None:
    """Give all processes that share a run the weights of the first; raise if their data, method or seed differ."""
    processes = current()
    if processes is not None:
        sizes = {name: len(getattr(job.splits, name)) for name in ("forget", "retain", "heldout", "val")}
        labels = digest(job.examples.labels_at(job.indices("forget")))
        processes.check_same("data, method or seed", [sizes, labels, method, job.seed])
        processes.share_weights(job.model)


def _out_of_fold(prepared: Prepared, checked: CheckedInputs, inputs: InputOptions | None) -> Tensor:
    """Return the table's probabilities for the forgotten examples."""
    _check_table(prepared, checked)
    ids = (inputs.ids or {}).get("forget") if inputs is not None else None
    return prepared.probabilities(prepared.rows(checked.sets["forget"], ids))


def _table_predictions(
    prepared: Prepared, checked: CheckedInputs, inputs: InputOptions | None
) -> list[dict[str, Predictions]]:
    """Return per repeat of the table what models that saw neither forgotten nor unseen examples predict for them."""
    _check_table(prepared, checked)
    ids = (inputs.ids or {}) if inputs is not None else {}
    names = {"forget": "train", **{name: name for name in UNSEEN if name in checked.sets}}
    found: dict[str, list[Predictions]] = {}
    for name, which in names.items():
        found[name] = prepared.predictions(prepared.rows(checked.sets[name], ids.get(name), which))
    return [{name: each[repeat] for name, each in found.items()} for repeat in range(len(found["forget"]))]


def _check_table(prepared: Prepared, checked: CheckedInputs) -> None:
    check_arguments({"prepared": prepared}, {"prepared": ((Prepared,), "regun.Prepared.load(path)")})
    if prepared.num_classes != checked.num_classes:
        raise RegunError(
            f"the prepared table has {prepared.num_classes} classes and the model {checked.num_classes}; give the "
            f"table that was made for this model."
        )


@joined()
def audit(
    model: nn.Module,
    *,
    forget: Source,
    retain: Source | None = None,
    test: Source | None = None,
    heldout: Source | None = None,
    val: Source | None = None,
    before: nn.Module | None = None,
    retrained: nn.Module | Sequence[nn.Module] | None = None,
    out_models: nn.Module | Sequence[nn.Module] = (),
    prepared: Prepared | None = None,
    unseen: str | Sequence[str] | None = None,
    attacks: str | Attack | Scorer | Sequence[str | Attack | Scorer] | None = None,
    metrics: str | Metric | Measure | Sequence[str | Metric | Measure] = (),
    seed: int = 0,
    bootstrap: int = 1000,
    inputs: InputOptions | None = None,
) -> Evaluation:
    """Return how well `model` has forgotten `forget`: numbers with intervals, verdicts, and what they do not show.

    Every example is read once for all models. Sets that share examples, and data that augment at random, are an error.

    Args:
        model: the unlearned model.
        forget: the examples it was to forget.
        retain: the training examples it was to keep.
        test, heldout, val: examples no model was trained on; at least one of the three.
        before: the model before unlearning. A test that does not flag it has no power: its result is inconclusive.
        retrained: one or more models trained without `forget`. The first gives the gaps, three or more the noise floor.
        out_models: short trainings on `retain`, used for `influence` where there is no retrained model.
        prepared: out-of-fold predictions (`regun.prepare`), used for `influence` in place of `out_models`.
        unseen: the unseen sets to judge by; leave out one that the method learned from (ReGUn: heldout).
        attacks: attacks to run, by name or as functions; default: all that can run.
        metrics: further numbers to compute, by name or as functions.
        seed: seed of the attacks and of the resampling.
        bootstrap: number of resamples for the intervals; 0 for no intervals.
        inputs: how models and data are read.

    >>> regun.audit(outcome.model, forget=(x_f, y_f), test=(x_t, y_t)).numbers["smia_auc"]  # doctest: +SKIP
    """
    check_arguments(locals())
    first = {"model": as_model("model", model)}
    if before is not None:
        first["before"] = as_model("before", before)
    references = as_models("retrained", retrained) if retrained is not None else {}
    others = as_models("out_models", out_models)
    judged = as_tuple("unseen", unseen) if unseen is not None else None
    tried: Sequence[str | Attack | Scorer] | None = as_tuple("attacks", attacks) if attacks is not None else None
    measured: Sequence[str | Metric | Measure] = as_tuple("metrics", metrics)

    named = {**first, **references, **others}
    sources = {"retain": retain, "forget": forget, "test": test, "heldout": heldout, "val": val}
    checked = inspect_inputs(named, sources, inputs)
    check_no_augmentation(checked.sets)
    log_warnings(checked.warnings)
    models = list(checked.models.values())
    by_set = {name: predict_each(models, examples, device=checked.device) for name, examples in checked.sets.items()}
    predictions = [{name: each[number] for name, each in by_set.items()} for number in range(len(models))]
    start, end = len(first), len(first) + len(references)
    evaluation = evaluate(
        predictions[0],
        predictions[start] if references else None,
        predictions[start + 1 : end],
        before=predictions[1] if before is not None else None,
        out_models=[*predictions[end:], *_table_predictions(prepared, checked, inputs)]
        if prepared is not None
        else predictions[end:],
        unseen=judged,
        attacks=tried,
        metrics=measured,
        bootstrap=int(bootstrap),
        seed=int(seed),
    )
    return replace(evaluation, warnings=(*checked.warnings, *evaluation.warnings))


@joined()
def relearn(
    model: nn.Module,
    *,
    forget: Source,
    retain: Source,
    test: Source | None = None,
    heldout: Source | None = None,
    val: Source | None = None,
    before: nn.Module | None = None,
    retrained: nn.Module | Sequence[nn.Module] | None = None,
    settings: Mapping[str, Any] | None = None,
    recipe: Recipe | Mapping[str, Any] | str | None = None,
    seed: int = 0,
    inputs: InputOptions | None = None,
) -> Relearned:
    """Return how much of `forget` comes back when copies of the models train a little on `retain` alone.

    Args:
        model: the unlearned model.
        forget, retain: what it was to forget and to keep.
        test, heldout, val: examples no model was trained on; the first of them is the comparison.
        before: the model before unlearning. A check that does not flag it is inconclusive.
        retrained: one or more models trained without `forget`.
        settings: changes of the training (`lr`, `epochs`, `batch_size`, `optimizer`, ...). Default: two passes over
            `retain` with SGD at 0.01, or at a tenth of the learning rate of `recipe`.
        recipe: how the model was trained.
        seed: seed of the order of the batches.
        inputs: how models and data are read.

    >>> regun.relearn(model, forget=forget, retain=retain, test=test).numbers["regained_auc"]  # doctest: +SKIP
    """
    check_arguments(locals())
    named = {"model": as_model("model", model)}
    named |= as_models("retrained", retrained) if retrained is not None else {}
    if before is not None:
        named["before"] = as_model("before", before)
    sources = {"forget": forget, "retain": retain, "test": test, "heldout": heldout, "val": val}
    checked = inspect_inputs(named, sources, inputs, needed=("forget", "retain"))
    check_no_augmentation(checked.sets)
    for one in checked.models.values():
        check_trainable(one, checked.batch)
    log_warnings(checked.warnings)
    sets = checked.sets
    joined = Joined((sets["forget"], sets["retain"]))
    updates = relearn_updates(as_recipe(recipe, required=("lr",)) if recipe is not None else None)
    result, _ = relearn_models(
        list(checked.models.values()),
        joined,
        Splits(joined.indices(1), joined.indices(0), NOTHING, NOTHING, len(joined)),
        {name: (examples, np.arange(len(examples))) for name, examples in sets.items() if name in UNSEEN},
        updates=bind(Updates, settings or {}, "relearn", updates),
        seed=int(seed),
        device=checked.device,
        before=before is not None,
    )
    return result
