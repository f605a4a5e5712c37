"""`regun audit`."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regun.cli.arguments import (
    BAD_INPUT,
    FORGET,
    Commands,
    add_machine,
    add_number,
    add_options,
    add_setup,
    command,
    whole,
)
from regun.cli.terminal import emit
from regun.errors import AuditError, DivergedError, RegunError
from regun.render.numbers import many
from regun.render.tables import csv_of

if TYPE_CHECKING:
    from regun.artifacts import Artifact, Store
    from regun.artifacts.audits import Auditing
    from regun.artifacts.out_models import OutPredictions
    from regun.artifacts.setup import Setup
    from regun.auditing import AttackResult, Evaluation
    from regun.auditing.durability import Relearned
    from regun.cli.options import RunContext
    from regun.data.examples import Data
    from regun.splits import Reserve, Splits


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
    forget = "what was to be forgotten (known for unlearned and retrained models of the store)"
    add_options(
        parser,
        {
            "--base KEY": "the model before unlearning (known for unlearned models of the store)",
            "--forget FORGET": f"{forget}: {FORGET}",
            "--retrained KEYS|none": "retrained models, separated by commas: first Retrain, then references; "
            "default: those in the store that were trained like the base, on the retain set",
        },
    )
    outs = "train N on the retain set for a quarter of the epochs (4 do well), to see how much influence is left"
    add_number(parser, "--out-models N", whole(0, 100), 0, f"without retrained models: {outs}")
    add_options(
        parser,
        {
            "--attacks NAMES": "attacks, separated by commas: names or file.py:function; default: all that can run",
            "--metrics NAMES": "further numbers, separated by commas: names or file.py:function",
        },
    )
    add_number(parser, "--bootstrap N", whole(0, 1_000_000), 1000, "resamples for the intervals (default 1000)")
    shadows = "also run U-LiRA with N shadow trainings and unlearning runs (unlearned models of the store; costly)"
    add_number(parser, "--shadows N", whole(0, 10_000), 0, shadows)
    add_options(
        parser,
        {
            "--method FILE": "with --shadows: your own method, where the model was unlearned with one",
            "--relearn": "also train the model, and the retrained ones, on retained examples alone: what comes back?",
            "--risks FILE": "write forgotten examples, and retained ones that were exposed, to this .csv or .json file",
            "--all": "show every number, not only the main ones",
        },
    )
    add_setup(parser)
    add_machine(parser)


@dataclass(frozen=True)
class Subject:
    """The model to judge, if the store has it; the one it came from, if that is known; their data, model and split."""

    found: Artifact | None
    base: Artifact | None
    setup: Setup


def run(args: argparse.Namespace) -> int:
    from regun.artifacts.audits import audit_model
    from regun.cli.options import Problems, open_run_context

    problems = Problems()
    context = open_run_context(args, "audit", problems)
    problems.attempt(lambda: _check_risks(args.risks))
    subject = problems.attempt(lambda: _subject(args, context.store)) if context else None
    if args.shadows and context and subject:
        problems.attempt(lambda: _check_shadows(subject, context.store))
    problems.stop_if_any()
    if context is None or subject is None:
        return BAD_INPUT
    audit = _audit(args, subject, context)
    context.display.note(_who(audit))
    evaluation = audit_model(audit, context.store, context.device)
    shadowed = _by_shadows(args, audit, subject, context) if args.shadows else None
    again = _relearned(args, audit, subject, context) if args.relearn else None
    if args.risks:
        _write_risks(Path(args.risks), evaluation, audit, context)
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

    from regun.cli.options import read_setup, setup_of

    outside = args.target.endswith(".safetensors") or ":" in args.target
    found = None if outside else store.find(args.target, "model")
    base = found
    if args.base:
        base = store.find(args.base, "model")
    elif found is not None and "base" in found.info:
        base = store.load("model", found.info["base"])
    return Subject(found, base, read_setup(args) if base is None else setup_of(base, args))


def _audit(args: argparse.Namespace, subject: Subject, context: RunContext) -> Auditing:
    """What to judge, by whom, and against which retrained models: those named, or those found in the store."""

    from regun.artifacts.audits import Auditing, model_before
    from regun.cli.options import load, retrained_models

    data, kept = load(subject.setup, context.display)
    splits, base = _forgotten(args, subject, data, kept, context), subject.base
    target = subject.found or _outside_target(args.target, data, splits, subject.setup, context.store)
    retrain, references = retrained_models(args.retrained, base, splits, context.store, target)
    audit = Auditing(
        target=target,
        data=data,
        splits=splits,
        before=model_before(target, splits, context.store) or (base if args.base else None),
        retrain=retrain,
        references=references,
        attacks=_names(args.attacks),
        metrics=_names(args.metrics) or (),
        bootstrap=args.bootstrap,
    )
    return _with_outs(audit, args.out_models, base, context) if args.out_models and not retrain else audit


def _forgotten(args: argparse.Namespace, subject: Subject, data: Data, kept: Reserve, context: RunContext) -> Splits:
    """What should have been forgotten: as said, as the model was unlearned, or as it was retrained without."""

    from regun.artifacts.unlearnings import stored_splits
    from regun.cli.options import splits_of
    from regun.forget_spec import ForgetSpec

    found = subject.found
    if not args.forget and found is not None and "splits.safetensors" in found.manifest["files"]:
        return stored_splits(found, len(data.train.labels))
    request = args.forget or (found.info.get("without") if found is not None else None)
    if not request:
        raise AuditError(
            "which examples should have been forgotten? Say it with --forget (0.1, class:3, ids:FILE, ...)."
        )
    return splits_of(ForgetSpec.parse(request), subject.base, subject.setup, data, kept, context)


def _outside_target(text: str, data: Data, splits: Splits, setup: Setup, store: Store) -> Artifact:
    """A model that is not in the store: a safetensors file, or what a function of the user's returns."""

    from regun.artifacts.trainings import import_model, import_state, input_shape
    from regun.models import ModelSpec, build_model

    about = setup.about()
    if text.endswith(".safetensors"):
        return import_model(Path(text), data, splits.base, setup.model, store, about=about)
    spec = ModelSpec(text)
    state = build_model(spec, data.train.num_classes, input_shape(data, splits.base), 0).state_dict()
    return import_state(state, data, splits.base, spec, store, about=about)


