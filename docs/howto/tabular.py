"""Forget some patients of a model on tabular data: a plain MLP on scikit-learn's diabetes records.

Tensors are all it takes: no data set class, no configuration. Run: python docs/howto/tabular.py

The model knows its patients by heart, so the attack on its loss finds them (AUC far above 50). Unlearning moves that
number to that of a model retrained without them, and keeps the accuracy on new patients. How the model was trained is
not told here: regun finds a learning rate by itself, and trains until the others are known as well as before.
"""

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from torch import nn

import regun

FORGET = 30


def records() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """442 patients: ten measurements, and whether their disease went further within a year than that of most."""
    x, progression = load_diabetes(return_X_y=True)
    labels = (progression > np.median(progression)).astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    x, y = torch.tensor(x[order] * 20, dtype=torch.float32), torch.tensor(labels[order])
    cuts = {"forget": (0, FORGET), "retain": (FORGET, 222), "heldout": (222, 322), "test": (322, 442)}
    return {name: (x[a:b], y[a:b]) for name, (a, b) in cuts.items()}


def trained(x: torch.Tensor, y: torch.Tensor, seed: int, epochs: int = 200) -> nn.Module:
    """An MLP that learns its patients by heart."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def main() -> dict[str, dict[str, float]]:
    data = records()
    known = [torch.cat(parts) for parts in zip(data["forget"], data["retain"], strict=True)]
    base, retrained = trained(*known, seed=0), trained(*data["retain"], seed=1)
    sets = {name: data[name] for name in ("forget", "retain", "heldout")}
    outcome = regun.unlearn(base, **sets)
    print(f"{outcome.price.branch}: {outcome.price.reason} ({outcome.price.samples:,} samples)")
    results = {}
    for name, model in (("base", base), ("unlearned", outcome.model), ("retrained", retrained)):
        numbers = regun.audit(model, **sets, test=data["test"]).numbers
        results[name] = {what: numbers[what].value for what in ("forget_acc", "test_acc", "smia_auc")}
        print(f"{name:10}" + "".join(f"  {what} {value:5.1f}" for what, value in results[name].items()))
    return results


if __name__ == "__main__":
    main()
