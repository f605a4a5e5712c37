"""The search behind `crossfit`: update rules at a fixed cost, in plain torch.

    python research/crossfit_search.py --data DIR --work WORK              # CIFAR-10: 30 core-minutes of models, 1 a row
    python research/crossfit_search.py --data DIR --work WORK --coarse     # CIFAR-100, the 20 coarse classes, half size

One split, one base, three retrained models (two on CIFAR-100), one table of 4 folds. ResNet-18 of width 8, crops and
flips, 60 epochs, 10 % forgotten. A row: gap (mean absolute difference in retain, forget and test accuracy and in the
AUC of a reference attack from the mean of the retrained models), the four numbers, and the same after relearning: two
epochs on the retained images. Cost: samples that pass forward and backward, as a share of a retraining; the forward
passes of a teacher count a third. Models are kept in WORK; rows are printed as they come.
"""

import argparse
import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from regun.data import cifar
from regun.models import ModelSpec, build_model

Numbers = dict[str, float]


@dataclass(frozen=True)
class Rule:
    """An update: its cost, rate, inputs per step, and what the losses are."""

    share: float = 0.079  # of a retraining
    rate: float = 0.5  # of training's, per example
    forget: int = 32
    retain: int = 32
    plain: float = 0.0  # share of forgotten inputs that are not augmented
    repair: float = 0.0  # last share of the samples, retained images alone
    distill: float = 0.0  # share of the retain loss that follows the base, at temperature 2
    w: float = 0.5
    beyond: float = 0.0  # how far the target goes past the table, away from the base
    seed: int = 0


LARGE = Rule(forget=64, retain=64)
RULES = {
    "augmented inputs, 64+64": LARGE,
    "32+32 at the same rate per example": Rule(),
    "32+32 at twice the rate": Rule(rate=1.0),
    "16+16 at four times the rate": Rule(forget=16, retain=16, rate=2.0),
    "half distilled from the base, w 0.6": replace(LARGE, distill=0.5, w=0.6),
    "repair 0.3": replace(LARGE, repair=0.3),
    "repair 0.3, twice the rate": Rule(rate=1.0, repair=0.3),
    "target beyond the table by 0.2, repair 0.5": replace(LARGE, beyond=0.2, repair=0.5),
    "half plain, repair 0.3": Rule(plain=0.5, repair=0.3),
    "half plain, repair 0.5": Rule(plain=0.5, repair=0.5),
    "plain, repair 0.5": Rule(plain=1.0, repair=0.5),
    "plain, repair 0.3, half distilled": replace(LARGE, plain=1.0, repair=0.3, distill=0.5),
    "three quarters plain, repair 0.4": Rule(plain=0.75, repair=0.4),
    "three quarters plain, repair 0.4, second seed": Rule(plain=0.75, repair=0.4, seed=1),
    "16 %: half plain, repair 0.3": Rule(0.158, plain=0.5, repair=0.3),
    "16 %: half plain, repair 0.4": Rule(0.158, plain=0.5, repair=0.4),
    "16 %: half plain, repair 0.5": Rule(0.158, plain=0.5, repair=0.5),
    "16 %: half plain, repair 0.5, twice the rate": Rule(0.158, rate=1.0, plain=0.5, repair=0.5),
    "16 %: plain, repair 0.5": Rule(0.158, plain=1.0, repair=0.5),
    "16 %: three quarters plain, repair 0.4": Rule(0.158, plain=0.75, repair=0.4),
    "16 %: three quarters plain, repair 0.4, second seed": Rule(0.158, plain=0.75, repair=0.4, seed=1),
}


