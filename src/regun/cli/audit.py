"""`regun audit`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regun.cli.arguments import REQUEST_HELP, Commands, add_machine, add_setup, command, whole
from regun.cli.options import Problems, load, open_store, read_device, read_setup, setup_of, use_threads
from regun.cli.terminal import Display, emit
from regun.errors import AuditError, RegunError
from regun.plugins import trusted_name
from regun.show.numbers import fixed, interval, many
from regun.show.text import table

if TYPE_CHECKING:
    import torch

    from regun.data.examples import Data
    from regun.evaluate import AttackResult, Evaluation
    from regun.runs.audit import Audit
    from regun.runs.setup import Setup
    from regun.splits import Reserve, Splits
    from regun.store import Artefact, Store

MAIN = (
    "retain_acc",
    "forget_acc",
    "test_acc",
    "retain_div",
    "test_div",
    "smia_auc",
    "rmia_auc",
    "rmia_offline_auc",
    "lira_auc",
    "lira_tpr1",
    "forget_entropy",
    "gap_rftp",
    "gap_tp",
)
ALONE = ("retain_acc", "forget_acc", "test_acc", "val_acc", "heldout_acc", "smia_auc", "smia_auc_heldout")
"""Numbers shown without --all, with and without a retrained model; those of the user's own are shown as well."""


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
        "--base", metavar="KEY", help="the model it came from (known for unlearned models of the store)"
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
    parser.add_argument("--risks", metavar="FILE", help="write the per-example risk list to this .csv or .json file")
    parser.add_argument("--all", action="store_true", help="show every number, not only the main ones")
    add_setup(parser)
    add_machine(parser)


def run(args: argparse.Namespace) -> int:
    from regun.runs.audit import audit_model

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
        problems.attempt(lambda: _check_shadows(found, base, store))
    problems.stop_if_any()
    if store is None or device is None or setup is None:
        return 2
    display = Display("audit", args.quiet)
    data, kept = load(setup, display)
    splits = _splits(args, found, data, kept)
    target = found or _outside_target(args.target, data, splits, setup, store)
    audit = _audit(args, target, base, data, splits, store)
    display.note(_who(audit))
    evaluation = audit_model(audit, store, device)
    shadowed = _by_shadows(args, target, setup, data, store, device) if args.shadows else None
    if args.risks:
        _write_risks(Path(args.risks), audit, store, device)
    if args.json:
        keys: dict[str, Any] = {"target": target.key, "retrain": audit.retrain.key if audit.retrain else None}
        keys["references"] = [r.key for r in audit.references]
        emit({"models": keys, **evaluation.to_json(), "u_lira": shadowed.to_json() if shadowed else None})
    else:
        _print(evaluation, audit, everything=args.all)
        if shadowed:
            _print_shadowed(shadowed, args.shadows)
    return 0


def _check_risks(path: str | None) -> None:
    if path and Path(path).suffix not in (".csv", ".json"):
        raise RegunError(f"--risks is {path[:300]}; give a file that ends in .csv or .json.")


def _check_shadows(found: Artefact | None, base: Artefact | None, store: Store) -> None:
    from regun.store import reading

    if not (found and base and "method" in found.inputs and "recipe" in base.inputs):
        raise AuditError("--shadows repeats training and unlearning; give a model that regun trained and unlearned.")
    with reading(found):
        trusted_name(found.inputs["method"]["name"], None, store.trusted, "--method")


def _base(args: argparse.Namespace, found: Artefact | None, store: Store) -> Artefact | None:
    """The model the target came from, whose manifest knows the data and the split."""
    if args.base:
        return store.find(args.base, "model")
    if found is None:
        return None
    return store.load("model", found.info["base"]) if "base" in found.info else found


def _splits(args: argparse.Namespace, found: Artefact | None, data: Data, kept: Reserve) -> Splits:
    """What should have been forgotten: as said, as the model was unlearned, or as it was retrained without."""
    from regun.runs.setup import read_request
    from regun.runs.unlearning import stored_splits
    from regun.splits import make_splits

    if not args.forget and found is not None and "splits.safetensors" in found.manifest["files"]:
        return stored_splits(found, len(data.train.labels))
    request = args.forget or (found.info.get("without") if found is not None else None)
    if not request:
        raise AuditError(
            "which examples should have been forgotten? Say it with --forget (0.1, class:3, ids:FILE, ...)."
        )
    return make_splits(data.train.labels, read_request(request), kept)


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
    from regun.runs.audit import Audit
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
        retrain=None if args.alone else retrain,
        references=() if args.alone else tuple(model for model in others if model.key not in known),
        attacks=_names(args.attacks),
        metrics=_names(args.metrics) or (),
        bootstrap=args.bootstrap,
    )


