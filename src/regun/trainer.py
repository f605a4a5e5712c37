"""A Hugging Face Trainer that unlearns (needs the package transformers)."""

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer, TrainingArguments

from regun.own_loop import LossStep, Steps


class UnlearnTrainer(Trainer):
    """A Trainer whose loss is a method's; optimizer, precision, callbacks and saving are the Trainer's.

    The steps and their batches are the method's: `num_train_epochs` is 1, and batch sizes of `args` are not used. The
    Trainer's learning rates apply; `step.lr` is what the method plans.

    >>> steps = regun.steps("scrub", model, forget=forget, retain=retain)  # doctest: +SKIP
    >>> UnlearnTrainer(model, steps, TrainingArguments("out", num_train_epochs=1)).train()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: nn.Module,
        steps: Steps,
        args: TrainingArguments,
        optimizers: tuple[torch.optim.Optimizer | None, torch.optim.lr_scheduler.LambdaLR | None] = (None, None),
    ) -> None:
        self.steps = steps
        super().__init__(model=model, args=args, train_dataset=_StepData(steps), optimizers=optimizers)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the steps as a loader; every process gets all of them and computes its part of each."""
        return DataLoader(_StepData(self.steps), batch_size=None, collate_fn=_as_inputs)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the method's loss of the step."""
        loss = cast(LossStep, inputs["step"]).loss(model)
        return (loss, None) if return_outputs else loss


class _StepData(IterableDataset[LossStep]):
    """The steps as a data set."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[LossStep]:
        return iter(self.steps)


def _as_inputs(step: Any) -> dict[str, Any]:
    return {"step": step}
