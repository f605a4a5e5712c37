"""`regun audit`."""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regun.artifacts import Artifact, Store, reading, write_file
from regun.artifacts.audits import Auditing, audit_model, audited_parts, model_before, risks
from regun.artifacts.out_models import OutModel, OutPredictions, out_model_predictions
from regun.artifacts.relearnings import Relearning, relearn_models
from regun.artifacts.setup import Setup
from regun.artifacts.shadows import audit_by_shadows
from regun.artifacts.trainings import import_model, import_state, input_shape
from regun.artifacts.unlearnings import Unlearning, stored_splits
from regun.auditing import AttackResult, Evaluation, risk_rows
from regun.auditing.durability import Relearned, with_relearning
from regun.cli.arguments import WRONG
from regun.cli.options import Place, Problems, load, open_place, read_setup, retrained_models, setup_of, splits_of
from regun.cli.terminal import Display, emit
from regun.data.examples import Data
from regun.errors import AuditError, DivergedError, RegunError
from regun.forget_spec import ForgetSpec
from regun.methods import get_method
from regun.models import ModelSpec, build_model
from regun.plugins import trusted_name
from regun.render.audit_text import audit_text, relearning_text, shadows_text
from regun.render.numbers import many
from regun.render.tables import csv_of
from regun.splits import Reserve, Splits


@dataclass(frozen=True)
class Subject:
    """The model to judge, if the store has it; the one it came from, if that is known; their data, model and split."""

    found: Artifact | None
    base: Artifact | None
    setup: Setup


def run(args: argparse.Namespace) -> int:
    problems = Problems()
    place = open_place(args, "audit", problems)
    problems.attempt(lambda: _check_risks(args.risks))
    subject = problems.attempt(lambda: _subject(args, place.store)) if place else None
    if args.shadows and place and subject:
        problems.attempt(lambda: _check_shadows(subject, place.store))
    problems.stop_if_any()
    if place is None or subject is None:
        return WRONG
    audit = _audit(args, subject, place)
    place.display.note(_who(audit))
    evaluation = audit_model(audit, place.store, place.device)
    shadowed = _by_shadows(args, audit, subject, place) if args.shadows else None
    again = _relearned(args, audit, subject, place) if args.relearn else None
    if args.risks:
        _write_risks(Path(args.risks), evaluation, audit, place)
    if args.json:
        more = {"u_lira": shadowed.to_json() if shadowed else None, "relearning": again.to_json() if again else None}
        emit({"models": _keys(audit), **evaluation.to_json(), **more})
    else:
        _print(args, audit, evaluation, shadowed, again)
    return 0


def _check_risks(path: str | None) -> None:
    if path and Path(path).suffix not in (".csv", ".json"):
        raise RegunError(f"--risks is {path[:300]}; give a file that ends in .csv or .json.")


def _subject(args: argparse.Namespace, store: Store) -> Subject:
    """What the arguments name, checked but not yet loaded."""
    outside = args.target.endswith(".safetensors") or ":" in args.target
    found = None if outside else store.find(args.target, "model")
    base = found
    if args.base:
        base = store.find(args.base, "model")
    elif found is not None and "base" in found.info:
        base = store.load("model", found.info["base"])
    return Subject(found, base, read_setup(args) if base is None else setup_of(base, args))


def _audit(args: argparse.Namespace, subject: Subject, place: Place) -> Auditing:
    """What to judge, by whom, and against which retrained models: those named, or those found in the store."""
    data, kept = load(subject.setup, place.display)
    splits, base = _forgotten(args, subject, data, kept, place), subject.base
    target = subject.found or _outside_target(args.target, data, splits, subject.setup, place.store)
    retrain, references = (None, ()) if args.alone else retrained_models(args, base, splits, place.store, target)
    audit = Auditing(
        target=target,
        data=data,
        splits=splits,
        before=model_before(target, splits, place.store) or (base if args.base else None),
        retrain=retrain,
        references=references,
        attacks=_names(args.attacks),
        metrics=_names(args.metrics) or (),
        bootstrap=args.bootstrap,
    )
    return _with_outs(audit, args.out_models, base, place) if args.out_models and not retrain else audit


def _forgotten(args: argparse.Namespace, subject: Subject, data: Data, kept: Reserve, place: Place) -> Splits:
    """What should have been forgotten: as said, as the model was unlearned, or as it was retrained without."""
    found = subject.found
    if not args.forget and found is not None and "splits.safetensors" in found.manifest["files"]:
        return stored_splits(found, len(data.train.labels))
    request = args.forget or (found.info.get("without") if found is not None else None)
    if not request:
        raise AuditError(
            "which examples should have been forgotten? Say it with --forget (0.1, class:3, ids:FILE, ...)."
        )
    return splits_of(ForgetSpec.parse(request), subject.base, subject.setup, data, kept, place)