class Bench:
    """Data, splits and models of one setup."""

    def __init__(self, root: Path, work: Path, coarse: bool) -> None:
        self.work, self.classes = work, 20 if coarse else 10
        self.size, self.batch, self.epochs, self.lr = (2250, 64, 60, 0.1) if coarse else (4500, 128, 60, 0.1)
        self.x, self.y, self.xt, self.yt = self._load(root, coarse)
        order = torch.randperm(self.size, generator=torch.Generator().manual_seed(3))
        self.forget, self.retain = order[: self.size // 10], order[self.size // 10 :]
        self.train_rows = torch.arange(self.size)
        self.fold = torch.randint(0, 4, (self.size,), generator=torch.Generator().manual_seed(9))
        self.fold_recipe = (self.lr, self.batch) if coarse else (0.05, 32)
        self.base = self.kept("base", self.train_rows, 0)
        self.retrained = [self.kept(f"retrained{n}", self.retain, n) for n in ((1, 2) if coarse else (1, 3, 4))]

    def _load(self, root: Path, coarse: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        found: list[Tensor] = []
        folder, label = ("cifar-100-python", "coarse_labels") if coarse else ("cifar-10-batches-py", "labels")
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)))
        for name in ("train", "test") if coarse else ("data_batch_1", "test_batch"):
            pixels, labels = cifar._read_images([root / folder / name], label, self.classes)
            x = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().float() / 255
            found += [(x - mean) / std, torch.from_numpy(labels)]
        rows = torch.randperm(len(found[0]), generator=torch.Generator().manual_seed(7))[: self.size]
        return found[0][rows], found[1][rows], found[2][:3000], found[3][:3000]

    def fresh(self, seed: int) -> nn.Module:
        model = build_model(ModelSpec("resnet18", {"width": 8}), self.classes, (3, 32, 32), seed)
        return model.to(memory_format=torch.channels_last)

    def kept(self, name: str, rows: Tensor, seed: int, epochs: int = 0, lr: float = 0.0, batch: int = 0) -> nn.Module:
        """Return the model of this name; train it if WORK does not have it."""
        path, model = self.work / f"{name}.pt", self.fresh(seed)
        if not path.exists():
            trained = self.train(model, rows, seed, epochs or self.epochs, lr or self.lr, batch or self.batch, 5e-4)
            torch.save(trained.state_dict(), path)
        model.load_state_dict(torch.load(path, weights_only=True))
        return model.eval()

    def train(
        self, model: nn.Module, rows: Tensor, seed: int, epochs: int, lr: float, batch: int, decay: float
    ) -> nn.Module:
        draw, done = torch.Generator().manual_seed(1000 + seed), 0
        optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, nesterov=True, weight_decay=decay)
        steps = epochs * math.ceil(len(rows) / batch)
        model.train()
        for _ in range(epochs):
            for part in rows[torch.randperm(len(rows), generator=draw)].split(batch):
                warm = min(1, (done + 1) / max(1, steps * 0.05))
                optimizer.param_groups[0]["lr"] = lr * 0.5 * (1 + math.cos(math.pi * done / steps)) * warm
                optimizer.zero_grad()
                F.cross_entropy(model(augment(self.x[part], draw)), self.y[part]).backward()
                optimizer.step()
                done += 1
        return model.eval()

    def table(self) -> Tensor:
        """Return the out-of-fold probabilities of every training image."""
        answers = torch.zeros(self.size, self.classes)
        for k in range(4):
            model = self.kept(f"fold{k}", self.train_rows[self.fold != k], 20 + k, self.epochs // 4, *self.fold_recipe)
            answers[self.fold == k] = logits(model, self.x[self.fold == k]).softmax(1)
        return answers

    def relearned(self, model: nn.Module) -> nn.Module:
        return self.train(copy.deepcopy(model), self.retain, 77, 2, 0.01, 128, 0.0)

    def measured(self, model: nn.Module, references: list[nn.Module]) -> Numbers:
        rows = {"retain": self.retain[:1500], "forget": self.forget}
        sets = {name: (self.x[r], self.y[r]) for name, r in rows.items()} | {"test": (self.xt, self.yt)}
        outputs = {name: logits(model, x) for name, (x, _) in sets.items()}
        found = {n: 100 * (z.argmax(1) == sets[n][1]).float().mean().item() for n, z in outputs.items()}
        scores = [
            margin(outputs[n], sets[n][1]) - sum(margin(logits(r, sets[n][0]), sets[n][1]) for r in references)
            / len(references)
            for n in ("forget", "test")
        ]  # fmt: skip
        truth = [1] * len(self.forget) + [0] * len(self.yt)
        return found | {"auc": 100 * float(roc_auc_score(truth, torch.cat(scores).numpy()))}


def update(bench: Bench, table: Tensor, rule: Rule) -> nn.Module:
    """Return the base after an update by this rule."""
    model, draw = copy.deepcopy(bench.base), torch.Generator().manual_seed(50 + rule.seed)
    each = rule.forget + rule.retain
    lr = rule.rate * bench.lr * each / bench.batch
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    past = table.clamp_min(1e-8).log()
    if rule.beyond:
        before = logits(bench.base, bench.x).log_softmax(1).clamp_min(-12)
        past = past + rule.beyond * (past - before)
    target, forget, retain = past.softmax(1), Endless(bench.forget, draw), Endless(bench.retain, draw)
    total, spent = rule.share * bench.epochs * len(bench.retain), 0.0
    model.train()
    while spent < total:
        optimizer.param_groups[0]["lr"] = lr * 0.5 * (1 + math.cos(math.pi * spent / total))
        repairing = spent / total >= 1 - rule.repair
        n = 0 if repairing else rule.forget
        f, r = forget.take(n), retain.take(each - n)
        xf = augment(bench.x[f], draw) if n else bench.x[:0]
        if n and rule.plain:
            xf = torch.where((torch.rand(n, generator=draw) < rule.plain)[:, None, None, None], bench.x[f], xf)
        xr = augment(bench.x[r], draw)
        z = model(torch.cat([xf, xr]).contiguous(memory_format=torch.channels_last))
        spent += each
        loss = F.cross_entropy(z[n:], bench.y[r])
        if rule.distill:
            with torch.no_grad():
                soft = (bench.base(xr) / 2).softmax(1)
            spent += len(r) / 3
            kl = 4 * F.kl_div((z[n:] / 2).log_softmax(1), soft, reduction="batchmean")
            loss = (1 - rule.distill) * loss + rule.distill * kl
        if n:
            forgetting = F.kl_div(z[:n].log_softmax(1), target[f], reduction="batchmean")
            loss = (1 - rule.w) * forgetting + rule.w * loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


class Endless:
    """Passes over `rows`, each in a new order, taken in parts of any size."""

    def __init__(self, rows: Tensor, draw: torch.Generator) -> None:
        self.rows, self.draw, self.left = rows, draw, rows[:0]

    def take(self, size: int) -> Tensor:
        if len(self.left) < size:
            again = self.rows[torch.randperm(len(self.rows), generator=self.draw)]
            self.left = torch.cat([self.left, again])
        part, self.left = self.left[:size], self.left[size:]
        return part


def augment(x: Tensor, draw: torch.Generator) -> Tensor:
    """Return the images after a crop with padding 4 and a flip."""
    n, padded = len(x), F.pad(x, (4, 4, 4, 4))
    down, across = (torch.randint(0, 9, (n,), generator=draw)[:, None] + torch.arange(32) for _ in range(2))
    across = torch.where((torch.rand(n, generator=draw) < 0.5)[:, None], across.flip(1), across)
    cut = padded[torch.arange(n)[:, None, None], :, down[:, :, None], across[:, None, :]]
    return cut.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def logits(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([model(part.contiguous(memory_format=torch.channels_last)) for part in x.split(500)])


def margin(z: Tensor, y: Tensor) -> Tensor:
    log_p, rows = z.log_softmax(1), torch.arange(len(y))
    return log_p[rows, y] - log_p.index_put((rows, y), torch.tensor(-1e9)).logsumexp(1)


def mean(rows: list[Numbers]) -> Numbers:
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def gap(one: Numbers, other: Numbers) -> float:
    return sum(abs(one[name] - other[name]) for name in other) / len(other)


def rows(bench: Bench) -> Iterator[str]:
    """Yield the lines of the table."""

    def shown(numbers: Numbers) -> str:
        return " / ".join(f"{value:.1f}" for value in numbers.values())

    def others(model: nn.Module) -> list[nn.Module]:
        return [other for other in bench.retrained if other is not model]

    found = [bench.measured(model, others(model)) for model in bench.retrained]
    later = [bench.measured(bench.relearned(model), others(model)) for model in bench.retrained]
    truth, again = mean(found), mean(later)
    apart = [gap(a, mean([b for b in found if b is not a])) for a in found]
    references = bench.retrained[1:] if len(bench.retrained) > 2 else bench.retrained
    yield "| rule | gap | retain / forget / test / AUC | relearned gap | relearned |\n|---|---|---|---|---|"
    yield f"| retrained | {np.mean(apart):.2f} | {shown(truth)} | | {shown(again)} |"
    table = bench.table()
    for name, rule in {"base": None, **RULES}.items():
        model = update(bench, table, rule) if rule else bench.base
        now, then = (bench.measured(m, references) for m in (model, bench.relearned(model)))
        yield f"| {name} | {gap(now, truth):.2f} | {shown(now)} | {gap(then, again):.2f} | {shown(then)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="with the folders of CIFAR")
    parser.add_argument("--work", type=Path, required=True, metavar="WORK", help="where models are kept")
    parser.add_argument("--coarse", action="store_true", help="CIFAR-100's 20 coarse classes")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for line in rows(Bench(args.data, args.work, args.coarse)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
