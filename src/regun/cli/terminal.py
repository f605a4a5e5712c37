"""Output of a command: tables and JSON on standard output, errors on standard error, files."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from regun.errors import RegunError
from regun.render.tables import is_number, plain

MAX_LINE = 2000
"""Characters of one line of an error message."""
WIDE = 100_000
"""Columns of output that is not a terminal: nothing is cut or wrapped."""


def emit(value: Any) -> None:
    """Print JSON on standard output."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: text to the left, numbers to the right; long cells wrap on a terminal and nowhere else."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name, *cells in zip(head, *rows, strict=True):
        numbers = any(cells) and all(is_number(cell) for cell in cells if cell)
        table.add_column(Text(name), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    console = Console() if sys.stdout.isatty() else Console(width=WIDE, height=25)
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, complete or not at all, and make its folder; of several processes, the first does."""
    from regun.artifacts import write_file
    from regun.parallel import is_writer

    if not is_writer():
        return path

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise RegunError(f"cannot write {path}: {fault.strerror or fault}. Name a folder you may write.") from None
    write_file(path, content.encode() if isinstance(content, str) else content)
    return path


def print_error(text: str) -> None:
    """Print an error without control characters; the middle of a very long line is left out."""
    lines = [plain(line) for line in text.split("\n")]
    lines = [line if len(line) <= MAX_LINE else f"{line[:1000]} ... {line[-500:]}" for line in lines]
    print("regun: " + "\n".join(lines), file=sys.stderr, flush=True)


class SafeStream:
    """A stream whose failures do not end the command: output that cannot be written is dropped.

    A closed pipe (`| head`) is no error; any other failure is stored in `fault`. Characters that the stream's encoding
    lacks are written as escapes.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.fault: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def write(self, text: str) -> int:
        self._attempt(lambda stream: stream.write(_encodable(text, stream.encoding or "utf-8")))
        return len(text)

    def flush(self) -> None:
        self._attempt(lambda stream: stream.flush())

    def _attempt(self, action: Callable[[TextIO], object]) -> None:
        if self._stream is None:
            return
        try:
            action(self._stream)
        except OSError as fault:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            self.fault = self.fault if isinstance(fault, BrokenPipeError) else fault


def _encodable(text: str, encoding: str) -> str:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text
