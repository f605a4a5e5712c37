"""Does unlearning work on the first try? Models as users bring them (research/users.py), with retrained truth.

A row is a model, a request (a share of its training records, or a number of them), a seed and a way to unlearn, all as a
user would call it: `regun.unlearn(model, forget=..., retain=..., heldout=...)`. It is judged against models retrained
without the request by the user's own loop: accuracy lost, attack, gap and the noise floor's limit, cost; then once more
after two epochs of fine-tuning on the retained records at a tenth of the usual rate, which brings back what was only hidden.

    python research/first_try.py --out first_try [--data DIR]          # every row; run it again and it goes on
    python research/first_try.py --out first_try --quick                # the cheap models, one seed
    python research/first_try.py --out first_try --rows mlp lstm:10%    # some of them
    python research/first_try.py --out first_try --table                # what is there, as Markdown: an overview, then every row
    python research/first_try.py --out cost --cost [--data DIR]         # what `auto` costs: every model, 10 % and 1 %, one seed
    python research/first_try.py --out cost --cost --table              # its table

Rows are lines of OUT/rows.jsonl, trained models files in OUT/models; both are kept. DIR holds CIFAR-10 (`regun data`); without
it, images are drawn. Seconds are of the processor (`time.process_time`, one thread), so that other work does not count. What a
process pays once (imports, torch's first step: about half a second) is paid before the costs are measured.
"""

import argparse
import copy
import itertools
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import Dataset, TensorDataset
from users import TEACHERS, USERS, Sets, User, forgotten, rows, train

import regun
from regun.auditing.floor import NoiseFloor
from regun.models.forward import logits_of
from regun.training.recipes import Recipe

CHEAP = ("mlp", "adapters", "head", "digits", "lstm", "distilbert")
SMALL_REQUESTS = {"mlp": ("1", "10"), "digits": ("1",)}  # a hundredth of the digits is ten
NUMBERS = ("retain_acc", "forget_acc", "test_acc", "rmia_auc")
TRUTH = ("base", "retrained", "retrained again")
BACK = "relearned_forget_acc"
Way = Callable[["Case"], dict[str, Any]]


def with_method(method: str, *, tune: int | None = None, recipe: bool = False, teacher: bool = False) -> Way:
    def settings(case: "Case") -> dict[str, Any]:
        told = TEACHERS[case.name](*case.retain) if teacher else None
        return {
            "method": method,
            **({"trials": tune} if tune else {}),
            "recipe": case.user.recipe if recipe else None,
            "teacher": told,
        }

    return settings


def with_table(recipe: bool) -> Way:
    """`auto` with a prepared table, whose cost comes once and is not part of the request's."""

    def settings(case: "Case") -> dict[str, Any]:
        return {"method": "auto", "recipe": case.user.recipe if recipe else None, "prepared": case.prepared}

    return settings


def short_retraining(case: "Case") -> dict[str, Any]:
    """What a fifth of the epochs gives, with nothing else: any other way has to be better than that."""
    usual = case.user.recipe
    return {"method": "retrain", "recipe": replace(usual, epochs=max(1, round(usual.epochs / 5)), warmup_epochs=0)}


WAYS: dict[str, Way] = {
    "auto": with_method("auto"),
    "auto, recipe": with_method("auto", recipe=True),
    "auto, distilled": with_method("auto,from_scratch=never", recipe=True),
    "auto, own teacher": with_method("auto", recipe=True, teacher=True),
    "auto, table": with_table(recipe=False),
    "auto, recipe and table": with_table(recipe=True),
    "retrained for a fifth": short_retraining,
    "regun": with_method("regun"),
    "finetune": with_method("finetune"),
    "salun": with_method("salun"),
    "neggrad_plus": with_method("neggrad_plus"),
    "regun, tune 8": with_method("regun", tune=8),
    "finetune, tune 8": with_method("finetune", tune=8),
    "salun, tune 8": with_method("salun", tune=8),
    "neggrad_plus, tune 8": with_method("neggrad_plus", tune=8),
}
TUNED_ON = ("mlp", "adapters", "head", "digits", "lstm")
"""Where eight trials are cheap."""


COST_WAYS = ("auto", "auto, recipe", "auto, table", "auto, recipe and table")
COST_ROWS = (
    *("adapters", "head", "mlp", "mlp-long", "digits", "lstm", "distilbert", "digits-long", "lstm-long"),
    *("vit", "cnn", "distilbert-long", "cnn-long", "resnet"),
)
"""The cheapest first: a run that is stopped has the most rows."""
LONG = 100_000
"""Samples above which a training is long; `auto` retrains shorter ones if it knows the recipe."""


