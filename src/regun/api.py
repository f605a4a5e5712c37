"""regun on a user's own model and data."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from regun.auditing import UNSEEN, Attack, Evaluation, Measure, Metric, Scorer, evaluate
from regun.auditing.durability import Relearned
from regun.data.overlap import Ids
from regun.data.sources import Source
from regun.data.views import Joined
from regun.errors import AuditError, RegunError
from regun.experiments.search import search_job
from regun.experiments.search.scoring import SET_ASIDE
from regun.guards import lost_in_precision
from regun.inputs import (
    as_model,
    as_models,
    check_broken,
    check_fewer_classes,
    check_wrong_kinds,
    given,
    made_anew,
    several,
)
from regun.methods import MethodSpec, Teacher, as_teacher
from regun.models.adapters import ReadLogits
from regun.predict import predict_each
from regun.progress import ProgressLine
from regun.relearning import relearn as relearn_in_memory
from regun.relearning import relearn_updates
from regun.settings import bind
from regun.splits import Splits
from regun.training.border import check_augmented, check_frozen, given_back, look, taken, unwrapped
from regun.training.job import Budget, Epoch, Job, private_copy, uncompiled
from regun.training.recipes import Recipe, Updates, as_recipe
from regun.types import Indices
from regun.unlearning import Outcome, not_finite, tell, unlearn_job

LOG = logging.getLogger("regun")


def unlearn(
    model: nn.Module,
    *,
    forget: Source,
    retain: Source | None = None,
    heldout: Source | None = None,
    val: Source | None = None,
    method: str | Callable[..., Any] = "auto",
    settings: Mapping[str, Any] | None = None,
    preset: str | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    keep: str = "last",
    criterion: str = "val_accuracy",
    teacher: Teacher | None = None,
    rebuild: Callable[[int], nn.Module] | None = None,
    recipe: Recipe | Mapping[str, Any] | str | None = None,
    on_epoch: Callable[[Epoch, nn.Module], None] | None = None,
    device: torch.device | str | None = None,
    logits: ReadLogits | None = None,
    num_classes: int | None = None,
    ids: Ids | None = None,
    check_content: bool | None = None,
    inplace: bool = False,
    tune: int | None = None,
    progress: bool = False,
) -> Outcome:
    """A copy of `model` from which the influence of `forget` is removed; the model given is left as it is.

    `retain` is the rest of the training data, `heldout` labelled data the model never saw (ReGUn needs it), `val` is
    only watched, for keep="best". `method` is a name as on the command line (`regun@wide_retain,lr=0.02`; see
    `regun methods`) or your own function of a Job.

    `logits` is a function from what the model returns to its logits, where it returns anything else. A model that was
    compiled, or is in half precision, works as a plain fp32 copy and comes back plain, in its own precision. What looks
    wrong in model or data is logged before the work begins, and said in `outcome.warnings` with what looks wrong after.

    Sets that share examples are refused: by `ids` (set name -> one id an example), as Subsets of one data set, and by
    what the examples hold: always with `check_content=True`, never with False, otherwise for data in memory. With
    `inplace`, `model` itself gets the new weights, at the very end; it is left as it was if the run diverged.

    With `tune`, that many settings are tried and the best kept; `outcome.trials` lists them. No retrained model is
    needed: half of `heldout`, and `val`, are set aside to judge by. Settings that are given stay as they are.

    >>> outcome = regun.unlearn(model, forget=(x_f, y_f), retain=(x_r, y_r), heldout=(x_h, y_h))  # doctest: +SKIP
    """
    check_wrong_kinds(locals())
    sources = {"forget": forget, "retain": retain, "heldout": heldout, "val": val}
    case = given(model, sources, logits, device, num_classes, ids, check_content)
    where = case.device
    check_broken(model)
    joined = Joined(tuple(case.sets.values()))
    parts = {name: joined.indices(number) for number, name in enumerate(case.sets)}
    nothing: Indices = np.zeros(0, dtype=np.int64)
    splits = Splits(**{name: parts.get(name, nothing) for name in sources}, total=len(joined))
    spec = MethodSpec.parse(method)
    spec = replace(spec, preset=spec.preset or preset, settings={**spec.settings, **(settings or {})})
    trained_by = as_recipe(recipe) if recipe is not None else None
    found, start = spec.method, spec.configure(recipe=trained_by)
    if found.source is None:
        check_frozen(case.model)
    learns_from = found.needs_of(start).heldout
    remarks = [
        *case.remarks,
        *look(case.model, case.sets, where, trained=not found.from_scratch, heldout=learns_from),
    ]
    for remark in remarks:
        LOG.warning(remark)
    line = ProgressLine(found.title) if progress else None

    def told(epoch: Epoch, made: nn.Module) -> None:
        if line is not None:
            line.epoch(epoch)
        if on_epoch is not None:
            on_epoch(epoch, unwrapped(made))

    def rebuilt(own: int) -> nn.Module:
        assert rebuild is not None
        return taken(made_anew(rebuild, own, model), logits)

    job = Job(
        model=private_copy(case.model, where),
        examples=joined,
        splits=splits,
        seed=int(seed),
        device=where,
        on_epoch=told,
        on_progress=line.progress if line is not None else (lambda _: None),
        budget=budget,
        teacher=private_copy(as_teacher(teacher, case.classes), where) if teacher is not None else None,
        rebuild=rebuilt if rebuild is not None else None,
        recipe=trained_by,
    )
    if tune is None:
        outcome = unlearn_job(job, found, start, keep=keep, criterion=criterion)
    else:
        _check_few_unseen(splits)
        family = spec.preset if spec.preset and spec.preset in found.search else "resnet"
        outcome = search_job(
            job, found, start, trials=int(tune), family=family, fixed=spec.settings, keep=keep, criterion=criterion
        )
    if line is not None:
        line.close()
    tell(outcome.warnings)
    back = given_back(outcome.model, model)
    warnings = (*remarks, *outcome.warnings, *lost_in_precision(uncompiled(model), back))
    outcome = replace(outcome, model=back, warnings=warnings, diverged=outcome.diverged or not_finite(back))
    return _in_place(outcome, model) if inplace else outcome


def _in_place(outcome: Outcome, model: nn.Module) -> Outcome:
    """The outcome in the user's own model; one that is ruined stays apart from it, and that is said."""
    if outcome.diverged is None:
        uncompiled(model).load_state_dict(outcome.model.state_dict())
        return replace(outcome, model=model)
    remark = (
        f"the run diverged ({outcome.diverged}), so the model that was given is left as it was, although inplace=True; "
        f"outcome.model is what became of a copy. Lower lr."
    )
    LOG.warning(remark)
    return replace(outcome, warnings=(*outcome.warnings, remark))


