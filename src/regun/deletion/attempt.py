"""One try at a request: a method run on the current model, what it did to that model, and how the result was judged."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from regun.api import unlearn
from regun.arguments import InputOptions, RunOptions
from regun.auditing import UNSEEN, Decision, Evaluation, Predictions, SplitPredictions
from regun.deletion.assess import NEW, Judge
from regun.deletion.options import Chosen, Listener
from regun.deletion.plan import Plan, few
from regun.deletion.rule import ALL, UTILITY, Finding, verdict
from regun.errors import NotFiniteError
from regun.methods._fresh_weights import is_norm
from regun.render.numbers import many
from regun.rng import derive
from regun.training.job import Cost
from regun.unlearning import Outcome

NOTHING_TO_UNLEARN = "none"
"""The method of a request whose records the model never trained on."""
ANEW = "trained anew without these records"
BY_CONSTRUCTION = f"by construction: {ANEW}"
ROUNDING = 8.0
"""Times the smallest relative step of a weight's type that count as rounding, not as a change."""
SAME_ANSWER, LEAST = 1e-4, -50.0
"""Change of a log-probability that counts as none (sums taken in another order change it by a hundredth of that in
single precision), and the log-probability below which all are alike."""


@dataclass(frozen=True)
class Attempt:
    """A method and the model it led to, what was found of it (nothing if the run diverged) and how the rule judged."""

    spec: str
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    signals: SplitPredictions = field(default_factory=dict[str, Predictions])
    audit: Mapping[str, Evaluation] = field(default_factory=dict[str, Evaluation])
    drops: Mapping[str, float] = field(default_factory=dict[str, float])
    judged: Sequence[str] = ()
    """The unseen sets that it was judged by."""
    change: "Change | None" = None

    @property
    def verdict(self) -> Decision:
        return verdict(self.findings)


def run_method(how: Chosen, current: nn.Module, plan: Plan, listener: Listener) -> Outcome:
    """Run a method on the current model."""
    sets, project = plan.sets(), plan.case.project
    outcome = unlearn(
        current,
        forget=sets["forget"],
        retain=sets["retain"],
        heldout=sets.get("heldout"),
        val=sets.get("val"),
        method=how.spec.name if how.preset is None else f"{how.spec.name}@{how.preset}",
        settings=how.spec.settings,
        seed=seed_of(plan),
        rebuild=project.rebuild,
        recipe=project.recipe,
        inputs=InputOptions(
            device=plan.case.device,
            num_classes=plan.case.sets["train"].num_classes,
            check_content=False,  # the plan has compared what has to be
        ),
        run=RunOptions(on_epoch=lambda epoch, _: listener.epoch(epoch)),
    )
    return replace(outcome, warnings=(*_warnings(plan), *outcome.warnings))


def seed_of(plan: Plan) -> int:
    """The seed of a method's run."""
    return derive(plan.base, plan.request, plan.number, plan.options.seed)


def _warnings(plan: Plan) -> Iterator[str]:
    """What looks wrong in the request's data, before any run; ids as they are written."""
    yield from plan.remarks
    if plan.all_copies:
        yield (
            f"train holds {many(len(plan.all_copies), 'copy', 'copies')} of forgotten records under other ids (the "
            f"first: {few(plan.options.naming.of(plan.all_copies))}), from which the model goes on learning. Make a "
            "request for these ids too, or take them out of train."
        )


def fair_sets(how: Chosen, sets: Container[str]) -> list[str]:
    """The unseen sets to judge a method by: not the held-out one if it trains towards it, unless there is no other."""
    unseen = [name for name in UNSEEN if name in sets]
    return [name for name in unseen if name != "heldout" or not how.needs.uses_heldout] or unseen


def judged(spec: str, outcome: Outcome, fair: Sequence[str], current: nn.Module, judge: Judge) -> Attempt:
    """What a run made of the current model, judged by the unseen sets that are `fair`."""
    signals: SplitPredictions = {}
    try:
        signals = judge.signals(outcome.model) if outcome.diverged is None else signals
    except NotFiniteError as fault:
        outcome = replace(outcome, diverged=str(fault))
    if outcome.diverged is not None:
        return Attempt(spec, outcome, (Finding("the run ends well", ALL, "failed", outcome.diverged),))
    audit, lost = judge.audit(signals, fair), judge.drops(signals)
    made = change(current, outcome.model, outcome.cost.steps, (judge.before, signals))
    findings = judge.findings(audit, lost)
    findings = _by_construction(findings, judge.plan) if outcome.from_scratch else findings
    return Attempt(spec, outcome, (*made.refusals(), *findings), signals, audit, lost, fair, made)


