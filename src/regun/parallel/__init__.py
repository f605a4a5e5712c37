"""One run on several processes: each computes its part of every batch, and all hold the same weights.

`processes` knows which processes take part and how they exchange tensors; `shard` splits a forward pass so that losses
and gradients are those of the whole batch; `layers` makes BatchNorm and random layers follow the whole batch too.
Start with `processes.joined` and `shard.sharded`.
"""

from regun.parallel.processes import Processes, alone, current, is_writer, joined

__all__ = ["Processes", "alone", "current", "is_writer", "joined"]
