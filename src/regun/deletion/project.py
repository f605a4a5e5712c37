"""A user's project: a model, its data with ids, and how to unlearn; and a model of the store as a project."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from regun.arguments import (
    NONE,
    NUM_CLASSES,
    REBUILD,
    RECIPE,
    TEXT,
    ArgumentType,
    as_model,
    as_models,
    check_arguments,
)
from regun.artifacts import Artifact, Store, state_digest
from regun.artifacts.trainings import build_like, find_retrained, load_model
from regun.auditing import UNSEEN
from regun.data.examples import Data, Examples
from regun.data.overlap import check_overlap, id_texts
from regun.data.plain import AugmentedExamples, check_no_augmentation
from regun.data.sources import Source, as_examples
from regun.data.views import Selected
from regun.devices import as_device
from regun.errors import DataError, RegunError, SettingsError, StoreError
from regun.inputs import as_compatible_model, count_classes
from regun.methods._fresh_weights import reset
from regun.plugins import find_function, user_code
from regun.prepared import Prepared
from regun.splits import Reserve
from regun.training.job import device_of
from regun.training.recipes import Recipe, as_recipe, assumed_recipe, shorten

MAX_OUT_MODELS = 1000
USER_CODE = "code of the project (its model, its data or its method)"
A = TypeVar("A")
B = TypeVar("B")
IDS: ArgumentType = ((Iterable,), "a list with one id for each example")
KINDS: dict[str, ArgumentType] = {
    "ids": ((*IDS[0], NONE), IDS[1]),
    "unseen_ids": ((Mapping,), "a mapping from names of sets to ids: {'test': [...]}"),
    "method": ((str,), "text as on the command line: 'regun,lr=0.02', 'file.py:function'"),
    "family": ((str, NONE), "text: resnet or swin"),
    "accept": ((str, NONE), "text: 'forgotten, val_drop<3'"),
    "rebuild": REBUILD,
    "retrain": RECIPE,
    "retrained": ((Callable, NONE), "a function of a set of ids that returns a list of models"),
    "out_models": ((Integral,), "a whole number"),
    "out_share": ((Real,), "a number above 0 and up to 1"),
    "prepared": ((Prepared, str, Path, NONE), "regun.Prepared.load(path), or the path of its file"),
    "train_function": ((Callable, NONE), "a function (dataset, seed) -> model"),
    "role": TEXT,
    "derived": ((Sequence,), "a list of names"),
    "num_classes": NUM_CLASSES,
}


@dataclass(frozen=True)
class Project:
    """A trained model and its data, for deletion requests.

    Each set is a torch Dataset, a DataLoader or a pair of tensors. `train` is all data the model was trained on, `ids`
    has one id (text or number) per example. Examples with the same id are forgotten together. Without `ids`, positions
    are ids. `heldout`, `val` and `test` are data the model never saw; give at least one of them.
    """

    model: nn.Module
    train: Source
    ids: Sequence[Any] | None = None
    heldout: Source | None = None
    val: Source | None = None
    test: Source | None = None
    train_eval: Source | None = None
    """The records of `train` with the transforms of test time, if `train` augments at random: audits read these."""
    unseen_ids: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    """Ids of heldout, val and test: overlap with training is then found by id."""
    method: str = "auto"
    """As on the command line: name@preset,key=value,..."""
    family: str | None = None
    """Model family (resnet, swin) whose preset a method uses if none is named; None: the method's defaults."""
    accept: str | None = None
    """The acceptance rule; None for the default."""
    rebuild: Callable[[int], nn.Module] | None = None
    """Builds the untrained model from a seed; needed where its layers cannot reset themselves."""
    retrain: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How the model was trained, and is retrained (epochs, lr, batch_size, ...); empty if unknown."""
    retrained: Callable[[frozenset[str]], Sequence[nn.Module]] | None = None
    """Returns models trained without these ids, for gaps and, from three on, the noise floor."""
    out_models: int = 2
    """Short trainings on the retain set by which records are judged where there are no retrained models; 0 for none."""
    out_share: float = 0.25
    """Share of the epochs of `retrain` (or of the usual 40) that each of them gets."""
    prepared: Prepared | str | Path | None = None
    """Out-of-fold predictions (`regun prepare`), or their file: requests then train nothing but the update."""
    train_function: Callable[[Dataset[Any], int], Any] | None = None
    """Your own training (dataset, seed) -> model, for `regun prepare`; a quarter of the usual epochs is cheap."""
    role: str = ""
    """Who is responsible for requests, as receipts name it: a role, not a person."""
    derived: Sequence[str] = ()
    """Names of other models that were made from this one: receipts list them as not covered."""
    device: torch.device | str | None = None
    num_classes: int | None = None

    def __post_init__(self) -> None:
        check_arguments(vars(self), KINDS, "the project's ")
        for parts, kind in (
            ({f"derived[{number}]": name for number, name in enumerate(self.derived)}, TEXT),
            ({f"unseen_ids[{name!r}]": ids for name, ids in self.unseen_ids.items()}, IDS),
        ):
            check_arguments(parts, dict.fromkeys(parts, kind), "the project's ")

    @property
    def recipe(self) -> Recipe | None:
        """How the model was trained, where that is known."""
        return as_recipe(self.retrain) if self.retrain else None

    def out_recipe(self, retain: int) -> Recipe:
        """Return how an out-of-sample model is trained on so many examples: as the model was, for a share of it."""
        return shorten(self.recipe or assumed_recipe(retain), self.out_share)


@dataclass(frozen=True)
class OpenedProject:
    """A checked project: examples by set name (train, heldout, val, test), ids as text where there are some."""

    project: Project
    sets: Mapping[str, Examples]
    ids: Mapping[str, list[str]]
    device: torch.device
    prepared: Prepared | None = None
    """The table that the project names, before any request."""

    @property
    def unseen(self) -> list[str]:
        return [name for name in UNSEEN if name in self.sets]

    @property
    def ids_are(self) -> str:
        """`given`, or `positions` in the training data."""
        return "positions" if self.project.ids is None else "given"

    @cached_property
    def weights(self) -> str:
        """The digest of the project's model."""
        with user_code("storing the project's model"):
            return state_digest(self.project.model.state_dict())

    @cached_property
    def why_no_fresh_model(self) -> str:
        """Why the model cannot be built with fresh weights; empty if it can."""
        try:
            if self.project.rebuild is None:
                reset(self.project.model, 0)
        except RegunError as fault:
            return str(fault)
        return ""


