"""`regun audit`."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regun.cli.arguments import REQUEST_HELP, Commands, add_machine, add_setup, command, whole
from regun.cli.options import Problems, load, open_store, read_device, read_setup, setup_of, splits_of, use_threads
from regun.cli.relearn import print_relearned, relearn_check
from regun.cli.shadows import audited_by_shadows, check_shadows, print_shadowed
from regun.cli.terminal import Display, emit
from regun.errors import AuditError, RegunError
from regun.show.numbers import many

if TYPE_CHECKING:
    import torch

    from regun.data.examples import Data
    from regun.evaluate import Evaluation
    from regun.runs.audit import Audit
    from regun.runs.setup import Setup
    from regun.splits import Reserve, Splits
    from regun.store import Artefact, Store


def add_audit(commands: Commands) -> None:
    parser = command(
        commands,
        "audit",
        "measure how well a model has forgotten, with intervals and, given retrained models, a noise floor",
        "audit:run",
        "regun audit 9c41 --risks risks.csv",
    )
    parser.add_argument(
        "target",
        metavar="KEY|FILE|MODULE:FUNCTION",
        help="any model of the store, a safetensors file, or a function that returns a trained model",
    )
    parser.add_argument(
        "--base", metavar="KEY", help="the model before unlearning (known for unlearned models of the store)"
    )
    parser.add_argument(
        "--forget", metavar="REQUEST", help=f"(known for unlearned and retrained models of the store) {REQUEST_HELP}"
    )
    parser.add_argument(
        "--retrain", metavar="KEY", help="the retrained model to compare with; default: found in the store"
    )
    parser.add_argument(
        "--references", metavar="KEYS", help="further retrained models, separated by commas; default: found"
    )
    parser.add_argument("--alone", action="store_true", help="use no retrained models, even if the store has some")
    parser.add_argument(
        "--out-models",
        type=whole(0, 100),
        default=0,
        metavar="N",
        help="without retrained models: train N on the retain set for a quarter of the epochs (4 do well), to see how "
        "much influence is left",
    )
    parser.add_argument(
        "--attacks",
        metavar="NAMES",
        help="attacks to run, separated by commas, each a name or file.py:function; default: all that can run",
    )
    parser.add_argument(
        "--metrics", metavar="NAMES", help="further numbers, separated by commas, each file.py:function or a name"
    )
    parser.add_argument(
        "--bootstrap",
        type=whole(0, 1_000_000),
        default=1000,
        metavar="N",
        help="resamples for the intervals (default 1000)",
    )
    parser.add_argument(
        "--shadows",
        type=whole(0, 10_000),
        default=0,
        metavar="N",
        help="also run U-LiRA with N shadow trainings and unlearning runs (unlearned models of the store; costly)",
    )
    parser.add_argument(
        "--method", metavar="FILE", help="with --shadows: your own method, where the model was unlearned with one"
    )
    parser.add_argument(
        "--relearn",
        action="store_true",
        help="also let the model, and the retrained ones, train on retained examples alone, and see what comes back",
    )
    parser.add_argument(
        "--risks",
        metavar="FILE",
        help="write forgotten examples, and retained ones that unlearning exposed, to this .csv or .json file",
    )
    parser.add_argument("--all", action="store_true", help="show every number, not only the main ones")
    add_setup(parser)
    add_machine(parser)


def run(args: argparse.Namespace) -> int:
    from regun.runs.audit import audit_model
    from regun.show.audited import audit_text

    problems = Problems()
    store = problems.attempt(lambda: open_store(args))
    device = problems.attempt(lambda: read_device(args.device))
    problems.attempt(lambda: use_threads(args.threads))
    problems.attempt(lambda: _check_risks(args.risks))
    outside = args.target.endswith(".safetensors") or ":" in args.target
    found = problems.attempt(lambda: store.find(args.target, "model")) if store and not outside else None
    base = problems.attempt(lambda: _base(args, found, store)) if store and not problems.found else None
    setup: Setup | None = None
    if base is not None:
        setup = problems.attempt(lambda: setup_of(base, args))
    elif outside:
        setup = read_setup(args, problems)
    if args.shadows and store:
        problems.attempt(lambda: check_shadows(found, base, store))
    problems.stop_if_any()
    if store is None or device is None or setup is None:
        return 2
    display = Display("audit", args.quiet)
    data, kept = load(setup, display)
    splits = _splits(args, found, base, setup, data, kept, store, device, display)
    target = found or _outside_target(args.target, data, splits, setup, store)
    audit = _audit(args, target, base, data, splits, store)
    if args.out_models and not audit.retrain:
        audit = _with_outs(audit, args.out_models, base, store, device, display)
    display.note(_who(audit))
    evaluation = audit_model(audit, store, device)
    shadowed = audited_by_shadows(args, target, setup, data, store, device) if args.shadows else None
    again = relearn_check(args, audit, base, setup, store, device) if args.relearn else None
    if args.risks:
        _write_risks(Path(args.risks), evaluation, audit, store, device)
    if args.json:
        known = {"target": target, "before": audit.before, "retrain": audit.retrain}
        keys: dict[str, Any] = {name: model.key if model else None for name, model in known.items()}
        keys |= {"references": [r.key for r in audit.references], "outs": [out.key for out in audit.outs]}
        more = {"u_lira": shadowed.to_json() if shadowed else None, "relearning": again.to_json() if again else None}
        emit({"models": keys, **evaluation.to_json(), **more})
    else:
        title = str(target.info.get("title", target.info.get("role", "model")))
        print(audit_text(evaluation, title, len(splits.forget), everything=args.all))
        if shadowed:
            print_shadowed(shadowed, args.shadows)
        if again:
            print_relearned(again)
    return 0


def _check_risks(path: str | None) -> None:
    if path and Path(path).suffix not in (".csv", ".json"):
        raise RegunError(f"--risks is {path[:300]}; give a file that ends in .csv or .json.")


def _base(args: argparse.Namespace, found: Artefact | None, store: Store) -> Artefact | None:
    """The model the target came from, whose manifest knows the data and the split."""
    if args.base:
        return store.find(args.base, "model")
    if found is None:
        return None
    return store.load("model", found.info["base"]) if "base" in found.info else found


def _splits(
    args: argparse.Namespace,
    found: Artefact | None,
    base: Artefact | None,
    setup: Setup,
    data: Data,
    kept: Reserve,
    store: Store,
    device: torch.device,
    display: Display,
) -> Splits:
    """What should have been forgotten: as said, as the model was unlearned, or as it was retrained without."""
    from regun.runs.setup import read_request
    from regun.runs.unlearning import stored_splits

    if not args.forget and found is not None and "splits.safetensors" in found.manifest["files"]:
        return stored_splits(found, len(data.train.labels))
    request = args.forget or (found.info.get("without") if found is not None else None)
    if not request:
        raise AuditError(
            "which examples should have been forgotten? Say it with --forget (0.1, class:3, ids:FILE, ...)."
        )
    return splits_of(read_request(request), base, setup, data, kept, store, device, display)


def _outside_target(text: str, data: Data, splits: Splits, setup: Setup, store: Store) -> Artefact:
    """A model that is not in the store: a safetensors file, or what a function of the user's returns."""
    from regun.models import ModelSpec, build_model
    from regun.runs.training import import_model, import_state, input_shape

    about = setup.about()
    if text.endswith(".safetensors"):
        return import_model(Path(text), data, splits.base, setup.model, store, about=about)
    spec = ModelSpec(text)
    state = build_model(spec, data.train.num_classes, input_shape(data, splits.base), 0).state_dict()
    return import_state(state, data, splits.base, spec, store, about=about)


