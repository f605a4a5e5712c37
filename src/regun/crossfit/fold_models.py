"""The model of one fold: trained by the user's function or by regun's loop; its predictions are returned, not it."""

import inspect
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from regun.arguments import InputOptions
from regun.crossfit.fold_files import Rows
from regun.data.examples import Examples, Indices
from regun.data.sources import Source, as_examples, loaded_dataset
from regun.devices import as_device
from regun.errors import DataError, DivergedError, RegunError
from regun.hashing import digest
from regun.methods import as_teacher
from regun.models.adapters import wrap
from regun.models.forward import logits_of
from regun.plugins import user_code
from regun.predict import predict
from regun.rng import isolated
from regun.training.job import Cost, Job, device_of, private_copy
from regun.training.recipes import Recipe
from regun.training.scratch import train_from_scratch

TrainFunction = Callable[[Dataset[Any], int], Any]
"""A user's training: a data set and a seed to a model, or to a function that returns logits or probabilities."""
MANY = 2**20
"""No model has more classes."""


@dataclass(frozen=True, eq=False)
class Fold:
    """One fold of one repeat: the records its model trains on, those it predicts by set, and its seed."""

    repeat: int
    number: int
    rows: Indices
    wanted: dict[str, Indices]
    seed: int

    @property
    def name(self) -> str:
        return f"{self.repeat}-{self.number}"


@dataclass(frozen=True)
class FoldTraining:
    """How the model of a fold is trained, by `train` or by `recipe` and `rebuild`, and the sets that it predicts."""

    train: TrainFunction | None
    data: Source
    sets: Mapping[str, Examples]
    recipe: Recipe | None
    rebuild: Callable[[int], nn.Module] | None
    options: InputOptions

    @property
    def trained_by(self) -> str:
        """The name of the user's function, or `recipe`."""
        return "recipe" if self.train is None else f"{getattr(self.train, '__qualname__', type(self.train).__name__)}"

    def predictions(self, fold: Fold) -> tuple[Rows, Cost]:
        """Train the model of a fold; return its log-probabilities of the `wanted` records, and the training's cost."""
        cost, started = Cost(), time.perf_counter()
        if self.train is not None:
            with user_code("train"), isolated(fold.seed):
                trained = self.train(subset_of(self.data, fold.rows), fold.seed)
            if isinstance(trained, nn.Module) and self.options.logits is not None:
                trained = wrap(trained, self.options.logits)
        else:
            trained = self._train_by_recipe(fold, cost)
        model = self._with_logits(trained)
        cost.seconds += time.perf_counter() - started
        device = self.options.device
        return {
            name: predict(model, self.sets[name], places, device=device, whole=True).log_probs.astype(np.float32)
            for name, places in fold.wanted.items()
        }, cost

    def _train_by_recipe(self, fold: Fold, cost: Cost) -> nn.Module:
        assert self.rebuild is not None
        assert self.recipe is not None
        with user_code("rebuild"), isolated(fold.seed):
            fresh = self.rebuild(fold.seed)
        fresh = wrap(fresh, self.options.logits) if self.options.logits is not None else fresh
        device = as_device(self.options.device) if self.options.device else device_of(fresh)
        examples = as_examples(self.data, MANY, "data")
        job = Job(model=private_copy(fresh, device), examples=examples, seed=fold.seed, device=device)
        fitted = train_from_scratch(job, fold.rows, self.recipe)
        if fitted.diverged:
            raise DivergedError(f"the training of a fold stopped: {fitted.diverged}. Lower the recipe's lr.")
        cost.add(steps=job.cost.steps, forward=job.cost.forward, backward=job.cost.backward)
        return job.model

    def _with_logits(self, model: Any) -> nn.Module:
        """Return what a training returned as a module whose outputs are logits or log-probabilities."""
        classes = self.options.num_classes
        if classes is None:
            first = self.sets["train"].fetch(np.arange(min(2, len(self.sets["train"])))).x
            with user_code("the model that train returned"), torch.no_grad():
                outputs = logits_of(model.eval(), first) if isinstance(model, nn.Module) else model(first)
            classes = int(torch.as_tensor(outputs).shape[-1])
        return as_teacher(model, classes).eval()


@contextmanager
def worker_processes(training: FoldTraining, workers: int) -> Generator[Executor | None]:
    """Yield a pool of processes with one thread each, to which the training can be sent; None for one worker."""
    if workers == 1:
        yield None
        return
    sent = {"train": training.train, "rebuild": training.rebuild, "data": training.data, "inputs": training.options}
    for name, part in sent.items():
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
