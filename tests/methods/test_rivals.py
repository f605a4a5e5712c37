"""What all of the later methods promise: every kind of model or a sentence, frozen weights, one forgotten example."""

import copy

import pytest
import torch
from torch import nn
from trials import RIVALS, one_forgotten, run

from expect import error
from regun.data.tensors import TensorExamples
from regun.errors import RegunError
from regun.methods import MethodSpec, get_method, method_names
from regun.methods._fresh_weights import reset
from regun.models import ModelSpec, build_model
from regun.training.job import Budget
from toys import blobs, conv_net, images, job_for, mlp, splits_of

VARIANTS = [
    "regun@teacher",
    "regun@teacher_shrink",
    "finetune,layers=last:1",
    "retrain,layers=last:1,epochs=2",
]


class Keyword(nn.Module):
    """Hugging Face style: keyword inputs, a mapping out."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = conv_net()

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.inner(pixel_values)}


def by_keyword() -> TensorExamples:
    pictures = images()
    return TensorExamples({"pixel_values": pictures.x}, pictures.labels, 3)


KINDS = {
    "resnet": lambda: (build_model(ModelSpec("resnet18", {"width": 4}), 3, (1, 8, 8), 0), images()),
    "swin": lambda: (build_model(ModelSpec("swin-nano", {"embed_dim": 8}), 3, (1, 8, 8), 0), images()),
    "mapping": lambda: (Keyword(), by_keyword()),
    "tabular": lambda: (mlp(), blobs()),
}
REFUSED = {
    ("ct", "tabular"): ("CT", "Sequential"),
    ("msg", "tabular"): ("MSG", "Sequential", "msg.linear=true"),
}


def settings_of(text: str) -> tuple[str, str | None, dict[str, str]]:
    spec = MethodSpec.parse(text)
    recipe = {"epochs": "2", "lr": "0.01"} if spec.name == "retrain" else {}
    return spec.name, spec.preset, {**recipe, **spec.settings}


FORCED = {"ssd": {"alpha": 0.0, "dampening": 0.5}, "amun": {"epsilon": 2.0}}  # so that something moves

EVERYWHERE = [(t, kind) for t in VARIANTS[1:] for kind in KINDS]  # the others on the first three: test_contract.py


@pytest.mark.parametrize(("text", "kind"), [*EVERYWHERE, *((name, "tabular") for name in RIVALS)])
def test_every_method_on_every_kind_of_model(text: str, kind: str) -> None:
    name, preset, values = settings_of(text)
    if (name, kind) in REFUSED:
        model, examples = KINDS[kind]()
        with error(RegunError, *REFUSED[name, kind]):
            run(name, model, examples, batch_size=16)
        return
    ends = []
    for _ in range(2):
        model, examples = KINDS[kind]()
        start = copy.deepcopy(model.state_dict())
        job, fitted = run(
            name,
            model,
            examples,
            preset=preset or None,
            rebuild=lambda seed: reset(KINDS[kind]()[0], seed),
            budget=Budget(steps=4),
            **({"batch_size": 16, "lr": 1e-3} | values),
        )
        assert fitted.diverged is None
        assert job.cost.steps == 4
        assert all(torch.equal(model.state_dict()[k], v) for k, v in start.items())  # the user's own is not touched
        ends.append(job.model.state_dict())
    assert all(torch.isfinite(v).all() for v in ends[0].values())
    assert all(torch.equal(a, b) for a, b in zip(*(end.values() for end in ends), strict=True))
    assert any(not torch.equal(ends[0][k], v) for k, v in start.items())


@pytest.mark.parametrize("text", [*method_names(), *VARIANTS, "msg,linear=true"])
def test_frozen_weights_stay_as_they_are(text: str) -> None:
    name, preset, values = settings_of(text)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), *conv_net(channels=4))
    model[0].requires_grad_(False)
    model[1].requires_grad_(False)
    settings = {"batch_size": 16, **FORCED.get(name, {}), **values}
    rebuild = lambda seed: nn.Sequential(  # noqa: E731  its frozen part is drawn anew, and is not to be used
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), *conv_net(channels=4, seed=seed % 7)
    )
    more = {} if name == "ssd" else {"budget": Budget(steps=5)}
    job, _ = run(name, model, images(), preset=preset or None, rebuild=rebuild, **more, **settings)
    for part in (0, 1):
        for ours, theirs in zip(job.model[part].parameters(), model[part].parameters(), strict=True):
            assert torch.equal(ours, theirs)
            assert not ours.requires_grad
    changed = [n for n, p in job.model.named_parameters() if not torch.equal(p, dict(model.named_parameters())[n])]
    assert changed
    assert all(dict(job.model.named_parameters())[n].requires_grad for n in changed)


@pytest.mark.parametrize("text", [*method_names(), "regun@teacher", "msg,linear=true", "amun,train_on=weighted"])
def test_one_forgotten_example_with_batchnorm(text: str) -> None:
    name, preset, values = settings_of(text)
    examples, model = (images(), conv_net()) if text in ("ct", "msg") else (blobs(), mlp())
    short = {"epochs": 1} if "epochs" in vars(get_method(name).config()) else {}
    splits = one_forgotten(splits_of(examples))
    job, fitted = run(name, model, examples, preset=preset or None, splits=splits, **(short | values))
    assert fitted.diverged is None
    assert all(torch.isfinite(value).all() for value in job.model.state_dict().values())


@pytest.mark.parametrize(
    "text",
    [
        *("regun@teacher", "regun@teacher_shrink", "sfron,beta=0.5", "rum,easy=regun@teacher"),
        *("finetune", "finetune,subset=true", "uam,rho=0", "uam,epoch=forget", "neggrad_plus,mode=sequential"),
    ],
)
def test_the_planned_work_of_variants_is_the_work_done(text: str) -> None:
    name, preset, values = settings_of(text)
    method = get_method(name)
    config = method.configure({**values, "batch_size": 10, "epochs": 2}, preset or None)
    job = job_for(mlp(), blobs())
    method.run(job, config)
    planned = method.planned(config, len(job.indices("forget")), len(job.indices("retain")))
    assert planned is not None
    assert planned.steps == job.cost.steps
    assert planned.samples == pytest.approx(job.cost.backward, rel=0.1)


class Idle(nn.Module):
    """Has a layer that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.unused = mlp(), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


@pytest.mark.parametrize("name", [n for n in method_names() if n not in ("ct", "auto")])
def test_every_method_bears_a_layer_that_is_not_used(name: str) -> None:
    more = {"retrain": {"epochs": 1, "lr": 0.01}, "msg": {"linear": True}}.get(name, {})
    job, fitted = run(name, Idle(), blobs(), batch_size=16, **more)
    assert fitted.diverged is None
    assert all(torch.isfinite(p).all() for p in job.model.parameters())
