"""Models of the store, judged: signals once a model and split, then the evaluation.

Belongs here: cached signals, cached evaluations, finding the retrained models that belong to an audit.
Does not: any number (see evaluate), any unlearning. May import: evaluate, pipeline's models, store, forward.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regun.data.examples import Data, Examples, Indices
from regun.errors import AuditError
from regun.evaluate import Evaluation, Risk, evaluate, risk_list
from regun.evaluate.signals import Signals
from regun.forward import eval_logits
from regun.pipeline import load_model
from regun.seeds import digest
from regun.splits import Splits
from regun.store import Artefact, Made, Slot, Store

EVALUATION_VERSION = 1
"""Part of every evaluation's key; raise it when a number's definition changes."""


@dataclass(frozen=True)
class Models:
    """The audited model, the retrained one it should resemble, and further retrained ones that show the noise."""

    target: Artefact
    retrain: Artefact | None = None
    references: tuple[Artefact, ...] = ()


def cached_signals(
    artefact: Artefact, examples: Examples, indices: Indices, store: Store, device: torch.device | str = "cpu"
) -> Signals:
    """The model's signals on `indices`, from the store or from one forward pass."""
    inputs = {
        "weights": artefact.info["weights"],
        "model": artefact.inputs["model"],
        "data": examples.digest,
        "inputs": {k: v for k, v in examples.describe_inputs().items() if k != "train"},
        "indices": digest(indices),
    }

    def make(slot: Slot) -> Made:
        logits = eval_logits(load_model(artefact, device), examples, indices, device)
        found = Signals.from_logits(logits.numpy(), examples.labels[indices], indices)
        about = {"model": artefact.key, "data_name": artefact.info["data_name"], "examples": len(indices)}
        return Made({"signals": {"log_probs": torch.tensor(found.log_probs)}}, about)

    log_probs = store.make("signals", inputs, make).tensors("signals")["log_probs"].numpy()
    return Signals(log_probs, examples.labels[indices], indices)


def split_signals(
    artefact: Artefact, data: Data, splits: Splits, store: Store, device: torch.device | str = "cpu"
) -> dict[str, Signals]:
    """Signals on retain, forget, test and, where they exist, validation and held-out."""
    parts: dict[str, tuple[Examples, Indices]] = {
        "retain": (data.train, splits.retain),
        "forget": (data.train, splits.forget),
        "test": (data.test, np.arange(len(data.test.labels))),
        "val": (data.train, splits.val),
        "heldout": (data.train, splits.heldout),
    }
    return {
        name: cached_signals(artefact, examples, indices, store, device)
        for name, (examples, indices) in parts.items()
        if len(indices)
    }


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


def audit_models(
    models: Models,
    data: Data,
    splits: Splits,
    store: Store,
    device: torch.device | str = "cpu",
    *,
    attacks: Sequence[str] | None = None,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """The evaluation of the target, from the store or computed from signals that are computed once."""
    refuse_unfit_references(models, splits)
    inputs: dict[str, Any] = {
        "version": EVALUATION_VERSION,
        "target": models.target.info["weights"],
        "retrain": models.retrain.info["weights"] if models.retrain else None,
        "references": [r.info["weights"] for r in models.references],
        "data": [data.train.digest, data.test.digest],
        "inputs": {k: v for k, v in data.train.describe_inputs().items() if k != "train"},
        "splits": splits.digest,
        "attacks": list(attacks) if attacks is not None else None,
        "bootstrap": bootstrap,
        "seed": seed,
    }

    def make(slot: Slot) -> Made:
        def of(artefact: Artefact) -> Mapping[str, Signals]:
            return split_signals(artefact, data, splits, store, device)

        found = evaluate(
            of(models.target),
            of(models.retrain) if models.retrain else None,
            [of(r) for r in models.references],
            attacks=attacks,
            bootstrap=bootstrap,
            seed=seed,
        )
        return Made({}, {"model": models.target.key, "data_name": data.name, "evaluation": found.to_json()})

    return Evaluation.from_json(store.make("evaluation", inputs, make).info["evaluation"])


def risks(models: Models, data: Data, splits: Splits, store: Store, device: torch.device | str = "cpu") -> list[Risk]:
    """Forgotten examples, those that look most like members first."""
    target = split_signals(models.target, data, splits, store, device)
    others = [split_signals(r, data, splits, store, device) for r in models.references]
    return risk_list(target, others)
