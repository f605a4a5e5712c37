"""A teacher of the user's, whatever it is, as a model."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regun.data.examples import by_position
from regun.errors import RegunError
from regun.models.forward import examples_in, logits_of
from regun.plugins import user_code
from regun.types import Inputs

SMALLEST = 1e-12
"""What a probability of 0 is taken as where its logarithm is needed."""
Teacher = nn.Module | Callable[[Any], Any]
"""A model of the user's that never saw the forgotten examples: a batch of inputs to logits or probabilities (n, K)."""


class TeacherAdapter(nn.Module):
    """A teacher of the user's as a model: a module or any function x -> one row (K) of logits or probabilities each.

    Probabilities are taken as their logarithms, so that their softmax is what the teacher said.
    """

    def __init__(self, ask: Teacher, classes: int) -> None:
        super().__init__()
        self.ask, self.classes = ask, classes

    def forward(self, *tensor: Tensor, **mapping: Tensor) -> Tensor:
        x: Inputs = tensor[0] if len(tensor) == 1 else mapping or by_position(tensor)
        with user_code("the teacher"), torch.no_grad():
            said = logits_of(self.ask, x) if isinstance(self.ask, nn.Module) else self.ask(_on_cpu(x))
            answers = torch.as_tensor(said, dtype=torch.float32)
        return _log_where_probabilities(self._checked(answers, x)).to(_first(x).device)

    def _checked(self, answers: Tensor, x: Inputs) -> Tensor:
        wanted = (examples_in(x), self.classes)
        if tuple(answers.shape) != wanted or not bool(answers.isfinite().all()):
            what = f"shape {tuple(answers.shape)}" if tuple(answers.shape) != wanted else "numbers that are not finite"
            raise RegunError(
                f"the teacher answered {wanted[0]} examples with {what}; it must give a row of {wanted[1]} logits or "
                f"probabilities for each, one for every class the model knows."
            )
        return answers

    def __deepcopy__(self, memo: dict[int, Any]) -> "TeacherAdapter":
        if not isinstance(self.ask, nn.Module):
            return self  # a function has no weights that could move, and may not bear being copied
        return TeacherAdapter(copy.deepcopy(self.ask, memo), self.classes)


def as_teacher(teacher: Teacher, classes: int) -> nn.Module:
    """A user's teacher as a model; refused if it cannot be asked."""
    if not callable(teacher):
        hint = ".predict_proba" if hasattr(teacher, "predict_proba") else ""
        raise RegunError(
            f"the teacher is a {type(teacher).__name__}, which cannot be called; give a torch module or a function "
            f"of a batch of inputs that returns logits or probabilities{f': teacher=model{hint}' if hint else ''}."
        )
    return TeacherAdapter(teacher, classes)


def _log_where_probabilities(answers: Tensor) -> Tensor:
    rows = answers.double().sum(1)
    probable = bool((answers >= 0).all()) and bool(((rows - 1).abs() < 1e-3).all())
    return answers.clamp_min(SMALLEST).log() if probable else answers


def _first(x: Inputs) -> Tensor:
    return next(iter(x.values())) if isinstance(x, Mapping) else x


def _on_cpu(x: Inputs) -> Inputs:
    """Copies, since a function may change them, also through numpy."""
    return {name: part.cpu().clone() for name, part in x.items()} if isinstance(x, Mapping) else x.cpu().clone()
