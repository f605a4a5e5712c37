"""Unlearning and auditing of a user's own model and data, in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from regun.arguments import InputOptions, RunOptions, as_model, as_models, as_tuple, check_arguments
from regun.auditing import UNSEEN, Attack, Evaluation, Measure, Metric, Scorer, evaluate
from regun.auditing.durability import Relearned
from regun.auditing.predictions import Predictions
from regun.crossfit import TrainFunction
from regun.data.plain import check_no_augmentation
from regun.data.sources import Source
from regun.data.views import Joined
from regun.inputs import CheckedInputs, check_trainable, inspect_inputs
from regun.jobs import NO_ROWS, check_table, own_training, ready_job
from regun.methods import Teacher
from regun.parallel import joined
from regun.predict import predict_each
from regun.prepared import Prepared
from regun.relearning import relearn as relearn_models
from regun.relearning import relearn_updates
from regun.settings import bind
from regun.splits import Splits
from regun.training.recipes import Recipe, Updates, as_recipe
from regun.unlearning import Outcome, log_warnings, unlearn_job


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
        val: examples that only `RunOptions(keep="best")` uses.
        method: a name as on the command line (`regun@wide_retain,lr=0.02`; see `regun methods`) or a function of a Job.
        settings: settings of the method, by name.
        recipe: how the model was trained (`{"epochs": 30, "lr": 0.1}`), for methods that train from scratch.
        rebuild: function of a seed that returns a new, untrained model of the same kind.
        teacher: a model, or a function of a batch of inputs, that never saw `forget`.
        prepared: out-of-fold predictions of the records (`regun.prepare`); with it `auto` trains no other model.
        train: your own training, (dataset, seed) -> model, for method="retrain": it is called with `retain`.
        seed: seed of every random number of the run.
        inputs: how model and data are read.
        run: how long the run is, which epoch is returned, and how progress is reported.

    A compiled or half-precision model is trained as a plain float32 copy; the result has the precision of `model`.
    What looks wrong in the inputs or the result is logged and listed in `outcome.warnings`.

    >>> outcome = regun.unlearn(model, forget=(x_f, y_f), retain=(x_r, y_r), heldout=(x_h, y_h))  # doctest: +SKIP
    >>> model.load_state_dict(outcome.model.state_dict())  # to change the model in place  # doctest: +SKIP
    """
    run = run if run is not None else RunOptions()
    if train is not None:
        unused = {"settings": settings, "recipe": recipe, "rebuild": rebuild, "teacher": teacher, "prepared": prepared}
        method = own_training(train, method, model, retain, int(seed), unused)
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


def _predict_all(checked: CheckedInputs) -> dict[str, dict[str, Predictions]]:
    """Return the predictions by model and set; every example is read once for all models."""
    models = list(checked.models.values())
    by_set = {name: predict_each(models, examples, device=checked.device) for name, examples in checked.sets.items()}
    return {model: {name: each[number] for name, each in by_set.items()} for number, model in enumerate(checked.models)}


def _table_predictions(
    prepared: Prepared, checked: CheckedInputs, inputs: InputOptions | None
) -> list[dict[str, Predictions]]:
    """Return per repeat of the table what models that saw neither forgotten nor unseen examples predict for them."""
    check_table(prepared, checked)
    ids = (inputs.ids or {}) if inputs is not None else {}
    names = {"forget": "train", **{name: name for name in UNSEEN if name in checked.sets}}
    by_set: dict[str, list[Predictions]] = {}
    for name, set_of_table in names.items():
        by_set[name] = prepared.predictions(prepared.rows(checked.sets[name], ids.get(name), set_of_table))
    return [{name: each[repeat] for name, each in by_set.items()} for repeat in range(len(by_set["forget"]))]


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
    models = {"model": as_model("model", model)}
    if before is not None:
        models["before"] = as_model("before", before)
    references = as_models("retrained", retrained) if retrained is not None else {}
    short_models = as_models("out_models", out_models)
    unseen = as_tuple("unseen", unseen) if unseen is not None else None
    attacks = as_tuple("attacks", attacks) if attacks is not None else None
    metrics = as_tuple("metrics", metrics)
    sources = {"retain": retain, "forget": forget, "test": test, "heldout": heldout, "val": val}
    checked = inspect_inputs({**models, **references, **short_models}, sources, inputs)
    check_no_augmentation(checked.sets)
    log_warnings(checked.warnings)
    predictions = _predict_all(checked)
    retrain = [predictions[name] for name in references]
    from_table = _table_predictions(prepared, checked, inputs) if prepared is not None else []
    evaluation = evaluate(
        predictions["model"],
        retrain[0] if retrain else None,
        retrain[1:],
        before=predictions.get("before"),
        out_models=[*(predictions[name] for name in short_models), *from_table],
        unseen=unseen,
        attacks=attacks,
        metrics=metrics,
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
        forget, retain: the examples it was to forget and to keep.
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
    models = {"model": as_model("model", model)}
    models |= as_models("retrained", retrained) if retrained is not None else {}
    if before is not None:
        models["before"] = as_model("before", before)
    sources = {"forget": forget, "retain": retain, "test": test, "heldout": heldout, "val": val}
    checked = inspect_inputs(models, sources, inputs, needed=("forget", "retain"))
    check_no_augmentation(checked.sets)
    for wrapped in checked.models.values():
        check_trainable(wrapped, checked.batch)
    log_warnings(checked.warnings)
    sets = checked.sets
    examples = Joined((sets["forget"], sets["retain"]))
    updates = relearn_updates(as_recipe(recipe, required=("lr",)) if recipe is not None else None)
    result, _ = relearn_models(
        list(checked.models.values()),
        examples,
        Splits(examples.indices(1), examples.indices(0), NO_ROWS, NO_ROWS, len(examples)),
        {name: (unseen, np.arange(len(unseen))) for name, unseen in sets.items() if name in UNSEEN},
        updates=bind(Updates, settings or {}, "relearn", updates),
        seed=int(seed),
        device=checked.device,
        before=before is not None,
    )
    return result
