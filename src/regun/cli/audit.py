"""`regun audit`."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from regun.cli.options import Problems, load, read_device, read_setup, setup_of, use_threads
from regun.cli.terminal import Display, emit, table
from regun.data.examples import Data
from regun.errors import AuditError, RegunError
from regun.evaluate import AttackResult, Evaluation, Gap, Number, describe, risk_csv, risk_rows
from regun.methods import get_method
from regun.models import ModelSpec, build_model
from regun.runs.audit import Judging, Models, audit_models, find_retrained, risks
from regun.runs.setup import Setup, read_request
from regun.runs.shadows import Shadowed, audit_by_shadows
from regun.runs.training import Training, Watch, import_model, import_state
from regun.splits import Splits, make_splits
from regun.store import Artefact, Store
from regun.training.recipes import Recipe

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


def run(args: argparse.Namespace) -> int:
    problems = Problems()
    store = problems.attempt(lambda: Store(args.store, snapshot_seconds=args.snapshot_seconds))
    device = problems.attempt(lambda: read_device(args.device))
    problems.attempt(lambda: use_threads(args.threads))
    outside = args.target.endswith(".safetensors") or ":" in args.target
    found = problems.attempt(lambda: store.find(args.target, "model")) if store and not outside else None
    base = problems.attempt(lambda: _base(args, found, store)) if store and not problems.found else None
    setup: Setup | None = None
    if base is not None:
        setup = problems.attempt(lambda: setup_of(base, args))
    elif outside:
        setup = read_setup(args, problems)
    problems.stop_if_any()
    if store is None or device is None or setup is None:
        return 2
    display = Display("audit", args.quiet)
    data, kept = load(setup, display)
    splits = _splits(args, found, data, kept)
    target = found or _outside_target(args.target, data, splits, setup, store)
    models = _models(args, target, base, splits, store)
    display.note(_who(models))
    names = tuple(args.attacks.split(",")) if args.attacks else None
    evaluation = audit_models(models, data, splits, store, device, Judging(names, args.bootstrap))
    shadowed = _by_shadows(args, target, base, data, splits, store, device) if args.shadows else None
    if args.risks:
        _write_risks(Path(args.risks), models, data, splits, store, device)
    if args.json:
        keys: dict[str, Any] = {"target": target.key, "retrain": models.retrain.key if models.retrain else None}
        keys["references"] = [r.key for r in models.references]
        emit({"models": keys, **evaluation.to_json(), "u_lira": shadowed.to_json() if shadowed else None})
    else:
        _print(evaluation, models, len(splits.forget), everything=args.all)
        if shadowed:
            _print_shadowed(shadowed, args.shadows)
    return 0


def _base(args: argparse.Namespace, found: Artefact | None, store: Store) -> Artefact | None:
    """The model the target came from, whose manifest knows the data and the split."""
    if args.base:
        return store.find(args.base, "model")
    if found is None:
        return None
    return store.load("model", found.info["base"]) if "base" in found.info else found


def _splits(args: argparse.Namespace, found: Artefact | None, data: Data, kept: Any) -> Splits:
    if args.forget:
        return make_splits(data.train.labels, read_request(args.forget), kept)
    if found is not None and "splits.safetensors" in found.manifest["files"]:
        parts = {name: tensor.numpy() for name, tensor in found.tensors("splits").items()}
        return Splits(**parts, total=len(data.train.labels))
    raise AuditError("which examples should have been forgotten? Say it with --forget (0.1, class:3, ids:FILE, ...).")


def _outside_target(text: str, data: Data, splits: Splits, setup: Setup, store: Store) -> Artefact:
    """A model that is not in the store: a safetensors file, or what a function of the user's returns."""
    about = setup.about()
    if text.endswith(".safetensors"):
        return import_model(Path(text), data, splits.base, setup.model, store, about=about)
    spec = ModelSpec(text)
    shape = Training(data, splits.base, spec, Recipe(), 0).input_shape()
    state = build_model(spec, data.train.num_classes, shape, 0).state_dict()
    return import_state(state, data, splits.base, spec, shape, store, about=about)


def _models(args: argparse.Namespace, target: Artefact, base: Artefact | None, splits: Splits, store: Store) -> Models:
    """The retrained models: those named, or those in the store that were trained like the base on the retain set."""
    if args.alone:
        return Models(target)
    found = [a for a in find_retrained(store, base, splits) if a.key != target.key] if base is not None else []
    retrain = store.find(args.retrain, "model") if args.retrain else next(iter(found), None)
    if args.references:
        references = [store.find(key, "model") for key in args.references.split(",")]
    else:
        references = [a for a in found if retrain is None or a.key != retrain.key]
    return Models(target, retrain, tuple(r for r in references if r.key != target.key))