def _names(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",")) if text else None


def _who(audit: Audit) -> str:
    if audit.retrain is None:
        return "no retrained models; make some with: regun train --without REQUEST --seed N"
    keys = ", ".join(r.key[:12] for r in audit.references) or "none"
    return f"against retrained model {audit.retrain.key[:12]}, references: {keys}"


def _by_shadows(
    args: argparse.Namespace, target: Artefact, setup: Setup, data: Data, store: Store, device: torch.device
) -> AttackResult:
    """U-LiRA of an unlearned model of the store: its own run, repeated on shadow models."""
    from regun.methods import get_method
    from regun.runs.shadows import audit_by_shadows
    from regun.runs.training import Watch
    from regun.runs.unlearning import Unlearning

    method = get_method(trusted_name(target.inputs["method"]["name"], None, store.trusted, "--method"))
    again = Unlearning.of(target, setup.seen_by(method, data), store)
    display = Display("shadows", args.quiet)
    watch = Watch(lambda epoch, _: display.epoch(epoch), display.progress)
    found = audit_by_shadows(
        target, again, data, store, device, shadows=args.shadows, bootstrap=args.bootstrap, watch=watch
    )
    display.close()
    return found


def _write_risks(path: Path, audit: Audit, store: Store, device: torch.device) -> None:
    from regun.evaluate import risk_rows
    from regun.runs.audit import risks
    from regun.show.spreadsheet import csv_text
    from regun.store import write_file

    rows = risk_rows(risks(audit, store, device))
    as_csv = path.suffix == ".csv"
    text = csv_text(list(rows[0]), [list(row.values()) for row in rows]) if as_csv else json.dumps(rows, indent=1)
    write_file(path, text.encode())


def _print(evaluation: Evaluation, audit: Audit, *, everything: bool) -> None:
    from regun.evaluate import VERDICTS, describe

    about = audit.target.info
    forgotten = many(len(audit.splits.forget), "example")
    print(f"{about.get('title', about.get('role', 'model'))}: {forgotten} to forget")
    wanted = (*(MAIN if evaluation.retrain else ALONE), *evaluation.metrics)
    names = [n for n in (evaluation.numbers if everything else dict.fromkeys(wanted)) if n in evaluation.numbers]
    head = ["number", "value", "95 % interval", "Retrain", "distance", "noise floor", "verdict"]
    print(table(head, [_row(evaluation, name) for name in names]))
    print("\nWhat the numbers mean:")
    for metric in (describe(name, evaluation) for name in names):
        print(f"  {metric.label}: {metric.meaning}. Good: {metric.good}.")
    if evaluation.flags:
        shown = evaluation.flags if everything else evaluation.flags[:2]
        print("\nWarnings:\n" + "\n".join(f"  {flag}" for flag in shown))
        if len(shown) < len(evaluation.flags):
            print(f"  ... and {len(evaluation.flags) - len(shown)} more of this kind; --all shows them.")
    print("\nWhat this audit can and cannot say:\n" + "\n".join(f"  {claim}" for claim in evaluation.claims))
    if evaluation.verdict:
        words = VERDICTS[evaluation.verdict]
        print(f"\nVerdict on Gap RFTP: {words.phrase} ({words.meaning}).")


def _print_shadowed(found: AttackResult, shadows: int) -> None:
    ends = interval(found.auc.low, found.auc.high, 2)
    shown = fixed(found.auc.value) + (f" ({ends})" if ends else "")
    print(f"\nU-LiRA AUC against validation, {many(shadows, 'shadow run')}: {shown}. Good: 50.")
    print("  This attacker knows the method, its settings, and how it leaves the examples it has unlearned.")


def _row(evaluation: Evaluation, name: str) -> list[str]:
    from regun.evaluate import VERDICTS, describe

    number, gap = evaluation.numbers[name], evaluation.gaps.get(name)
    floor = ""
    if gap and gap.floor_mean is not None and gap.floor_largest is not None:
        floor = f"{fixed(gap.floor_mean)} (max {fixed(gap.floor_largest)})"
    return [
        describe(name, evaluation).label,
        fixed(number.value),
        interval(number.low, number.high, 2),
        fixed(evaluation.retrain[name]) if name in evaluation.retrain else "",
        fixed(gap.value) if gap else "",
        floor,
        VERDICTS[gap.verdict].short if gap and gap.verdict else "",
    ]