def _check_few_unseen(splits: Splits) -> None:
    """Raise if nothing is left to judge trials by."""
    unseen = len(splits.val) + round(SET_ASIDE * len(splits.heldout))
    if unseen < 2:
        raise RegunError(
            f"trials are scored on unseen examples, of which there are {unseen} (val, and half of heldout); at least 2 "
            f"are needed. Give more as heldout= or val=, or leave tune out."
        )


def audit(
    model: nn.Module,
    *,
    forget: Source,
    retain: Source | None = None,
    test: Source | None = None,
    heldout: Source | None = None,
    val: Source | None = None,
    before: nn.Module | None = None,
    retrain: nn.Module | None = None,
    references: Sequence[nn.Module] = (),
    outs: Sequence[nn.Module] = (),
    unseen: str | Sequence[str] | None = None,
    attacks: str | Attack | Scorer | Sequence[str | Attack | Scorer] | None = None,
    metrics: str | Metric | Measure | Sequence[str | Metric | Measure] = (),
    bootstrap: int = 1000,
    seed: int = 0,
    device: torch.device | str | None = None,
    logits: ReadLogits | None = None,
    num_classes: int | None = None,
    ids: Ids | None = None,
    check_content: bool | None = None,
) -> Evaluation:
    """How well `model` has forgotten `forget`, with intervals; `retrain` and `references` were trained without it.

    `before` is the model before unlearning: without it nobody knows what the tests could have seen, and nothing is
    called inside the noise floor. With it and models that never saw `forget` (the retrained ones or, in their place,
    `outs`: a few short trainings on `retain` will do), `influence` says how much is left, from one example on. `unseen`
    names the sets to judge by; leave out one that the method trained towards (ReGUn: heldout). Of `unseen`, `attacks`
    and `metrics`, one alone need not be in a list.

    At least one of `test`, `heldout` and `val` is needed as unseen data; unseen data that overlap the training data are
    refused, as in `unlearn`, and so are data that augment at random. Every example is fetched once for all models.
    Without retrained models the evaluation's `claims` say what cannot be told.

    >>> regun.audit(outcome.model, forget=(x_f, y_f), test=(x_t, y_t)).numbers["smia_auc"]  # doctest: +SKIP
    """
    check_wrong_kinds(locals())
    named = {"the model": model, "before": before, "retrain": retrain}
    single = [as_model(name, one) for name, one in named.items() if one is not None]
    references, outs = as_models("references", references), as_models("outs", outs)
    judged = several("unseen", unseen) if unseen is not None else None
    tried: Sequence[str | Attack | Scorer] | None = several("attacks", attacks) if attacks is not None else None
    measured: Sequence[str | Metric | Measure] = several("metrics", metrics)
    sources = {"retain": retain, "forget": forget, "test": test, "heldout": heldout, "val": val}
    case = given(model, sources, logits, device, num_classes, ids, check_content)
    check_augmented(case.sets)

    models = [taken(one, logits) for one in (*single, *references, *outs)]
    try:
        said = {name: predict_each(models, examples, device=case.device) for name, examples in case.sets.items()}
    except AuditError:
        names = [name for name, one in named.items() if one is not None]
        names += [f"references[{number}]" for number in range(len(references))]
        names += [f"outs[{number}]" for number in range(len(outs))]
        check_fewer_classes(dict(zip(names, models, strict=True)), case.sets["forget"])
        raise
    each = [{name: answers[number] for name, answers in said.items()} for number in range(len(models))]
    rest = len(single) + len(references)
    return evaluate(
        each[0],
        each[len(single) - 1] if retrain is not None else None,
        each[len(single) : rest],
        before=each[1] if before is not None else None,
        outs=each[rest:],
        unseen=judged,
        attacks=tried,
        metrics=measured,
        bootstrap=int(bootstrap),
        seed=int(seed),
    )


