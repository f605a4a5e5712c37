"""Carrying studies out: nothing twice, the same whatever the engine, failures that take only their own with them."""

from dataclasses import replace
from pathlib import Path

import pytest

from expect import assert_names, error
from mini import MINI, evaluations, run, study
from regun.cli.study import write_all
from regun.errors import RegunError
from regun.experiments.study import open_study, run_study, study_results
from regun.experiments.study.collect import collect, example_rows, request_details
from regun.experiments.study.context import Location
from regun.experiments.study.executors import ATTEMPTS, Processes
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.scheduler import execute
from regun.experiments.study.tasks import NotMadeError, Unlearn

BROKEN = '''"""A method that cannot work."""
from dataclasses import dataclass
from regun.errors import RegunError
@dataclass(frozen=True)
class Config:
    pass
def unlearn(job, config):
    raise RegunError("it never works; use another method.")
'''


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory):
    store = tmp_path_factory.mktemp("finished")
    return store, *run(study(), store)


def test_everything_planned_is_made_once(finished) -> None:
    store, opened, ran, events = finished
    assert not ran.failed
    over = [*ran.made, *ran.in_store]
    assert sorted(over) == sorted(opened.plan.tasks)
    assert all(task.done(opened) for task in opened.plan.tasks.values())
    kinds = [event.event for event in events]
    assert kinds[0] == "planned"
    assert kinds[-1] == "ended"
    assert kinds.count("finished") == len(opened.plan.tasks)
    assert "epoch" in kinds


def test_a_finished_study_has_nothing_to_do(finished) -> None:
    store, *_ = finished
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    _, ran, events = run(study(), store)
    assert not ran.made
    assert [event.event for event in events] == ["planned", "ended"]
    after = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    assert {p: t for p, t in after.items() if p.suffix != ".lock"} == {
        p: t for p, t in before.items() if p.suffix != ".lock"
    }


def test_another_method_makes_only_its_own(finished) -> None:
    store, *_ = finished
    more = study(methods=(*study().methods, "neggrad,batch_size=16"))
    _, ran, _ = run(more, store)
    assert len(ran.made) == 3
    assert all("neggrad" in task for task in ran.made)


def test_results_hold_every_row_and_its_lineage(finished) -> None:
    store, opened, *_ = finished
    results = collect(opened)
    (block,) = results.blocks
    assert [entry.name for entry in block.rows] == ["retrain", "base", "regun", "finetune", "ssd"]
    assert not results.missing
    for entry in block.rows:
        (found,) = entry.runs
        assert found.evaluation is not None
        assert found.key in {path.name for path in (store / "artifacts" / "model").iterdir()}
    retrain = block.row("retrain").runs[0].evaluation
    assert retrain.values()["gap_rftp"] == 0
    assert block.row("base").runs[0].evaluation.retrain["test_acc"] == retrain.values()["test_acc"]
    assert block.sizes == {"retain": 288, "forget": 36, "heldout": 40, "val": 36, "test": 100}
    assert block.row("regun").runs[0].settings["epochs"] == 2
    close = request_details(opened, "0.1")
    assert set(close.predictions) == {"retrain", "base", "regun", "finetune", "ssd"}
    assert len(close.references) == 2


def test_unfinished_studies_give_what_there_is(finished) -> None:
    store, *_ = finished
    more = OpenStudy(study(methods=(*study().methods, "scrub,epochs=1"), seeds=(0, 5)), Location(str(store)))
    results = collect(more)
    assert any("unlearn scrub" in text and "not made yet" in text for text in results.missing)
    assert [len(entry.runs) for entry in results.blocks[0].rows] == [1, 1, 1, 1, 1, 0]
    assert request_details(OpenStudy(study(seeds=(5,)), Location(str(store))), "0.1") is None


def test_worker_processes_give_the_same_evaluations(finished, tmp_path: Path) -> None:
    store, _, _, _ = finished
    opened, ran, events = run(study(), tmp_path, Processes, workers=2, threads=1)
    assert not ran.failed
    ours, theirs = evaluations(tmp_path), evaluations(store)
    assert {key: theirs[key] for key in ours} == ours
    assert len({event.worker for event in events if event.event == "finished"}) == 2