def _names(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",")) if text else None


def _with_outs(audit: Auditing, count: int, base: Artifact | None, context: RunContext) -> Auditing:
    """The audit with short trainings on the retain set, which stand in for retrained models."""

    from regun.artifacts.audits import audited_parts
    from regun.artifacts.out_models import OutModel, out_model_predictions

    if base is None:
        raise AuditError("--out-models trains as the base was trained; name it with --base.")
    what = "on the retain set, for models that never saw the forgotten examples"
    context.display.note(f"{many(count, 'short training')} {what}")
    watch = context.display.callbacks()
    sets = {name: part for name, part in audited_parts(audit.data, audit.splits).items() if name != "retain"}
    outs: list[OutPredictions] = []
    for number in range(count):
        out = OutModel.like(base, audit.data, audit.splits, number)
        outs.append(out_model_predictions(out, sets, context.store, context.device, watch=watch))
        if outs[-1].stopped:
            raise DivergedError(f"an out-of-sample model stopped training: {outs[-1].stopped}.")
    context.display.close()
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

    from regun.artifacts import reading
    from regun.plugins import trusted_name

    found, base = subject.found, subject.base
    if not (found and base and "method" in found.inputs and "recipe" in base.inputs):
        raise AuditError("--shadows repeats training and unlearning; give a model that regun trained and unlearned.")
    with reading(found):
        trusted_name(found.inputs["method"]["name"], None, store.trusted, "--method")


def _by_shadows(args: argparse.Namespace, audit: Auditing, subject: Subject, context: RunContext) -> AttackResult:
    """U-LiRA of an unlearned model of the store: its own run, repeated on shadow models."""

    from regun.artifacts.shadows import audit_by_shadows
    from regun.artifacts.unlearnings import Unlearning
    from regun.cli.display import open_display
    from regun.methods import get_method
    from regun.plugins import trusted_name

    target, data, store = audit.target, audit.data, context.store
    method = get_method(trusted_name(target.inputs["method"]["name"], None, store.trusted, "--method"))
    again = Unlearning.of(target, subject.setup.data_for(method, data), store)
    display = open_display(args, "shadows")
    found = audit_by_shadows(
        target,
        again,
        data,
        store,
        context.device,
        shadows=args.shadows,
        bootstrap=args.bootstrap,
        watch=display.callbacks(),
    )
    display.close()
    return found


def _relearned(args: argparse.Namespace, audit: Auditing, subject: Subject, context: RunContext) -> Relearned:
    """The relearning check of the audited model next to the same retrained models; curves are kept in the store."""

    from regun.artifacts.relearnings import Relearning, relearn_models
    from regun.cli.display import open_display
    from regun.methods import get_method

    seen = subject.setup.data_for(get_method("finetune"), audit.data)
    run = Relearning.of(audit.target, seen, audit.splits, subject.base or audit.target)
    on_model = open_display(args, "relearn").counter("model")
    judges = (audit.retrain, audit.references, context.store, context.device)
    return relearn_models(run, *judges, before=audit.before, on_model=on_model)


def _write_risks(path: Path, evaluation: Evaluation, audit: Auditing, context: RunContext) -> None:
    from regun.artifacts import write_file
    from regun.artifacts.audits import risks
    from regun.auditing import risk_rows

    rows = risk_rows(risks(audit, context.store, context.device), evaluation.exposed)
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
    from regun.auditing.durability import with_relearning
    from regun.render.audit_text import audit_text, relearning_text, shadows_text

    title = str(audit.target.info.get("title", audit.target.info.get("role", "model")))
    found = with_relearning(evaluation, again) if again else evaluation
    print(audit_text(found, title, len(audit.splits.forget), everything=args.all))
    if shadowed:
        print("\n" + shadows_text(shadowed, args.shadows))
    if again:
        print("\n" + relearning_text(again))
