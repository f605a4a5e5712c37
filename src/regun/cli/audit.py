"""`regun audit`."""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regun.artifacts import Artifact, Store, reading
from regun.artifacts.audits import Auditing, audit_model, audited_parts, model_before, risks
from regun.artifacts.out_models import OutModel, out_model_predictions
from regun.artifacts.relearnings import Relearning, relearn_models
from regun.artifacts.setup import Setup
from regun.artifacts.shadows import audit_by_shadows
from regun.artifacts.trainings import import_model, import_state, input_shape
from regun.artifacts.unlearnings import Unlearning, stored_splits
from regun.auditing import AttackResult, risk_rows
from regun.auditing.durability import Relearned, with_relearning
from regun.auditing.text import audit_text, relearning_text, shadows_text
from regun.cli.arguments import BAD_INPUT
from regun.cli.display import open_display
from regun.cli.options import (
    RunContext,
    load,
    open_run_context,
    read_setup,
    retrained_models,
    setup_of,
    splits_of,
)
from regun.cli.terminal import emit
from regun.errors import AuditError, DivergedError, Problems
from regun.files import write_file
from regun.forget_spec import ForgetSpec
from regun.methods import get_method
from regun.models import ModelSpec, build_model
from regun.plugins import trusted_name
from regun.render.numbers import many
from regun.render.tables import csv_of


@dataclass(frozen=True)
class Subject:
    """The model to audit, if it is in the store, the base it came from, if known, and their data, model and split."""

    stored: Artifact | None
    base: Artifact | None
    setup: Setup


def run(args: argparse.Namespace) -> int:
    problems = Problems()
    context = open_run_context(args, "audit", problems)
    if args.risks and Path(args.risks).suffix not in (".csv", ".json"):
        problems.add(f"--risks is {args.risks[:300]}; give a file that ends in .csv or .json.")
    subject = problems.attempt(lambda: _read_subject(args, context.store)) if context else None
    problems.stop_if_any()
    if context is None or subject is None:
        return BAD_INPUT
    audit = _audit(args, subject, context)
    context.display.note(_compared_with(audit))
    evaluation = audit_model(audit, context.store, context.device)
    u_lira = _run_shadows(args, audit, subject, context) if args.shadows else None
    relearned = _relearn(args, audit, subject, context) if args.relearn else None
    if args.risks:
        rows = risk_rows(risks(audit, context.store, context.device), evaluation.exposed)
        text = csv_of(rows) if args.risks.endswith(".csv") else json.dumps(rows, indent=1)
        write_file(Path(args.risks), text.encode())
    if args.json:
        models = {"target": audit.target, "before": audit.before, "retrain": audit.retrain}
        keys: dict[str, Any] = {name: model.key if model else None for name, model in models.items()}
        keys |= {"references": [r.key for r in audit.references], "out_models": [out.key for out in audit.out_models]}
        extra = {
            "u_lira": u_lira.to_json() if u_lira else None,
            "relearning": relearned.to_json() if relearned else None,
        }
        emit({"models": keys, **evaluation.to_json(), **extra})
        return 0
    title = str(audit.target.info.get("title", audit.target.info.get("role", "model")))
    complete = with_relearning(evaluation, relearned) if relearned else evaluation
    print(audit_text(complete, title, everything=args.all))
    if u_lira:
        print("\n" + shadows_text(u_lira, args.shadows))
    if relearned:
        print("\n" + relearning_text(relearned))
    return 0


def _read_subject(args: argparse.Namespace, store: Store) -> Subject:
    """Return the models that the arguments name, checked but not loaded."""
    outside = args.target.endswith(".safetensors") or ":" in args.target
    stored = None if outside else store.find(args.target, "model")
    base = stored
    if args.base:
        base = store.find(args.base, "model")
    elif stored is not None and "base" in stored.info:
        base = store.load("model", stored.info["base"])
    setup = read_setup(args) if base is None else setup_of(base, args)
    if args.shadows:
        if not (stored and base and "method" in stored.inputs and "recipe" in base.inputs):
            raise AuditError(
                "--shadows repeats training and unlearning; give a model that regun trained and unlearned."
            )
        with reading(stored):
            trusted_name(stored.inputs["method"]["name"], None, store.trusted, "--method")
    return Subject(stored, base, setup)


