"""Unlearn in a training loop of your own, here with accelerate: regun gives the batches and the loss, you the update.

One process:        python docs/howto/own_loop.py
Two CPU processes:  accelerate launch --cpu --num_processes 2 docs/howto/own_loop.py

The weights are those of `regun.unlearn` with the same updates, whatever the number of processes: each computes its part
of every batch, and the mean of their gradients, which the engine takes, is the gradient of the whole batch. FSDP and
DeepSpeed take gradients the same way. `regun.trainer.UnlearnTrainer` is this loop as a Hugging Face Trainer.
"""

import sys

import safetensors.torch
import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn

import regun

METHOD, LR, MOMENTUM = "regun,epochs=3,batch_size=15", 0.05, 0.9


def records() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Digits to forget, to keep, and that the model never saw."""
    digits = load_digits()
    x, y = torch.tensor(digits.images / 16, dtype=torch.float32).flatten(1), torch.tensor(digits.target)
    cuts = {"forget": (0, 100), "retain": (100, 900), "heldout": (900, 1200)}
    return {name: (x[a:b], y[a:b]) for name, (a, b) in cuts.items()}


def trained_model() -> nn.Module:
    """Stands for the model that you have: the same in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))


def unlearn(model: nn.Module) -> nn.Module:
    """Change the model in place by a plain accelerate loop."""
    accelerator = Accelerator(cpu=True)
    steps = regun.steps(METHOD, model, **records())
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    prepared, optimizer = accelerator.prepare(model, optimizer)
    for step in steps:
        optimizer.zero_grad()
        accelerator.backward(step.loss(prepared))
        optimizer.step()
    if accelerator.is_main_process:
        print(f"{len(steps)} steps of {METHOD} in {accelerator.num_processes} process(es)")
    accelerator.end_training()
    return model


def main(out: str | None = None) -> nn.Module:
    model = unlearn(trained_model())
    if out is not None:
        safetensors.torch.save_file(model.state_dict(), out)
    return model


if __name__ == "__main__":
    main(*sys.argv[1:2])