class Case:
    """A user's model for a seed and a request: base, retrained models and the sets, made when first asked for."""

    def __init__(self, name: str, request: str, seed: int, out: Path, data: Path | None) -> None:
        self.name, self.request, self.seed, self.out = name, request, seed, out
        self.user: User = USERS[name]
        self.sets: Sets = self.user.data(seed, data)
        x, y = self.sets["train"]
        gone = forgotten(len(y), request, seed)
        kept = torch.ones(len(y), dtype=torch.bool)
        kept[gone] = False
        self.forget, self.retain = (rows(x, gone), y[gone]), (rows(x, kept), y[kept])
        self.cpu: list[float] = []
        self.base = self.trained("base", self.sets["train"], 100 * seed)
        label = f"{request.rstrip('%')}{'p' if request.endswith('%') else ''}"
        self.retrained = [
            self.trained(f"{label}-{k}", self.retain, 100 * seed + 1 + k) for k in range(self.user.retrained)
        ]

    def trained(self, label: str, on: tuple[Any, torch.Tensor], seed: int) -> nn.Module:
        """By the user's own loop; kept in a file."""
        file = self.out / "models" / f"{self.name}-{self.seed}-{label}.safetensors"
        model = self.user.build(seed)
        if not file.exists():
            started = time.process_time()
            train(model, *on, self.user.recipe, seed)
            seconds = time.process_time() - started
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_suffix(".part")
            save_file({name: value.contiguous() for name, value in model.state_dict().items()}, partial)
            file.with_suffix(".seconds").write_text(str(seconds))
            partial.replace(file)
        model.load_state_dict(load_file(file))
        self.cpu.append(float(file.with_suffix(".seconds").read_text()))
        return model.eval()

    @cached_property
    def prepared(self) -> regun.Prepared:
        """Out-of-fold predictions of the training records, by the user's recipe for a quarter of its epochs."""
        file = self.out / "models" / f"{self.name}-{self.seed}-table.safetensors"
        started = time.process_time()
        x, y = self.sets["train"]
        data = TensorDataset(x, y) if isinstance(x, torch.Tensor) else Records(x, y)
        made = regun.prepare(None, data, recipe=self.user.recipe, rebuild=self.user.build, path=file, seed=self.seed)
        seconds = file.with_suffix(".seconds")
        if not seconds.exists():
            seconds.write_text(str(time.process_time() - started))
        return made

    def given(self) -> dict[str, Any]:
        """What a user gives to `unlearn` besides the model."""
        rebuild = self.user.build if self.user.pretrained else None
        sets = {"forget": self.forget, "retain": self.retain, "heldout": self.sets["heldout"]}
        return {**sets, "rebuild": rebuild, "seed": self.seed}

    def audited(self, model: nn.Module, relearned: bool) -> dict[str, float]:
        if len(self.forget[1]) == 1:
            return self.relearning_sets(model, relearned)
        sets = {"forget": self.forget, "retain": self.retain, "test": self.sets["test"]}
        truth, *others = self.retrained
        others = [other for other in others if other is not model]
        found = regun.audit(model, **sets, retrained=[truth, *others], bootstrap=0)
        numbers = {name: found.numbers[name].value for name in NUMBERS}
        if relearned:
            return {f"relearned_{name}": numbers[name] for name in ("forget_acc", "rmia_auc", "test_acc")}
        gap = found.gaps["gap_rftp"]
        return {**numbers, "gap": gap.value, "limit": gap.floor_limit or 0.0, "floor": gap.floor_mean or 0.0}

    def relearning_sets(self, model: nn.Module, relearned: bool) -> dict[str, float]:
        """A request of one record: no attack can be run on it. Its probability in % takes the place of the accuracy,
        and the gap is the mean difference of retain accuracy, that probability and test accuracy."""
        own, *others = (self.three(one) for one in (model, *self.retrained))
        names = ("retain_acc", "forget_acc", "test_acc")
        if relearned:
            return {"relearned_forget_acc": own[1], "relearned_test_acc": own[2]}
        pairs = tuple(distance(a, b) for a, b in itertools.combinations(others, 2))
        floor = NoiseFloor(len(others), {"gap": pairs}).summary("gap")
        gap = distance(own, others[0])
        return {**dict(zip(names, own, strict=True)), "gap": gap, "limit": floor.limit, "floor": floor.mean}

    def three(self, model: nn.Module) -> tuple[float, float, float]:
        retain, test = (accuracy(model, *self.retain), accuracy(model, *self.sets["test"]))
        x, y = self.forget
        with torch.no_grad():
            return retain, 100 * float(logits_of(model, x).softmax(1)[0, y[0]]), test

    def relearned(self, model: nn.Module) -> nn.Module:
        """Two epochs on the retained records at a tenth of the usual rate: nothing is shown of what was forgotten."""
        usual = self.user.recipe
        gentle = Recipe(
            epochs=2, batch_size=usual.batch_size, optimizer=usual.optimizer, lr=usual.lr / 10, momentum=usual.momentum
        )
        return train(copy.deepcopy(model), *self.retain, gentle, 900 + self.seed)

    def measure(self, model: nn.Module) -> dict[str, float]:
        return {**self.audited(model, False), **self.audited(self.relearned(model), True)}


