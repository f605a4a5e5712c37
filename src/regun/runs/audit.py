"""Models of the store, judged: signals once a model and split, then the evaluation."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regun.data.examples import Data, Examples, Indices
from regun.errors import AuditError, NotFiniteError
from regun.evaluate import Evaluation, NoiseFloor, Risk, evaluate, noise_floor, risk_list
from regun.evaluate.signals import Signals
from regun.runs.training import load_model
from regun.seeds import digest
from regun.splits import Splits
from regun.store import Artefact, Made, Slot, Store
from regun.training.forward import eval_logits

EVALUATION_VERSION = 1
"""Part of every evaluation's key; raise it when a number's definition changes."""


@dataclass(frozen=True)
class Models:
    """The audited model, the retrained one it should resemble, and further retrained ones that show the noise."""

    target: Artefact
    retrain: Artefact | None = None
    references: tuple[Artefact, ...] = ()


def signals_inputs(artefact: Artefact, examples: Examples, indices: Indices) -> dict[str, Any]:
    """What decides the signals of a model on some examples: their content key."""
    return {
        "weights": artefact.info["weights"],
        "model": artefact.inputs["model"],
        "data": examples.digest,
        "inputs": _evaluated(examples),
        "indices": digest(indices),
    }


def cached_signals(
    artefact: Artefact, examples: Examples, indices: Indices, store: Store, device: torch.device | str = "cpu"
) -> Signals:
    """The model's signals on `indices`, from the store or from one forward pass; not finite is kept too."""
    inputs = signals_inputs(artefact, examples, indices)

    def make(slot: Slot) -> Made:
        logits = eval_logits(load_model(artefact, device), examples, indices, device)
        about = {"model": artefact.key, "data_name": artefact.info["data_name"], "examples": len(indices)}
        try:
            found = Signals.from_logits(logits.numpy(), examples.labels[indices], indices)
        except NotFiniteError as fault:
            return Made({}, {**about, "not_finite": str(fault)})
        return Made({"signals": {"log_probs": torch.tensor(found.log_probs)}}, about)

    kept = store.make("signals", inputs, make)
    if "not_finite" in kept.info:
        raise NotFiniteError(kept.info["not_finite"])
    return Signals(kept.tensors("signals")["log_probs"].numpy(), examples.labels[indices], indices)


def split_signals(
    artefact: Artefact, data: Data, splits: Splits, store: Store, device: torch.device | str = "cpu"
) -> dict[str, Signals]:
    """Signals on retain, forget, test and, where they exist, validation and held-out."""
    return {
        name: cached_signals(artefact, examples, indices, store, device)
        for name, (examples, indices) in audited_parts(data, splits).items()
    }


def audited_parts(data: Data, splits: Splits) -> dict[str, tuple[Examples, Indices]]:
    """Which examples an audit looks at, by split; those that exist."""
    parts: dict[str, tuple[Examples, Indices]] = {
        "retain": (data.train, splits.retain),
        "forget": (data.train, splits.forget),
        "test": (data.test, np.arange(len(data.test.labels))),
        "val": (data.train, splits.val),
        "heldout": (data.train, splits.heldout),
    }
    return {name: part for name, part in parts.items() if len(part[1])}


def find_retrained(store: Store, base: Artefact, splits: Splits) -> list[Artefact]:
    """Models trained like `base` but on the retain set alone; that of the base's own seed first, then by seed."""
    wanted = {k: base.inputs.get(k) for k in ("data", "inputs", "model", "recipe", "budget")}
    wanted["trained_on"] = digest(splits.retain)
    found = [
        a
        for a in store.artefacts()
        if a.kind == "model" and all(a.inputs.get(k) == v for k, v in wanted.items()) and "seed" in a.inputs
    ]
    return sorted(found, key=lambda a: (a.inputs["seed"] != base.inputs.get("seed"), a.inputs["seed"]))


