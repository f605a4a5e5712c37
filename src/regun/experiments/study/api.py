"""Studies from Python: read one, plan it, run it with progress, and have its results as plain rows."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regun.experiments.study.collect import collect
from regun.experiments.study.context import Location, StudyContext
from regun.experiments.study.execute import execute
from regun.experiments.study.executors import InProcess, Processes
from regun.experiments.study.parse import read_study
from regun.experiments.study.results import Results
from regun.experiments.study.spec import Study


def open_study(
    study: Study | str, *, store: str | Path = "regun-store", data_dir: str | Path | None = None, device: str = "cpu"
) -> StudyContext:
    """The study (or the one of this name or file) with its data and store; `.plan` says what it takes.

    >>> open_study("digits", store=tmp_path).plan.counts()["train"]  # doctest: +SKIP
    6
    """
    found = read_study(study) if isinstance(study, str) else study
    return StudyContext(found, Location(str(Path(store).resolve()), str(data_dir) if data_dir else None, device))


def run_study(
    study: Study | str,
    *,
    store: str | Path = "regun-store",
    data_dir: str | Path | None = None,
    device: str = "cpu",
    workers: int = 1,
    threads: int | None = None,
    progress: Callable[[Mapping[str, Any]], None] | None = None,
) -> Results:
    """Make all that the study lacks and return its results; what failed is named in `results.missing`.

    `progress` is told of every event: planned, started, step, epoch, trial, finished, failed, ended. With several
    `workers`, call it below `if __name__ == "__main__":`, since each is a new process.

    >>> run_study("digits").frame().groupby("method").gap_rftp.mean()  # doctest: +SKIP
    """
    ctx = open_study(study, store=store, data_dir=data_dir, device=device)
    engine = Processes(ctx, workers, threads or ctx.study.threads) if workers > 1 else InProcess(ctx)
    ran = execute(ctx, engine, progress or (lambda event: None))
    return collect(ctx, ran.failed)


def study_results(
    study: Study | str, *, store: str | Path = "regun-store", data_dir: str | Path | None = None, device: str = "cpu"
) -> Results:
    """What has been made of a study so far; nothing is run."""
    return collect(open_study(study, store=store, data_dir=data_dir, device=device))
