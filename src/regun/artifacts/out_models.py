"""Out-of-sample models: trained from scratch on the retain set alone, so they never saw the forgotten examples.

Their predictions tell an audit how hard each forgotten example is for such a model. A quarter of the base's epochs is
enough for that (docs/metrics.md). The audit command and deletion requests both train them here.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from regun.artifacts import Artifact, Contents, SnapshotFolder, Store, state_digest, versions
from regun.artifacts.trainings import Training, build_like, load_model
from regun.auditing.predictions import FloatArray, Predictions
from regun.data.examples import Data, Examples
from regun.errors import NotFiniteError
from regun.hashing import code_digest, digest
from regun.methods._fresh_weights import fresh_model, reset
from regun.predict import predict
from regun.rng import derive
from regun.settings import to_json
from regun.splits import Splits
from regun.training.job import Callbacks, Cost, Job, private_copy
from regun.training.recipes import Recipe, shorten
from regun.training.scratch import train_from_scratch
from regun.types import Indices
from regun.unlearning import not_finite

SHARE = 0.25
"""Share of the base's epochs that an out-of-sample model is trained for."""


@dataclass(frozen=True, kw_only=True)
class OutModel:
    """Everything that decides one out-of-sample model.

    `model` gives the architecture. Fresh weights come from `rebuild(seed)` or, without it, from the model's layers.
    """

    model: nn.Module
    examples: Examples
    retain: Indices
    recipe: Recipe
    seed: int
    rebuild: Callable[[int], nn.Module] | None = None

    @classmethod
    def like(cls, base: Artifact, data: Data, splits: Splits, number: int) -> "OutModel":
        """Return the out-of-sample model `number` of a stored base: its recipe, shortened, on the retain set."""
        training = Training.of(base, data)
        return cls(
            model=load_model(base),
            examples=data.train,
            retain=splits.retain,
            recipe=shorten(training.recipe, SHARE),
            seed=derive(training.seed, "out", number),
            rebuild=lambda seed: build_like(base, seed),
        )

    def inputs(self, sets: Mapping[str, tuple[Examples, Indices]], device: torch.device) -> dict[str, Any]:
        fresh = self.rebuild(self.seed) if self.rebuild is not None else reset(self.model, self.seed)
        return {
            "model": f"{type(self.model).__module__}.{type(self.model).__qualname__}",
            "fresh": state_digest(fresh.state_dict()),
            "data": self.examples.digest,
            "inputs": self.examples.describe_inputs(),
            "trained_on": digest(self.retain),
            "recipe": to_json(self.recipe),
            "seed": self.seed,
            "sets": {name: [examples.digest, digest(rows)] for name, (examples, rows) in sets.items()},
            "device": str(device),
            "versions": versions(),
            "code": code_digest("regun.training.scratch", "regun.predict"),
        }


@dataclass(frozen=True)
class OutPredictions:
    """Predictions of one out-of-sample model by set, and its cost; `stopped` says why there are none."""

    key: str
    predictions: Mapping[str, Predictions]
    cost: Cost
    stopped: str


def out_model_predictions(
    out: OutModel,
    sets: Mapping[str, tuple[Examples, Indices]],
    store: Store,
    device: torch.device,
    *,
    watch: Callbacks | None = None,
) -> OutPredictions:
    """Return the predictions of an out-of-sample model on `sets` (examples and rows), from the store or trained now.

    The store keeps the log-probabilities of the true labels, not the weights.
    """
    watch = watch or Callbacks()

    def make(slot: SnapshotFolder) -> Contents:
        job = Job(
            model=private_copy(out.model, device),
            examples=out.examples,
            seed=out.seed,
            device=device,
            on_epoch=watch.on_epoch,
            on_progress=watch.on_progress,
            rebuild=out.rebuild,
        )
        started = time.perf_counter()
        job = replace(job, model=fresh_model(job, "init"))
        fitted = train_from_scratch(job, out.retain, out.recipe, checkpoint=slot)
        job.cost.seconds = time.perf_counter() - started
        job.model.eval()
        tensors: dict[str, torch.Tensor] = {}
        stopped = fitted.diverged or not_finite(job.model) or ""
        try:
            for name, (examples, rows) in sets.items() if not stopped else ():
                tensors[name] = torch.from_numpy(predict(job.model, examples, rows, device).true_log_prob.copy())
        except NotFiniteError as fault:
            stopped = str(fault)
        info = {"role": "out-of-sample", "examples": len(out.retain), "cost": vars(job.cost), "stopped": stopped}
        return Contents({"log_probs": tensors} if not stopped else {}, info)

    stored = store.make("out_model", out.inputs(sets, device), make)
    stopped, log_probs = stored.info["stopped"], {} if stored.info["stopped"] else stored.tensors("log_probs")
    classes = out.examples.num_classes
    predictions = {
        name: predictions_from_true_log_prob(log_probs[name].numpy(), examples.labels_at(rows), classes, rows)
        for name, (examples, rows) in sets.items()
        if name in log_probs
    }
    return OutPredictions(stored.key, predictions, Cost(**stored.info["cost"]), stopped)


def predictions_from_true_log_prob(
    log_prob: FloatArray, labels: Indices, classes: int, rows: Indices | None = None
) -> Predictions:
    """Return predictions with these log-probabilities of the labels; the other classes share the rest equally."""
    with np.errstate(divide="ignore"):
        rest = np.log(-np.expm1(log_prob)) - np.log(classes - 1)
    positions = np.arange(len(labels))
    log_probs = np.repeat(rest[:, None], classes, axis=1)
    log_probs[positions, labels] = log_prob
    return Predictions(log_probs, labels, positions if rows is None else rows)
