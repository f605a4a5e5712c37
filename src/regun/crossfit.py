"""Cross-fitting: short models trained without one fold each, and what they predict for the records they never saw.

    D = F_1 + ... + F_K        folds, stratified by label; all rows of a group or of equal content are in one fold
    f_k                        trained on D without F_k, for a share of the usual epochs
    q(x) = f_k(x), x in F_k    the out-of-fold prediction; unseen records are dealt to the K models at random

The models are not kept. Cost, once: K (1 - 1/K) share trainings per repeat; 0.75 of one training with K = 4 and a
quarter of the epochs. See METHODS in the documentation for why short models are the better references.
"""

import inspect
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from filelock import FileLock, Timeout
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from regun import files
from regun.arguments import InputOptions
from regun.data.examples import Examples, Indices
from regun.data.overlap import in_memory
from regun.data.plain import check_no_augmentation
from regun.data.sources import Source, as_examples, loaded_dataset
from regun.devices import as_device
from regun.errors import DataError, DivergedError, RegunError
from regun.folds import assign_folds, canonical_order, merge_groups
from regun.hashing import code_digest, digest
from regun.methods import as_teacher
from regun.models.adapters import wrap
from regun.models.forward import logits_of
from regun.parallel import Processes, alone, current, is_writer, joined
from regun.plugins import user_code
from regun.predict import predict
from regun.prepared import FORMAT, SETS, Keys, Prepared, keys_digest, record_keys
from regun.progress import ProgressLine
from regun.rng import derive, isolated
from regun.settings import to_json
from regun.training.job import Cost, Job, device_of, private_copy
from regun.training.recipes import Recipe, as_recipe, shorten
from regun.training.scratch import train_from_scratch

