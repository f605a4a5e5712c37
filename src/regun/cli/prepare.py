"""`regun prepare`."""

import argparse
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from regun.cli.display import Display
from regun.cli.forget import path_of, read_project
from regun.cli.options import use_threads
from regun.cli.terminal import emit
from regun.deletion import Project, prepare_table, read_pseudonyms
from regun.errors import RegunError, SettingsError
from regun.prepared import Prepared
from regun.render.numbers import duration, many

_PASSED = (
    *("project", "base", "data_dir", "pipeline", "salt", "model", "out", "folds", "repeats", "share", "top", "seed"),
    *("deletions", "store", "device", "threads"),
)
"""Options that decide what is prepared, and where."""


def run(args: argparse.Namespace) -> int:
    use_threads(args.threads)
    out = Path(args.out)
    if not args.out or not out.absolute().parent.is_dir():
        raise SettingsError([f"--out is {args.out!r}; name a file in an existing folder."])
    if out.exists() and not args.refresh:
        raise RegunError(f"{out} exists; --refresh prepares again from the current data and replaces it.")
    display = Display("prepare", args.quiet)
    project = read_project(args, display)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    options = [f"--{name.replace('_', '-')}={value}" for name, value in vars(args).items() if name in _PASSED and value]
    # the same command in other processes: the folds that one takes, the others leave to it
    helper = [sys.executable, "-m", "regun", "prepare", *options, "--workers=1", "--refresh", "--quiet"]
    helpers = [subprocess.Popen(helper, stdout=subprocess.DEVNULL) for _ in range(args.workers - 1)]
    try:
        table = prepare_table(
            project,
            out,
            folds=args.folds,
            repeats=args.repeats,
            share=args.share,
            top=args.top,
            seed=args.seed,
            deletions=path_of(args.deletions),
            pseudonyms=read_pseudonyms(path_of(args.salt)),
            progress=not args.quiet,
        )
    except BaseException:
        for process in helpers:
            process.terminate()
        raise
    finally:
        for process in helpers:
            process.wait()
    display.close()
    if table.about["created"] < started:
        display.note("the table is up to date: it was made before from the same data, settings and code")
    emit(_json(out, table)) if args.json else _print(out, table, project)
    return 0


def _json(out: Path, table: Prepared) -> dict[str, Any]:
    about = {
        name: table.about[name] for name in ("folds", "repeats", "seed", "trained_by", "recipe", "cost", "created")
    }
    sets = dict(table.about["keyed_by"])
    return {"path": str(out), "digest": table.digest, "records": len(table), "keyed_by": sets, **about}


def _print(out: Path, table: Prepared, project: Project) -> None:
    about = table.about
    how = f"{many(about['folds'], 'fold')}, {many(about['repeats'], 'repeat')}, by {about['trained_by']}"
    print(f"{many(len(table), 'training record')} prepared ({how}) in {duration(about['cost']['seconds'])}")
    print(f"unseen   {', '.join(name for name in about['keyed_by'] if name != 'train')}")
    print(f"table    {out}\ndigest   {table.digest}")
    if project.prepared is None:
        print(f"next     give the project prepared={str(out)!r}, then: regun forget")
