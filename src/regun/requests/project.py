"""What a user's project file says: a model, its data with ids, and how to unlearn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from regun.api import count_classes
from regun.data.adapt import Source, as_examples
from regun.data.examples import Examples
from regun.data.overlap import id_texts, refuse_overlap
from regun.errors import DataError, RegunError
from regun.plugins import find_function
from regun.store import state_digest
from regun.training.job import device_of

UNSEEN = ("heldout", "val", "test")


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
    method: str = "regun"
    """As on the command line: name@preset,key=value,..."""
    family: str | None = None
    """Whose preset (resnet, swin) a method takes where none is named; None for its plain defaults."""
    accept: str | None = None
    """The acceptance rule; None for the default."""
    rebuild: Callable[[int], nn.Module] | None = None
    """Makes the model afresh from a seed, for retraining; needed where its layers cannot reset themselves."""
    retrain: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings with which `retrain` trains (epochs, lr, batch_size, ...)."""
    retrained: Callable[[frozenset[str]], Sequence[nn.Module]] | None = None
    """Gives models trained without these ids, for gaps and, from three on, the noise floor; the first is the truth."""
    device: torch.device | str | None = None
    num_classes: int | None = None


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
        return state_digest(self.project.model.state_dict())


def load_project(text: str) -> Project:
    """The project that `app.py:project` or `module:function` returns."""
    function = find_function(text, "returns a regun.Project")
    try:
        made = function()
    except RegunError:
        raise
    except Exception as fault:
        raise RegunError(f"{text} failed: {type(fault).__name__}: {fault}") from fault
    if not isinstance(made, Project):
        raise RegunError(f"{text} returned a {type(made).__name__}; return a regun.Project(model=..., train=..., ...).")
    return made


def open_case(project: Project, *, check_content: bool = False) -> Case:
    """Everything checked that can be checked before work: kinds, counts, an unseen set, overlap."""
    if not isinstance(project.model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RegunError(f"the project's model is a {type(project.model).__name__}; give a torch.nn.Module.")
    _refuse_other_state(project.model)
    device = torch.device(project.device) if project.device is not None else device_of(project.model)
    given = {"train": project.train, "heldout": project.heldout, "val": project.val, "test": project.test}
    sources = {name: source for name, source in given.items() if source is not None}
    if "train" not in sources or len(sources) < 2:
        raise DataError(
            f"the project has {', '.join(sources) or 'no data'}; it needs train and at least one of heldout, val and "
            f"test: whether something is forgotten shows against data the model never saw."
        )
    classes = project.num_classes or count_classes(project.model, project.train)
    sets = {name: as_examples(source, classes, name) for name, source in sources.items()}
    total = len(sets["train"].labels)
    given_ids = {"train": project.ids if project.ids is not None else range(total), **project.unseen_ids}
    ids = {name: id_texts(some) for name, some in given_ids.items()}
    compared = {name: some for name, some in ids.items() if name != "train" or project.ids is not None}
    refuse_overlap(sources, sets, compared, check_content)
    if len(ids["train"]) != total:
        raise DataError(f"the project has {len(ids['train'])} ids for {total} training examples; give one for each.")
    return Case(project, sets, ids, device)


def _refuse_other_state(model: nn.Module) -> None:
    state: Mapping[str, object] = model.state_dict()
    other = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if other:
        raise RegunError(
            f"the model's state {other[0]!r} is a {type(state[other[0]]).__name__} (from get_extra_state); receipts "
            f"and model files hold tensors only. Keep it in a buffer, or outside the state."
        )