def _audit(
    args: argparse.Namespace, target: Artefact, base: Artefact | None, data: Data, splits: Splits, store: Store
) -> Audit:
    """What to judge, by whom, and against which retrained models: those named, or those found in the store."""
    from regun.runs.audit import Audit, before_of
    from regun.runs.training import find_retrained

    found = find_retrained(store, base, splits.retain) if base is not None and not args.alone else []
    others = [model for model in found if model.key != target.key]
    retrain = store.find(args.retrain, "model") if args.retrain else next(iter(others), None)
    if args.references:
        others = [store.find(key, "model") for key in args.references.split(",")]
    known = {target.key, retrain.key} if retrain is not None else {target.key}
    return Audit(
        target=target,
        data=data,
        splits=splits,
        before=before_of(target, splits, store) or (base if base is not None and args.base else None),
        retrain=None if args.alone else retrain,
        references=() if args.alone else tuple(model for model in others if model.key not in known),
        attacks=_names(args.attacks),
        metrics=_names(args.metrics) or (),
        bootstrap=args.bootstrap,
    )


def _names(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",")) if text else None


def _with_outs(
    audit: Audit, count: int, base: Artefact | None, store: Store, device: torch.device, display: Display
) -> Audit:
    """The audit with short trainings on the retain set, which stand in for retrained models."""
    from regun.runs.outs import short_outs
    from regun.runs.training import Watch

    if base is None:
        raise AuditError("--out-models trains as the base was trained; name it with --base.")
    display.note(f"{many(count, 'short training')} on the retain set, for models that never saw the forgotten examples")
    watch = Watch(lambda epoch, _: display.epoch(epoch), display.progress)
    outs = short_outs(base, audit.data, audit.splits, count, store, device, watch)
    display.close()
    return replace(audit, outs=outs)


def _who(audit: Audit) -> str:
    """Who judges."""
    before = "" if audit.before else "; the model before unlearning is not known: name it with --base"
    if audit.retrain is not None:
        keys = ", ".join(r.key[:12] for r in audit.references) or "none"
        return f"against retrained model {audit.retrain.key[:12]}, references: {keys}{before}"
    if audit.outs:
        return f"against {many(len(audit.outs), 'short training')} on the retain set{before}"
    make = "make some with regun train --without REQUEST --seed N, or short ones with --out-models 4"
    return f"no models that never saw the forgotten examples; {make}{before}"


def _write_risks(path: Path, evaluation: Evaluation, audit: Audit, store: Store, device: torch.device) -> None:
    from regun.evaluate import risk_rows
    from regun.runs.audit import risks
    from regun.show.spreadsheet import csv_text
    from regun.store import write_file

    rows = risk_rows(risks(audit, store, device), evaluation.exposed)
    as_csv = path.suffix == ".csv"
    text = csv_text(list(rows[0]), [list(row.values()) for row in rows]) if as_csv else json.dumps(rows, indent=1)
    write_file(path, text.encode())
