"""`regun unlearn`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regun.cli.arguments import REQUEST_HELP, Commands, add_machine, add_setup, command, whole
from regun.cli.options import Problems, load, open_store, read_device, read_origin, splits_of, use_threads
from regun.cli.terminal import Display, emit, heard
from regun.cli.train import accuracies_of, percent
from regun.errors import RegunError
from regun.settings import parse_spec
from regun.show.numbers import duration, fixed, many
from regun.show.text import table

if TYPE_CHECKING:
    import torch

    from regun.data.examples import Data
    from regun.methods import Method
    from regun.runs.setup import Setup
    from regun.runs.unlearning import Unlearning
    from regun.store import Artefact, Store
    from regun.tune import Space, Tuned


def add_unlearn(commands: Commands) -> None:
    parser = command(
        commands,
        "unlearn",
        "remove the influence of some training examples from a trained model",
        "unlearn:run",
        "regun unlearn --base 3f2a --forget 0.1 --method regun,w=0.3,lr=0.01",
    )
    parser.add_argument(
        "--base",
        required=True,
        metavar="KEY|FILE",
        help="the trained model: its key in the store, or a safetensors file (then say --data, --model and the split)",
    )
    parser.add_argument("--forget", required=True, metavar="REQUEST", help=REQUEST_HELP)
    parser.add_argument(
        "--method",
        default="auto",
        metavar="NAME[@PRESET][,KEY=VALUE...]",
        help="method (see `regun methods`); default auto, which finds its settings",
    )
    parser.add_argument(
        "--settings", metavar="FILE", help="settings by `regun tune --out`; those named in --method win over them"
    )
    parser.add_argument(
        "--tune",
        type=whole(high=100_000),
        metavar="N",
        help="try N settings and keep the best; needs no retrained model, but unseen examples to judge by",
    )
    parser.add_argument("--budget", metavar="steps=N|samples=N", help="run an iterative method to exactly this budget")
    parser.add_argument("--keep", default="last", choices=("last", "best"), help="which epoch to keep (default last)")
    parser.add_argument(
        "--criterion",
        default="val_accuracy",
        help="with --keep best: val_accuracy, val_loss, or unseen_error (forgotten are misjudged like unseen ones)",
    )
    parser.add_argument(
        "--teacher", metavar="KEY", help="a model that never saw the records, for auto and regun,reference=given"
    )
    parser.add_argument("--seed", type=whole(), default=0, help="seed of the unlearning run (default 0)")
    parser.add_argument("--out", metavar="FILE", help="also write the weights to this safetensors file")
    add_setup(parser)
    add_machine(parser)


def run(args: argparse.Namespace) -> int:
    from regun.methods import read_method
    from regun.runs.setup import family_of, read_budget, read_request
    from regun.runs.training import import_model
    from regun.runs.unlearning import Unlearning
    from regun.store import write_weights

    problems = Problems()
    store = problems.attempt(lambda: open_store(args))
    found, setup = read_origin(args, store, problems)
    request = problems.attempt(lambda: read_request(args.forget))
    budget = problems.attempt(lambda: read_budget(args.budget)) if args.budget else None
    device = problems.attempt(lambda: read_device(args.device))
    teacher = problems.attempt(lambda: store.find(args.teacher, "model")) if store and args.teacher else None
    problems.attempt(lambda: use_threads(args.threads))
    family = family_of(setup.model.name if setup else "")
    recipe = found.inputs.get("recipe") if found else None
    tuned = problems.attempt(lambda: _from_file(args)) if args.settings else None
    chosen = problems.attempt(lambda: read_method(args.method, family, recipe, tuned))
    space = problems.attempt(lambda: _space(args, chosen, family)) if args.tune is not None else None
    problems.stop_if_any()
    if setup is None or request is None or device is None or store is None or chosen is None:
        return 2
    method, config = chosen
    display = Display(f"unlearn {method.name}", args.quiet)
    data, kept = load(setup, display)
    base = found or import_model(Path(args.base), data, kept.base, setup.model, store, about=setup.about())
    splits = splits_of(request, base, setup, data, kept, store, device, display)
    wanted = Unlearning(
        base=base,
        data=setup.seen_by(method, data),
        splits=splits,
        method=method,
        config=config,
        seed=args.seed,
        budget=budget,
        keep=args.keep,
        criterion=args.criterion,
        teacher=teacher,
    )
    about = {**setup.about(), "request": args.forget, "split_digest": splits.digest}
    with heard(display):
        artefact, search = _made(args, wanted, space, about, store, device, display)
    display.close()
    if args.out:
        write_weights(Path(args.out), artefact.tensors("weights"))
    result = _summary(wanted, artefact, data, store, device)
    if search is not None:
        result["tuning"] = search.to_json()
    emit(result) if args.json else _print(result, setup, search)
    return 0


def _from_file(args: argparse.Namespace) -> dict[str, Any]:
    """The settings a file of `regun tune` holds for this request and method."""
    from regun.tune.settings_file import read_settings, settings_for

    return settings_for(read_settings(args.settings), args.forget, args.method, args.settings)


def _space(args: argparse.Namespace, chosen: tuple[Method, Any] | None, family: str) -> Space | None:
    """Where --tune may look."""
    from regun.tune import need_optuna, searchable

    need_optuna()
    if args.tune < 1:
        raise RegunError(f"--tune is {args.tune}; give at least 1 trial.")
    return searchable(*chosen, family, parse_spec(args.method)[1]) if chosen else None


def _made(
    args: argparse.Namespace,
    wanted: Unlearning,
    space: Space | None,
    about: dict[str, Any],
    store: Store,
    device: torch.device,
    display: Display,
) -> tuple[Artefact, Tuned | None]:
    """The unlearned model and, with --tune, the search whose best it is."""
    from regun.cli.tune import trial_teller
    from regun.runs.training import Watch
    from regun.runs.unlearning import unlearn_model
    from regun.tune import Search, search

    watch = Watch(lambda epoch, _: display.epoch(epoch), display.progress)
    if space is None:
        return unlearn_model(wanted, store, device, about=about, watch=watch), None
    given = tuple(parse_spec(args.method)[1])
    order = Search(
        run=wanted, space=space, objective="reference", trials=args.tune, seed=args.seed, fixed=given
    )  # no retrained model is at hand
    tell = trial_teller(display, order.wanted)
    found = search(order, store, device, about=about, watch=watch, on_trial=tell)
    return store.load("model", str(found.best.model)), found


def _summary(run: Unlearning, after: Artefact, data: Data, store: Store, device: torch.device) -> dict[str, Any]:
    """Accuracies before and after, cost, lineage."""
    splits = run.splits
    parts = {
        "retain": (data.train, splits.retain),
        "forget": (data.train, splits.forget),
        "val": (data.train, splits.val),
        "test": (data.test, None),
    }
    models = {"before": run.base, "after": after}
    keys = ("method", "config", "cost", "diverged", "notes", "warnings", "trained_anew", "forgotten", "weights")
    return {
        "key": after.key,
        "path": str(after.path),
        "base": run.base.key,
        "accuracy": {when: accuracies_of(model, parts, store, device) for when, model in models.items()},
        **{k: after.info[k] for k in keys},
    }


def _print(result: dict[str, Any], setup: Setup, search: Tuned | None) -> None:
    cost, before, after = result["cost"], result["accuracy"]["before"], result["accuracy"]["after"]
    if search is not None:
        _print_search(search)
    forgotten = many(result["forgotten"], "example")
    print(f"{result['method']} on {setup.model.name}, {setup.data.name}: {forgotten} forgotten")
    if result["diverged"]:
        print(f"DIVERGED: {result['diverged']}; the last finite weights are kept")
    samples = f"{cost['forward']:,} forward and {cost['backward']:,} backward samples"
    print(f"{many(cost['steps'], 'step')}, {samples}, {duration(cost['seconds'])}")
    for name, value in result["notes"].items():
        print(f"{name}: {value}")
    print(
        table(
            ["accuracy, %", "before", "after"], [[name, percent(before[name]), percent(after[name])] for name in before]
        )
    )
    for sentence in result["warnings"]:
        print(f"WARNING: {sentence}")
    print(f"key   {result['key'][:12]}\npath  {result['path']}")
    print(f"next  regun audit {result['key'][:12]}")


def _print_search(search: Tuned) -> None:
    from regun.tune import OBJECTIVES

    rows = [
        [
            str(t.number),
            fixed(t.score),
            "diverged" if t.diverged else " ".join(f"{k}={v}" for k, v in t.values.items()),
            "best" if t == search.best else "default" if t.number == 0 else "",
        ]
        for t in search.trials
    ]
    print(table(["trial", "score", "settings", ""], rows))
    note = f" {search.note}." if search.note else ""
    print(f"Score: {OBJECTIVES[search.objective]}. In points; good is 0.{note}\n")
