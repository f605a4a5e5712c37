"""The machinery of studies: planning, a re-run with nothing to do, two workers against one, overhead over bare calls.

python benchmarks/study.py            all of it, some minutes on a quiet machine
python benchmarks/study.py --ray      the workers of a Ray cluster as well
"""

import argparse
import contextlib
import io
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from regun.artifacts import Store
from regun.artifacts.audits import Auditing, audit_model
from regun.artifacts.trainings import Training, train_model
from regun.artifacts.unlearnings import Unlearning, unlearn_model
from regun.cli import main
from regun.data.registry import DATA_SETS
from regun.experiments.study.context import Location
from regun.experiments.study.executors import Executor, InProcess, Processes
from regun.experiments.study.opened import OpenStudy
from regun.experiments.study.parse import builtin_names, read_study
from regun.experiments.study.plan import labels_of_size, plan_study
from regun.experiments.study.ray_executor import RayExecutor
from regun.experiments.study.scheduler import execute
from regun.experiments.study.spec import Study
from regun.experiments.study.worker import open_payload
from regun.forget_spec import ForgetSpec
from regun.settings import parse_spec
from regun.splits import make_splits, reserve

PAPER = ("resnet18-cifar10", "resnet18-cifar100", "swin-t-tiny-imagenet", "resnet18-tiny-imagenet")


def seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def planning() -> None:
    def one(name: str) -> None:
        study = read_study(name)
        plan_study(study, labels_of_size(DATA_SETS[parse_spec(study.data)[0]].sizes[0]))

    one(builtin_names()[0])  # imports
    spent = {name: seconds(lambda n=name: one(n)) for name in PAPER}
    print(
        "planning:",
        ", ".join(f"{name} {s:.2f} s" for name, s in spent.items()),
        f"- all four {sum(spent.values()):.2f} s",
    )


def carried_out(study: Study, store: str, engine: Callable[[OpenStudy], Executor]) -> float:
    """Seconds from the first task to the last, the workers being there already."""
    opened = OpenStudy(study, Location(store))
    found = engine(opened)
    if isinstance(found, Processes):
        wait_until_ready(found)
    if isinstance(found, RayExecutor):
        warm(found)
    started = time.perf_counter()
    ran = execute(opened, found, lambda event: None)
    assert not ran.failed, ran.failed
    return time.perf_counter() - started


def wait_until_ready(engine: Processes) -> None:
    while not all(worker.ready for worker in engine.workers):
        engine.wait(0.2, lambda event: None)


def warm(engine: RayExecutor) -> None:
    """Both workers of the cluster up, the study open in each."""
    started = engine.ray.remote(num_cpus=1)(open_and_stay)
    engine.ray.get([started.remote(engine.text) for _ in range(2)])


def open_and_stay(text: str) -> None:
    open_payload(text)
    time.sleep(3)  # so that the other one goes to the other worker


def bare(study: Study, folder: str) -> float:
    """The same models and evaluations by plain calls, in a loop."""
    opened = OpenStudy(study, Location(folder))  # data and splits only
    data, device, store = opened.data, torch.device("cpu"), Store(folder)
    started = time.process_time()
    kept = reserve(data.train.labels, 0)
    splits = make_splits(data.train.labels, ForgetSpec.random(float(study.forget[0])), kept)

    def train(indices, seed):
        return train_model(
            Training(data=data, trained_on=indices, model=study.model_spec, recipe=study.recipe_value, seed=seed),
            store,
            device,
            about={},
        )

    base = train(kept.base, 0)
    retrain = train(splits.retain, 0)
    references = tuple(train(splits.retain, seed) for seed in study.reference_seeds)
    targets = [retrain, base]
    for text in study.methods:
        method, config = study.resolve(text, study.forget[0])
        run = Unlearning(
            base=base, data=data, splits=splits, method=method, config=config, seed=0, budget=study.budget_value
        )
        targets.append(unlearn_model(run, store, device, about={}))
    for target in targets:
        audit_model(
            Auditing(
                target=target,
                retrain=retrain,
                references=references,
                data=data,
                splits=splits,
                bootstrap=study.bootstrap,
            ),
            store,
            device,
        )
    return time.process_time() - started


def overhead(study: Study) -> None:
    ratios = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            plain = bare(study, one)
            started = time.process_time()
            carried_out(study, two, InProcess)
            whole = time.process_time() - started
        ratios.append(whole / plain)
        print(f"bare calls {plain:.1f} s, study {whole:.1f} s of processor time: {100 * (whole / plain - 1):+.1f} %")
    print(f"overhead, median of 3: {100 * (sorted(ratios)[1] - 1):+.1f} %")


def workers(study: Study, *, ray: bool) -> None:
    engines: dict[str, Callable[[OpenStudy], Executor]] = {
        "one worker": lambda w: Processes(w, 1, 1),
        "two workers": lambda w: Processes(w, 2, 1),
    }
    if ray:
        engines["ray, two workers"] = lambda w: RayExecutor(w, workers=2, threads=1)
    spent = {}
    for name, engine in engines.items():
        with tempfile.TemporaryDirectory() as folder:
            spent[name] = carried_out(study, folder, engine)
        print(f"{name}: {spent[name]:.1f} s, {spent['one worker'] / spent[name]:.2f} times one worker")


def again(study: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        words = ["study", "run", study, "--store", folder, "--quiet"]
        with contextlib.redirect_stdout(io.StringIO()):
            first, second = (seconds(lambda: main(words)) for _ in range(2))
    print(f"{study}: first run {first:.1f} s, again {second:.1f} s (tables, report and figures written anew)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ray", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    planning()
    digits = read_study("digits")
    overhead(replace(digits, recipe="digits,epochs=20", bootstrap=200))
    workers(replace(digits, recipe="digits,epochs=20"), ray=args.ray)
    again("digits")
    print(Path(__file__).name, "done")