def _outside_target(text: str, data: Data, splits: Splits, setup: Setup, store: Store) -> Artifact:
    """A model that is not in the store: a safetensors file, or what a function of the user's returns."""
    about = setup.about()
    if text.endswith(".safetensors"):
        return import_model(Path(text), data, splits.base, setup.model, store, about=about)
    spec = ModelSpec(text)
    state = build_model(spec, data.train.num_classes, input_shape(data, splits.base), 0).state_dict()
    return import_state(state, data, splits.base, spec, store, about=about)


def _names(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",")) if text else None


def _with_outs(audit: Auditing, count: int, base: Artifact | None, place: Place) -> Auditing:
    """The audit with short trainings on the retain set, which stand in for retrained models."""
    if base is None:
        raise AuditError("--out-models trains as the base was trained; name it with --base.")
    what = "on the retain set, for models that never saw the forgotten examples"
    place.display.note(f"{many(count, 'short training')} {what}")
    watch = place.display.watch()
    sets = {name: part for name, part in audited_parts(audit.data, audit.splits).items() if name != "retain"}
    outs: list[OutPredictions] = []
    for number in range(count):
        out = OutModel.like(base, audit.data, audit.splits, number)
        outs.append(out_model_predictions(out, sets, place.store, place.device, watch=watch))
        if outs[-1].stopped:
            raise DivergedError(f"an out-of-sample model stopped training: {outs[-1].stopped}.")
    place.display.close()
    return replace(audit, out_models=tuple(outs))


def _who(audit: Auditing) -> str:
    """Who judges."""
    before = "" if audit.before else "; the model before unlearning is not known: name it with --base"
    if audit.retrain is not None:
        keys = ", ".join(r.key[:12] for r in audit.references) or "none"
        return f"against retrained model {audit.retrain.key[:12]}, references: {keys}{before}"
    if audit.out_models:
        return f"against {many(len(audit.out_models), 'short training')} on the retain set{before}"
    make = "make some with regun train --without REQUEST --seed N, or short ones with --out-models 4"
    return f"no models that never saw the forgotten examples; {make}{before}"


def _check_shadows(subject: Subject, store: Store) -> None:
    """Raise unless the model's training and unlearning can be repeated."""
    found, base = subject.found, subject.base
    if not (found and base and "method" in found.inputs and "recipe" in base.inputs):
        raise AuditError("--shadows repeats training and unlearning; give a model that regun trained and unlearned.")
    with reading(found):
        trusted_name(found.inputs["method"]["name"], None, store.trusted, "--method")


def _by_shadows(args: argparse.Namespace, audit: Auditing, subject: Subject, place: Place) -> AttackResult:
    """U-LiRA of an unlearned model of the store: its own run, repeated on shadow models."""
    target, data, store = audit.target, audit.data, place.store
    method = get_method(trusted_name(target.inputs["method"]["name"], None, store.trusted, "--method"))
    again = Unlearning.of(target, subject.setup.data_for(method, data), store)
    display = Display("shadows", args.quiet)
    found = audit_by_shadows(
        target,
        again,
        data,
        store,
        place.device,
        shadows=args.shadows,
        bootstrap=args.bootstrap,
        watch=display.watch(),
    )
    display.close()
    return found


def _relearned(args: argparse.Namespace, audit: Auditing, subject: Subject, place: Place) -> Relearned:
    """The relearning check of the audited model next to the same retrained models; curves are kept in the store."""
    seen = subject.setup.data_for(get_method("finetune"), audit.data)
    run = Relearning.of(audit.target, seen, audit.splits, subject.base or audit.target)
    tell = Display("relearn", args.quiet).counter("model")
    judges = (audit.retrain, audit.references, place.store, place.device)
    return relearn_models(run, *judges, before=audit.before, on_model=tell)


def _write_risks(path: Path, evaluation: Evaluation, audit: Auditing, place: Place) -> None:
    rows = risk_rows(risks(audit, place.store, place.device), evaluation.exposed)
    as_csv = path.suffix == ".csv"
    text = csv_of(rows) if as_csv else json.dumps(rows, indent=1)
    write_file(path, text.encode())


def _keys(audit: Auditing) -> dict[str, Any]:
    known = {"target": audit.target, "before": audit.before, "retrain": audit.retrain}
    keys = {name: model.key if model else None for name, model in known.items()}
    return {
        **keys,
        "references": [r.key for r in audit.references],
        "out_models": [out.key for out in audit.out_models],
    }


def _print(
    args: argparse.Namespace,
    audit: Auditing,
    evaluation: Evaluation,
    shadowed: AttackResult | None,
    again: Relearned | None,
) -> None:
    title = str(audit.target.info.get("title", audit.target.info.get("role", "model")))
    found = with_relearning(evaluation, again) if again else evaluation
    print(audit_text(found, title, len(audit.splits.forget), everything=args.all))
    if shadowed:
        print("\n" + shadows_text(shadowed, args.shadows))
    if again:
        print("\n" + relearning_text(again))