@contextmanager
def no_exit(what: str) -> Generator[None]:
    """Turn `sys.exit` in a user's code into an error: it must never pass as success."""
    try:
        yield
    except SystemExit as fault:
        raise RegunError(
            f"{what} ended the program with sys.exit({fault.code!r}); remove the call, or raise an error."
        ) from fault


def load_project(text: str) -> Project:
    """Return the project that `app.py:project` or `module:function` returns."""
    with user_code(text):
        project = find_function(text, "returns a regun.Project")()
    if not isinstance(project, Project):
        raise RegunError(
            f"{text} returned a {type(project).__name__}; return a regun.Project(model=..., train=..., ...)."
        )
    return project


def open_project(project: Project, *, check_content: bool = False) -> OpenedProject:
    """Check all that can be checked before work: types, counts, an unseen set, overlap, digests."""
    _check_settings(project)
    device = as_device(project.device) if project.device is not None else device_of(project.model)
    sources = {"train": project.train, "heldout": project.heldout, "val": project.val, "test": project.test}
    sources = {name: source for name, source in sources.items() if source is not None}
    if "train" not in sources or len(sources) < 2:
        raise DataError(
            f"the project has {', '.join(sources) or 'no data'}; it needs train and at least one of heldout, val and "
            f"test: unlearning is judged by data the model never saw."
        )
    model = project.model
    project = replace(
        project,
        rebuild=_callback(project.rebuild, "rebuild", lambda what, built: as_compatible_model(what, built, model)),
        retrained=_callback(
            project.retrained, "retrained", lambda what, models: list(as_models(what, models).values())
        ),
    )
    with user_code("a forward pass of the project's model on the first training example"):
        classes = count_classes(project.model, project.train, "train", project.num_classes)
    sets = {name: as_examples(source, classes, name) for name, source in sources.items()}
    if project.train_eval is not None:
        sources["train"] = project.train_eval
        plain = as_examples(project.train_eval, classes, "train_eval")
        check_no_augmentation({"train_eval": plain})
        sets["train"] = AugmentedExamples(sets["train"], plain)
    check_no_augmentation({"train": sets["train"]}, "Give the project train_eval=, the same records")
    check_no_augmentation({name: examples for name, examples in sets.items() if name != "train"})
    train_ids = project.ids if project.ids is not None else range(len(sets["train"].labels))
    ids = {name: id_texts(values) for name, values in {"train": train_ids, **project.unseen_ids}.items()}
    compared = {name: texts for name, texts in ids.items() if name != "train" or project.ids is not None}
    check_overlap(sources, sets, compared, check_content)
    for name, examples in sets.items():
        try:
            _ = examples.digest  # raises now, not after the work: the receipt holds a digest of every set
        except TypeError as fault:
            raise DataError(
                f"no digest of the {name} set can be computed, and the receipt needs one: {fault}. Give inputs of a "
                f"type that numpy has too: float32, float16, whole numbers."
            ) from None
    table = Prepared.load(project.prepared) if isinstance(project.prepared, str | Path) else project.prepared
    return OpenedProject(project, sets, ids, device, table)


