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

    def __init__(self, model: Teacher, classes: int) -> None:
        super().__init__()
        self.model, self.classes = model, classes

    def forward(self, *tensor: Tensor, **mapping: Tensor) -> Tensor:
        x: Inputs = tensor[0] if len(tensor) == 1 else mapping or by_position(tensor)
        named = x if isinstance(x, Mapping) else {"": x}
        with user_code("the teacher"), torch.no_grad():
            if isinstance(self.model, nn.Module):
                outputs = logits_of(self.model, x)
            else:  # gets copies, since a function may change its inputs, also through numpy
                copies = {name: part.cpu().clone() for name, part in named.items()}
                outputs = self.model(copies if isinstance(x, Mapping) else copies[""])
            logits = torch.as_tensor(outputs, dtype=torch.float32)
        expected = (examples_in(x), self.classes)
        if tuple(logits.shape) != expected or not bool(logits.isfinite().all()):
            what = f"shape {tuple(logits.shape)}" if tuple(logits.shape) != expected else "numbers that are not finite"
            raise RegunError(
                f"the teacher answered {expected[0]} examples with {what}; it must give a row of {expected[1]} logits "
                f"or probabilities for each, one for every class the model knows."
            )
        sums = logits.double().sum(1)
        probabilities = bool((logits >= 0).all()) and bool(((sums - 1).abs() < 1e-3).all())
        logits = logits.clamp_min(SMALLEST).log() if probabilities else logits
        return logits.to(next(iter(named.values())).device)

    def __deepcopy__(self, memo: dict[int, Any]) -> "TeacherAdapter":
        if not isinstance(self.model, nn.Module):
            return self  # a function has no weights that could move, and may not bear being copied
        return TeacherAdapter(copy.deepcopy(self.model, memo), self.classes)


def as_teacher(teacher: Teacher, classes: int) -> nn.Module:
    """Return a user's teacher as a model; raise if it cannot be called."""
    if not callable(teacher):
        hint = ".predict_proba" if hasattr(teacher, "predict_proba") else ""
        raise RegunError(
            f"the teacher is a {type(teacher).__name__}, which cannot be called; give a torch module or a function "
            f"of a batch of inputs that returns logits or probabilities{f': teacher=model{hint}' if hint else ''}."
        )
    return TeacherAdapter(teacher, classes)
