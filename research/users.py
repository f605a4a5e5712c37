"""Models as users bring them, with data and how each was trained; the ground of research/first_try.py.

Images are CIFAR-10's where a directory with it is given, otherwise drawn: smooth patterns, moved and covered with noise.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from regun.data.cifar import load_cifar
from regun.data.registry import DataSpec, get_pipeline, load_data
from regun.models import ModelSpec, build_model
from regun.models.forward import logits_of
from regun.training.recipes import Recipe

Sets = dict[str, tuple[Any, Tensor]]


@dataclass(frozen=True)
class User:
    """A model of a user's: how it is built from a seed and trained, and its data (train, heldout, test)."""

    build: Callable[[int], nn.Module]
    data: Callable[[int, Path | None], Sets]
    recipe: Recipe
    seeds: int = 3
    retrained: int = 4
    pretrained: bool = False


def adam(epochs: int, lr: float = 1e-3, batch_size: int = 64) -> Recipe:
    return Recipe(epochs=epochs, optimizer="adamw", lr=lr, batch_size=batch_size, weight_decay=0.01)


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def rows(x: Any, index: Any) -> Any:
    return {name: part[index] for name, part in x.items()} if isinstance(x, dict) else x[index]


def train(model: nn.Module, x: Any, y: Tensor, recipe: Recipe, seed: int) -> nn.Module:
    """The loop a user would have written."""
    if any(p.ndim == 4 for p in model.parameters()):
        model = model.to(memory_format=torch.channels_last)
    trained = [p for p in model.parameters() if p.requires_grad]
    if recipe.optimizer == "adamw":
        optimizer: Any = torch.optim.AdamW(trained, lr=recipe.lr, weight_decay=recipe.weight_decay)
    else:
        optimizer = torch.optim.SGD(
            trained, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.nesterov, weight_decay=recipe.weight_decay
        )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.train()
        for epoch in range(recipe.epochs):
            for group in optimizer.param_groups:
                group["lr"] = recipe.lr_at(epoch, 0.0, recipe.epochs)
            for part in torch.randperm(len(y)).split(recipe.batch_size):
                if len(part) == 1:
                    continue
                optimizer.zero_grad()
                functional.cross_entropy(logits_of(model, rows(x, part)), y[part]).backward()
                optimizer.step()
    return model.eval()


# --- data ---------------------------------------------------------------------------------------------------------


def divided(x: Any, y: Tensor, sizes: dict[str, int], seed: int) -> Sets:
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(y)))
    ends = np.cumsum([0, *sizes.values()])
    parts = {name: order[ends[k] : ends[k + 1]] for k, name in enumerate(sizes)}
    return {name: (rows(x, part), y[part]) for name, part in parts.items()}


def photos(train_size: int, seed: int, folder: Path | None) -> Sets:
    sizes = {"train": train_size, "heldout": 1000, "test": 2000}
    total = sum(sizes.values())
    if folder is None:
        return divided(*drawn_photos(total, 17), sizes, seed)
    whole = load_cifar(folder, 10, get_pipeline("none", "cifar10")).train
    index = np.random.default_rng(1000 + seed).permutation(len(whole.labels))[:total]
    batch = whole.fetch(index)
    return divided(batch.x.contiguous(memory_format=torch.contiguous_format), batch.y, sizes, seed)


def drawn_photos(total: int, seed: int) -> tuple[Tensor, Tensor]:
    draw = np.random.default_rng(seed)
    y = torch.from_numpy(draw.integers(0, 10, total))
    coarse = torch.from_numpy(draw.standard_normal((30, 3, 5, 5))).float()
    patterns = functional.interpolate(coarse, 32, mode="bicubic")
    kinds = y + 10 * torch.from_numpy(draw.integers(0, 3, total))
    moved = [patterns[k].roll(tuple(draw.integers(-6, 7, 2)), (1, 2)) for k in kinds.tolist()]
    return torch.stack(moved) + 1.6 * torch.from_numpy(draw.standard_normal((total, 3, 32, 32))).float(), y


