"""What a user's project says: a model, its data with ids, and how to unlearn; and a model of the store as a project."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

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
from regun.data.sources import Source, as_examples
from regun.data.views import Selected
from regun.errors import DataError, RegunError, SettingsError, StoreError
from regun.inputs import as_compatible_model, as_device, count_classes
from regun.methods._fresh_weights import reset
from regun.plugins import find_function, guarded
from regun.splits import Reserve
from regun.training.job import device_of
from regun.training.recipes import Recipe, as_recipe, assumed_recipe, shorten

MOST_OUTS = 1000
"""Out models that anybody could want."""
USERS = "code of the project (its model, its data or its method)"
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
    "role": TEXT,
    "derived": ((Sequence,), "a list of names"),
    "num_classes": NUM_CLASSES,
}


@dataclass(frozen=True)
class Project:
    """A trained model and its data; every set is a torch Dataset, a DataLoader or a pair of tensors.

    `train` is all the model was trained on, `ids` one id (text or number) for each of its examples; an id may stand for
    several examples, which are then forgotten together. Without ids, an example's id is its position.
    """

    model: nn.Module
    train: Source
    ids: Sequence[Any] | None = None
    heldout: Source | None = None
    val: Source | None = None
    test: Source | None = None
    unseen_ids: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    """Ids of heldout, val and test, where they have some: overlap with training is then found."""
    method: str = "auto"
    """As on the command line: name@preset,key=value,..."""
    family: str | None = None
    """Whose preset (resnet, swin) a method takes where none is named; None for its plain defaults."""
    accept: str | None = None
    """The acceptance rule; None for the default."""
    rebuild: Callable[[int], nn.Module] | None = None
    """Makes the model afresh from a seed, for retraining; needed where its layers cannot reset themselves."""
    retrain: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How the model was trained, and is trained anew (epochs, lr, batch_size, ...); empty if that is not known."""
    retrained: Callable[[frozenset[str]], Sequence[nn.Module]] | None = None
    """Gives models trained without these ids, for gaps and, from three on, the noise floor; the first is the truth."""
    out_models: int = 2
    """Short trainings on the retain set by which records are judged where there are no retrained models; 0 for none."""
    out_share: float = 0.25
    """Share of the epochs of `retrain` (or of the usual 40) that each of them gets."""
    role: str = ""
    """Who is responsible for a request, as its receipt names it: a role, not a person."""
    derived: Sequence[str] = ()
    """Names of other models that were made from this one, as far as you know: a receipt lists them as not covered."""
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
        """How a short out model is trained on so many examples: as the model was, or by the assumed recipe."""
        return shorten(self.recipe or assumed_recipe(retain), self.out_share)


@dataclass(frozen=True)
class Case:
    """A project made ready: examples by set name (train, heldout, val, test) and ids as text where there are some."""

    project: Project
    sets: Mapping[str, Examples]
    ids: Mapping[str, list[str]]
    device: torch.device

    @property
    def unseen(self) -> list[str]:
        return [name for name in UNSEEN if name in self.sets]

    @property
    def ids_are(self) -> str:
        """Whether ids are `given`, or `positions` in the training data."""
        return "positions" if self.project.ids is None else "given"

    @cached_property
    def weights(self) -> str:
        """The digest of the project's model."""
        with guarded("storing the project's model"):
            return state_digest(self.project.model.state_dict())

    @cached_property
    def why_no_fresh_model(self) -> str:
        """Why the model cannot be made afresh; empty if it can."""
        try:
            if self.project.rebuild is None:
                reset(self.project.model, 0)
        except RegunError as fault:
            return str(fault)
        return ""


@contextmanager
def no_exit(what: str) -> Generator[None]:
    """Around anything that may run code of the user's: `sys.exit` in it is an error, never a success."""
    try:
        yield
    except SystemExit as fault:
        raise RegunError(
            f"{what} ended the program with sys.exit({fault.code!r}); that is no result. Take the call out, or raise "
            f"an error that says what is wrong."
        ) from fault


def _told(
    function: Callable[[A], object] | None, what: str, checked: Callable[[str, object], B]
) -> Callable[[A], B] | None:
    """The function of a project, its faults told as the project's and its answers checked."""

    def call(given: A) -> B:
        assert function is not None
        with guarded(what):
            return checked(f"what {what} returned", function(given))

    return None if function is None else call


def load_project(text: str) -> Project:
    """The project that `app.py:project` or `module:function` returns."""
    with guarded(text):
        made = find_function(text, "returns a regun.Project")()
    if not isinstance(made, Project):
        raise RegunError(f"{text} returned a {type(made).__name__}; return a regun.Project(model=..., train=..., ...).")
    return made


