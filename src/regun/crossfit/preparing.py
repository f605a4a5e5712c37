"""`regun.prepare`: the table of out-of-fold predictions, made from the folds' models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from regun.arguments import InputOptions
from regun.crossfit.fold_files import FoldFiles, TableFinishedError
from regun.crossfit.fold_models import MANY, FoldTraining, TrainFunction, worker_processes
from regun.crossfit.table import CrossFit, Records
from regun.data.examples import Examples
from regun.data.overlap import in_memory
from regun.data.plain import check_no_augmentation
from regun.data.sources import Source, as_examples
from regun.errors import DataError, RegunError
from regun.folds import merge_groups
from regun.parallel import alone, current, is_writer, joined
from regun.prepared import Prepared, record_keys
from regun.progress import ProgressLine
from regun.training.recipes import Recipe, as_recipe, shorten


@joined()
def prepare(
    train: TrainFunction | None,
    data: Source,
    *,
    eval_data: Source | None = None,
    heldout: Source | None = None,
    val: Source | None = None,
    test: Source | None = None,
    recipe: Recipe | Mapping[str, Any] | str | None = None,
    rebuild: Callable[[int], nn.Module] | None = None,
    folds: int = 4,
    repeats: int = 1,
    share: float = 0.25,
    top: int | None = None,
    ids: Mapping[str, Sequence[Any]] | Sequence[Any] | None = None,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    path: str | Path | None = None,
    inputs: InputOptions | None = None,
    workers: int = 1,
    progress: bool = False,
) -> Prepared:
    """Return out-of-fold predictions of every training record: what models that never saw it predict.

    `train(dataset, seed)` is your own training. It returns a module, or a function from a batch to logits or
    probabilities, and decides its own length: a quarter of the usual epochs is cheap; with all of them, forgetting
    often lasts longer and more audits pass. Or pass train=None with `recipe` and `rebuild` (seed -> fresh model): the
    loop of regun then trains for `share` of the recipe's epochs.

    `heldout`, `val` and `test` are sets the model never saw; audits with the table need at least one of them.
    `eval_data` holds the same records as `data` without random augmentation, where `data` augments. `groups` gives
    each record its user: all rows of one user are in one fold, and so are equal records. With `path` the table is
    written there, finished folds are kept in `path.parts` until then, and a killed run continues with the others;
    processes that run the same call at once share the folds. A table that the same call has written is read instead.
    Under `torchrun` each process trains some of the folds; your `train` must not use the process group itself.

    With `workers`, this many processes train folds at once, with one thread each. What they need is sent to them, so
    `train` or `rebuild` must be a function of a module or script, not a lambda or an inner function, and a script needs
    `if __name__ == "__main__":` around the call.

    >>> prepared = regun.prepare(train, dataset, test=test_set, path="prepared.safetensors")  # doctest: +SKIP
    """
    training = FoldTraining(
        train=train,
        data=data,
        sets=_read_sets(data, eval_data, {"heldout": heldout, "val": val, "test": test}),
        recipe=_check_training(train, recipe, rebuild, share),
        rebuild=rebuild,
        options=inputs or InputOptions(),
    )
    _check_counts(folds=folds, repeats=repeats, top=top, workers=workers)
    records = _read_records(training.sets, ids, groups)
    line = ProgressLine("prepare") if progress and is_writer() else None
    run = CrossFit(training, records, folds=folds, repeats=repeats, seed=int(seed), top=top, line=line)
    if path is not None:
        return _in_file(run, workers, Path(path))
    with worker_processes(training, workers) as pool:
        return run.table(pool=pool)


def _in_file(run: CrossFit, workers: int, path: Path) -> Prepared:
    """Return the table and write it to `path`; processes share the folds through files."""
    processes = current()
    if processes is not None:
        processes.barrier()  # all have checked their arguments, `path` among them
    files = FoldFiles(path, run.call_digest())
    with alone(), worker_processes(run.training, workers) as pool:
        try:
            table = run.table(pool=pool, files=files)
        except TableFinishedError as fault:
            return fault.table
        table = replace(table, about={**table.about, "call": files.call})
        table.save(path)
        files.remove()
        return table


def _check_counts(*, folds: int, repeats: int, top: int | None, workers: int) -> None:
    limits = {"folds": (folds, 2), "repeats": (repeats, 1), "top": (top or 1, 1), "workers": (workers, 1)}
    for name, (value, low) in limits.items():
        if value < low:
            raise RegunError(f"{name} is {value}; give {low} or more.")
    if current() is not None and workers > 1:
        raise RegunError(f"workers is {workers} under torchrun, whose processes share the folds; leave workers out.")


def _check_training(
    train: TrainFunction | None,
    recipe: Recipe | Mapping[str, Any] | str | None,
    rebuild: Callable[[int], nn.Module] | None,
    share: float,
) -> Recipe | None:
    """Return the shortened recipe of regun's loop, or None for a user's own training."""
    if train is not None:
        if not callable(train):
            raise RegunError(f"train is a {type(train).__name__}; give a function (dataset, seed) -> model.")
        if recipe is not None or rebuild is not None:
            raise RegunError("train decides how models are trained; leave recipe and rebuild out, or give train=None.")
        return None
    if recipe is None or rebuild is None:
        raise RegunError("train is None; then give recipe= (how the model was trained) and rebuild= (seed -> model).")
    if not 0 < share <= 1:
        raise RegunError(f"share is {share}; give a number above 0 and at most 1.")
    return shorten(as_recipe(recipe), share)


def _read_sets(data: Source, eval_data: Source | None, unseen: Mapping[str, Source | None]) -> dict[str, Examples]:
    """Return the sets that the models predict, without augmentation."""
    plain = as_examples(data if eval_data is None else eval_data, MANY, "data" if eval_data is None else "eval_data")
    counted = as_examples(data, MANY, "data")
    if len(plain) != len(counted):
        raise DataError(f"eval_data has {len(plain):,} records and data {len(counted):,}; give the same records.")
    check_no_augmentation({"data" if eval_data is None else "eval_data": plain}, "Give eval_data=, the same records")
    others = {name: as_examples(source, MANY, name) for name, source in unseen.items() if source is not None}
    check_no_augmentation(others)
    return {"train": plain, **others}


def _read_records(
    sets: Mapping[str, Examples],
    ids: Mapping[str, Sequence[Any]] | Sequence[Any] | None,
    groups: Sequence[Any] | None,
) -> Records:
    """Return keys, labels and groups of all records; equal records share a group, also where ids differ."""
    by_id = dict(ids) if isinstance(ids, Mapping) else ({"train": ids} if ids is not None else {})
    unknown_sets = sorted(set(by_id) - set(sets))
    if unknown_sets:
        raise RegunError(f"ids names {', '.join(unknown_sets)}; give ids of {', '.join(sets)}.")
    keys = {name: record_keys(examples, by_id.get(name)) for name, examples in sets.items()}
    train = sets["train"]
    copies = record_keys(train) if "train" in by_id and in_memory(train) else keys["train"]
    labelings = [copies] if groups is None else [copies, np.asarray(groups)]
    return Records(
        keys=keys,
        labels={name: np.asarray(examples.labels, dtype=np.int64) for name, examples in sets.items()},
        groups=merge_groups(len(train), *labelings),
        keyed_by={name: "ids" if name in by_id else "content" for name in sets},
    )