def table(seed: int, _: Path | None) -> Sets:
    """Twenty numbers a record, three classes, one label in twenty wrong."""
    draw = np.random.default_rng(50 + seed)
    y = draw.integers(0, 3, 4000)
    centres = 1.05 * np.random.default_rng(7).standard_normal((3, 20))
    x = centres[y] + draw.standard_normal((4000, 20)) * 1.2
    said = np.where(draw.random(4000) < 0.05, draw.integers(0, 3, 4000), y)
    sizes = {"train": 2000, "heldout": 800, "test": 1200}
    return divided(torch.from_numpy(x).float(), torch.from_numpy(said), sizes, seed)


def words(seed: int) -> tuple[Tensor, Tensor]:
    """Texts of 20 words of which five are of their topic; one label in twenty is wrong."""
    draw = np.random.default_rng(80 + seed)
    topic = draw.integers(0, 4, 3600)
    own = 100 + 50 * topic[:, None] + draw.integers(0, 50, (3600, 20))
    x = np.where(draw.random((3600, 20)) < 0.25, own, draw.integers(300, 500, (3600, 20)))
    said = np.where(draw.random(3600) < 0.05, draw.integers(0, 4, 3600), topic)
    return torch.from_numpy(x), torch.from_numpy(said)


WORD_SIZES = {"train": 1500, "heldout": 800, "test": 1300}


def texts(seed: int, _: Path | None) -> Sets:
    return divided(*words(seed), WORD_SIZES, seed)


def tokens(seed: int, _: Path | None) -> Sets:
    x, y = words(seed)
    return divided({"input_ids": x, "attention_mask": torch.ones_like(x)}, y, WORD_SIZES, seed)


def digits(seed: int, _: Path | None) -> Sets:
    """Handwritten digits, 8x8, with noise, as in the demo."""
    x, y = all_digits()
    return divided(x, y, {"train": 1000, "heldout": 300, "test": 450}, seed)


def other_digits(seed: int, _: Path | None) -> Sets:
    """Those that the frozen nets were not pretrained on."""
    x, y = all_digits()
    return divided(x[500:], y[500:], {"train": 700, "heldout": 220, "test": 340}, seed)


def all_digits() -> tuple[Tensor, Tensor]:
    whole = load_data(DataSpec("digits"), "digits")
    parts = [one.fetch(np.arange(len(one.labels))) for one in (whole.train, whole.test)]
    x, y = torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])
    order = torch.from_numpy(np.random.default_rng(3).permutation(len(y)))
    return x[order].contiguous(), y[order]


# --- models -------------------------------------------------------------------------------------------------------


def small_cnn() -> nn.Module:
    def block(wide: int, out: int) -> list[nn.Module]:
        return [nn.Conv2d(wide, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]

    head = [nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10)]
    return nn.Sequential(*block(3, 24), *block(24, 48), *block(48, 64), *head)


def tabular_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3))


