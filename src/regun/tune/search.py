"""The search: claim a trial, run it, keep its score; alone or shared with other processes.

A trial that is running belongs to a process. If that process ends, by Ctrl-C or a kill, its trial is given up and its
place in the search taken again, by the same process when it comes back or by another that shares the storage.
"""

import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from regun.errors import SettingsError, StoreError
from regun.tune.outcome import Judged, Trial
from regun.tune.proposals import LIVE, SPREAD, Inner, Proposals, distributions, owner, tpe
from regun.tune.space import Space, Values
from regun.tune.storage import quiet, shown


@dataclass(frozen=True)
class Plan:
    """A search: its name in the storage, where it may look, how many trials from which seed, one objective or two."""

    name: str
    space: Space
    trials: int
    seed: int = 0
    pareto: bool = False
    inner: Inner = tpe
    spread: int = SPREAD

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise SettingsError([f"a search has {self.trials} trials; give at least 1."])

    @property
    def wanted(self) -> int:
        """Trials to run: no more than there are combinations."""
        return self.trials if self.space.size is None else min(self.trials, self.space.size)


@dataclass(frozen=True)
class Patience:
    """How often a running trial says that it is alive, after how long a silence it is given up, how often to look."""

    beat: float = 10.0
    grace: float = 60.0
    poll: float = 0.5


def search(
    plan: Plan,
    run: Callable[[Values], Judged],
    storage: BaseStorage,
    *,
    on_trial: Callable[[Trial], None] | None = None,
    patience: Patience | None = None,
) -> tuple[Trial, ...]:
    """All trials of `plan`, those already in the storage and those run here; waits for what others are running."""
    patience = patience or Patience()
    with quiet(), _helpful_errors():
        study = _open(plan, storage)
        silence = _Silence(patience.grace)
        while len(found := finished(study, plan)) < plan.wanted:
            silence.give_up_the_dead(study)
            claim = _claim(study, plan)
            if claim is None:
                time.sleep(patience.poll)
                continue
            done = _attempt(study, claim, plan, run, None if isinstance(storage, InMemoryStorage) else patience.beat)
            if on_trial is not None:
                on_trial(done)
    return tuple(found)


@contextmanager
def _helpful_errors() -> Generator[None]:
    try:
        yield
    except StorageInternalError as fault:
        reason = shown(str(fault.__cause__ or fault).splitlines()[0])
        raise StoreError(
            f"the storage of the search failed ({reason}); finished trials are kept. See that it can be reached and "
            f"written, and run the same command again."
        ) from None


def finished(study: Study, plan: Plan) -> list[Trial]:
    """The completed trials in the order of their places, at most as many as wanted."""
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    trials = {int(t.user_attrs["place"]): _trial(t, plan) for t in sorted(done, key=lambda t: -t.number)}
    return [trials[place] for place in sorted(trials) if place < plan.wanted]


def _trial(frozen: FrozenTrial, plan: Plan) -> Trial:
    judged = Judged(**frozen.user_attrs["judged"])
    return Trial(int(frozen.user_attrs["place"]), plan.space.rounded(frozen.params), judged)


def _open(plan: Plan, storage: BaseStorage) -> Study:
    proposals = Proposals(plan.space, plan.seed, storage, plan.name, plan.inner, plan.spread)
    directions = [StudyDirection.MINIMIZE] * (2 if plan.pareto else 1)
    return optuna.create_study(
        storage=storage, sampler=proposals, pruner=optuna.pruners.NopPruner(), study_name=plan.name,
        directions=directions, load_if_exists=True,
    )  # fmt: skip


@dataclass(frozen=True)
class _Claim:
    """A trial that this process runs, and its place in the search."""

    trial: optuna.Trial
    place: int


def _claim(study: Study, plan: Plan) -> _Claim | None:
    """A trial of this process's own, or None if all places are taken (or another process was quicker)."""
    live = study.get_trials(deepcopy=False, states=LIVE)
    if len({t.user_attrs.get("place", -t.number) for t in live}) >= plan.wanted:
        return None
    trial = study.ask(distributions(plan.space))
    places = {t.number: t.user_attrs.get("place") for t in study.get_trials(deepcopy=False, states=LIVE)}
    place = places.pop(trial.number)
    beaten = any(number < trial.number and other == place for number, other in places.items())
    if place is not None and place < plan.wanted and not beaten:
        return _Claim(trial, int(place))
    _give_up(study, trial.number)
    return None


def _attempt(study: Study, claim: _Claim, plan: Plan, run: Callable[[Values], Judged], beat: float | None) -> Trial:
    """Run a claimed trial and record its score; whatever ends it early frees its place."""
    trial, values = claim.trial, plan.space.rounded(claim.trial.params)
    try:
        with _beating(trial, beat):
            judged = run(values)
        trial.set_user_attr("judged", asdict(judged))
        scores = [judged.forgetting, judged.utility] if plan.pareto else [judged.score]
        study.tell(trial, scores, skip_if_finished=True)
    except BaseException:  # Ctrl-C too: the place must not stay taken
        _give_up(study, trial.number)
        raise
    return Trial(claim.place, values, judged)


def _give_up(study: Study, number: int) -> None:
    try:
        study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
    except UpdateFinishedTrialError:  # another process did it at the same moment
        return


@contextmanager
def _beating(trial: optuna.Trial, every: float | None) -> Generator[None]:
    """Say now and then that the trial is alive."""
    stop = threading.Event()

    def beat() -> None:
        count = 0
        while not stop.wait(every):
            count += 1
            try:
                trial.set_user_attr("beat", count)
            except (StorageInternalError, UpdateFinishedTrialError):
                continue  # one beat missed; the next one, or the score, will say what is wrong

    thread = threading.Thread(target=beat, daemon=True) if every is not None else None
    if thread is not None:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if thread is not None:
            thread.join()


class _Silence:
    """Which running trials have a process behind them; clocks of different machines are never compared."""

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.heard: dict[int, tuple[Any, float]] = {}

    def give_up_the_dead(self, study: Study) -> None:
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            beat, now = trial.user_attrs.get("beat"), time.monotonic()
            last, since = self.heard.get(trial.number, (None, now))
            if trial.number not in self.heard or last != beat:
                since = now
            self.heard[trial.number] = (beat, since)
            if now - since > self.grace or _gone(trial.user_attrs.get("owner")):
                _give_up(study, trial.number)


def _gone(who: Mapping[str, Any] | None) -> bool:
    """Whether a process of this machine is no longer there; of other machines this cannot be told."""
    if who is None or who["host"] != owner()["host"] or os.name != "posix":
        return False
    try:
        os.kill(int(who["process"]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
