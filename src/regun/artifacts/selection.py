"""Requests that models answer: the hardest or easiest examples, those like one, clusters of them.

    hard:0.1, easy:0.1     by the loss that models have on an example early in training
    like:17,50             the 50 training examples nearest to example 17 in the base's features
    cluster:1/8            the largest of 8 clusters of the training examples' features
    subclass:3/2/4         the second largest of 4 clusters within class 3

Such a request is resolved once, kept in the store as ids, and from then on is a request of those ids: every key that
depends on it holds them. The models that answer follow from data, split and recipe alone, not from what else a store
happens to hold, so that any two stores agree.

What early training does not fit is what a model must learn by heart: it treats such an example differently with and
without having seen it. Models trained without parts of the data would show that directly, at many times the cost, and
no better (docs/studies.md).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from regun.artifacts import Artifact, Made, Slot, Store
from regun.artifacts.audits import cached_predictions
from regun.artifacts.ranking import FloatArray, Selection, by_features, by_hardness, hardness
from regun.artifacts.trainings import Training, answers_by, load_model, train_model
from regun.data.examples import Data
from regun.errors import SplitError
from regun.hashing import code_digest, digest
from regun.splits import Request, Reserve
from regun.training.forward import eval_features
from regun.training.job import Callbacks
from regun.training.recipes import Recipe

KINDS = ("hard", "easy", "like", "cluster", "subclass")
EARLY, EARLY_SHARE, EARLY_EPOCHS = 4, 1 / 8, 3
"""Models that say how hard an example is, how long they train as a share of the recipe's epochs, and at least."""
FIRST_EARLY = 2001
"""Training seed of the first of them; references and a study's own seeds stay below."""
_FORMS = {
    "hard": re.compile(r"(?P<fraction>[0-9.eE-]+)"),
    "easy": re.compile(r"(?P<fraction>[0-9.eE-]+)"),
    "like": re.compile(r"(?P<example>[0-9]{1,18}),(?P<count>[0-9]{1,18})"),
    "cluster": re.compile(r"(?P<part>[0-9]{1,9})/(?P<parts>[0-9]{1,9})"),
    "subclass": re.compile(r"(?P<label>[0-9]{1,9})/(?P<part>[0-9]{1,9})/(?P<parts>[0-9]{1,9})"),
}


def read_selection(text: str) -> Selection:
    """`hard:0.1`, `like:17,50`, ..., with all that can be checked before models and data are there."""
    kind, _, rest = text.partition(":")
    found = _FORMS[kind].fullmatch(rest)
    try:
        values = {
            name: float(v) if name == "fraction" else int(v) for name, v in (found or _none()).groupdict().items()
        }
    except ValueError:
        raise SplitError(
            f"cannot read {text[:80]!r} as a request; write hard:0.1, easy:0.1, like:17,50 (50 examples like number "
            f"17), cluster:1/8 (the largest of 8) or subclass:3/2/4 (of class 3 the second largest of 4)."
        ) from None
    selection = Selection(kind, **values)  # pyright: ignore[reportArgumentType]
    if selection.by_early and not 0 < selection.fraction < 1:
        raise SplitError(f"{text!r} asks for a fraction of {selection.fraction}; give a number between 0 and 1.")
    if kind == "like" and not selection.count:
        raise SplitError(f"{text!r} asks for no examples; ask for at least 1.")
    if kind in ("cluster", "subclass") and not 1 <= selection.part <= selection.parts:
        raise SplitError(f"{text!r} asks for cluster {selection.part} of {selection.parts}; they are numbered from 1.")
    return selection


def _none() -> "re.Match[str]":
    raise ValueError


def early_trainings(base: Training) -> list[Training]:
    """Short trainings like the base's, on the same examples, from seeds of their own."""
    recipe = early(base.recipe)
    return [replace(base, recipe=recipe, seed=FIRST_EARLY + number) for number in range(EARLY)]


def early(recipe: Recipe) -> Recipe:
    """The recipe cut to an eighth of its epochs, warm-up and milestones in scale."""
    epochs = min(recipe.epochs, max(EARLY_EPOCHS, round(EARLY_SHARE * recipe.epochs)))
    scale = epochs / max(1, recipe.epochs)
    warm = min(max(0, epochs - 1), round(scale * recipe.warmup_epochs))
    milestones = tuple(round(scale * m) for m in recipe.milestones)
    return replace(recipe, epochs=epochs, warmup_epochs=warm, milestones=milestones)


def selection_inputs(selection: Selection, models: Sequence[Artifact], data: Data, reserved: Reserve) -> dict[str, Any]:
    """What decides the ids: their content key."""
    return {
        "request": vars(selection),
        "models": [answers_by(model) for model in models],
        "data": data.train.digest,
        "inputs": {k: v for k, v in data.train.describe_inputs().items() if k != "train"},
        "pool": digest(reserved.pool),
        "val": len(reserved.val),
        "code": code_digest("regun.artifacts.ranking"),
    }


def select(
    selection: Selection, models: Sequence[Artifact], data: Data, reserved: Reserve, store: Store, device: torch.device
) -> Request:
    """The ids that the models' answers name, from the store or found now."""

    def make(_: Slot) -> Made:
        if selection.by_early:
            said = [cached_predictions(model, data.train, reserved.base, store, device) for model in models]
            ids = by_hardness(selection, hardness([one.true_log_prob for one in said]), reserved)
        else:
            ids = by_features(selection, _features(models[0], data, device), data.train.labels, reserved)
        about = {"data_name": data.name, "model": models[0].key, "examples": len(ids)}
        return Made({"ids": {"ids": torch.from_numpy(np.sort(ids))}}, about)

    return ids_in(store.make("selection", selection_inputs(selection, models, data, reserved), make))


def ids_in(artifact: Artifact) -> Request:
    """The request that a selection became."""
    return Request.of_ids(artifact.tensors("ids")["ids"].numpy())


def resolve(
    asked: Request | Selection,
    base: Training | Artifact,
    data: Data,
    reserved: Reserve,
    store: Store,
    device: torch.device,
    *,
    about: Mapping[str, Any],
    watch: Callbacks | None = None,
) -> Request:
    """A request as ids, wherever models must answer it; those that are not in the store are trained first.

    `about` is what their manifests remember.

    `base` is how the base model is trained, from the seed of the split; or one that was trained elsewhere, which can
    give features, but has no recipe to train others by.
    """
    if isinstance(asked, Request):
        return asked
    if isinstance(base, Artifact):
        if asked.by_early:
            raise SplitError(
                f"{asked.kind}: is answered by models trained like the base for a short while, and the base was not "
                f"trained by regun; name the examples with ids:FILE."
            )
        return select(asked, [base], data, reserved, store, device)
    trainings = early_trainings(base) if asked.by_early else [base]
    role = "early" if asked.by_early else "base"
    models = [
        train_model(one, store, device, about={**about, "role": role, "without": None}, watch=watch)
        for one in trainings
    ]
    return select(asked, models, data, reserved, store, device)


def _features(model: Artifact, data: Data, device: torch.device) -> FloatArray:
    found = eval_features(load_model(model, device), data.train, np.arange(len(data.train)), device)
    return found.double().numpy()