class Records(Dataset[Any]):
    """Records whose inputs are several tensors by name."""

    def __init__(self, x: dict[str, torch.Tensor], y: torch.Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[dict[str, torch.Tensor], int]:
        return {name: part[index] for name, part in self.x.items()}, int(self.y[index])


def distance(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return statistics.mean(abs(x - y) for x, y in zip(a, b, strict=True))


def accuracy(model: nn.Module, x: Any, y: torch.Tensor) -> float:
    with torch.no_grad():
        parts = [logits_of(model, rows(x, part)).argmax(1) == y[part] for part in torch.arange(len(y)).split(500)]
    return 100 * float(torch.cat(parts).double().mean())


def ways_for(name: str, request: str, seed: int, quick: bool) -> Iterable[str]:
    def fits(way: str) -> bool:
        if way.endswith("tune 8"):
            return name in TUNED_ON and request == "10%" and not seed and not quick
        return "teacher" not in way or (name in TEACHERS and request == "10%" and not quick)

    return [way for way in WAYS if fits(way)]


def wanted(args: argparse.Namespace) -> Iterable[tuple[str, str, int]]:
    names = COST_ROWS if args.cost else CHEAP if args.quick else tuple(USERS)
    for name in names:
        requests = ("1%", "10%", *(() if args.quick else SMALL_REQUESTS.get(name, ())))
        requests = ("10%", "1%") if args.cost else requests
        for request in requests:
            if args.rows and name not in args.rows and f"{name}:{request}" not in args.rows:
                continue
            for seed in range(1 if args.quick or args.cost else USERS[name].seeds):
                yield name, request, seed


def warm_up(out: Path) -> None:
    """Pay what a process pays once (imports, torch's first step) before anything is timed."""
    case = Case("mlp", "10%", 0, out, None)  # not one of a pretrained net: its first build moves the seeds of others
    case.audited(regun.unlearn(case.base, **case.given(), method="auto,from_scratch=never").model, False)


def run(args: argparse.Namespace) -> None:
    if args.cost:
        with tempfile.TemporaryDirectory() as folder:
            warm_up(Path(folder))
    file = args.out / "rows.jsonl"
    args.out.mkdir(parents=True, exist_ok=True)
    done = {key(row) for row in read(file)}
    for name, request, seed in wanted(args):
        ways = [
            way
            for way in (args.ways or (COST_WAYS if args.cost else ways_for(name, request, seed, args.quick)))
            if (name, request, seed, way) not in done
        ]
        truth = [way for way in TRUTH[: 2 if args.cost else 3] if (name, request, seed, way) not in done]
        if not ways and not truth:
            continue
        case = Case(name, request, seed, args.out, args.data)
        for way in (*truth, *ways):
            row = {"user": name, "request": request, "seed": seed, "way": way, **one(case, way)}
            with file.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


def one(case: Case, way: str) -> dict[str, Any]:
    """The numbers of one way to unlearn; `retrained` is the truth, `retrained again` a second such model."""
    seconds = statistics.mean(case.cpu)
    if way == "base":
        return {**case.measure(case.base), "share": 0.0, "retraining": seconds}
    if way in TRUTH:
        return {**case.measure(case.retrained[TRUTH.index(way) - 1]), "share": 1.0, "retraining": seconds}
    if "table" in way:
        _ = case.prepared  # made before the request
    started = time.process_time()
    try:
        arguments = {**case.given(), **WAYS[way](case)}  # a teacher's training counts
        outcome = (regun.tune if "trials" in arguments else regun.unlearn)(case.base, **arguments)
    except regun.RegunError as fault:
        return {"error": str(fault)}
    spent = time.process_time() - started
    notes = {name: value for name, value in outcome.notes.items() if isinstance(value, str | int | float | bool)}
    more = {"steps": outcome.cost.steps, "samples": outcome.cost.backward, "notes": notes}
    more["warnings"] = len(outcome.warnings)
    if way.startswith("auto"):
        more["price"] = asdict(outcome.price)
        more["usual"] = case.user.recipe.epochs * len(case.retain[1])
    return {
        **case.measure(outcome.model),
        "share": spent / seconds,
        "retraining": seconds,
        "diverged": outcome.diverged,
        **more,
    }


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def key(row: dict[str, Any]) -> tuple[str, str, int, str]:
    return row["user"], row["request"], row["seed"], row["way"]


def table(found: list[dict[str, Any]]) -> str:
    """One line a model, request and way: means over the seeds, against the retrained model of the same seed."""
    head = ["model", "forgotten", "way", "test", "forget", "RMIA AUC", "gap", "limit (inside)"]
    head += ["cost", "forget, relearned", "AUC, relearned"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    truth = {key(row)[:3]: row for row in found if row["way"] == "retrained"}
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in found:
        if "error" not in row and key(row)[:3] in truth:
            groups.setdefault((row["user"], row["request"], row["way"]), []).append(row)
    order = list(USERS)
    names = [*TRUTH, *WAYS]
    for group in sorted(groups, key=lambda g: (order.index(g[0]), len(g[1]), g[1], names.index(g[2]))):
        lines.append(line(group, groups[group], truth))
    return "\n".join(lines)


def cost_table(found: list[dict[str, Any]]) -> str:
    """One line per model and way: what `auto` did and cost, in samples and processor seconds of the user's own retraining."""
    head = [
        "model",
        "forgotten",
        "samples of a retraining",
        "its seconds",
        "way",
        "did",
        "samples",
        "processor seconds",
    ]
    head += ["test accuracy (retrained)", "gap", "limit", "inside"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    truth = {key(row)[:3]: row for row in found if row["way"] == "retrained"}
    order, ways = list(COST_ROWS), list(COST_WAYS)
    rows = [row for row in found if row["way"] in ways and "error" not in row and key(row)[:3] in truth]

    def place(row: dict[str, Any]) -> tuple[bool, bool, int, int]:
        return row["request"] == "1%", row["usual"] > LONG, order.index(row["user"]), ways.index(row["way"])

    for row in sorted(rows, key=place):
        there = truth[key(row)[:3]]
        cells = [row["user"], row["request"], f"{row['usual']:,}", f"{row['retraining']:.1f}"]
        cells += [row["way"], row["price"]["branch"]]
        cells += [f"{row['samples'] / row['usual']:.0%}", f"{row['share']:.0%}"]
        cells += [f"{row['test_acc']:.1f} ({there['test_acc']:.1f})", f"{row['gap']:.1f}", f"{row['limit']:.1f}"]
        lines.append("| " + " | ".join([*cells, "yes" if row["gap"] <= row["limit"] else "no"]) + " |")
    return "\n".join(lines)


def cost_overview(found: list[dict[str, Any]], request: str) -> str:
    """One line per way of `auto`: accuracy against retrained, within the limit, costs of short and of long trainings."""
    head = ["way", "models", "test accuracy, mean (worst)", "within the limit", "gap, mean"]
    head += ["forget, relearned, off by", "cost, short trainings", "cost, long trainings"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    rows = [row for row in found if row["request"] == request]
    truth, base = ({row["user"]: row for row in rows if row["way"] == way} for way in ("retrained", "base"))
    usual = {row["user"]: row["usual"] for row in rows if "usual" in row}
    titles = ("base, nothing done", "`auto`", "`auto` with `recipe=`", "`auto` with a table")
    for way, title in zip(("base", *COST_WAYS), (*titles, "`auto` with `recipe=` and a table"), strict=True):
        group = [row for row in rows if row["way"] == way]
        test = [row["test_acc"] - truth[row["user"]]["test_acc"] for row in group]
        flagged = [row for row in group if base[row["user"]]["gap"] > row["limit"]]
        back = [abs(row[BACK] - truth[row["user"]][BACK]) for row in group]
        cells = [title, str(len(group)), f"{statistics.mean(test):+.1f} ({min(test):+.1f})"]
        cells += [f"{sum(row['gap'] <= row['limit'] for row in flagged)} of {len(flagged)}"]
        cells += [f"{statistics.mean(row['gap'] for row in group):.1f}", f"{statistics.mean(back):.1f}"]
        for long in (False, True):
            shares = [row["share"] for row in group if (usual[row["user"]] > LONG) == long]
            cells.append("0%" if way == "base" else f"{min(shares):.0%} to {max(shares):.0%}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def overview(found: list[dict[str, Any]]) -> str:
    """One line a way: what it costs in accuracy, how often it is within the noise floor, how far it is from retrained.

    Within counts on rows only whose base is not: where nothing done is within too, that shows nothing.
    """
    truth = {key(row)[:3]: row for row in found if row["way"] == "retrained"}
    base = {key(row)[:3]: row for row in found if row["way"] == "base"}
    head = [
        "way",
        "rows",
        "test accuracy, mean",
        "worst",
        "within the limit where the base is not",
        "gap, mean",
        "gap above the base's",
    ]
    lines = ["| " + " | ".join([*head, "forget, relearned, off by"]) + " |", "|" + "---|" * (len(head) + 1)]
    for way in ("base", "retrained again", *WAYS):
        rows = [row for row in found if row["way"] == way and "error" not in row and key(row)[:3] in truth]
        if not rows:
            continue
        test = [row["test_acc"] - truth[key(row)[:3]]["test_acc"] for row in rows]
        known = [row for row in rows if row["limit"]]  # a second retrained model may leave too few to know the limit
        known = [row for row in known if base[key(row)[:3]]["gap"] > row["limit"]]
        inside = sum(row["gap"] <= row["limit"] for row in known)
        worse = sum(row["gap"] > base[key(row)[:3]]["gap"] + 1e-9 for row in rows)
        back = [abs(row[BACK] - truth[key(row)[:3]][BACK]) for row in rows]
        cells = [
            way,
            str(len(rows)),
            f"{statistics.mean(test):+.1f}",
            f"{min(test):+.1f}",
            f"{inside} of {len(known)}",
        ]
        cells += [f"{statistics.mean(row['gap'] for row in rows):.1f}", str(worse), f"{statistics.mean(back):.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def line(group: tuple[str, str, str], some: list[dict[str, Any]], truth: dict[Any, dict[str, Any]]) -> str:
    def mean(name: str) -> float:
        return statistics.mean(row[name] for row in some)

    def against(name: str) -> str:
        if any(name not in row for row in some):
            return ""
        theirs = statistics.mean(truth[key(row)[:3]][name] for row in some)
        return f"{mean(name):.1f} ({mean(name) - theirs:+.1f})"

    inside = sum(row["gap"] <= row["limit"] for row in some)
    cells = [*group, against("test_acc"), against("forget_acc"), against("rmia_auc")]
    cells += [f"{mean('gap'):.2f}", f"{mean('limit'):.2f} ({inside}/{len(some)})", f"{mean('share'):.0%}"]
    return "| " + " | ".join([*cells, against("relearned_forget_acc"), against("relearned_rmia_auc")]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("first_try"))
    parser.add_argument("--data", type=Path, help="a directory with CIFAR-10")
    parser.add_argument("--rows", nargs="+", help="models, or model:request")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), help="ways to unlearn, or to print (default all)")
    parser.add_argument("--quick", action="store_true", help="cheap models, 1 %% and 10 %%, one seed, nothing tuned")
    parser.add_argument(
        "--cost", action="store_true", help="auto with and without recipe and table: 10 %% and 1 %%, one seed"
    )
    parser.add_argument("--table", action="store_true", help="print the tables of the rows there are")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.WARNING)
    if args.table:
        found = read(args.out / "rows.jsonl")
        shown = [row for row in found if not args.ways or row["way"] in (*TRUTH, *args.ways)]
        if args.cost:
            print("\n\n".join([cost_overview(found, "10%"), cost_overview(found, "1%"), cost_table(found)]))
        else:
            print(f"{overview(found)}\n\n{table(shown)}")
    else:
        run(args)


if __name__ == "__main__":
    main()
