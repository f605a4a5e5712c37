"""The processes that share a run, and what they exchange."""

import atexit
import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import safetensors.torch
import torch
import torch.distributed as dist
from torch import Tensor, nn

from regun.errors import ProcessError, RegunError
from regun.hashing import digest
from regun.parallel.local import SHORT, LocalExchange, connect

R = TypeVar("R")

LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What `torchrun` sets in the environment of every process."""


@dataclass(frozen=True)
class Processes:
    """This process's number (`rank`) among `world_size` processes, and what it exchanges with the others.

    Every method is collective: all processes must call it, in the same order. If one of them has ended, the others get
    a `ProcessError`.
    """

    rank: int
    world_size: int
    local: LocalExchange | None = field(default=None, compare=False, repr=False)
    """A faster way for tensors on the CPU, if all processes run on one machine."""

    @property
    def writes(self) -> bool:
        """True in the one process that writes files and prints."""
        return self.rank == 0

    def rows(self, examples: int, rank: int | None = None) -> slice:
        """Return the rows of a batch that a process computes (default: this one); sizes differ by one at most."""
        rank = self.rank if rank is None else rank
        return slice(rank * examples // self.world_size, (rank + 1) * examples // self.world_size)

    def sum(self, tensors: Sequence[Tensor], strides: Sequence[Sequence[int]] | None = None) -> list[Tensor]:
        """Return the sums of the tensors over all processes, in one exchange per data type.

        They have the `strides` given, those of dense tensors and alike in all processes, or are contiguous.
        """
        sums = list[Tensor](tensors)
        if self.world_size == 1:
            return sums
        for kind in dict.fromkeys((t.dtype, t.device) for t in tensors):
            places = [n for n, t in enumerate(tensors) if (t.dtype, t.device) == kind]
            flat = self._sum_of_flat([_flat(tensors[n].detach(), strides[n] if strides else None) for n in places])
            for n, part in zip(places, torch.split(flat, [tensors[n].numel() for n in places]), strict=True):
                shape = tensors[n].shape
                sums[n] = part.view(shape) if strides is None else part.as_strided(shape, strides[n])
        return sums

    def _sum_of_flat(self, parts: list[Tensor]) -> Tensor:
        """Return one-dimensional tensors of one data type, end to end, summed over all processes."""
        if self.local is not None and parts[0].device.type == "cpu":
            return _or_ended(self.local.sum, parts)
        flat = torch.cat(parts)
        _exchange("all_reduce", flat)
        return flat

    def stack(self, tensor: Tensor) -> Tensor:
        """Return this tensor of every process, which has the same shape in all of them: (world_size, ...)."""
        if self.local is not None and tensor.device.type == "cpu" and tensor.nbytes <= SHORT:
            return _or_ended(self.local.stack, tensor)
        received = tensor.new_empty((self.world_size, *tensor.shape))
        _exchange("all_gather", list(received.unbind(0)), tensor.contiguous())
        return received

    def gather_rows(self, part: Tensor, examples: int) -> Tensor:
        """Return the whole tensor (examples, ...) of which every process has its `rows`."""
        most = -(-examples // self.world_size)
        sent = part.detach()
        if len(part) < most:
            sent = torch.cat([sent, sent.new_zeros((most - len(part), *part.shape[1:]))])
        sizes = [self.rows(examples, rank) for rank in range(self.world_size)]
        received = self.stack(sent)
        return torch.cat([each[: size.stop - size.start] for each, size in zip(received, sizes, strict=True)])

    def gather(self, tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """Return the named tensors of every process, on the CPU."""
        packed = safetensors.torch.save({name: t.detach().cpu().contiguous() for name, t in tensors.items()})
        sent = _bytes(packed)
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size)]
        _exchange("all_gather", counts, torch.tensor([len(sent)]))
        sizes = [int(count) for count in counts]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(sent)] = sent
        received = [torch.empty_like(padded) for _ in sizes]
        _exchange("all_gather", received, padded)
        parts = [part[:size].numpy().tobytes() for part, size in zip(received, sizes, strict=True)]
        return [safetensors.torch.load(part) for part in parts]

    def broadcast(self, value: Any, tensors: Mapping[str, Tensor] | None = None) -> tuple[Any, dict[str, Tensor]]:
        """Return the JSON value and the tensors (on the CPU) of the process that writes; the others' are ignored."""
        content = b""
        if self.writes:
            named = {name: t.detach().cpu().contiguous() for name, t in (tensors or {}).items()}
            content = safetensors.torch.save(named, {"value": json.dumps(value)})
        count = torch.tensor([len(content)])
        _exchange("broadcast", count, 0)
        received = _bytes(content) if self.writes else torch.empty(int(count), dtype=torch.uint8)
        _exchange("broadcast", received, 0)
        content = received.numpy().tobytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return json.loads(header["__metadata__"]["value"]), safetensors.torch.load(content)

    def all(self, value: bool) -> bool:
        """Return True if the value is True in all processes."""
        return float(self.sum([torch.tensor(float(value))])[0]) == self.world_size

    def barrier(self) -> None:
        """Return when all processes are here."""
        _exchange("all_reduce", torch.zeros(1))

    def broadcast_weights(self, model: nn.Module) -> None:
        """Give `model` the weights and buffers of process 0, in place."""
        with torch.no_grad():
            for tensor in [*model.parameters(), *model.buffers()]:
                plain = tensor.detach().contiguous()
                _exchange("broadcast", plain, 0)
                tensor.copy_(plain)

    def check_same(self, what: str, value: Any) -> None:
        """Raise unless all processes have the same value: an array, or what JSON can hold."""
        mine = _bytes(bytes.fromhex(digest(value)))
        all_digests = [torch.empty_like(mine) for _ in range(self.world_size)]
        _exchange("all_gather", all_digests, mine)
        others = [rank for rank, each in enumerate(all_digests) if not torch.equal(each, all_digests[0])]
        if others:
            raise RegunError(
                f"{what} of process {others[0]} differ from those of process 0; all processes of a run must have the "
                f"same. Read the same data in the same order, with the same settings and seed, in every process."
            )

    def in_turn(self, results: Iterator[Mapping[str, Tensor]], count: int) -> Generator[dict[str, Tensor]]:
        """Yield the results of items 0, ..., count - 1; `results` makes this process's: rank, rank + world_size, ..."""
        for first in range(0, count, self.world_size):
            mine = next(results) if first + self.rank < count else dict[str, Tensor]()
            yield from self.gather(mine)[: count - first]