class Lstm(nn.Module):
    """Words to a topic."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(500, 32), nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(x))[0].mean(1))


class Adapted(nn.Module):
    """A linear layer that is frozen, and a trained product of two thin matrices beside it."""

    def __init__(self, frozen: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Linear(frozen.in_features, rank, bias=False)
        self.up = nn.Linear(rank, frozen.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + self.up(self.down(x))


def pretrained_net() -> nn.Sequential:
    """As if read from a file of pretrained weights."""
    return copy.deepcopy(_pretrained())


@cache
def _pretrained() -> nn.Sequential:
    """Trained on 500 digits that no user has."""
    x, y = all_digits()
    layers = [nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    net = seeded(lambda: nn.Sequential(*layers), 11)
    train(net, x[:500], y[:500], adam(8), 11)
    return net


def with_adapters() -> nn.Module:
    net = pretrained_net()
    return nn.Sequential(net[0], Adapted(net[1]), net[2], Adapted(net[3]), net[4], Adapted(net[5]))  # pyright: ignore[reportArgumentType]


def with_head() -> nn.Module:
    net = pretrained_net()
    return nn.Sequential(net[:5].requires_grad_(False), nn.Linear(128, 10))


def distilbert() -> nn.Module:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    sizes = {
        "vocab_size": 500,
        "dim": 64,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 128,
        "max_position_embeddings": 32,
    }
    return DistilBertForSequenceClassification(DistilBertConfig(**sizes, num_labels=4))


def catalogued(name: str, shape: tuple[int, int, int], **settings: Any) -> Callable[[int], nn.Module]:
    return lambda seed: build_model(ModelSpec(name, settings), 10, shape, seed)


SGD = Recipe(epochs=20, lr=0.1, nesterov=True, weight_decay=5e-4, schedule="cosine", batch_size=64)
VIT = Recipe(
    epochs=60, optimizer="adamw", lr=1e-3, weight_decay=0.05, schedule="cosine", warmup_epochs=3, batch_size=64
)
USERS: dict[str, User] = {
    "cnn": User(lambda s: seeded(small_cnn, s), lambda s, f: photos(2500, s, f), adam(12), seeds=1),
    "adapters": User(lambda s: seeded(with_adapters, s), other_digits, adam(40, 3e-3), pretrained=True),
    "head": User(lambda s: seeded(with_head, s), other_digits, adam(60, 3e-3), pretrained=True),
    "distilbert": User(lambda s: seeded(distilbert, s), tokens, adam(15), seeds=2),
    "mlp": User(lambda s: seeded(tabular_mlp, s), table, adam(40)),
    "lstm": User(lambda s: seeded(Lstm, s), texts, adam(30), seeds=2),
    "mlp-long": User(lambda s: seeded(tabular_mlp, s), table, adam(70)),
    "lstm-long": User(lambda s: seeded(Lstm, s), texts, adam(90), retrained=3),
    "digits-long": User(catalogued("cnn", (1, 8, 8)), digits, Recipe(epochs=130, lr=0.05, nesterov=True, schedule="cosine", batch_size=64), retrained=3),
    "distilbert-long": User(lambda s: seeded(distilbert, s), tokens, adam(80), retrained=3),
    "cnn-long": User(lambda s: seeded(small_cnn, s), lambda s, f: photos(2500, s, f), adam(48), retrained=3),
    "digits": User(catalogued("cnn", (1, 8, 8)), digits, Recipe(epochs=40, lr=0.05, nesterov=True, schedule="cosine", batch_size=64), seeds=2),
    "resnet": User(catalogued("resnet18", (3, 32, 32), width=16), lambda s, f: photos(2000, s, f), SGD, 1, 3),
    "vit": User(catalogued("vit", (3, 32, 32), patch=8, dim=48, depth=3, heads=3), lambda s, f: photos(3000, s, f), VIT, 1, 3),
}  # fmt: skip


def boosted_trees(x: Tensor, y: Tensor) -> Callable[[Tensor], Any]:
    """For tables."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=0).fit(x.numpy(), y.numpy()).predict_proba


def counted_words(x: Any, y: Tensor) -> Callable[[Any], Any]:
    """For texts: which words there are, weighed by how rare they are, and a linear model."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    def counts(x: Any) -> Any:
        ids = x["input_ids"] if isinstance(x, dict) else x
        return functional.one_hot(ids, 500).sum(1).numpy()

    linear = make_pipeline(TfidfTransformer(), LogisticRegression(C=10.0, max_iter=500)).fit(counts(x), y.numpy())
    return lambda x: linear.predict_proba(counts(x))


def forest(x: Tensor, y: Tensor) -> Callable[[Tensor], Any]:
    """For small images, pixel by pixel."""
    from sklearn.ensemble import RandomForestClassifier

    trees = RandomForestClassifier(200, random_state=0).fit(x.flatten(1).numpy(), y.numpy())
    return lambda x: trees.predict_proba(x.flatten(1).numpy())


def narrow_cnn(x: Tensor, y: Tensor) -> nn.Module:
    """For photographs: a sixth of the channels, the same training."""
    layers = [nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16)]
    net = seeded(lambda: nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10)), 5)
    return train(net, x, y, adam(8), 5)


TEACHERS: dict[str, Callable[[Any, Tensor], Any]] = {
    "mlp": boosted_trees,
    "lstm": counted_words,
    "distilbert": counted_words,
    "digits": forest,
    "vit": narrow_cnn,
}
"""Teachers of another kind than the model, trained on the retained records."""


def forgotten(total: int, request: str, seed: int) -> Tensor:
    """Which records a request of `1%`, `10%` or a number of records names."""
    count = max(1, math.ceil(float(request[:-1]) / 100 * total)) if request.endswith("%") else int(request)
    return torch.from_numpy(np.random.default_rng(300 + seed).permutation(total)[:count])
