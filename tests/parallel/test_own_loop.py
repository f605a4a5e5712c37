"""A loop of a user's own gives the weights of `regun.unlearn` with the same updates."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from group import in_processes
from loops import data, net, own_loop, trained_by_trainer, unlearned
from torch import Tensor

import regun
from expect import error
from regun.errors import RegunError
from regun.methods import get_method, method_names

METHODS = ("regun", "scrub", "neggrad_plus", "l1_sparse", "bad_teacher,optimizer=sgd", "amun", "finetune")


def near(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.allclose(tensor, other[name], rtol=0, atol=1e-6) for name, tensor in one.items())


@pytest.mark.parametrize("method", METHODS)
def test_a_plain_loop(method: str) -> None:
    assert near(unlearned(method), own_loop(method))


def test_the_trainer() -> None:
    assert near(unlearned("regun"), trained_by_trainer("regun"))


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("method", ["regun", "l1_sparse"])
def test_several_processes_whose_gradients_ddp_averages(method: str, world: int) -> None:
    assert near(unlearned(method), in_processes(world, own_loop, method)[0])


@pytest.mark.parametrize(
    "method", ["ssd", "salun", "auto", "uam", "regun,batchnorm=reestimate", "finetune,layers=last:1"]
)
def test_methods_that_are_no_loss_say_so(method: str) -> None:
    with error(RegunError, method.partition(",")[0], "scrub", "regun.unlearn"):
        regun.steps(method, net(), **data())


HOWTO = Path(__file__).parents[2] / "docs/howto/own_loop.py"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("launch", [[], ["-m", "accelerate.commands.launch", "--cpu", "--num_processes=2"]])
def test_the_howto_with_accelerate(launch: list[str], tmp_path: Path) -> None:
    sys.path.insert(0, str(HOWTO.parent))
    howto = importlib.import_module("own_loop")
    sys.path.remove(str(HOWTO.parent))
    settings = {"lr": howto.LR, "momentum": howto.MOMENTUM}
    wanted = regun.unlearn(howto.trained_model(), **howto.records(), method=howto.METHOD, settings=settings).model
    out = tmp_path / "weights.safetensors"
    subprocess.run([sys.executable, *launch, str(HOWTO), str(out)], check=True, cwd=tmp_path)
    assert near(wanted.state_dict(), safetensors.torch.load_file(out))


def test_the_steps_say_their_number_and_planned_rate() -> None:
    steps = regun.steps("regun", net(), **data(), settings={"epochs": 2, "batch_size": 7, "schedule": "cosine"})
    planned = [(step.number, step.epoch, step.lr) for step in steps]
    assert len(steps) == len(planned) == 6
    assert [number for number, _, _ in planned] == list(range(6))
    assert planned[-1][2] == pytest.approx(0.5 * planned[0][2])


def test_a_function_of_the_job_is_run_up_to_its_call_of_fit() -> None:
    from regun.methods.finetune import Config, unlearn

    def mine(job: regun.Job) -> None:
        unlearn(job, Config(epochs=1, batch_size=20))
        raise AssertionError("nothing after `fit` is run")

    assert len(regun.steps(mine, net(), **data())) == 3


def test_every_method_knows_whether_it_is_a_loss() -> None:
    losses = {
        name for name in method_names() if (m := get_method(name)).is_loss(m.config(**dict.fromkeys(m.required, 1)))
    }
    assert losses == {
        "amun", "bad_teacher", "crossfit", "ct", "finetune", "l1_sparse", "neggrad", "neggrad_plus", "regun",
        "retrain", "scrub",
    }  # fmt: skip