def test_a_killed_worker_is_replaced_and_its_task_done_again(tmp_path: Path) -> None:
    """Killed in the middle of a task, and just after its answer, when the next task is handed to it."""
    opened = OpenStudy(study(recipe="digits,epochs=12", methods=("ssd",), references=0), Location(str(tmp_path)))
    engine = Processes(opened, 1, threads=1)
    victims: dict[str, int] = {}

    def on_event(event) -> None:
        if event.event in ("epoch", "finished") and event.event not in victims:
            process = engine.workers[0].process
            victims[event.event] = process.pid
            process.kill()
            process.join()

    ran = execute(opened, engine, on_event)
    assert not ran.failed
    assert len(set(victims.values())) == 2
    assert all(task.done(opened) for task in opened.plan.tasks.values())


def test_a_task_that_kills_every_worker_fails_and_the_study_goes_on(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(
        '"""Kills its process."""\nimport os, signal\nfrom dataclasses import dataclass\n@dataclass(frozen=True)\n'
        "class Config:\n    pass\ndef unlearn(job, config):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    found = study(MINI.replace('"ssd"]', '"deadly.py"]'), tmp_path, references=0)
    opened, ran, events = run(found, tmp_path / "store", Processes, workers=1, threads=1)
    assert [event.event for event in events].count("restarted") == ATTEMPTS - 1
    assert_names(ran.failed["unlearn deadly.py, 0.1, seed 0"], "-9")
    assert opened.plan.tasks["evaluate finetune, 0.1, seed 0"].done(opened)


def test_a_failure_takes_only_what_needs_it(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    found = study(MINI.replace('"ssd"]', '"broken.py"]'), tmp_path)
    opened, ran, _ = run(found, tmp_path / "store")
    assert set(ran.failed) == {task.id for task in opened.plan.tasks.values() if "broken.py" in task.id}
    assert ran.failed["unlearn broken.py, 0.1, seed 0"] == "it never works; use another method."
    assert "which failed" in ran.failed["evaluate broken.py, 0.1, seed 0"]
    results = collect(opened, ran.failed)
    assert len(results.missing) == 1
    assert "it never works" in results.missing[0]
    assert results.blocks[0].row("broken.py").runs == ()
    (tmp_path / "broken.py").write_text(
        BROKEN.replace('raise RegunError("it never works; use another method.")', "return None")
    )
    _, again, _ = run(study(MINI.replace('"ssd"]', '"broken.py"]'), tmp_path), tmp_path / "store")
    assert not again.failed


def test_a_bug_in_a_method_is_told_with_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "buggy.py").write_text(
        BROKEN.replace('raise RegunError("it never works; use another method.")', "1 / 0")
    )
    found = study(MINI.replace('"ssd"]', '"buggy.py"]'), tmp_path, references=0)
    opened, ran, events = run(found, tmp_path / "store")
    assert_names(ran.failed["unlearn buggy.py, 0.1, seed 0"], "buggy.py", "ZeroDivisionError")
    failure = next(e for e in events if e.event == "failed" and e.traceback)
    assert 'buggy.py", line' in failure.traceback
    assert not any("Traceback" in text for text in collect(opened, ran.failed).missing)


def test_a_diverged_method_is_a_row_not_an_error(tmp_path: Path) -> None:
    found = study(methods=("neggrad,lr=1e9,epochs=30,batch_size=16", "ssd"), references=0)
    opened, ran, _ = run(found, tmp_path)
    assert not ran.failed
    (result,) = collect(opened).blocks[0].row("neggrad").runs
    assert result.diverged


def test_interrupting_closes_the_engine(tmp_path: Path) -> None:
    opened = OpenStudy(study(), Location(str(tmp_path)))
    engine = Processes(opened, 2, threads=1)

    def on_event(event) -> None:
        if event.event == "epoch":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(opened, engine, on_event)
    assert not any(worker.process.is_alive() for worker in engine.workers)


def test_fixed_split_shares_references_between_seeds(tmp_path: Path) -> None:
    found = study(seeds=(0, 1), split_seed=4, methods=("ssd",))
    opened, ran, _ = run(found, tmp_path)
    assert not ran.failed
    first, second = (opened.plan.tasks[f"evaluate ssd, 0.1, seed {seed}"] for seed in (0, 1))
    assert first.retrained[1:] == second.retrained[1:]
    assert first.retrained[0] != second.retrained[0]


def test_workers_must_be_one_or_more(tmp_path: Path) -> None:
    opened = OpenStudy(study(), Location(str(tmp_path)))
    with error(RegunError, "workers", 0):
        Processes(opened, 0)


def test_what_is_needed_and_missing_is_named(tmp_path: Path) -> None:
    opened = OpenStudy(study(), Location(str(tmp_path)))
    with error(NotMadeError, tmp_path):
        opened.plan.tasks["unlearn ssd, 0.1, seed 0"].make(opened, lambda event: None)


def test_tuned_studies_freeze_what_they_found(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    found = study(seeds=(0, 1), methods=("regun,epochs=1,batch_size=16", "ssd"), tune={"trials": 3})
    opened, ran, events = run(found, tmp_path)
    assert not ran.failed
    assert [event.event for event in events].count("trial") == 3
    search = opened.plan.tasks["tune regun, 0.1"].search_result(opened)
    assert len(search.trials) == 3
    chosen = [collect(opened).blocks[0].row("regun").runs[seed].settings for seed in (0, 1)]
    assert chosen[0] == chosen[1]
    assert {name: chosen[0][name] for name in search.best_values} == search.best_values
    assert chosen[0]["epochs"] == 1
    page = write_all(opened, collect(opened), tmp_path / "out")[0].read_text()
    assert "10 %" in page
    assert "Search" in page
    assert "[settings" in (tmp_path / "out" / "tuned.toml").read_text()
    frozen = opened.with_searched_settings()
    assert not frozen.tune
    _, again, _ = run(frozen, tmp_path)
    assert not again.made
    part = replace(found, seeds=(1,), tune_seed=found.tuned_on)  # it has the settings of the whole
    assert not run(part, tmp_path)[1].made


EXPLODE = '''"""Weights that are finite, answers that are not."""
from dataclasses import dataclass
import torch
@dataclass(frozen=True)
class Config:
    pass
def unlearn(job, config):
    with torch.no_grad():
        for parameter in job.model.parameters():
            parameter.mul_(1e20)
'''


def test_answers_that_are_not_finite_are_a_row_and_are_asked_for_once(tmp_path: Path) -> None:
    (tmp_path / "explode.py").write_text(EXPLODE)
    found = study(MINI.replace('"ssd"]', '"explode.py"]'), tmp_path)
    opened, ran, _ = run(found, tmp_path / "store")
    assert not ran.failed
    results = collect(opened)
    (lost,) = results.blocks[0].row("explode.py").runs
    assert lost.evaluation is None
    assert lost.diverged
    assert "explode.py" not in request_details(opened, "0.1").predictions
    page = write_all(opened, results, tmp_path / "out")[0].read_text()
    assert "diverged" in page
    assert not run(found, tmp_path / "store")[1].made


def test_two_rows_of_one_method_keep_their_own_tuned_settings(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    methods = ("regun,epochs=1,batch_size=16,lr=0.1", "regun,epochs=1,batch_size=16,lr=0.005")
    opened, ran, _ = run(study(methods=methods, tune={"trials": 3}), tmp_path)
    assert not ran.failed
    frozen = opened.with_searched_settings()
    assert list(frozen.settings["0.1"]) == list(methods)
    for text, lr in zip(methods, (0.1, 0.005), strict=True):
        assert frozen.settings["0.1"][text]["lr"] == lr
        used = collect(opened).blocks[0].row(text).runs[0].settings
        assert frozen.resolve(text, "0.1")[1].w == used["w"]


def test_repeats_are_runs_from_other_seeds_on_the_same_base(tmp_path: Path) -> None:
    found = study(repeats=3, methods=("finetune,epochs=1,batch_size=64", "ssd"), references=0)
    opened, ran, _ = run(found, tmp_path)
    assert not ran.failed
    block = collect(opened).blocks[0]
    assert [(r.seed, r.repeat) for r in block.row("finetune").runs] == [(0, 0), (0, 1), (0, 2)]
    assert len({r.key for r in block.row("finetune").runs}) == 3
    assert len({t.base.artifact(opened).key for t in opened.plan.of_type(Unlearn)}) == 1
    cell = block.row("finetune").cells["test_acc"]
    values = [one.value for one in cell.by_run]
    assert cell.mean == pytest.approx(sum(values) / 3)
    assert cell.std is None
    assert cell.repeat_std == pytest.approx((sum((v - cell.mean) ** 2 for v in values) / 2) ** 0.5)
    assert len(block.row("retrain").runs) == 1
    fewer, again, _ = run(study(methods=found.methods, references=0), tmp_path)
    assert not again.made  # the first of three runs is the only one of a study without repeats


STUCK = '''"""Never comes back, the first time."""
import time
from dataclasses import dataclass
from pathlib import Path
@dataclass(frozen=True)
class Config:
    seen: str = ""
def unlearn(job, config):
    mark = Path(config.seen)
    if not mark.exists():
        mark.write_text("")
        time.sleep(600)
'''


def test_a_worker_that_hangs_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    mark = tmp_path / "mark"
    found = study(MINI.replace('"ssd"]', f'"stuck.py,seen={mark}"]'), tmp_path, references=0)
    opened = OpenStudy(replace(found, methods=found.methods[-1:]), Location(str(tmp_path / "store")))
    restarted: list[str] = []

    class Impatient(Processes):
        """Waits long for a worker that starts, and not for the method that hangs."""

        def wait(self, seconds, on_event) -> None:
            self.silence = 0.5 if mark.exists() and not restarted else 600.0
            super().wait(seconds, on_event)

    def on_event(event) -> None:
        if event.event == "restarted":
            restarted.append(event.task)

    ran = execute(opened, Impatient(opened, 1, threads=1), on_event)
    assert not ran.failed
    assert restarted == ["unlearn stuck.py, 0.1, seed 0"]


LEAVES = '''"""Leaves Python as if all were well."""
import sys
from dataclasses import dataclass
@dataclass(frozen=True)
class Config:
    pass
def unlearn(job, config):
    sys.exit(0)
'''


@pytest.mark.parametrize("engine", [None, Processes])
def test_code_that_leaves_python_has_failed(tmp_path: Path, engine) -> None:
    (tmp_path / "leaves.py").write_text(LEAVES)
    found = study(MINI.replace('"ssd"]', '"leaves.py"]'), tmp_path, references=0)
    found = replace(found, methods=found.methods[-1:])
    _, ran, _ = run(found, tmp_path / "store", engine, **({"workers": 1, "threads": 1} if engine else {}))
    assert "exit" in ran.failed["unlearn leaves.py, 0.1, seed 0"].lower()


def test_results_are_plain_rows_down_to_examples(finished) -> None:
    store, opened, *_ = finished
    rows = collect(opened).rows()
    assert [(row["method"], row["seed"], row["repeat"]) for row in rows] == [
        (name, 0, 0) for name in ("retrain", "base", "regun", "finetune", "ssd")
    ]
    assert {"gap_rftp", "test_acc", "steps", "seconds", "key", "verdict"} <= rows[2].keys()
    examples = list(example_rows(opened))
    assert {row["method"] for row in examples} == {"base", "regun", "finetune", "ssd"}
    assert len(examples) == 4 * 36
    assert {"index", "label", "score", "percentile", "attack"} <= examples[0].keys()


def test_the_same_from_python(finished, tmp_path: Path) -> None:
    store, *_ = finished
    heard: list[str] = []
    results = run_study(study(), store=store, on_event=lambda event: heard.append(event.event))
    assert heard == ["planned", "ended"]
    assert results.rows() == study_results(study(), store=store).rows()
    assert open_study(study(), store=store).plan.counts()["train"] == 4