def leave_as_it_is(current: nn.Module) -> Attempt:
    """For records the model never trained on: nothing to unlearn and nothing to judge."""
    return Attempt(NOTHING_TO_UNLEARN, Outcome(current, NOTHING_TO_UNLEARN, {}, Cost(), [], None, {}))


def _by_construction(findings: Sequence[Finding], plan: Plan) -> tuple[Finding, ...]:
    """A retrained model has nothing to forget: what is found of that is shown, but only utility decides. One that was
    trained on copies of the records has: of it, only what is found counts."""
    copies = {ALL: plan.all_copies, NEW: plan.copies}

    def judged(finding: Finding) -> Finding:
        stay = copies.get(finding.scope, ())
        how = f"{ANEW}, but on {many(len(stay), 'identical one')} under other ids" if stay else BY_CONSTRUCTION
        found = finding.answer != "inconclusive"
        why = f"{finding.why.rstrip('.')} ({how})" if found else how
        return replace(finding, answer=finding.answer if stay else "passed", why=why)

    return tuple(f if f.scope == UTILITY else judged(f) for f in findings)


# ----------------------------------------------------------------------------------------- what a run did to the model


@dataclass(frozen=True)
class Change:
    """Weights of a model, those that moved by more than rounding, how far all moved in proportion to their size, the
    optimizer's steps, and the largest change of a log-probability on forgotten records."""

    weights: int
    moved: int
    relative: float
    steps: int
    answers: float

    @property
    def nothing(self) -> str:
        """Why this is no change at all; empty if it is one."""
        if not self.moved:
            how = "its weights are as they were" if not self.relative else "its weights moved by less than rounding"
            return f"the model was not changed: {how}, after {many(self.steps, 'step')}"
        if self.answers <= SAME_ANSWER:
            return "the model was not changed where it matters: its answers to the forgotten records are as they were"
        return ""

    def refusals(self) -> tuple[Finding, ...]:
        """The finding that refuses what is no change, whatever the rule says; none where there is one."""
        why = self.nothing
        return (Finding("changed", ALL, "failed", why, "the run changed the model"),) if why else ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def change(before: nn.Module, after: nn.Module, steps: int, said: tuple[SplitPredictions, SplitPredictions]) -> Change:
    """From a model to what a run made of it; `said` is what the two say of the sets."""
    old, new = dict(_weights(before)), dict(_weights(after))
    total = moved = 0
    squares, size = 0.0, 0.0
    for name, was in old.items():
        step = ROUNDING * (torch.finfo(was.dtype).eps if was.is_floating_point() or was.is_complex() else 0.0)
        one, two = _doubles(was), _doubles(new[name])
        apart, usual = (two - one).abs(), one.square().mean().sqrt()
        scale = torch.maximum(torch.maximum(one.abs(), two.abs()), usual)  # a weight near 0 is rounded like the rest
        total, moved = total + was.numel(), moved + int((apart > step * scale).sum())
        squares, size = squares + float(apart.square().sum()), size + float(one.square().sum())
    relative = (squares / size) ** 0.5 if size else squares**0.5
    return Change(total, moved, relative, steps, _largest_change(said[0]["forget"], said[1]["forget"]))


def _weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All that a model knows: its state but for the statistics of normalisation layers, which follow any batch."""
    layers = cast("Iterator[tuple[str, nn.Module]]", model.named_modules())
    norms = {
        f"{name}.{own}".lstrip(".") for name, layer in layers if is_norm(layer) for own, _ in layer.named_buffers()
    }
    state = cast("Mapping[str, Tensor]", model.state_dict())
    yield from ((name, value.detach().cpu()) for name, value in state.items() if name not in norms)


def _doubles(values: Tensor) -> Tensor:
    return (torch.view_as_real(values) if values.is_complex() else values).double()


def _largest_change(before: Predictions, after: Predictions) -> float:
    old, new = (np.maximum(signals.log_probs, LEAST) for signals in (before, after))
    return float(np.abs(old - new).max())
