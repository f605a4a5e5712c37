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
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import torch
from torch import Tensor

SHORT = 2**15
"""Bytes of a message that sockets hold for sure, so that nobody waits while sending."""
ROOM = (2**24, 2**22, 2**20)
"""Bytes of a process in shared memory, the first that the machine has: fewer and longer exchanges wait less."""
SECONDS = 1800
"""How long to wait for another process, as gloo does."""


class LocalExchange:
    """A socket to every other process, and memory that all of them share. Every method is collective."""

    def __init__(self, rank: int, peers: dict[int, socket.socket], memory: mmap.mmap) -> None:
        self.rank, self.peers, self.world_size = rank, peers, len(peers) + 1
        self.areas = torch.frombuffer(memory, dtype=torch.uint8).view(self.world_size, -1)
        self.in_use = False
        """True if another process may not have read the areas yet; its next message says that it has."""
        self.signal = torch.zeros(1, dtype=torch.uint8)
        weakref.finalize(self, _close, list(peers.values()))

    def stack(self, tensor: Tensor) -> Tensor:
        """Return this short tensor of every process: (world_size, ...)."""
        own = tensor.contiguous()
        received = own.new_empty((self.world_size, *own.shape))
        received[self.rank] = own
        sent = _bytes_of(own)
        for peer in self.peers.values():
            peer.sendall(sent)
        for rank, peer in self.peers.items():
            _receive(peer, _bytes_of(received[rank]))
        self.in_use = False
        return received

    def sum(self, parts: Sequence[Tensor]) -> Tensor:
        """Return one-dimensional tensors of one type, end to end, summed over all processes in the order of ranks."""
        if sum(part.nbytes for part in parts) <= SHORT:
            return self.stack(torch.cat(list(parts))).sum(0, dtype=parts[0].dtype)
        areas = self.areas.view(parts[0].dtype)
        total = parts[0].new_empty(sum(map(len, parts)))
        start = 0
        for group in _groups(parts, areas.shape[1]):
            size = sum(map(len, group))
            if self.in_use:
                self.stack(self.signal)  # all have read what was here
            torch.cat(group, out=areas[self.rank, :size])
            self.stack(self.signal)  # all have written
            into = torch.add(*areas[:2, :size], out=total[start : start + size])
            for area in areas[2:, :size]:  # which is faster than a sum over the first axis
                into.add_(area)
            self.in_use = True
            start += size
        return total


def _groups(parts: Sequence[Tensor], most: int) -> Generator[list[Tensor]]:
    """Yield the parts in order, as lists of `most` numbers at most; longer parts are cut."""
    group, left = list[Tensor](), most
    for part in parts:
        while len(part) > left:
            yield [*group, part[:left]]
            part, group, left = part[left:], [], most
        group.append(part)
        left -= len(part)
    yield group


def connect(
    rank: int, world_size: int, share: Callable[[list[str]], Sequence[str]], agree: Callable[[bool], bool]
) -> LocalExchange | None:
    """Return the exchange of `world_size` processes, or None in all of them if they do not run on one machine.

    `share` returns the texts of the first process, and `agree` whether all processes say True.
    """
    host, folder = share(_host_and_folder(world_size) if rank == 0 else [])
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


def _host_and_folder(world_size: int) -> list[str]:
    """Return the name of this machine and a new folder with memory for all processes; "" if there is none."""
    shared, folder = "/dev/shm", ""
    try:
        folder = tempfile.mkdtemp(prefix="regun-", dir=shared if Path(shared).is_dir() else None)
        _make_memory(Path(folder) / "memory", world_size)
        return [socket.gethostname(), folder]
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        return ["", ""]


def _make_memory(path: Path, world_size: int) -> None:
    """Make a file with as much of `ROOM` as there is; raise OSError if there is not even the least."""
    with open(path, "wb") as file:
        for room in ROOM:
            try:
                if hasattr(os, "posix_fallocate"):  # writing to memory that is not there would end the process
                    os.posix_fallocate(file.fileno(), 0, world_size * room)
                file.truncate(world_size * room)
                return
            except OSError:
                file.truncate(0)
                if room == ROOM[-1]:
                    raise


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
        with open(folder / "memory", "r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
    except OSError:
        _close(list(peers.values()))
        raise
    return LocalExchange(rank, dict(sorted(peers.items())), memory)


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
