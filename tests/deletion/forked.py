"""`regun` as a process of its own that starts at once: forked from a server that has imported everything and done
nothing yet. It can be killed like any other, and costs no seconds of importing."""

import multiprocessing
import os
import signal
import sys
from pathlib import Path

from regun.cli import main

PATIENCE = 120
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["regun.deletion", "regun.cli.options", "regun.cli.terminal", "torch._dynamo"])


def answer(argv: list[str], around: dict[str, str], out: Path, errors: Path) -> None:
    for stream, path in ((1, out), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
    os.environ.update(around)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background inherits that it is ignored
    sys.exit(main(argv))


def answer_nobody(argv: list[str]) -> None:
    """The same where nobody reads what is said: the other end of the pipe is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    for stream in (1, 2):
        os.dup2(writer, stream)
    sys.exit(main(argv))


def unread(*args: str | Path) -> int:
    """The exit code of a command whose output and errors nobody reads."""
    process = CONTEXT.Process(target=answer_nobody, args=([*map(str, args)],))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode is not None, "still at work"
    return process.exitcode


class Forked:
    """`regun ...` with these arguments; what it says goes to files of a folder."""

    def __init__(self, folder: Path, *args: str | Path, **around: str) -> None:
        folder.mkdir(exist_ok=True)
        number = len(list(folder.iterdir()))
        self.out, self.errors = folder / f"{number}.out", folder / f"{number}.err"
        self.out.touch()
        self.errors.touch()
        self.process = CONTEXT.Process(target=answer, args=([*map(str, args)], around, self.out, self.errors))
        self.process.start()

    @property
    def running(self) -> bool:
        return self.process.is_alive()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> int:
        """Send the signal; the exit code, which is another one if it had ended by itself."""
        if self.process.pid is not None and self.running:
            os.kill(self.process.pid, how)
        return self.ended()[0]

    def ended(self) -> tuple[int, str, str]:
        """Its exit code, output and errors."""
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, "still at work"
        return self.process.exitcode, self.out.read_text(), self.errors.read_text()