def refuse_unfit_references(models: Models, splits: Splits) -> None:
    """A retrained model that saw a forgotten example cannot show what not having seen it looks like."""
    for artefact in (a for a in (models.retrain, *models.references) if a is not None):
        if "trained_on" not in {name.removesuffix(".safetensors") for name in artefact.manifest["files"]}:
            raise AuditError(f"{artefact.key[:12]} is not a model trained from scratch; name retrained models.")
        seen = np.intersect1d(artefact.tensors("trained_on")["indices"].numpy(), splits.forget)
        if len(seen):
            raise AuditError(
                f"the reference model {artefact.key[:12]} was trained on {len(seen)} of the {len(splits.forget)} "
                f"forgotten examples (the first is {seen[0]}); train references without them: "
                f"regun train --without REQUEST --seed N."
            )


@dataclass(frozen=True)
class Judging:
    """How an audit is made: by which attacks, with how many resamples, from which seed."""

    attacks: tuple[str, ...] | None = None
    bootstrap: int = 1000
    seed: int = 0


def evaluation_inputs(models: Models, data: Data, splits: Splits, how: Judging) -> dict[str, Any]:
    """What decides an evaluation: its content key."""
    return {
        "target": models.target.info["weights"],
        **floor_inputs(models, data, splits, how),
        "bootstrap": how.bootstrap,
    }


def floor_inputs(models: Models, data: Data, splits: Splits, how: Judging) -> dict[str, Any]:
    """What decides a noise floor: its content key."""
    return {
        "version": EVALUATION_VERSION,
        "retrain": models.retrain.info["weights"] if models.retrain else None,
        "references": [r.info["weights"] for r in models.references],
        "data": [data.train.digest, data.test.digest],
        "inputs": _evaluated(data.train),
        "splits": splits.digest,
        "attacks": list(how.attacks) if how.attacks is not None else None,
        "seed": how.seed,
    }


def audit_models(
    models: Models,
    data: Data,
    splits: Splits,
    store: Store,
    device: torch.device | str = "cpu",
    how: Judging | None = None,
) -> Evaluation:
    """The evaluation of the target, from the store or computed from signals that are computed once.

    That a target's answers are not finite is kept as well, and raised again as `NotFiniteError`.
    """
    how = how or Judging()
    refuse_unfit_references(models, splits)

    def make(slot: Slot) -> Made:
        about = {"model": models.target.key, "data_name": data.name}
        try:
            target = split_signals(models.target, data, splits, store, device)
        except NotFiniteError as fault:
            return Made({}, {**about, "evaluation": None, "not_finite": str(fault)})
        found = evaluate(
            target,
            split_signals(models.retrain, data, splits, store, device) if models.retrain else None,
            [split_signals(r, data, splits, store, device) for r in models.references],
            attacks=how.attacks,
            bootstrap=how.bootstrap,
            seed=how.seed,
            floor=cached_floor(models, data, splits, store, device, how) or False,
        )
        return Made({}, {**about, "evaluation": found.to_json()})

    kept = store.make("evaluation", evaluation_inputs(models, data, splits, how), make)
    if kept.info["evaluation"] is None:
        raise NotFiniteError(kept.info["not_finite"])
    return Evaluation.from_json(kept.info["evaluation"])


def cached_floor(
    models: Models, data: Data, splits: Splits, store: Store, device: torch.device | str, how: Judging
) -> NoiseFloor | None:
    """The noise floor of the retrained models, once for all that are judged by them; None if there are too few."""
    retrain = models.retrain
    if retrain is None or len(models.references) < 2:
        return None

    def make(slot: Slot) -> Made:
        others = [split_signals(r, data, splits, store, device) for r in models.references]
        truth = split_signals(retrain, data, splits, store, device)
        found = noise_floor(truth, others, attacks=how.attacks, seed=how.seed)
        return Made({}, {"model": retrain.key, "data_name": data.name, "floor": found.to_json()})

    inputs = floor_inputs(models, data, splits, how)
    return NoiseFloor.from_json(store.make("floor", inputs, make).info["floor"])


def risks(models: Models, data: Data, splits: Splits, store: Store, device: torch.device | str = "cpu") -> list[Risk]:
    """Forgotten examples, those that look most like members first."""
    target = split_signals(models.target, data, splits, store, device)
    others = [split_signals(r, data, splits, store, device) for r in models.references]
    return risk_list(target, others)


def _evaluated(examples: Examples) -> dict[str, Any]:
    """The input pipeline as far as evaluation goes."""
    return {k: v for k, v in examples.describe_inputs().items() if k != "train"}
