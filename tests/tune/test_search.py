"""The search itself, on scores that cost nothing: repeatable, resumable, shared, and quiet."""

import logging
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from regun.errors import RegunError, SettingsError, StoreError
from regun.methods import Choice, Range
from regun.tune import Judged, Space

optuna = pytest.importorskip("optuna")

from regun.tune.proposals import Proposals, next_place, owner  # noqa: E402
from regun.tune.search import Patience, Plan, _claim, finished, search  # noqa: E402
from regun.tune.storage import open_storage, shown  # noqa: E402

MIXED = Space({"lr": Choice((0.1, 0.05, 0.01)), "w": Range(0.1, 0.9), "g": Range(1e-4, 1e-1, log=True)},
              {"lr": 0.01, "w": 0.5, "g": 1e-3})  # fmt: skip
FINITE = Space({"lr": Choice((0.1, 0.05, 0.01)), "on": Choice((True, False))}, {"lr": 0.05, "on": False})


def bowl(values) -> Judged:
    distance = (values["w"] - 0.7) ** 2 + (values["lr"] - 0.05) ** 2 + (np.log10(values["g"]) + 2) ** 2
    return Judged(float(distance), float(abs(values["w"] - 0.7)), float(abs(values["lr"] - 0.1)))


def memory():
    return optuna.storages.InMemoryStorage()


def told(trials) -> list:
    return [(t.number, t.values, t.score) for t in trials]


def addresses(folder: Path) -> list[str]:
    return [f"sqlite:///{folder / 'a.sqlite'}", f"journal:{folder / 'a.log'}"]


# ------------------------------------------------------------------------------------------------------- what is tried


@pytest.mark.parametrize("pareto", [False, True])
def test_one_seed_gives_the_same_trials_and_another_seed_others(pareto: bool) -> None:
    first, second, other = (search(Plan("x", MIXED, 14, seed, pareto), bowl, memory()) for seed in (0, 0, 1))
    assert told(first) == told(second)
    assert first[0].values == other[0].values == dict(MIXED.start)
    assert [t.values for t in first[1:]] != [t.values for t in other[1:]]
    assert [t.number for t in first] == list(range(14))


def test_a_short_search_is_the_beginning_of_a_long_one() -> None:
    assert told(search(Plan("x", MIXED, 8), bowl, memory())) == told(search(Plan("x", MIXED, 16), bowl, memory()))[:8]


def test_it_learns_from_its_trials() -> None:
    """Better than the same number of evenly spread trials, over several seeds."""

    def best(spread: int) -> float:
        return float(np.mean([min(t.score for t in search(Plan("x", MIXED, 30, s, spread=spread), bowl, memory())) for s in range(6)]))  # fmt: skip

    assert best(6) < 0.7 * best(99)


def test_a_finite_space_is_tried_without_repeats_and_then_ends() -> None:
    found = search(Plan("x", FINITE, 20), lambda v: Judged(v["lr"], 0, 0), memory())
    assert len(found) == 6
    assert len({tuple(t.values.items()) for t in found}) == 6
    assert found[0].values == dict(FINITE.start)
    some = search(Plan("x", FINITE, 4), lambda v: Judged(v["lr"], 0, 0), memory())
    assert told(some) == told(found)[:4]


