"""What a method file exports besides `unlearn(job, config)`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Needs:
    """What a method asks of the user besides the model and the forget set."""

    retain: bool = True
    heldout: bool = False
    fresh_model: bool = False
    heldout_helps: bool = False
    """Whether held-out examples are used where there are some."""

    @property
    def looks(self) -> bool:
        """Whether the method may look at held-out examples; then these are no fair judges of what it makes."""
        return self.heldout or self.heldout_helps


@dataclass(frozen=True)
class Choice:
    """Searched: one of these values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """Searched: a number between `low` and `high`, on a logarithmic scale if `log`."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Work:
    """What a run will take: optimizer steps, and samples through backward passes (an estimate)."""

    steps: int
    samples: int

    def __add__(self, other: "Work") -> "Work":
        return Work(self.steps + other.steps, self.samples + other.samples)


def passes(epochs: int, examples: int, batch: int) -> Work:
    """Epochs over one set."""
    return Work(epochs * -(-examples // batch), epochs * examples)


def paired_passes(epochs: int, forget: int, retain: int, batches: tuple[int, int], epoch: str) -> Work:
    """Epochs of steps with a forget and a retain batch, ended as `streams.paired` ends them."""
    first, second = -(-forget // batches[0]), -(-retain // batches[1])
    steps = epochs * {"forget": first, "retain": second, "shorter": min(first, second)}[epoch]
    return Work(steps, round(steps * (forget / first + retain / second)))


Ranges = Mapping[str, Mapping[str, Choice | Range]]

RESNET_LR = Choice((1e-1, 5e-2, 1e-2, 5e-3))
SWIN_LR = Choice((1e-3, 5e-4, 1e-4))

SWIN: Mapping[str, Any] = {"optimizer": "adamw", "epochs": 20, "lr": 1e-4}
"""The paper's settings for Swin-T while unlearning; one parameter group, no decay, constant rate."""