_CURRENT: ContextVar[Processes | Literal[False] | None] = ContextVar(
    "regun: processes that share the run", default=False
)
"""The processes of the run, None where each works alone, False outside of any run."""


def current() -> Processes | None:
    """Return the processes that share the work here; None if this process works alone."""
    return _CURRENT.get() or None


def is_writer() -> bool:
    """Return True in the process that prints and writes; there is one in every run."""
    processes = current()
    return processes is None or processes.writes


@contextmanager
def joined() -> Generator[None]:
    """Share the work inside the block among the processes of `torchrun`, or of the initialised process group.

    Nothing changes with one process, inside `alone`, or in a block that shares its work already.
    """
    if _CURRENT.get() is not False:
        yield
        return
    token = _CURRENT.set(_processes())
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def alone() -> Generator[None]:
    """Let this process work by itself inside the block, whatever other processes there are.

    >>> if rank == 0:  # doctest: +SKIP
    ...     with regun.parallel.alone():
    ...         print(regun.audit(model, forget=forget, test=test).numbers)
    """
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def is_launched() -> bool:
    """Return True if `torchrun` or the like started this process as one of several."""
    return all(name in os.environ for name in LAUNCHED) and os.environ["WORLD_SIZE"] != "1"


def _processes() -> Processes | None:
    if not dist.is_available():
        return None
    if not dist.is_initialized():
        if not is_launched():
            return None
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        _exchange("init_process_group", "cpu:gloo,cuda:nccl" if cuda else "gloo")
        atexit.register(lambda: dist.destroy_process_group() if dist.is_initialized() else None)
    return of_group() if dist.get_world_size() > 1 else None


def of_group() -> Processes:
    """Return the processes of the initialised group, also if it is only one; all must call it."""
    group, plain = dist.group.WORLD, Processes(dist.get_rank(), dist.get_world_size())

    def from_first(texts: list[str]) -> list[str]:
        return plain.broadcast(texts)[0]

    if group not in _LOCAL:
        _LOCAL[group] = _or_ended(connect, plain.rank, plain.world_size, from_first, plain.all)
    return replace(plain, local=_LOCAL[group])


_LOCAL: WeakKeyDictionary[Any, LocalExchange | None] = WeakKeyDictionary()
"""The faster way of a process group, made when it is first used; None if its processes run on several machines."""


def _exchange(operation: str, *args: object) -> None:
    """Run an operation of torch.distributed."""
    _or_ended(getattr(dist, operation), *args)


def _or_ended(operation: Callable[..., R], *args: object) -> R:
    """Return what an operation returns; what it raises where a process is gone becomes a `ProcessError`."""
    try:
        return operation(*args)
    except (RuntimeError, OSError) as fault:
        text = " ".join(str(fault).split())
        raise ProcessError(
            f"another process of this run has ended, or cannot be reached ({text[:200]}). Finished work and the last "
            f"snapshot are stored; run the same command again, with any number of processes, to go on."
        ) from fault


def _flat(tensor: Tensor, stride: Sequence[int] | None) -> Tensor:
    """Return the values as they lie in the memory of a dense tensor with these strides, or of a contiguous one."""
    if stride is None:
        return tensor.reshape(-1)
    if tensor.stride() != tuple(stride):
        tensor = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    return tensor.as_strided((tensor.numel(),), (1,))


def _bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content or b"\0"), dtype=torch.uint8)[: len(content)]