def test_nothing_global_is_seeded_read_or_left_changed(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def state():
        return (np.random.get_state()[1].tolist(), random.getstate(), torch.get_rng_state().tolist())  # noqa: NPY002

    before, verbosity = state(), optuna.logging.get_verbosity()
    handlers = list(logging.getLogger("optuna").handlers)
    search(Plan("x", MIXED, 9), bowl, open_storage(f"sqlite:///{tmp_path / 'a.sqlite'}"))
    assert state() == before
    assert optuna.logging.get_verbosity() == verbosity
    assert logging.getLogger("optuna").handlers == handlers
    assert capfd.readouterr() == ("", "")


def test_trials_are_told_as_they_end() -> None:
    seen: list[int] = []
    search(Plan("x", FINITE, 3), lambda v: Judged(0, 0, 0), memory(), on_trial=lambda t: seen.append(t.number))
    assert seen == [0, 1, 2]


def test_no_trials_are_no_search() -> None:
    with pytest.raises(SettingsError, match="a search has 0 trials; give at least 1"):
        Plan("x", FINITE, 0)


# ------------------------------------------------------------------------------------------------------ interruptions


@pytest.mark.parametrize("kind", [0, 1], ids=["sqlite", "journal"])
@pytest.mark.parametrize("at", [0, 1, 7, 10])
def test_an_interrupted_search_goes_on_as_if_it_had_not_been(kind: int, at: int, tmp_path: Path) -> None:
    address, calls = addresses(tmp_path)[kind], []

    def failing(values) -> Judged:
        calls.append(values)
        if len(calls) == at + 1:
            raise KeyboardInterrupt
        return bowl(values)

    with pytest.raises(KeyboardInterrupt):
        search(Plan("x", MIXED, 12), failing, open_storage(address))
    ran: list = []
    whole = search(Plan("x", MIXED, 12), lambda v: ran.append(v) or bowl(v), open_storage(address))
    assert told(whole) == told(search(Plan("x", MIXED, 12), bowl, memory()))
    assert len(ran) == 12 - at  # what was finished was not run again, what was not, was


def test_a_finished_search_runs_nothing_and_can_be_made_longer(tmp_path: Path) -> None:
    address = addresses(tmp_path)[0]
    search(Plan("x", MIXED, 8), bowl, open_storage(address))
    ran: list = []
    assert len(search(Plan("x", MIXED, 8), lambda v: ran.append(v) or bowl(v), open_storage(address))) == 8
    assert ran == []
    longer = search(Plan("x", MIXED, 13), lambda v: ran.append(v) or bowl(v), open_storage(address))
    assert len(ran) == 5
    assert told(longer) == told(search(Plan("x", MIXED, 13), bowl, memory()))


def test_an_error_of_a_trial_reaches_the_caller_and_frees_its_place(tmp_path: Path) -> None:
    address = addresses(tmp_path)[0]

    def broken(values) -> Judged:
        raise RegunError("the method cannot run")

    with pytest.raises(RegunError, match="the method cannot run"):
        search(Plan("x", MIXED, 3), broken, open_storage(address))
    assert [t.number for t in search(Plan("x", MIXED, 3), bowl, open_storage(address))] == [0, 1, 2]


WORKER = """
import os, sys, time
from pathlib import Path
import regun.tune.search as s
from regun.methods import Choice, Range
from regun.tune import Judged, Space
from regun.tune.storage import open_storage
space = Space({"lr": Choice((0.1, 0.05, 0.01)), "w": Range(0.1, 0.9)}, {"lr": 0.01, "w": 0.5})
address, log, pause, trials = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
def run(values):
    with open(log, "a") as file:
        file.write(f"begin {os.getpid()} {values['w']}\\n")
    time.sleep(pause)
    with open(log, "a") as file:
        file.write(f"end {os.getpid()} {values['w']}\\n")
    return Judged((values["w"] - 0.7) ** 2, 0, 0)
workers = int(sys.argv[5])
Path(f"{log}.{os.getpid()}").touch()
while len(list(Path(log).parent.glob(f"{Path(log).name}.*"))) < workers:  # importing takes each its own time
    time.sleep(0.01)
found = s.search(s.Plan("shared", space, trials), run, open_storage(address))
print([(t.number, dict(t.values), t.score) for t in found])
"""


def start(address: str, log: Path, pause: float, trials: int, workers: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, address, str(log), str(pause), str(trials), str(workers)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


def lines(log: Path, word: str) -> list[str]:
    return [line for line in log.read_text().splitlines() if line.startswith(word)] if log.exists() else []


@pytest.mark.parametrize("kind", [0, 1], ids=["sqlite", "journal"])
def test_two_processes_share_the_work(kind: int, tmp_path: Path) -> None:
    address, log = addresses(tmp_path)[kind], tmp_path / "log"
    workers = [start(address, log, 0.25, 10, workers=2) for _ in range(2)]
    answers = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], answers
    assert answers[0][0] == answers[1][0] != ""
    assert len(lines(log, "end")) == 10
    assert len({line.split()[1] for line in lines(log, "end")}) == 2
    assert len({line.split()[2] for line in lines(log, "end")}) == 10


def test_a_killed_process_loses_its_running_trial_only(tmp_path: Path) -> None:
    address, log = addresses(tmp_path)[0], tmp_path / "log"
    worker = start(address, log, 0.3, 8)
    deadline = time.monotonic() + 60
    while len(lines(log, "begin")) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    worker.send_signal(signal.SIGKILL)
    worker.communicate(timeout=60)
    done = len(lines(log, "end"))
    assert 3 <= done < 8
    resumed = start(address, log, 0, 8)
    answer, errors = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, errors
    assert len(lines(log, "end")) == 8
    undisturbed = start(addresses(tmp_path)[1], tmp_path / "other", 0, 8)
    assert undisturbed.communicate(timeout=60)[0] == answer


# ------------------------------------------------------------------------------------------------- who is still alive


def claimed_by(who, storage) -> None:
    """A search in which somebody else holds trial 0."""
    plan = Plan("x", FINITE, 3)
    study = optuna.create_study(storage=storage, study_name="x", sampler=Proposals(FINITE, 0, storage, "x"))
    trial = study.ask(study.sampler.distributions)
    trial.set_user_attr("owner", who)
    assert finished(study, plan) == []


@pytest.mark.parametrize(
    ("who", "grace"),
    [
        ({**owner(), "process": 2**22 + 1}, 60.0),  # a process number that Linux does not give
        ({"host": "elsewhere", "process": os.getpid()}, 0.2),  # another machine, silent for too long
    ],
    ids=["dead", "silent"],
)
def test_a_trial_without_a_process_is_run_again(who, grace: float) -> None:
    storage = memory()
    claimed_by(who, storage)
    found = search(Plan("x", FINITE, 3), lambda v: Judged(1, 1, 1), storage, patience=Patience(1, grace, 0.05))
    assert [t.number for t in found] == [0, 1, 2]
    assert found[0].values == dict(FINITE.start)


def test_a_trial_that_someone_runs_is_waited_for(tmp_path: Path) -> None:
    storage = memory()
    claimed_by({"host": "elsewhere", "process": 1}, storage)
    started = time.monotonic()
    ran: list = []
    search(Plan("x", FINITE, 3), lambda v: ran.append(v) or Judged(1, 1, 1), storage, patience=Patience(1, 1.0, 0.05))
    assert ran[:2] == FINITE.combinations(0)[1:3]  # the free places first
    assert ran[2] == dict(FINITE.start)
    assert time.monotonic() - started >= 1.0


@pytest.mark.parametrize("place", [0, 3], ids=["taken", "surplus"])
def test_a_place_lost_in_a_race_is_given_back(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that looked at the same moment: the later one finds its place taken, or one too many."""
    storage, plan = memory(), Plan("x", FINITE, 3)
    claimed_by(owner(), storage)
    study = optuna.load_study(study_name="x", storage=storage, sampler=Proposals(FINITE, 0, storage, "x"))
    with monkeypatch.context() as patch:
        patch.setattr("regun.tune.proposals.next_place", lambda live, number: place)
        assert _claim(study, plan) is None
    assert [t.state.name for t in study.trials] == ["RUNNING", "FAIL"]
    assert _claim(study, plan).place == 1


def test_a_running_trial_beats(tmp_path: Path) -> None:
    storage = open_storage(addresses(tmp_path)[0])
    search(Plan("x", FINITE, 1), lambda v: time.sleep(0.5) or Judged(1, 1, 1), storage, patience=Patience(beat=0.1))
    (trial,) = optuna.load_study(study_name="x", storage=storage).trials
    assert trial.user_attrs["beat"] >= 2
    assert trial.user_attrs["owner"]["process"] == os.getpid()
    assert trial.user_attrs["owner"]["host"].startswith(socket.gethostname())


def test_places() -> None:
    def trial(number: int, place: int | None):
        made = optuna.create_trial(state=optuna.trial.TrialState.RUNNING)
        made.number, made.user_attrs = number, {} if place is None else {"place": place}
        return made

    assert next_place([], 0) == 0
    assert next_place([trial(0, 0), trial(1, 1)], 2) == 2
    assert next_place([trial(0, 0), trial(2, 2)], 3) == 1  # trial 1 was given up
    assert next_place([trial(0, 0), trial(1, None)], 2) == 2  # trial 1 will take place 1
    assert next_place([trial(0, 0), trial(2, None)], 1) == 1  # later ones give way


# ----------------------------------------------------------------------------------------------------------- storages


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tuning.db", "cannot be understood; give sqlite:///FILE, postgresql://"),
        ("journal:", "cannot be understood"),
        ("nonsense://x/y", "cannot be understood"),
        ("sqlite:////no/such/folder/x.db", "cannot be opened .unable to open database file"),
        ("journal:/no/such/folder/x.log", "cannot be opened .*No such file"),
        ("sqlite:///{home}/text", "cannot be opened .file is not a database"),
        ("oracle://me:secret@host/x", "the storage 'oracle://me:\\*\\*\\*@host/x' needs .* not installed"),
    ],
)
def test_bad_addresses(address: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is not a database, but it is long enough to be taken for one" * 20)
    with pytest.raises(StoreError, match=message) as caught:
        open_storage(address.format(home=tmp_path))
    assert "secret" not in str(caught.value)


def test_passwords_are_not_shown() -> None:
    assert shown("mysql+x://me:s@cr/et@host:3306/db") == "mysql+x://me:***@host:3306/db"
    assert shown("sqlite:///a/b.db") == "sqlite:///a/b.db"


def test_a_storage_that_fails_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    storage = open_storage(f"sqlite:///{path}")

    def saboteur(values) -> Judged:
        path.write_bytes(b"")
        return bowl(values)

    with pytest.raises(StoreError, match="the storage of the search failed .* finished trials are kept"):
        search(Plan("x", MIXED, 3), saboteur, storage)
