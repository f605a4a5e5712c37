"""`regun new`."""

import argparse
from importlib.resources import files
from pathlib import Path

from regun.cli.arguments import Commands, command
from regun.errors import RegunError

STARTERS = {"project": "app.py", "study": "study.toml"}
"""Default name of each kind; `starters/` has the text, which is no module of this package."""


def add_new(commands: Commands) -> None:
    parser = command(
        commands,
        "new",
        "write a commented file to start from: a project for deletion requests, or a study; both run as they are",
        "new:run",
        "regun new project app.py",
    )
    parser.add_argument("kind", choices=STARTERS, help="what to write")
    names = ", ".join(f"{name} for a {kind}" for kind, name in STARTERS.items())
    parser.add_argument("file", nargs="?", metavar="FILE", help=f"a new file (default {names})")


def run(args: argparse.Namespace) -> int:
    name = STARTERS[args.kind]
    path = Path(args.file if args.file is not None else name)
    if path.suffix != Path(name).suffix:
        raise RegunError(f"{path} does not end in {Path(name).suffix}; name a file such as {name}.")
    text = (files("regun.cli") / "starters" / f"{name}.txt").read_text("utf-8").replace(name, path.name)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RegunError(f"{path} exists and is not overwritten; name another file.") from None
    except OSError as fault:
        raise RegunError(f"cannot write {path}: {fault.strerror or fault}.") from None
    print(f"wrote {path}; its first lines say how to run it")
    return 0