def _callback(
    function: Callable[[A], object] | None, name: str, check: Callable[[str, object], B]
) -> Callable[[A], B] | None:
    """Wrap a project's function: its errors name it, and what it returns is checked."""
    if function is None:
        return None

    def call(argument: A) -> B:
        with user_code(f"the project's {name}"):
            return check(f"what the project's {name} returned", function(argument))

    return call


def _check_settings(project: Project) -> None:
    state: Mapping[str, object] = as_model("the project's model", project.model).state_dict()
    other = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if other:
        raise RegunError(
            f"the model's state {other[0]!r} is a {type(state[other[0]]).__name__} (from get_extra_state); receipts "
            f"and model files hold tensors only. Keep it in a buffer, or outside the state."
        )
    problems: list[str] = []
    if project.unseen_ids and project.ids is None:
        problems.append(
            "the project has unseen_ids without ids, so positions of training records and ids of unseen ones could be "
            "confused. Give ids, or omit unseen_ids."
        )
    _ = project.recipe  # raises where `retrain` is no recipe
    if not 0 <= project.out_models <= MAX_OUT_MODELS or not 0 < project.out_share <= 1:
        problems.append(
            f"the project has out_models={project.out_models} and out_share={project.out_share}; give 0 to "
            f"{MAX_OUT_MODELS} models, and a share above 0 and up to 1."
        )
    if problems:
        raise SettingsError(problems)


def stored_project(
    base: Artifact, data: Data, reserve: Reserve, store: Store, device: torch.device, family: str
) -> Project:
    """Return a model of the store as a project; an example's id is its index in the training data."""
    if base.inputs["data"] != data.train.digest:
        raise StoreError(
            f"the base model {base.key[:12]} was trained on other data (digest {base.inputs['data'][:12]}, got "
            f"{data.train.digest[:12]}); give the data it was trained on."
        )
    trained_on = base.tensors("trained_on")["indices"].numpy()

    def retrained(forgotten: frozenset[str]) -> Sequence[nn.Module]:
        """Return the models of the store that were trained like the base, without the forgotten examples."""
        forget = np.array([int(id) for id in forgotten], dtype=np.int64)
        return [load_model(model, device) for model in find_retrained(store, base, np.setdiff1d(trained_on, forget))]

    models, family_keys, descendants = store.artifacts("model"), {base.key}, list[Artifact]()
    while more := [a for a in models if a.key not in family_keys and str(a.info.get("base")) in family_keys]:
        family_keys |= {a.key for a in more}
        descendants += more
    unseen = {"heldout": reserve.heldout, "val": reserve.val}
    return Project(
        model=load_model(base, device),
        train=Selected(data.train, trained_on),
        ids=trained_on.tolist(),
        heldout=Selected(data.train, reserve.heldout) if len(reserve.heldout) else None,
        val=Selected(data.train, reserve.val) if len(reserve.val) else None,
        test=data.test,
        unseen_ids={name: rows.tolist() for name, rows in unseen.items() if len(rows)},
        rebuild=lambda seed: build_like(base, seed),
        retrain=base.inputs.get("recipe") or {},
        retrained=retrained,
        derived=[
            f"{a.info.get('title') or a.info.get('role')} {a.key[:12]}"
            for a in sorted(descendants, key=lambda a: a.key)
        ],
        family=family,
        device=device,
        num_classes=data.train.num_classes,
    )
