"""U-LiRA: the strongest audit of an unlearning method, at the cost of many shadow runs.

Shadow models are trained like the base and unlearned as the target was: method, settings, budget, chosen epoch,
reference, size of the forget set. The score of an example is the likelihood ratio of the target's prediction under
"trained on and then unlearned" against "never trained on".
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from regun.artifacts import Artifact, Store
from regun.artifacts.audits import cached_predictions
from regun.artifacts.out_of_fold import CrossFitting, cross_fit
from regun.artifacts.setup import Setup
from regun.artifacts.trainings import Training, train_model
from regun.artifacts.unlearnings import Unlearning, unlearn_model
from regun.auditing import AttackResult, Evidence, evaluate
from regun.auditing.lira import u_lira
from regun.auditing.predictions import FloatArray
from regun.data.examples import Data
from regun.errors import AuditError
from regun.rng import derive, generator
from regun.splits import Splits, sample
from regun.training.job import Callbacks
from regun.types import Indices

Chosen = npt.NDArray[np.bool_]
SEED = 0
"""Seed of the candidates, the draws and the shadow runs."""


def audit_by_shadows(
    target: Artifact,
    run: Unlearning,
    data: Data,
    store: Store,
    device: torch.device,
    *,
    shadows: int = 16,
    bootstrap: int = 1000,
    watch: Callbacks | None = None,
) -> AttackResult:
    """Return U-LiRA of the forget set against validation, from `shadows` trainings and as many unlearning runs.

    `run` is the target's unlearning; `data` have the input pipeline of the base. The candidates are the forgotten
    examples and as many validation examples (all, if there are fewer). Every shadow model trains on the retain set and
    as many candidates as were forgotten, and then unlearns those.
    """
    splits = run.splits
    if len(splits.val) < 2:
        raise AuditError("U-LiRA compares with validation examples, and there are fewer than 2; set some aside.")
    unseen = np.sort(sample(splits.val, len(splits.forget), SEED, "shadow candidates"))
    candidates = np.sort(np.concatenate([splits.forget, unseen]))
    inside, outside = (np.full((shadows, len(candidates)), np.nan) for _ in range(2))
    for number, chosen in enumerate(_draws(len(candidates), len(splits.forget), shadows, SEED)):
        shadow = _shadow(run, data, candidates, chosen, derive(SEED, "shadow", number), store, device, watch)
        phi = cached_predictions(shadow, data.train, candidates, store, device).true_logit
        inside[number, chosen], outside[number, ~chosen] = phi[chosen], phi[~chosen]
    predictions = cached_predictions(target, data.train, candidates, store, device)
    scores = np.full(splits.total, np.nan)
    scores[candidates] = u_lira(predictions.true_logit, inside, outside, pooled=shadows < 64)

    def u_lira_score(evidence: Evidence) -> FloatArray:
        return scores[evidence.target.indices]

    parts = {"forget": splits.forget, "val": unseen}
    by_split = {name: cached_predictions(target, data.train, part, store, device) for name, part in parts.items()}
    evaluation = evaluate(by_split, attacks=[u_lira_score], bootstrap=bootstrap, seed=SEED, floor=False)
    return next(iter(evaluation.attacks.values()))


def _draws(count: int, forgotten: int, shadows: int, seed: int) -> Iterator[Chosen]:
    """Yield the candidates that each run forgets: always `forgotten` of them, each left out equally often.

    In every round, runs leave out one part after the other of a newly drawn order, so that after a round each
    candidate was left out once (twice where the last part wraps around).
    """
    out = count - forgotten
    rounds = -(-count // out)
    if shadows < 2 * rounds or min(forgotten, out) < 1:
        raise AuditError(
            f"{shadows} shadow runs are too few for {forgotten} forgotten and {out} validation examples; each must be "
            f"left out twice, so give at least {2 * rounds}."
        )
    for number in range(shadows):
        order = torch.randperm(count, generator=generator(seed, "shadow turns", number // rounds)).numpy()
        start = number % rounds * out
        chosen = np.ones(count, dtype=np.bool_)
        chosen[np.take(order, range(start, start + out), mode="wrap")] = False
        yield chosen


def _shadow(
    run: Unlearning,
    data: Data,
    candidates: Indices,
    chosen: Chosen,
    seed: int,
    store: Store,
    device: torch.device,
    watch: Callbacks | None,
) -> Artifact:
    """Train on retain and the chosen candidates, then unlearn these as the target was unlearned."""
    forget, unseen = candidates[chosen], candidates[~chosen]
    training = Training.of(run.base, data, trained_on=np.union1d(run.splits.retain, forget), seed=seed)
    about = Setup.of(run.base).about()
    base = train_model(training, store, device, about={**about, "role": "shadow"}, watch=watch)
    splits = Splits(run.splits.retain, forget, run.splits.heldout, unseen, run.splits.total)
    table = None
    if run.out_of_fold is not None:  # the shadow has a training set of its own, and so a table of its own
        like = run.out_of_fold
        fitting = CrossFitting(
            training=training,
            folds=like.inputs["folds"],
            repeats=like.inputs["repeats"],
            share=like.info["share"],
        )
        table = cross_fit(fitting, store, device, watch=watch)
    shadow_run = replace(run, base=base, splits=splits, seed=seed, out_of_fold=table)
    return unlearn_model(shadow_run, store, device, about={**about, "shadow_of": run.base.key}, watch=watch)