TrainFunction = Callable[[Dataset[Any], int], Any]
"""A user's training: a data set and a seed to a model, or to a function that returns logits or probabilities."""
Rows = dict[str, npt.NDArray[np.float32]]
"""Log-probabilities of one fold's records, by set."""
MANY = 2**20
"""No model has more classes."""


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
    probabilities, and decides its own length: a quarter of the usual epochs is good. Or pass train=None with `recipe`
    and `rebuild` (seed -> fresh model): regun's loop then trains for `share` of the recipe's epochs.

    `heldout`, `val` and `test` are sets the model never saw; audits with the table need at least one of them.
    `eval_data` holds the same records as `data` without random augmentation, where `data` augments. `groups` gives
    each record its user: all rows of one user are in one fold, and so are equal records. With `path` the table is
    written there, finished folds are kept in `path.parts` until then, and a killed run goes on with the others;
    processes that run the same call at once share the folds. A table that the same call has written is read instead.
    Under `torchrun` each process trains some of the folds; your `train` must not use the process group itself.

    With `workers`, so many processes train folds at once, with one thread each. What they need is sent to them, so
    `train` or `rebuild` must be a function of a module or script, not a lambda or an inner function, and a script needs
    `if __name__ == "__main__":` around the call.

    >>> prepared = regun.prepare(train, dataset, test=test_set, path="prepared.safetensors")  # doctest: +SKIP
    """
    options = inputs or InputOptions()
    run = _CrossFit(
        train=train,
        data=data,
        sets=_read_sets(data, eval_data, {"heldout": heldout, "val": val, "test": test}),
        recipe=_check_training(train, recipe, rebuild, share),
        rebuild=rebuild,
        folds=folds,
        repeats=repeats,
        seed=int(seed),
        options=options,
        line=ProgressLine("prepare") if progress and is_writer() else None,
    )
    for name, value, low in (
        ("folds", folds, 2),
        ("repeats", repeats, 1),
        ("top", top or 1, 1),
        ("workers", workers, 1),
    ):
        if value < low:
            raise RegunError(f"{name} is {value}; give {low} or more.")
    keyed = dict(ids) if isinstance(ids, Mapping) else ({"train": ids} if ids is not None else {})
    unknown_sets = sorted(set(keyed) - set(run.sets))
    if unknown_sets:
        raise RegunError(f"ids names {', '.join(unknown_sets)}; give ids of {', '.join(run.sets)}.")
    keys = {name: record_keys(examples, keyed.get(name)) for name, examples in run.sets.items()}
    units = _units(run.sets["train"], keys["train"], "train" in keyed, groups)
    keyed_by = {name: "ids" if name in keyed else "content" for name in run.sets}
    processes = current()
    if processes is not None and workers > 1:
        raise RegunError(f"workers is {workers} under torchrun, whose processes share the folds; leave workers out.")
    if path is None:
        with _processes(run, workers) as pool:
            return run.table(keys, units, None, keyed_by, top, pool)
    if processes is not None:
        processes.wait()  # all have checked their arguments, `path` among them
    parts = _Parts(Path(path), run.call_digest(keys, units, top))
    with alone(), _processes(run, workers) as pool:  # folds are shared through files
        try:
            table = run.table(keys, units, parts, keyed_by, top, pool)
        except _FinishedError as fault:
            return fault.table
        table = replace(table, about={**table.about, "call": parts.call})
        table.save(path)
        parts.remove()
        return table


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


def _units(examples: Examples, keys: Keys, by_id: bool, groups: Sequence[Any] | None) -> npt.NDArray[np.int64]:
    """Return the group of every record: rows of one user, and copies, which ids alone would not show."""
    copies = record_keys(examples) if by_id and in_memory(examples) else keys
    labelings = [copies] if groups is None else [copies, np.asarray(groups)]
    return merge_groups(len(examples), *labelings)


@dataclass
class _CrossFit:
    """All trainings of one table."""

    train: TrainFunction | None
    data: Source
    sets: dict[str, Examples]
    recipe: Recipe | None
    rebuild: Callable[[int], nn.Module] | None
    folds: int
    repeats: int
    seed: int
    options: InputOptions
    line: ProgressLine | None

    def call_digest(self, keys: Mapping[str, Keys], units: npt.NDArray[np.int64], top: int | None) -> str:
        """Return the digest of all that decides the table."""
        sets = [[digest(keys[name]), digest(np.asarray(self.sets[name].labels, dtype=np.int64))] for name in keys]
        return digest([self._about(), sets, digest(units), top])

    def table(
        self,
        keys: Mapping[str, Keys],
        units: npt.NDArray[np.int64],
        parts: "_Parts | None",
        keyed_by: Mapping[str, str],
        top: int | None,
        pool: Executor | None,
    ) -> Prepared:
        labels = {name: np.asarray(examples.labels, dtype=np.int64) for name, examples in self.sets.items()}
        folds, trained_on, values = list[Any](), list[list[str]](), list[Any]()
        cost = Cost()
        for repeat in range(self.repeats):
            seed = derive(self.seed, "crossfit", repeat)
            place = {"train": assign_folds(keys["train"], labels["train"], self.folds, seed, units)}
            for name in keys:
                if name != "train":
                    place[name] = assign_folds(keys[name], labels[name], self.folds, derive(seed, name))
            done = self._all_folds(keys, place, seed, str(repeat), parts, cost, pool)
            rows = {name: np.empty((len(place[name]), done[0][0][name].shape[1]), dtype=np.float32) for name in keys}
            for fold, (predicted, _) in enumerate(done):
                for name in keys:
                    rows[name][place[name] == fold] = predicted[name]
            folds.append(np.concatenate([place[name] for name in keys]))
            values.append(np.concatenate([rows[name] for name in keys]))
            trained_on.append([trained for _, trained in done])
        log_probs, classes = _largest(np.stack(values), np.concatenate([labels[n] for n in keys]), top)
        about = {
            **self._about(),
            "format": FORMAT,
            "version": 1,
            "erased": 0,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "num_classes": int(values[0].shape[1]),
            "keyed_by": dict(keyed_by),
            "top": top,
            "trained_on": trained_on,
            "cost": vars(cost),
        }
        return Prepared(
            log_probs=log_probs,
            classes=classes,
            folds=np.stack(folds).astype(np.int32),
            keys=np.concatenate([keys[name] for name in keys]),
            labels=np.concatenate([labels[name] for name in keys]),
            sets=np.concatenate([np.full(len(keys[n]), SETS.index(n), dtype=np.uint8) for n in keys]),
            about=about,
        )

    def _about(self) -> dict[str, Any]:
        """Return what decides the table, as the file states it."""
        by = "recipe" if self.train is None else f"{getattr(self.train, '__qualname__', type(self.train).__name__)}"
        return {
            "folds": self.folds,
            "repeats": self.repeats,
            "seed": self.seed,
            "trained_by": by,
            "recipe": to_json(self.recipe) if self.recipe is not None else None,
            "code": function_digest(self.train or self.rebuild, by),
            "regun_code": code_digest("regun.training.scratch", "regun.folds"),
        }

    def _all_folds(
        self,
        keys: Mapping[str, Keys],
        place: Mapping[str, npt.NDArray[np.int32]],
        seed: int,
        name: str,
        parts: "_Parts | None",
        cost: Cost,
        pool: Executor | None,
    ) -> list[tuple[Rows, str]]:
        """Return what every fold gave; folds that another process works on are left to it, then waited for."""
        processes = current()
        if processes is not None:
            return self._shared_folds(keys, place, seed, processes, cost)
        found: dict[int, tuple[Rows, str]] = {}
        futures: dict[int, Future[tuple[Rows, Cost]]] = {}
        if pool is not None:
            left = (k for k in range(self.folds) if parts is None or not parts.path(f"{name}-{k}").exists())
            futures = {k: pool.submit(_make_fold, *self._fold_arguments(keys, place, seed, k)) for k in left}
        for wait in (False, True):
            for fold in (fold for fold in range(self.folds) if fold not in found):
                ahead = futures.get(fold)
                done = self._fold(keys, place, seed, fold, f"{name}-{fold}", parts, cost, ahead, wait=wait)
                if done is not None:
                    found[fold] = done
        return [found[fold] for fold in range(self.folds)]

    def _shared_folds(
        self,
        keys: Mapping[str, Keys],
        place: Mapping[str, npt.NDArray[np.int32]],
        seed: int,
        processes: Processes,
        cost: Cost,
    ) -> list[tuple[Rows, str]]:
        """Return what every fold gave, of which each process trains some, one after the other and alone."""

        def own() -> Iterator[dict[str, torch.Tensor]]:
            for fold in range(processes.rank, self.folds, processes.world):
                spent = Cost()
                with alone():
                    done = self._fold(keys, place, seed, fold, "", None, spent, wait=True)
                assert done is not None
                tensors = {f"rows {key}": torch.from_numpy(rows) for key, rows in done[0].items()}
                numbers = [spent.steps, spent.forward, spent.backward, spent.seconds]
                yield {**tensors, "cost": torch.tensor(numbers, dtype=torch.float64), "trained": _as_tensor(done[1])}

        results: list[tuple[Rows, str]] = []
        for tensors in processes.in_turn(own(), self.folds):
            steps, forward, backward, seconds = cast("list[float]", tensors["cost"].tolist())
            cost.add(steps=int(steps), forward=int(forward), backward=int(backward), seconds=seconds)
            rows = {key: tensors[f"rows {key}"].numpy() for key in keys}
            results.append((rows, tensors["trained"].numpy().tobytes().decode()))
        return results

    def _fold(
        self,
        keys: Mapping[str, Keys],
        place: Mapping[str, npt.NDArray[np.int32]],
        seed: int,
        fold: int,
        name: str,
        parts: "_Parts | None",
        cost: Cost,
        ahead: "Future[tuple[Rows, Cost]] | None" = None,
        *,
        wait: bool,
    ) -> tuple[Rows, str] | None:
        """Return the log-probabilities of this fold's records by set, and the digest of what its model trained on.

        None if another process is at it and this one does not `wait`.
        """
        arguments = self._fold_arguments(keys, place, seed, fold)
        rows = arguments[1]

        def make() -> Rows:
            if self.line is not None:
                self.line.show(f"fold {fold + 1} of {self.folds}: training on {len(rows):,} records", last=True)
            made, spent = ahead.result() if ahead is not None else _make_fold(*arguments)
            cost.add(steps=spent.steps, forward=spent.forward, backward=spent.backward, seconds=spent.seconds)
            return made

        made = make() if parts is None else parts.made(name, make, wait=wait)
        return None if made is None else (made, keys_digest(keys["train"][rows]))

    def _fold_arguments(
        self, keys: Mapping[str, Keys], place: Mapping[str, npt.NDArray[np.int32]], seed: int, fold: int
    ) -> tuple["_CrossFit", Indices, dict[str, Indices], int]:
        """Return the arguments of `_make_fold`: the records of a fold's training, and by set those to predict."""
        order = canonical_order(keys["train"], seed)
        rows = order[place["train"][order] != fold]  # in an order of their own: where records stand decides nothing
        wanted = {key: np.flatnonzero(place[key] == fold) for key in keys}
        return replace(self, line=None), rows, wanted, derive(seed, "fold", fold)

    def predictions(self, rows: Indices, wanted: Mapping[str, Indices], seed: int, cost: Cost) -> Rows:
        """Train a model on `rows`, and return its log-probabilities of the `wanted` records."""
        started = time.perf_counter()
        model = self._model(rows, seed, cost)
        cost.seconds += time.perf_counter() - started
        device = self.options.device
        return {
            key: predict(model, self.sets[key], some, device=device, whole=True).log_probs.astype(np.float32)
            for key, some in wanted.items()
        }

    def _model(self, rows: Indices, seed: int, cost: Cost) -> nn.Module:
        if self.train is not None:
            with user_code("train"), isolated(seed):
                model = self.train(subset_of(self.data, rows), seed)
            return self._adapted(model)
        assert self.rebuild is not None
        assert self.recipe is not None
        with user_code("rebuild"), isolated(seed):
            fresh = self.rebuild(seed)
        fresh = wrap(fresh, self.options.logits) if self.options.logits is not None else fresh
        device = as_device(self.options.device) if self.options.device else device_of(fresh)
        job = Job(
            model=private_copy(fresh, device), examples=as_examples(self.data, MANY, "data"), seed=seed, device=device
        )
        fitted = train_from_scratch(job, rows, self.recipe)
        if fitted.diverged:
            raise DivergedError(f"the training of a fold stopped: {fitted.diverged}. Lower the recipe's lr.")
        cost.add(steps=job.cost.steps, forward=job.cost.forward, backward=job.cost.backward)
        return self._adapted(job.model)

    def _adapted(self, model: Any) -> nn.Module:
        """Return what a training returned as a module whose outputs are logits or log-probabilities."""
        if isinstance(model, nn.Module) and self.options.logits is not None and self.train is not None:
            model = wrap(model, self.options.logits)
        classes = self.options.num_classes
        if classes is None:
            first = self.sets["train"].fetch(np.arange(min(2, len(self.sets["train"])))).x
            with user_code("the model that train returned"), torch.no_grad():
                answers = logits_of(model.eval(), first) if isinstance(model, nn.Module) else model(first)
            classes = int(torch.as_tensor(answers).shape[-1])
        adapted = as_teacher(model, classes)
        return adapted.eval()


