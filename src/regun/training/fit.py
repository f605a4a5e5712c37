"""The one loop that changes weights."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regun.errors import SettingsError
from regun.models.forward import counting
from regun.parallel import current, is_writer
from regun.rng import derive, own_torch_rng
from regun.training.divergence import DivergenceWatch
from regun.training.job import Cost, Epoch, Job, Progress, Step
from regun.training.recipes import Updates, build_optimizer, resolve_precision
from regun.training.snapshots import Checkpoint, Snapshot, load_state_tensors, state_tensors
from regun.training.streams import Stream

Mask = Mapping[str, Tensor]


@dataclass
class Fitted:
    """What a run of `fit` did."""

    epochs: list[Epoch] = field(default_factory=list[Epoch])
    diverged: str | None = None
    notes: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class LossRun:
    """What `fit` was called with: the loss of each step of a stream, and how weights are updated by it."""

    job: Job
    stream: Stream
    loss: Callable[[Step], Tensor]
    recipe: Updates
    mask: Mask | None


class _HandedOver(BaseException):
    """Ends a method at its call of `fit`, whose steps another loop will take."""

    def __init__(self, run: LossRun) -> None:
        super().__init__()
        self.run = run


_FOR_OTHER_LOOP: ContextVar[nn.Module | None] = ContextVar("regun: the model of another loop", default=None)


def hand_over(method: Callable[[], object], model: nn.Module) -> LossRun | None:
    """Run a method up to its call of `fit` for `model` and return what it called it with; None if it never did."""
    token = _FOR_OTHER_LOOP.set(model)
    try:
        method()
    except _HandedOver as end:
        return end.run
    finally:
        _FOR_OTHER_LOOP.reset(token)
    return None


def fit(
    job: Job,
    stream: Stream,
    loss: Callable[[Step], Tensor],
    recipe: Updates,
    *,
    mask: Mask | None = None,
    checkpoint: Checkpoint | None = None,
) -> Fitted:
    """Update `job.model` by `recipe` on `loss` of each step; stop at the first loss or gradient that is not finite.

    With a `mask` (True = may change), all other weights keep their exact values, whatever momentum and decay say. It
    names the trainable ones; frozen ones never change.
    """
    if job.model is _FOR_OTHER_LOOP.get():
        raise _HandedOver(LossRun(job, stream, loss, recipe, mask))
    run = _Run(job, stream, loss, recipe, mask, checkpoint)
    run.resume()
    started = time.perf_counter() - job.cost.seconds
    try:
        with counting(lambda n: job.cost.add(forward=n)):
            while run.epoch < run.epochs and not run.finished:
                run.one_epoch()
    finally:
        job.cost.seconds = time.perf_counter() - started
    return run.fitted


class _Run:
    """The state of one `fit`: where it stands, and how to take one step, save and resume."""

    def __init__(
        self,
        job: Job,
        stream: Stream,
        loss: Callable[[Step], Tensor],
        recipe: Updates,
        mask: Mask | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.job, self.stream, self.loss, self.recipe, self.checkpoint = job, stream, loss, recipe, checkpoint
        self.optimizer = build_optimizer(job.model, recipe)
        self.parameters = {n: p for n, p in job.model.named_parameters() if p.requires_grad}
        self.watch = DivergenceWatch(job.model, self.optimizer, job.device)
        self.guard = _MaskGuard(self.parameters, self.optimizer, mask) if mask is not None else None
        self.epochs = self._epochs()
        self.epoch, self.step = 0, 0
        self.total_loss, self.latest_loss, self.samples, self.seconds = 0.0, 0.0, 0, 0.0
        self.fitted = Fitted()
        self.processes = current()
        if self.processes is not None:
            self.processes.broadcast_weights(job.model)
        elif recipe.compile:  # a model whose batches are shared among processes runs as it is
            job.model.compile()

    @property
    def finished(self) -> bool:
        budget, cost = self.job.budget, self.job.cost
        over = budget is not None and (
            (budget.steps is not None and cost.steps >= budget.steps)
            or (budget.samples is not None and cost.backward >= budget.samples)
        )
        return over or self.fitted.diverged is not None

    def one_epoch(self) -> None:
        self.job.model.train()
        self.epoch_start = {n: p.detach().clone() for n, p in self.parameters.items()}
        clock, shown = time.perf_counter(), 0.0
        parts = self.stream.run(self.epoch, self.step)
        for batches in parts:
            step = Step(batches, self.epoch, self.epochs, self.step)
            lr = self.recipe.lr_at(self.epoch, self.step / self.stream.steps(self.epoch), self.epochs)
            updated = self._update(step, lr)
            now = time.perf_counter()
            self.seconds, clock = self.seconds + now - clock, now
            if not updated:
                return
            self.samples += step.samples_read
            self.step += 1
            if now - shown > 0.2:
                self._show()
                shown = now
            if self.finished:
                break
            if self.step < self.stream.steps(self.epoch) and self._snapshot_due():
                if self._diverged():
                    return
                self._save()
        if not self._diverged():
            self._end_epoch()

    def _update(self, step: Step, lr: float) -> bool:
        """Take one step; return False, and change nothing, once a loss or gradient that is not finite was read."""
        job = self.job
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        self.watch.save_buffers()
        counted = job.cost.forward
        with own_torch_rng(derive(job.seed, "layers", job.cost.steps), job.device):
            bf16 = resolve_precision(self.recipe.precision, job.device) == "bf16"
            with torch.autocast(job.device.type, dtype=torch.bfloat16) if bf16 else nullcontext():
                value = self.loss(step)
            value.backward()  # pyright: ignore[reportUnknownMemberType]
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        self.watch.add(value, gradients, self.step, self.samples, lr, job.cost)
        if self.watch.due and self._diverged():
            return False
        if self.recipe.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters.values(), self.recipe.clip_norm)
        if self.guard is None:
            self.optimizer.step()
        else:
            self.guard.step()
        # a compiled model that is called directly does not count its passes
        uncounted = max(0, step.samples_read - (job.cost.forward - counted))
        job.cost.add(steps=1, forward=uncounted, backward=step.samples_read)
        return True

    def _diverged(self) -> bool:
        """Read the losses since the last call; if one diverged, restore the run as it was before that step."""
        losses, divergence = self.watch.read()
        for self.latest_loss in losses:
            self.total_loss += self.latest_loss
        if divergence is None:
            return False
        self.watch.restore(self.parameters, self.epoch_start)
        before = divergence.record
        self.step, self.samples = before.step, before.samples
        cost = before.cost
        self.job.cost.steps, self.job.cost.forward, self.job.cost.backward = cost.steps, cost.forward, cost.backward
        where = f"in epoch {self.epoch + 1}, step {self.step + 1}"
        self.fitted.diverged = f"the {divergence.what} was not finite {where} (lr {before.lr:g})"
        return True

    def _end_epoch(self) -> None:
        done = Epoch(
            number=self.epoch + 1,
            epochs=self.epochs,
            loss=self.total_loss / max(1, self.step),
            lr=self.optimizer.param_groups[0]["lr"],
            seconds=self.seconds,
            images_per_second=self.samples / max(self.seconds, 1e-9),
        )
        self.fitted.epochs.append(done)
        self.epoch, self.step = self.epoch + 1, 0
        self.total_loss, self.samples, self.seconds = 0.0, 0, 0.0
        if self.processes is not None:
            weights = [p.detach() for p in self.parameters.values()]
            values = [value for w in weights for value in (w.sum(), w.square().sum())]
            self.processes.check_same("weights", torch.stack(values).cpu().numpy())
        if self.epoch < self.epochs and not self.finished and self._snapshot_due():
            self._save()
        with counting(None):  # what an observer looks at is not the run's cost
            self.job.on_epoch(done, self.job.model)

    def _show(self) -> None:
        speed = self.samples / max(self.seconds, 1e-9)
        steps = self.stream.steps(self.epoch)
        left = sum(self.stream.steps(e) for e in range(self.epoch, self.epochs)) - self.step
        if self.job.budget is not None and self.job.budget.steps is not None:
            left = min(left, self.job.budget.steps - self.job.cost.steps)
        seconds_left = left * self.seconds / max(1, self.step)
        self.job.on_progress(
            Progress(self.epoch + 1, self.epochs, self.step, steps, self.latest_loss, speed, seconds_left)
        )

    def _epochs(self) -> int:
        budget = self.job.budget
        if budget is None:
            return self.recipe.epochs
        epochs, steps, samples = 0, self.job.cost.steps, self.job.cost.backward
        while (budget.steps is not None and steps < budget.steps) or (
            budget.samples is not None and samples < budget.samples
        ):
            steps, samples = steps + self.stream.steps(epochs), samples + self.stream.samples(epochs)
            epochs += 1
        return epochs

    def _snapshot_due(self) -> bool:
        """Return True if this process is to save a snapshot; of several, which all have the same weights, one does.

        It waits until all of them have read the losses, so that none of them alone finds that the run diverged.
        """
        unread = self.processes is not None and bool(self.watch.pending)
        return self.checkpoint is not None and is_writer() and not unread and self.checkpoint.due()

    def _save(self) -> None:
        assert self.checkpoint is not None
        meta = {
            "epoch": self.epoch,
            "step": self.step,
            "total_loss": self.total_loss,
            "samples": self.samples,
            "seconds": self.seconds,
            "cost": asdict(self.job.cost),
            "epochs": [asdict(e) for e in self.fitted.epochs],
        }
        self.checkpoint.save(Snapshot(state_tensors(self.job.model, self.optimizer), meta))

    def resume(self) -> None:
        saved = self.checkpoint.load() if self.checkpoint is not None and is_writer() else None
        if self.checkpoint is not None and self.processes is not None:  # all go on from what one of them has read
            meta, tensors = self.processes.broadcast(*((saved.meta, saved.tensors) if saved else (None, {})))
            saved = Snapshot(tensors, meta) if meta is not None else None
        if saved is None:
            return
        load_state_tensors(saved.tensors, self.job.model, self.optimizer)
        self.epoch, self.step = saved.meta["epoch"], saved.meta["step"]
        self.total_loss, self.samples = saved.meta["total_loss"], saved.meta["samples"]
        self.seconds = saved.meta["seconds"]
        cost = Cost(**saved.meta["cost"])
        self.job.cost.add(steps=cost.steps, forward=cost.forward, backward=cost.backward, seconds=cost.seconds)
        self.fitted.epochs = [Epoch(**e) for e in saved.meta["epochs"]]


class _MaskGuard:
    """Steps the optimizer and puts masked-out weights back: nothing it keeps of them ever reaches a weight."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, mask: Mask) -> None:
        missing = [n for n in parameters if n not in mask or mask[n].shape != parameters[n].shape]
        if missing:
            raise SettingsError(
                [f"the mask lacks, or has another shape for, {len(missing)} parameters: {missing[:3]}."]
            )
        self.optimizer = optimizer
        self.entries = [(p, mask[n].to(p.device), p.detach().clone()) for n, p in parameters.items()]

    def step(self) -> None:
        self.optimizer.step()
        with torch.no_grad():
            for parameter, allowed, original in self.entries:
                parameter.copy_(torch.where(allowed, parameter, original))