def _audit(args: argparse.Namespace, subject: Subject, context: RunContext) -> Auditing:
    """Return the audit: target, splits, and the retrained models that are named or in the store."""
    stored, base, setup = subject.stored, subject.base, subject.setup
    data, reserved = load(setup, context.display)
    request = args.forget or (stored.info.get("without") if stored is not None else None)
    if not args.forget and stored is not None and "splits.safetensors" in stored.manifest["files"]:
        splits = stored_splits(stored, len(data.train.labels))
    elif request:
        splits = splits_of(ForgetSpec.parse(request), base, setup, data, reserved, context)
    else:
        raise AuditError("the forget set is not recorded with this model; give --forget (0.1, class:3, ids:FILE, ...).")
    if stored is not None:
        target = stored
    elif args.target.endswith(".safetensors"):
        target = import_model(Path(args.target), data, splits.base, setup.model, context.store, about=setup.about())
    else:
        spec = ModelSpec(args.target)
        state = build_model(spec, data.train.num_classes, input_shape(data, splits.base), 0).state_dict()
        target = import_state(state, data, splits.base, spec, context.store, about=setup.about())
    retrain, references = retrained_models(args.retrained, base, splits, context.store, target)
    attacks, metrics = (
        tuple(name.strip() for name in text.split(",")) if text else None for text in (args.attacks, args.metrics)
    )
    audit = Auditing(
        target=target,
        data=data,
        splits=splits,
        before=model_before(target, splits, context.store) or (base if args.base else None),
        retrain=retrain,
        references=references,
        attacks=attacks,
        metrics=metrics or (),
        bootstrap=args.bootstrap,
    )
    return _with_out_models(audit, args.out_models, base, context) if args.out_models and not retrain else audit


def _with_out_models(audit: Auditing, count: int, base: Artifact | None, context: RunContext) -> Auditing:
    """Return the audit with short trainings on the retain set, which stand in for retrained models."""
    if base is None:
        raise AuditError("--out-models trains as the base was trained; name it with --base.")
    context.display.note(f"{many(count, 'short training')} on the retain set")
    sets = {name: part for name, part in audited_parts(audit.data, audit.splits).items() if name != "retain"}
    models = [OutModel.like(base, audit.data, audit.splits, number) for number in range(count)]
    callbacks = context.display.callbacks()
    out_models = tuple(
        out_model_predictions(model, sets, context.store, context.device, watch=callbacks) for model in models
    )
    context.display.close()
    for model in out_models:
        if model.stopped:
            raise DivergedError(f"an out-of-sample model stopped training: {model.stopped}.")
    return replace(audit, out_models=out_models)


def _compared_with(audit: Auditing) -> str:
    before = "" if audit.before else "; the model before unlearning is not recorded: name it with --base"
    if audit.retrain is not None:
        keys = ", ".join(r.key[:12] for r in audit.references) or "none"
        return f"compared with retrained model {audit.retrain.key[:12]}, references: {keys}{before}"
    if audit.out_models:
        return f"compared with {many(len(audit.out_models), 'short training')} on the retain set{before}"
    make = "make some with regun train --without FORGET --seed N, or short ones with --out-models 4"
    return f"no model without the forgotten examples to compare with; {make}{before}"


def _run_shadows(args: argparse.Namespace, audit: Auditing, subject: Subject, context: RunContext) -> AttackResult:
    """Return U-LiRA of an unlearned model of the store: its run, repeated on shadow models."""
    target, data, store = audit.target, audit.data, context.store
    method = get_method(trusted_name(target.inputs["method"]["name"], None, store.trusted, "--method"))
    display = open_display(args, "shadows")
    result = audit_by_shadows(
        target,
        Unlearning.of(target, subject.setup.data_for(method, data), store),
        data,
        store,
        context.device,
        shadows=args.shadows,
        bootstrap=args.bootstrap,
        watch=display.callbacks(),
    )
    display.close()
    return result


def _relearn(args: argparse.Namespace, audit: Auditing, subject: Subject, context: RunContext) -> Relearned:
    """Return the relearning check of the audited model next to the same retrained models."""
    data = subject.setup.data_for(get_method("finetune"), audit.data)
    run = Relearning.of(audit.target, data, audit.splits, subject.base or audit.target)
    return relearn_models(
        run,
        audit.retrain,
        audit.references,
        context.store,
        context.device,
        before=audit.before,
        on_model=open_display(args, "relearn").counter("model"),
    )