def _make_fold(run: _CrossFit, rows: Indices, wanted: dict[str, Indices], seed: int) -> tuple[Rows, Cost]:
    """Return the predictions of one fold and their cost, in this process or in a worker."""
    cost = Cost()
    return run.predictions(rows, wanted, seed, cost), cost


@contextmanager
def _processes(run: _CrossFit, workers: int) -> Generator[Executor | None]:
    """Yield a pool of worker processes with one thread each; None for one worker."""
    if workers == 1:
        yield None
        return
    for name, part in (("train", run.train), ("rebuild", run.rebuild), ("data", run.data), ("inputs", run.options)):
        try:
            ForkingPickler.dumps(part)
        except Exception as fault:  # whatever an object's own code raises
            raise RegunError(
                f"{name} cannot be sent to worker processes ({type(fault).__name__}: {fault}). Define functions and "
                "classes at the top level of a module, or use workers=1."
            ) from None
    pool = ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,))
    try:
        yield pool
    except BrokenExecutor:
        raise RegunError(
            'a worker process stopped. In a script, put the call under if __name__ == "__main__":; or there was too '
            "little memory: use fewer workers."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _as_tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def function_digest(function: Any, name: str) -> str:
    """Return the digest of a function's source, or of its name where there is none: typed at a prompt, an object."""
    try:
        return digest(inspect.getsource(function))
    except (OSError, TypeError):
        return digest(name)


def subset_of(source: Source, rows: Indices) -> Dataset[Any]:
    """Return these records of what the user passed, as a torch data set."""
    dataset: Any = loaded_dataset(cast("DataLoader[Any]", source)) if isinstance(source, DataLoader) else source
    if isinstance(dataset, tuple | list):
        x, y = cast("tuple[Any, Any]", dataset)
        places = torch.from_numpy(rows)
        labels = torch.as_tensor(y)[places]
        if isinstance(x, Mapping):
            raise DataError("data is a mapping of tensors; give a torch Dataset, whose items train= can read.")
        inputs = cast("Sequence[Any]", x if isinstance(x, tuple | list) else [x])
        return TensorDataset(*(torch.as_tensor(part)[places] for part in inputs), labels)
    return Subset(dataset, rows.tolist())


def _largest(
    log_probs: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], top: int | None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32] | None]:
    """Return the label's and the `top` largest other log-probabilities with their classes; or all of them."""
    if top is None or top + 1 >= log_probs.shape[2]:
        return log_probs, None
    masked = log_probs.copy()
    at_label = np.broadcast_to(labels[None, :, None], (*log_probs.shape[:2], 1))
    np.put_along_axis(masked, at_label, np.inf, axis=2)  # the label comes first
    classes = np.argpartition(-masked, top, axis=2)[:, :, : top + 1]
    return np.take_along_axis(log_probs, classes, axis=2), classes.astype(np.int32)


