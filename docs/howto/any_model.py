"""Unusual models: two inputs and a tuple out, one logit, bf16, adapters on a frozen base; none needs rewriting.

`logits=` is a function from what the model returns to its logits. What comes back is a model of the same class, in the
same precision, with the same weights frozen. Run: python docs/howto/any_model.py
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import regun
from regun import InputOptions, RunOptions
from regun.models import binary

CUTS = {"forget": slice(0, 20), "retain": slice(20, 200), "heldout": slice(200, 260)}
PLAN = {"method": "finetune", "run": RunOptions(budget=regun.Budget(steps=60))}  # short; without it auto is used


class TwoTowers(nn.Module):
    """Takes a picture and a text, returns scores and what it looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.picture, self.text, self.head = nn.Linear(6, 8), nn.Linear(4, 8), nn.Linear(16, 3)

    def forward(self, picture: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        seen = torch.cat([self.picture(picture), self.text(text)], 1).relu()
        return self.head(seen), seen


class Adapted(nn.Module):
    """A frozen layer with a small adapter beside it, as LoRA has them; models of the package peft work the same way."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.down, self.up = nn.Linear(10, 3).requires_grad_(False), nn.Linear(10, 2), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def trained(model: nn.Module, inputs: tuple[Tensor, ...], y: Tensor, read: Callable[[Any], Tensor]) -> nn.Module:
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(read(model(*inputs)), y).backward()
        optimizer.step()
    return model


def main() -> dict[str, tuple[nn.Module, nn.Module]]:
    x = torch.randn(260, 10, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    known, made = slice(0, 200), dict[str, tuple[nn.Module, nn.Module]]()

    # several inputs go by position: ((a, b), y), items (a, b, y); or by name: a mapping
    first = lambda output: output[0]  # noqa: E731
    towers = trained(TwoTowers(), (x[known, :6], x[known, 6:]), y[known], first)
    sets = {name: ((x[cut, :6], x[cut, 6:]), y[cut]) for name, cut in CUTS.items()}
    made["two inputs, a tuple out"] = (
        towers,
        regun.unlearn(towers, **sets, inputs=InputOptions(logits=first), **PLAN).model,
    )

    # one logit, as trained with binary cross-entropy; labels 0. and 1. are fine
    single = trained(nn.Linear(10, 1), (x[known],), (y[known] > 0).long(), binary)
    sets = {name: (x[cut], (y[cut] > 0).float()) for name, cut in CUTS.items()}
    made["one logit"] = single, regun.unlearn(single, **sets, inputs=InputOptions(logits=binary), **PLAN).model

    # half precision: the work is done in fp32, the model comes back in bf16
    half = trained(nn.Linear(10, 3), (x[known],), y[known], lambda output: output).bfloat16()
    sets = {name: (x[cut].bfloat16(), y[cut]) for name, cut in CUTS.items()}
    made["bf16"] = half, regun.unlearn(half, **sets, **PLAN).model

    # adapters: what is frozen is not touched
    adapted = trained(Adapted(), (x[known],), y[known], lambda output: output)
    sets = {name: (x[cut], y[cut]) for name, cut in CUTS.items()}
    made["adapters"] = adapted, regun.unlearn(adapted, **sets, **PLAN).model

    # what cannot work is said before any work
    for wrong in (nn.Sequential(adapted, nn.Softmax(1)), nn.Linear(10, 3).double()):
        try:
            regun.unlearn(wrong, **sets)
        except regun.RegunError as fault:
            print(f"refused: {fault}")
    for name, (_, one) in made.items():
        print(f"{name:24} {type(one).__name__:10} {next(one.parameters()).dtype}")
    return made


if __name__ == "__main__":
    main()
