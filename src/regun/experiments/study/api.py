"""Studies from Python: open, run, and read results."""

from pathlib import Path

from regun.experiments.study.collect import collect
from regun.experiments.study.context import Location
from regun.experiments.study.events import OnEvent
from regun.experiments.study.executors import InProcess, Processes
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.parse import read_study
from regun.experiments.study.results import Results
from regun.experiments.study.scheduler import execute
from regun.experiments.study.spec import Study


def open_study(
    study: Study | str, *, store: str | Path = "regun-store", data_dir: str | Path | None = None, device: str = "cpu"
) -> OpenStudy:
    """Return the study (or the one of this name or file) with its data and store; `.plan` holds its tasks.

    >>> open_study("digits", store=tmp_path).plan.counts()["train"]  # doctest: +SKIP
    6
    """
    spec = read_study(study) if isinstance(study, str) else study
    return OpenStudy(spec, Location(str(Path(store).resolve()), str(data_dir) if data_dir else None, device))


def run_study(
    study: Study | str,
    *,
    store: str | Path = "regun-store",
    data_dir: str | Path | None = None,
    device: str = "cpu",
    workers: int = 1,
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> Results:
    """Run the missing tasks of a study and return its results; `results.missing` names tasks that failed.

    `on_event` is called with every event of `regun.experiments.study.events`. With several `workers`, call this below
    `if __name__ == "__main__":`, since each is a new process.

    >>> run_study("digits").frame().groupby("method").gap_rftp.mean()  # doctest: +SKIP
    """
    opened = open_study(study, store=store, data_dir=data_dir, device=device)
    executor = Processes(opened, workers, threads or opened.study.threads) if workers > 1 else InProcess(opened)
    summary = execute(opened, executor, on_event or (lambda event: None))
    return collect(opened, summary.failed)


def study_results(
    study: Study | str, *, store: str | Path = "regun-store", data_dir: str | Path | None = None, device: str = "cpu"
) -> Results:
    """Return the results of what has been made so far; nothing is run."""
    return collect(open_study(study, store=store, data_dir=data_dir, device=device))