def _who(models: Models) -> str:
    if models.retrain is None:
        return "no retrained models; make some with: regun train --without REQUEST --seed N"
    keys = ", ".join(r.key[:12] for r in models.references) or "none"
    return f"against retrained model {models.retrain.key[:12]}, references: {keys}"


def _by_shadows(
    args: argparse.Namespace,
    target: Artefact,
    base: Artefact | None,
    data: Data,
    splits: Splits,
    store: Store,
    device: torch.device,
) -> AttackResult:
    """U-LiRA of an unlearned model of the store, whose manifest knows the method and its settings."""
    if base is None or "method" not in target.inputs or "recipe" not in base.inputs:
        raise AuditError("--shadows repeats training and unlearning; give a model that regun trained and unlearned.")
    method = get_method(target.inputs["method"]["name"])
    config = method.configure(target.inputs["method"]["config"])
    display = Display("shadows", args.quiet)
    watch = Watch(lambda epoch, _: display.epoch(epoch), display.progress)
    shadowed = Shadowed(base, target, method, config, data, splits)
    found = audit_by_shadows(shadowed, store, device, shadows=args.shadows, bootstrap=args.bootstrap, watch=watch)
    display.close()
    return found


def _write_risks(path: Path, models: Models, data: Data, splits: Splits, store: Store, device: torch.device) -> None:
    found = risks(models, data, splits, store, device)
    if path.suffix not in (".csv", ".json"):
        raise RegunError(f"--risks is {path}; give a file that ends in .csv or .json.")
    text = risk_csv(found) if path.suffix == ".csv" else json.dumps(risk_rows(found), indent=1)
    try:
        path.write_text(text)
    except OSError as fault:
        raise RegunError(f"cannot write {path}: {fault.strerror or fault}.") from None


def _print(evaluation: Evaluation, models: Models, forgotten: int, *, everything: bool) -> None:
    print(
        f"{models.target.info.get('title', models.target.info.get('role', 'model'))}: {forgotten:,} examples to forget"
    )
    wanted = MAIN if evaluation.retrain else ALONE
    names = [n for n in (evaluation.numbers if everything else wanted) if n in evaluation.numbers]
    rows = [_row(evaluation, name) for name in names]
    print(table(["number", "value", "95 % interval", "Retrain", "distance", "noise floor", "verdict"], rows))
    print("\nWhat the numbers mean:")
    for name in names:
        metric = describe(name)
        print(f"  {metric.label}: {metric.meaning}. Good: {metric.good}.")
    if evaluation.flags:
        shown = evaluation.flags if everything else evaluation.flags[:2]
        print("\nWarnings:\n" + "\n".join(f"  {flag}" for flag in shown))
        if len(shown) < len(evaluation.flags):
            print(f"  ... and {len(evaluation.flags) - len(shown)} more of this kind; --all shows them.")
    print("\nWhat this audit can and cannot say:\n" + "\n".join(f"  {claim}" for claim in evaluation.claims))
    if evaluation.verdict:
        print(f"\nVerdict on Gap RFTP: {evaluation.verdict} from retraining.")


def _print_shadowed(found: AttackResult, shadows: int) -> None:
    interval = f" ({found.auc.low:.2f} to {found.auc.high:.2f})" if found.auc.low is not None else ""
    print(f"\nU-LiRA AUC against validation, {shadows} shadow runs: {found.auc.value:.2f}{interval}. Good: 50.")
    print("  This attacker knows the method, its settings, and how it leaves the examples it has unlearned.")


def _row(evaluation: Evaluation, name: str) -> list[str]:
    number: Number = evaluation.numbers[name]
    gap: Gap | None = evaluation.gaps.get(name)
    interval = f"{number.low:.2f} to {number.high:.2f}" if number.low is not None and number.high is not None else ""
    retrain = f"{evaluation.retrain[name]:.2f}" if name in evaluation.retrain else ""
    distance = f"{gap.value:.2f}" if gap else ""
    floor = f"{gap.floor_mean:.2f} (max {gap.floor_largest:.2f})" if gap and gap.floor_mean is not None else ""
    return [
        describe(name).label,
        f"{number.value:.2f}",
        interval,
        retrain,
        distance,
        floor,
        (gap and gap.verdict) or "",
    ]