def open_case(project: Project, *, check_content: bool = False) -> Case:
    """Everything checked that can be checked before work: kinds, counts, an unseen set, overlap, digests."""
    _check_other_state(as_model("the project's model", project.model))
    _check_bad_judging(project)
    device = as_device(project.device) if project.device is not None else device_of(project.model)
    given = {"train": project.train, "heldout": project.heldout, "val": project.val, "test": project.test}
    sources = {name: source for name, source in given.items() if source is not None}
    if "train" not in sources or len(sources) < 2:
        raise DataError(
            f"the project has {', '.join(sources) or 'no data'}; it needs train and at least one of heldout, val and "
            f"test: whether something is forgotten shows against data the model never saw."
        )
    model = project.model
    project = replace(
        project,
        rebuild=_told(
            project.rebuild, "the project's rebuild", lambda what, made: as_compatible_model(what, made, model)
        ),
        retrained=_told(
            project.retrained, "the project's retrained", lambda what, made: list(as_models(what, made).values())
        ),
    )
    with guarded("the project's model, asked about the first training example,"):
        classes = count_classes(project.model, project.train, "train", project.num_classes)
    sets = {name: as_examples(source, classes, name) for name, source in sources.items()}
    total = len(sets["train"].labels)
    given_ids = {"train": project.ids if project.ids is not None else range(total), **project.unseen_ids}
    ids = {name: id_texts(some) for name, some in given_ids.items()}
    compared = {name: some for name, some in ids.items() if name != "train" or project.ids is not None}
    check_overlap(sources, sets, compared, check_content)
    _check_without_digest(sets)
    return Case(project, sets, ids, device)


def _check_other_state(model: nn.Module) -> None:
    state: Mapping[str, object] = model.state_dict()
    other = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if other:
        raise RegunError(
            f"the model's state {other[0]!r} is a {type(state[other[0]]).__name__} (from get_extra_state); receipts "
            f"and model files hold tensors only. Keep it in a buffer, or outside the state."
        )


def _check_bad_judging(project: Project) -> None:
    if project.unseen_ids and project.ids is None:
        raise SettingsError(
            [
                "the project has unseen_ids without ids: numbers of training records and ids of unseen ones would be "
                "taken for each other. Give ids, or leave unseen_ids out."
            ]
        )
    assert project.recipe is None or project.recipe.epochs >= 0  # one that cannot be read is said here
    if not 0 <= project.out_models <= MOST_OUTS or not 0 < project.out_share <= 1:
        raise SettingsError(
            [
                f"the project has out_models={project.out_models} and out_share={project.out_share}; give 0 to "
                f"{MOST_OUTS} models, and a share above 0 and up to 1."
            ]
        )


def _check_without_digest(sets: Mapping[str, Examples]) -> None:
    """The receipt holds a digest of every set; one that cannot be had is found now and not after the work."""
    for name, examples in sets.items():
        try:
            assert examples.digest
        except TypeError as fault:
            raise DataError(
                f"no digest of the {name} set can be made, and the receipt needs one: {fault}. Give inputs of a type "
                f"that numpy knows too: float32, float16, whole numbers."
            ) from None


def stored_project(
    base: Artifact, data: Data, kept: Reserve, store: Store, device: torch.device, family: str
) -> Project:
    """A model of the store with the data of its manifest; an example's id is its index in the training data."""
    if base.inputs["data"] != data.train.digest:
        raise StoreError(
            f"the base model {base.key[:12]} was trained on other data (digest {base.inputs['data'][:12]}, these have "
            f"{data.train.digest[:12]}); give the data it was trained on."
        )
    trained = base.tensors("trained_on")["indices"].numpy()

    def retrained(forgotten: frozenset[str]) -> Sequence[nn.Module]:
        """Models of the store that were trained like the base, without the forgotten examples."""
        forget = np.array([int(one) for one in forgotten], dtype=np.int64)
        return [load_model(found, device) for found in find_retrained(store, base, np.setdiff1d(trained, forget))]

    unseen = {"heldout": kept.heldout, "val": kept.val}
    family_tree = [f"{a.info.get('title') or a.info.get('role')} {a.key[:12]}" for a in _descendants(store, base)]
    return Project(
        model=load_model(base, device),
        train=Selected(data.train, trained),
        ids=trained.tolist(),
        heldout=Selected(data.train, kept.heldout) if len(kept.heldout) else None,
        val=Selected(data.train, kept.val) if len(kept.val) else None,
        test=data.test,
        unseen_ids={name: rows.tolist() for name, rows in unseen.items() if len(rows)},
        rebuild=lambda seed: build_like(base, seed),
        retrain=base.inputs.get("recipe") or {},
        retrained=retrained,
        derived=family_tree,
        family=family,
        device=device,
        num_classes=data.train.num_classes,
    )


def _descendants(store: Store, base: Artifact) -> list[Artifact]:
    """Models of the store that were made from the base, or from one that was."""
    models = store.artifacts("model")
    known, found = {base.key}, list[Artifact]()
    while more := [a for a in models if a.key not in known and str(a.info.get("base")) in known]:
        known |= {a.key for a in more}
        found += more
    return sorted(found, key=lambda a: a.key)
