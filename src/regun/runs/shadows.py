"""U-LiRA: the strongest audit of an unlearning method, for those who can afford shadow runs."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regun.data.examples import Data
from regun.errors import AuditError
from regun.evaluate import AttackResult, Evidence, evaluate
from regun.evaluate.lira import u_lira
from regun.evaluate.signals import FloatArray
from regun.methods import Method
from regun.models import ModelSpec
from regun.runs.audit import cached_signals
from regun.runs.training import Training, Unlearning, Watch, train_model, unlearn_model
from regun.seeds import derive, generator
from regun.settings import bind
from regun.splits import Indices, Splits
from regun.store import Artefact, Store
from regun.training.recipes import Recipe


@dataclass(frozen=True)
class Shadowed:
    """What is audited: the method and settings that made `target` from `base`."""

    base: Artefact
    target: Artefact
    method: Method
    config: Any
    data: Data
    splits: Splits


def audit_by_shadows(
    of: Shadowed,
    store: Store,
    device: torch.device,
    *,
    shadows: int = 16,
    bootstrap: int = 1000,
    seed: int = 0,
    watch: Watch | None = None,
) -> AttackResult:
    """U-LiRA of the forget set against validation, from `shadows` trainings and as many unlearning runs.

    The candidates are the forget and validation examples. Every shadow model trains on the retain set and a random half
    of them and then unlearns that half; the next one takes the other half, so each example is IN and OUT equally often.
    """
    if shadows < 4 or shadows % 2:
        raise AuditError(f"U-LiRA was asked for {shadows} shadow runs; give an even number of at least 4.")
    if len(of.splits.val) < 2:
        raise AuditError("U-LiRA compares with validation examples, and there are fewer than 2; set some aside.")
    candidates = np.sort(np.concatenate([of.splits.forget, of.splits.val]))
    inside = np.full((shadows, len(candidates)), np.nan)
    outside = inside.copy()
    for number in range(shadows):
        chosen = _half(len(candidates), number, seed)
        shadow = _run(of, candidates[chosen], candidates[~chosen], number, seed, store, device, watch)
        phi = cached_signals(shadow, of.data.train, candidates, store, device).true_logit
        inside[number, chosen], outside[number, ~chosen] = phi[chosen], phi[~chosen]
    target = cached_signals(of.target, of.data.train, candidates, store, device)
    scores = u_lira(target.true_logit, inside, outside, pooled=shadows < 64)
    return _judged(of, candidates, scores, store, device, bootstrap, seed)


def _half(count: int, number: int, seed: int) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """A random half of the candidates for even runs, and its complement for the run after."""
    order = torch.randperm(count, generator=generator(seed, "shadow half", number // 2)).numpy()
    chosen = np.zeros(count, dtype=np.bool_)
    chosen[order[: count // 2]] = True
    return chosen if number % 2 == 0 else ~chosen


def _run(
    of: Shadowed,
    forget: Indices,
    unseen: Indices,
    number: int,
    seed: int,
    store: Store,
    device: torch.device,
    watch: Watch | None,
) -> Artefact:
    """Train on retain and `forget`, then unlearn `forget` exactly as the target was unlearned."""
    made = of.base.inputs
    spec = ModelSpec(made["model"]["name"], made["model"]["settings"])
    recipe = bind(Recipe, made["recipe"], "recipe")
    run_seed = derive(seed, "shadow", number)
    training = Training(of.data, np.union1d(of.splits.retain, forget), spec, recipe, run_seed)
    base = train_model(training, store, device, about={"role": "shadow"}, watch=watch)
    splits = Splits(of.splits.retain, forget, of.splits.heldout, unseen, of.splits.total)
    unlearning = Unlearning(base, of.data, splits, of.method, of.config, run_seed)
    return unlearn_model(unlearning, store, device, about={"shadow": number}, watch=watch)


def _judged(
    of: Shadowed, candidates: Indices, scores: FloatArray, store: Store, device: torch.device, bootstrap: int, seed: int
) -> AttackResult:
    by_index = np.full(of.splits.total, np.nan)
    by_index[candidates] = scores

    def u_lira_score(evidence: Evidence) -> FloatArray:
        return by_index[evidence.target.indices]

    parts = {"forget": of.splits.forget, "val": of.splits.val}
    signals = {name: cached_signals(of.target, of.data.train, part, store, device) for name, part in parts.items()}
    found = evaluate(signals, attacks=[u_lira_score], bootstrap=bootstrap, seed=seed, floor=False)
    return next(iter(found.attacks.values()))
