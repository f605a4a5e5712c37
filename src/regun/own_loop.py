"""Steps of a method for a training loop of the user's own."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor, nn

from regun.arguments import InputOptions, RunOptions
from regun.data.sources import Source
from regun.errors import RegunError
from regun.inputs import unwrap, wrap_model
from regun.jobs import ready_job
from regun.methods import Teacher, get_method, method_names
from regun.models.adapters import ReadLogits
from regun.models.forward import allow_single_example, logits_of
from regun.parallel import current, joined
from regun.parallel.shard import averaged_gradients
from regun.prepared import Prepared
from regun.rng import derive, own_torch_rng
from regun.training.fit import LossRun, hand_over
from regun.training.job import Job, Step
from regun.training.recipes import Recipe, Updates
from regun.types import Inputs
from regun.unlearning import check_missing_needs


@dataclass(frozen=True, kw_only=True)
class _LoopJob(Job):
    """A job whose logits come from the model that the loop calls: the user's, however it is wrapped."""

    called: list[nn.Module] = field(default_factory=list[nn.Module])

    def logits(self, x: Inputs) -> Tensor:
        model = self.called[-1] if self.called else self.model
        with allow_single_example(model, x):
            return logits_of(model, x).float()


@dataclass(frozen=True)
class LossStep:
    """One step: its loss, the learning rate that the method plans for it, and where in the run it stands."""

    number: int
    """Steps before this one."""
    epoch: int
    """Epochs before this one."""
    lr: float
    _parts: Mapping[str, Any] = field(repr=False)
    _place: tuple[int, int] = field(repr=False)
    _steps: "Steps" = field(repr=False)

    def loss(self, model: nn.Module) -> Tensor:
        """Return the method's loss of this step's examples, to be differentiated.

        `model` is the one that `steps` was called with, or what your engine made of it (DDP, `accelerator.prepare`).
        With several processes each computes a part of the batch, and the mean over processes of the gradients is that
        of the whole batch, as these engines take it.
        """
        run, job = self._steps.run, self._steps.job
        epochs, number = self._place
        job.called.append(wrap_model(model, self._steps.read))
        try:
            with joined(), averaged_gradients(), own_torch_rng(derive(run.job.seed, "layers", self.number), job.device):
                return run.loss(Step(self._parts, self.epoch, epochs, number))
        finally:
            job.called.pop()


@dataclass(frozen=True)
class Steps:
    """All steps of a run, in order; `len` counts them. Iterate once: a method may note what it has seen."""

    run: LossRun
    job: _LoopJob
    read: ReadLogits | None

    @property
    def recipe(self) -> Updates:
        """The updates that the method plans: optimizer, learning rate, weight decay, batch size, epochs."""
        return self.run.recipe

    def __len__(self) -> int:
        return sum(self.run.stream.steps(epoch) for epoch in range(self.recipe.epochs))

    def __iter__(self) -> Iterator[LossStep]:
        number, epochs = 0, self.recipe.epochs
        for epoch in range(epochs):
            self.job.model.train()
            length = self.run.stream.steps(epoch)
            for place, parts in enumerate(self.run.stream.run(epoch, 0)):
                lr = self.recipe.lr_at(epoch, place / length, epochs)
                yield LossStep(number, epoch, lr, parts, (epochs, place), self)
                number += 1


@joined()
def steps(
    method: str | Callable[..., Any],
    model: nn.Module,
    *,
    forget: Source,
    retain: Source | None = None,
    heldout: Source | None = None,
    settings: Mapping[str, Any] | None = None,
    recipe: Recipe | Mapping[str, Any] | str | None = None,
    rebuild: Callable[[int], nn.Module] | None = None,
    teacher: Teacher | None = None,
    prepared: Prepared | None = None,
    seed: int = 0,
    inputs: InputOptions | None = None,
) -> Steps:
    """Return the steps of a method for a training loop of your own, which changes `model` in place.

    You keep the optimizer, the precision and the engine (accelerate, FSDP, DeepSpeed, a Trainer); the method gives the
    batches and the loss. The arguments are those of `regun.unlearn`. Methods that do more than minimise a loss, such
    as choosing which weights may change, are an error.

    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # doctest: +SKIP
    >>> for step in regun.steps("regun", model, forget=forget, retain=retain, heldout=heldout):  # doctest: +SKIP
    ...     optimizer.zero_grad()
    ...     step.loss(model).backward()
    ...     optimizer.step()
    """
    ready = ready_job(
        model, {"forget": forget, "retain": retain, "heldout": heldout, "val": None},
        method=method, settings=settings, recipe=recipe, rebuild=rebuild, teacher=teacher, prepared=prepared, seed=seed,
        inputs=inputs, run=RunOptions(),
    )  # fmt: skip
    chosen, config = ready.spec.method, ready.config
    if not chosen.is_loss(config):
        methods = {name: get_method(name) for name in method_names()}
        losses = [name for name, m in methods.items() if m.is_loss(m.config(**dict.fromkeys(m.required, 1)))]
        raise RegunError(
            f"{ready.spec.text} does more than minimise a loss, so a loop of your own cannot run it; use "
            f"regun.unlearn, or one of {', '.join(losses)}."
        )
    check_missing_needs(ready.job, chosen, config)
    read = inputs.logits if inputs is not None else None
    values: dict[str, Any] = {f.name: getattr(ready.job, f.name) for f in fields(Job)}
    values["model"] = wrap_model(model, read)
    job = _LoopJob(**values)
    processes = current()
    if processes is not None:
        processes.broadcast_weights(unwrap(job.model))
    run = hand_over(lambda: chosen.run(job, config), job.model)
    if run is None or run.mask is not None:
        raise RegunError(f"{ready.spec.text} is not one loss per step; use regun.unlearn.")
    return Steps(run, job, read)
