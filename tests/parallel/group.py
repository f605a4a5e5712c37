"""Run a function in several processes that share their work, and return what it returned in each."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from forked import CONTEXT
from torch import Tensor

from regun.parallel import joined

METHOD = CONTEXT.get_start_method()
"""From a server that has imported everything: starting from nothing takes seconds of each process."""
Function = Callable[..., dict[str, Tensor]]


def in_processes(world: int, function: Function, *args: object) -> list[dict[str, Tensor]]:
    """Return the tensors that `function(*args)`, of a module, returns in each of `world` processes."""
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(_process, (world, folder, function, args), nprocs=world, start_method=METHOD)
        return [safetensors.torch.load((Path(folder) / str(rank)).read_bytes()) for rank in range(world)]


def _process(rank: int, world: int, folder: str, function: Function, args: tuple[object, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world)
    with joined():
        result = function(*args)
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in result.items()}
    (Path(folder) / str(rank)).write_bytes(safetensors.torch.save(tensors))
    dist.destroy_process_group()
