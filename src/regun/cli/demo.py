"""`regun demo`: the whole job on data that ships with a dependency."""

import argparse
from typing import Any

import torch

from regun.auditing import Models, audit_models
from regun.cli.terminal import Display, emit, table
from regun.data.catalogue import DataSpec, load_data
from regun.evaluate import Evaluation
from regun.job import Budget
from regun.methods import read_method
from regun.models import ModelSpec
from regun.pipeline import Training, Unlearning, Watch, train_model, unlearn_model
from regun.recipes import RECIPES
from regun.splits import Indices, Request, make_splits, reserve
from regun.store import Artefact, Store

FORGET, REFERENCES, STEPS = 0.1, 4, 90
METHODS = (
    "regun@wide_retain,lr=0.05,w=0.97",
    "finetune,lr=0.05,batch_size=64",
    "neggrad,lr=0.001,batch_size=16",
    "neggrad_plus,lr=0.02,w=0.9,batch_size=32",
    "l1_sparse,lr=0.05,gamma=5e-05,batch_size=64",
    "ssd",
    "salun,lr=0.05,w=0.97,batch_size=32",
    "amun,lr=0.01,batch_size=64",
    "lur,lr=0.01,w=0.95,batch_size=32",
    "scrub,lr=0.05,batch_size=64",
)
"""Settings that `benchmarks/compare.py --steps 90` chose on the validation split."""

COLUMNS = {
    "retain": "retain_acc",
    "forget": "forget_acc",
    "test": "test_acc",
    "RMIA": "rmia_auc",
    "Gap RFTP": "gap_rftp",
}


def run(args: argparse.Namespace) -> int:
    torch.set_num_threads(1)  # the model is tiny: a second thread only costs
    store, cpu = Store(args.store), torch.device("cpu")
    data = load_data(DataSpec("digits"), "digits")
    kept = reserve(data.train.labels, 0)
    splits = make_splits(data.train.labels, Request.random(FORGET), kept)

    def train(what: str, indices: Indices, seed: int) -> Artefact:
        display = Display(f"train {what}", args.quiet)
        training = Training(data, indices, ModelSpec("cnn"), RECIPES["digits"], seed)
        about: dict[str, Any] = {"role": what.split()[0], "preset": "digits", "data_settings": {}}
        about |= {"split_seed": 0, "heldout": 0.1, "val": 0.1, "stratified": False}
        return train_model(training, store, cpu, about=about, watch=Watch(lambda e, _: display.epoch(e)))

    base = train("base", kept.base, 0)
    retrained = [train(f"retrain {n + 1} of {REFERENCES + 1}", splits.retain, n) for n in range(REFERENCES + 1)]
    found: dict[str, tuple[Artefact, Evaluation]] = {}
    for text in ("base", *METHODS):
        target = base
        if text != "base":
            display = Display(f"unlearn {text}", args.quiet)
            run = Unlearning(base, data, splits, *read_method(text), 0, Budget(steps=STEPS))
            target = unlearn_model(run, store, cpu, about={}, watch=Watch(lambda e, _, d=display: d.epoch(e)))
        models = Models(target, retrained[0], tuple(retrained[1:]))
        found[text] = (target, audit_models(models, data, splits, store, cpu))
    if args.json:
        emit({text: {"key": a.key, **e.to_json()} for text, (a, e) in found.items()})
    else:
        _print(found, len(splits.forget), args.store)
    return 0


def _print(found: dict[str, tuple[Artefact, Evaluation]], forgotten: int, store: str) -> None:
    first = next(iter(found.values()))[1]
    rows = [["Retrain", *(_cell(first.retrain.get(name)) for name in COLUMNS.values()), "", "", "the target"]]
    for text, (artefact, evaluation) in found.items():
        title = artefact.info.get("title", "Base (nothing forgotten)")
        cost = artefact.info["cost"]
        numbers = [_cell(evaluation.numbers[name].value) for name in COLUMNS.values()]
        verdict = "diverged" if artefact.info.get("diverged") else evaluation.verdict or ""
        spent = ["", ""] if text == "base" else [str(cost["steps"]), f"{cost['seconds']:.1f}"]
        rows.append([title, *numbers, *spent, verdict])
    floor = first.gaps["gap_rftp"]
    print(
        f"\n{forgotten} of the digits are to be forgotten; how far is each method from a model that never saw them?\n"
    )
    print(table(["method", *COLUMNS, "steps", "seconds", "from retraining"], rows))
    apart = f"{floor.floor_mean:.2f} apart in Gap RFTP (at most {floor.floor_largest:.2f})"
    print(f"\nTwo retrained models are {apart}: the noise floor.")
    print("Accuracies and RMIA AUC in %; good is Retrain's value. Gap RFTP is the mean distance to Retrain; good is 0.")
    key = next(iter(a for t, (a, _) in found.items() if t != "base")).key[:12]
    print(f"\nNext: regun audit {key} --store {store}        every number with its interval and meaning")
    print("      regun methods regun                       what can be set")
    print("      README.md                                 how to use it on your own model")


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