def relearn(
    model: nn.Module,
    *,
    forget: Source,
    retain: Source,
    test: Source | None = None,
    heldout: Source | None = None,
    val: Source | None = None,
    before: nn.Module | None = None,
    retrain: nn.Module | None = None,
    references: Sequence[nn.Module] = (),
    settings: Mapping[str, Any] | None = None,
    recipe: Recipe | Mapping[str, Any] | str | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    logits: ReadLogits | None = None,
    num_classes: int | None = None,
    ids: Ids | None = None,
    check_content: bool | None = None,
) -> Relearned:
    """Whether forgetting lasts: copies of all models train on `retain` alone, gently, and what comes back is measured.

    `retrain` and `references` were trained without `forget`; without them, unseen examples are the comparison. `before`
    is the model before unlearning: what does not tell that one from retrained ones shows nothing (`audit`). The
    steps are two passes over `retain` with SGD at 0.01, or at a tenth of the rate of `recipe`, how the model was
    trained; `settings` (`lr`, `epochs`, `batch_size`, `optimizer`, ...) change them.

    >>> regun.relearn(model, forget=forget, retain=retain, test=test).numbers["regained_auc"]  # doctest: +SKIP
    """
    check_wrong_kinds(locals())
    references = as_models("references", references)
    if references and retrain is None:
        raise RegunError("references were given without retrain; name one of them as retrain.")
    sources = {"forget": forget, "retain": retain, "test": test, "heldout": heldout, "val": val}
    case = given(model, sources, logits, device, num_classes, ids, check_content, needed=("forget", "retain"))
    sets = case.sets
    joined = Joined((sets["forget"], sets["retain"]))
    nothing: Indices = np.zeros(0, dtype=np.int64)
    splits = Splits(joined.indices(1), joined.indices(0), nothing, nothing, len(joined))
    others = [as_model("retrain", retrain)] if retrain is not None else []
    known = [as_model("before", before)] if before is not None else []
    updates = relearn_updates(as_recipe(recipe, said=("lr",)) if recipe is not None else None)
    found, _ = relearn_in_memory(
        [taken(one, logits) for one in (model, *others, *references, *known)],
        joined,
        splits,
        {name: (examples, np.arange(len(examples))) for name, examples in sets.items() if name in UNSEEN},
        updates=bind(Updates, settings or {}, "relearn", updates),
        seed=int(seed),
        device=case.device,
        before=bool(known),
    )
    return found
