"""`regun current`."""

import argparse
from dataclasses import asdict
from pathlib import Path

from regun.cli.terminal import emit
from regun.deletion import find_current


def run(args: argparse.Namespace) -> int:
    newest = find_current(args.folder)
    if args.json:
        emit({name: str(value) if isinstance(value, Path) else value for name, value in asdict(newest).items()})
        return 0
    if newest.path is None:
        print("model    the project's own: no request is accepted yet")
        print(f"digest   {newest.digest}")
        return 0
    print(f"model    {newest.path}")
    print(f"digest   {newest.digest}")
    print(f"request  {newest.request}, {newest.status}, {newest.time}")
    print(f"serve    {newest.link}" if newest.link is not None else "serve    current.safetensors is out of date")
    print(f"load     model = regun.deletion.current({args.folder!r}, model)")
    return 0