class _FinishedError(Exception):
    """Another process has written the table of the same call."""

    def __init__(self, table: Prepared) -> None:
        super().__init__()
        self.table = table


class _Parts:
    """Finished folds as files next to the table, each made once, also by several processes at a time."""

    def __init__(self, table: Path, call: str) -> None:
        self.table, self.call = table, call
        self.folder = Path(f"{table}.parts")

    def path(self, name: str) -> Path:
        """Return the file of a finished fold."""
        return self.folder / f"{self.call[:24]}-{name}.safetensors"

    def made(self, name: str, make: Callable[[], Rows], *, wait: bool) -> Rows | None:
        """Return the rows of a fold; None if another process makes it and this one does not `wait`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(name)
        try:
            with FileLock(path.with_suffix(".lock"), timeout=-1 if wait else 0):
                if not path.exists():
                    self._stop_if_finished()
                    tensors = {key: torch.from_numpy(value) for key, value in make().items()}
                    files.write_file(path, safetensors.torch.save(tensors))
                content = path.read_bytes()
                return {key: tensor.numpy() for key, tensor in safetensors.torch.load(content).items()}
        except Timeout:
            return None
        except FileNotFoundError:  # the process that finished first removes all of them
            self._stop_if_finished()
            raise

    def _stop_if_finished(self) -> None:
        if not self.table.exists():
            return
        try:
            table = Prepared.load(self.table)
        except DataError:  # another file, which the finished table replaces
            return
        if table.about.get("call") == self.call and table.about["version"] == 1:
            self.remove()
            raise _FinishedError(table)

    def remove(self) -> None:
        """Remove the files of finished folds, and the folder if nothing else is in it."""
        for path in [*self.folder.glob("*-*-*.safetensors"), *self.folder.glob("*-*-*.lock")]:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # it holds other files, or another process uses it
            self.folder.rmdir()
