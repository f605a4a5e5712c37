"""Exchange between processes of one machine: short messages through sockets, long tensors through shared memory.

gloo takes every exchange through another thread and TCP. On one machine that costs about twenty times as much as a
socket, and a network with BatchNorm makes dozens of exchanges per step.
"""

import mmap
import os
import shutil
import socket
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

SHORT = 2**15
"""Bytes of a message that sockets hold for sure, so that nobody waits while sending."""
CHUNK = 2**20
"""Bytes of a process in shared memory at a time: they stay in the cache."""
SECONDS = 1800
"""How long to wait for another process, as gloo does."""


class LocalExchange:
    """A socket to every other process, and memory that all of them share. Every method is collective."""

    def __init__(self, rank: int, peers: dict[int, socket.socket], memory: mmap.mmap) -> None:
        self.rank, self.peers, self.world_size = rank, peers, len(peers) + 1
        # two areas in turn: who writes into one has heard that all others are done with it
        self.areas = torch.frombuffer(memory, dtype=torch.uint8).view(2, self.world_size, CHUNK)
        self.turn = 0
        weakref.finalize(self, _close, list(peers.values()))

    def stack(self, tensor: Tensor) -> Tensor:
        """Return this short tensor of every process: (world_size, ...)."""
        own = tensor.contiguous()
        received = own.new_empty((self.world_size, *own.shape))
        received[self.rank] = own
        for peer in self.peers.values():
            peer.sendall(_bytes_of(own))
        for rank, peer in self.peers.items():
            _receive(peer, _bytes_of(received[rank]))
        return received

    def sum_(self, flat: Tensor) -> None:
        """Replace a one-dimensional tensor by its sum over all processes, added in the order of ranks by each."""
        if flat.nbytes <= SHORT:
            torch.sum(self.stack(flat), 0, dtype=flat.dtype, out=flat)
            return
        size = CHUNK // flat.itemsize
        for start in range(0, len(flat), size):
            part = flat[start : start + size]
            areas = self.areas[self.turn, :, : part.nbytes].view(flat.dtype).unbind(0)
            areas[self.rank].copy_(part)
            self.stack(torch.zeros(1, dtype=torch.uint8))  # all have written
            part.copy_(areas[0])
            for area in areas[1:]:  # which is faster than a sum over the first axis
                part.add_(area)
            self.turn = 1 - self.turn


def connect(
    rank: int, world_size: int, share: Callable[[list[str]], Sequence[str]], agree: Callable[[bool], bool]
) -> LocalExchange | None:
    """Return the exchange of `world_size` processes, or None in all of them if they do not run on one machine.

    `share` returns the texts of the first process, and `agree` whether all processes say True.
    """
    host, folder = share(_host_and_folder() if rank == 0 else [])
    listening = _listen(Path(folder) / str(rank)) if folder and host == socket.gethostname() else None
    try:
        if not agree(listening is not None) or listening is None:
            return None
        try:
            made = _connected(rank, world_size, Path(folder), listening)
        except OSError:
            made = None
        return made if agree(made is not None) else None
    finally:
        _close([listening] if listening is not None else [])
        if rank == 0 and folder:
            shutil.rmtree(folder, ignore_errors=True)


def _host_and_folder() -> list[str]:
    """Return the name of this machine and a new folder, in memory if there is such a file system; "" if none."""
    try:
        shared = "/dev/shm"
        return [socket.gethostname(), tempfile.mkdtemp(prefix="regun-", dir=shared if Path(shared).is_dir() else None)]
    except OSError:
        return ["", ""]


def _listen(path: Path) -> socket.socket | None:
    if not hasattr(socket, "AF_UNIX"):
        return None
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(path))
        listening.listen()
    except OSError:
        listening.close()
        return None
    return listening


def _connected(rank: int, world_size: int, folder: Path, listening: socket.socket) -> LocalExchange:
    """Return the exchange after every process has connected to those before it."""
    peers: dict[int, socket.socket] = {}
    try:
        for other in range(rank):
            peers[other] = socket.socket(socket.AF_UNIX)
            peers[other].connect(str(folder / str(other)))
            peers[other].sendall(rank.to_bytes(4, "little"))
        listening.settimeout(60)
        for _ in range(rank + 1, world_size):
            peer, _ = listening.accept()
            number = bytearray(4)
            _receive(peer, memoryview(number))
            peers[int.from_bytes(number, "little")] = peer
        for peer in peers.values():
            peer.settimeout(SECONDS)
        memory = _shared_memory(folder / "memory", 2 * world_size * CHUNK)
    except OSError:
        _close(list(peers.values()))
        raise
    return LocalExchange(rank, dict(sorted(peers.items())), memory)


def _shared_memory(path: Path, size: int) -> mmap.mmap:
    with open(path, "a+b") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)  # writing to memory that is not there would end the process
        file.truncate(size)  # by each process: whoever comes first makes it
        return mmap.mmap(file.fileno(), size)


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _bytes_of(tensor: Tensor) -> memoryview:
    return memoryview(tensor.view(-1).view(torch.uint8).numpy())  # pyright: ignore[reportArgumentType]


def _receive(peer: socket.socket, into: memoryview) -> None:
    done = 0
    while done < len(into):
        count = peer.recv_into(into[done:])
        if not count:
            raise ConnectionError("it closed its connection")
        done += count
