"""Forget some patients of a model on tabular data: a plain MLP on scikit-learn's diabetes records.

Tensors are all it takes: no data set class, no configuration. Run: python docs/howto/tabular.py

The model knows its patients by heart, so the attack on its loss finds them (AUC far above 50). Unlearning moves that
number to that of a model retrained without them, and keeps the accuracy on new patients. `recipe` is how the model was
trained. It may be left out: regun then finds a learning rate and trains until the others are known as well as before.
"""

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from torch import nn

import regun
from regun.auditing import Evaluation

FORGET = 30


def records() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """442 patients: ten measurements, and whether their disease went further within a year than that of most."""
    x, progression = load_diabetes(return_X_y=True)
    labels = (progression > np.median(progression)).astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    x, y = torch.tensor(x[order] * 20, dtype=torch.float32), torch.tensor(labels[order])
    cuts = {"forget": (0, FORGET), "retain": (FORGET, 222), "heldout": (222, 322), "test": (322, 442)}
    return {name: (x[a:b], y[a:b]) for name, (a, b) in cuts.items()}


def network(seed: int = 0) -> nn.Module:
    """The untrained MLP."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def trained(x: torch.Tensor, y: torch.Tensor, seed: int, epochs: int = 200) -> nn.Module:
    """An MLP that learns its patients by heart."""
    model = network(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def main() -> tuple[regun.Outcome, Evaluation]:
    data = records()
    known = [torch.cat(parts) for parts in zip(data["forget"], data["retain"], strict=True)]
    base, retrained = trained(*known, seed=0), [trained(*data["retain"], seed=seed) for seed in range(11, 16)]
    sets = {name: data[name] for name in ("forget", "retain", "heldout")}
    recipe = {"epochs": 200, "batch_size": 256, "optimizer": "adam", "lr": 0.01}
    outcome = regun.unlearn(base, **sets, recipe=recipe)
    print(outcome, end="\n\n")
    report = regun.audit(outcome.model, before=base, retrained=retrained, **sets, test=data["test"])
    print(report)
    return outcome, report


if __name__ == "__main__":
    main()
