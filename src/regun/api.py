"""regun on a user's own model and data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from regun.data.adapt import Source, as_examples
from regun.data.examples import Indices
from regun.data.overlap import Ids, refuse_overlap
from regun.data.views import Joined
from regun.errors import RegunError
from regun.evaluate import Attack, Evaluation, Measure, Metric, Scorer, Signals, evaluate
from regun.methods import Method, get_method
from regun.models.calls import logits_of
from regun.runs.signals import signals_of
from regun.runs.unlearning import Outcome, unlearn_job
from regun.settings import parse_spec
from regun.splits import Splits
from regun.training.forward import in_eval_mode
from regun.training.job import Budget, Epoch, Job, device_of, private_copy
from regun.tune import search_job


def unlearn(
    model: nn.Module,
    *,
    forget: Source,
    retain: Source | None = None,
    heldout: Source | None = None,
    val: Source | None = None,
    method: str | Callable[..., Any] = "regun",
    settings: Mapping[str, Any] | None = None,
    preset: str | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    keep: str = "last",
    criterion: str = "val_accuracy",
    reference: nn.Module | None = None,
    rebuild: Callable[[int], nn.Module] | None = None,
    on_epoch: Callable[[Epoch, nn.Module], None] | None = None,
    device: torch.device | str | None = None,
    num_classes: int | None = None,
    ids: Ids | None = None,
    check_content: bool = False,
    inplace: bool = False,
    tune: int | None = None,
) -> Outcome:
    """A copy of `model` from which the influence of `forget` is removed; the model given is left as it is.

    `retain` is the rest of the training data, `heldout` labelled data the model never saw (ReGUn needs it), `val` is
    only watched, for keep="best". `method` is a name as on the command line (`regun@wide_retain,lr=0.02`; see
    `regun methods`) or your own function of a Job.

    Sets that share examples are refused: by `ids` (set name -> one id an example), as Subsets of one data set, and with
    `check_content` by what the examples hold. With `inplace`, `model` itself gets the new weights, at the very end.

    With `tune`, that many settings are tried and the best kept; `outcome.trials` lists them. No retrained model is
    needed: half of `heldout`, and `val`, are set aside to judge by. Settings that are given stay as they are.

    >>> outcome = regun.unlearn(model, forget=(x_f, y_f), retain=(x_r, y_r), heldout=(x_h, y_h))  # doctest: +SKIP
    """
    where = torch.device(device) if device is not None else device_of(model)
    given = {"forget": forget, "retain": retain, "heldout": heldout, "val": val}
    sources = {name: source for name, source in given.items() if source is not None}
    classes = num_classes or count_classes(model, forget)
    sets = {name: as_examples(source, classes, name) for name, source in sources.items()}
    refuse_overlap(sources, sets, ids, check_content)
    joined = Joined(tuple(sets.values()))
    parts = {name: joined.indices(number) for number, name in enumerate(sources)}
    nothing: Indices = np.zeros(0, dtype=np.int64)
    splits = Splits(**{name: parts.get(name, nothing) for name in given}, total=len(joined.labels))
    found, preset, chosen = _method(method, preset, settings or {})
    job = Job(
        model=private_copy(model, where),
        examples=joined,
        splits=splits,
        seed=seed,
        device=where,
        on_epoch=on_epoch or (lambda epoch, _: None),
        budget=budget,
        reference=private_copy(reference, where) if reference is not None else None,
        rebuild=rebuild,
    )
    start = found.configure(chosen, preset)
    if tune is None:
        outcome = unlearn_job(job, found, start, keep=keep, criterion=criterion)
    else:
        family = preset if preset is not None and preset in found.search else "resnet"
        outcome = search_job(
            job, found, start, trials=tune, family=family, fixed=chosen, keep=keep, criterion=criterion
        )
    if not inplace:
        return outcome
    model.load_state_dict(outcome.model.state_dict())
    return replace(outcome, model=model)


def _method(
    method: str | Callable[..., Any], preset: str | None, settings: Mapping[str, Any]
) -> tuple[Method, str | None, Mapping[str, Any]]:
    """A method with its preset and settings, also from text as on the command line: `regun@wide_retain,lr=0.02`."""
    if not isinstance(method, str):
        return get_method(method), preset, settings
    head, values = parse_spec(method)
    name, _, own = head.partition("@")
    return get_method(name), own or preset, {**values, **settings}


def audit(
    model: nn.Module,
    *,
    forget: Source,
    retain: Source | None = None,
    test: Source | None = None,
    heldout: Source | None = None,
    val: Source | None = None,
    retrain: nn.Module | None = None,
    references: Sequence[nn.Module] = (),
    attacks: Sequence[str | Attack | Scorer] | None = None,
    metrics: Sequence[str | Metric | Measure] = (),
    bootstrap: int = 1000,
    seed: int = 0,
    device: torch.device | str | None = None,
    num_classes: int | None = None,
    ids: Ids | None = None,
    check_content: bool = False,
) -> Evaluation:
    """How well `model` has forgotten `forget`, with intervals; `retrain` and `references` were trained without it.

    At least one of `test`, `heldout` and `val` is needed as unseen data; unseen data that overlap the training data are
    refused, as in `unlearn`. Every model runs once over every set. Without retrained models the evaluation's `claims`
    say what cannot be told.

    >>> regun.audit(outcome.model, forget=(x_f, y_f), test=(x_t, y_t)).numbers["smia_auc"]  # doctest: +SKIP
    """
    where = torch.device(device) if device is not None else device_of(model)
    given = {"retain": retain, "forget": forget, "test": test, "heldout": heldout, "val": val}
    classes = num_classes or count_classes(model, forget)
    sources = {name: source for name, source in given.items() if source is not None}
    sets = {name: as_examples(source, classes, name) for name, source in sources.items()}
    refuse_overlap(sources, sets, ids, check_content)

    def signals(one: nn.Module) -> dict[str, Signals]:
        return {name: signals_of(one, examples, device=where) for name, examples in sets.items()}

    truth = signals(retrain) if retrain is not None else None
    others = [signals(r) for r in references]
    return evaluate(signals(model), truth, others, attacks=attacks, metrics=metrics, bootstrap=bootstrap, seed=seed)


def count_classes(model: nn.Module, source: Source) -> int:
    """How many classes the model tells apart, from its output on one example."""
    examples = as_examples(source, 2**31, "forget")
    if not len(examples.labels):
        raise RegunError("the forget set is empty; give at least one example.")
    batch = examples.fetch(np.array([0]), device=device_of(model))
    with in_eval_mode(model), torch.no_grad():
        return int(logits_of(model, batch.x).shape[-1])
