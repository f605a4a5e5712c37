"""Models and data as they come: taken as they are, or refused in one sentence before any work."""

import copy
import logging
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import regun
from expect import assert_names, error
from regun import InputOptions, RunOptions
from regun.errors import DataError, LabelError, RegunError, SettingsError
from regun.methods import method_names
from regun.models import binary, wrap
from regun.training.job import Budget
from toys import blobs, same_parameters, same_state

ONE = RunOptions(budget=Budget(steps=1))
RECIPE = {"epochs": 3, "lr": 0.05, "batch_size": 16}


def parts(kind: torch.dtype = torch.float32, *more: str) -> dict[str, tuple[Tensor, Tensor]]:
    examples = blobs(n=160, seed=1)
    x, y = examples.x.half().bfloat16().to(kind), torch.from_numpy(examples.labels)
    cuts = {"forget": (0, 20), "retain": (20, 100), "heldout": (100, 130), "test": (130, 160)}
    return {name: (x[slice(*cuts[name])], y[slice(*cuts[name])]) for name in ("forget", "retain", "heldout", *more)}


def net(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def small(name: str) -> dict[str, object]:
    """Settings under which a method moves something in a few steps."""
    own = {"retrain": RECIPE, "ssd": {"alpha": 0.0, "dampening": 0.5}, "msg": {"linear": True}}
    return {"batch_size": 16, **own.get(name, {})}


def unlearned(model: nn.Module, name: str = "finetune", sets=None, on_epoch=None, rebuild=None, **options) -> nn.Module:
    run = RunOptions(budget=None if name in ("ssd", "auto") else Budget(steps=4), on_epoch=on_epoch)
    settings = {} if name == "auto" else small(name)
    inputs = InputOptions(**options)
    return regun.unlearn(
        model, **(sets or parts()), method=name, settings=settings, rebuild=rebuild, inputs=inputs, run=run
    ).model


# ------------------------------------------------------------------------------------------------------------ precision


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", [n for n in method_names() if n not in ("ct", "crossfit")])
def test_half_precision_comes_back_as_fp32_would_have_it_rounded(name: str, kind: torch.dtype) -> None:
    model = net().half().bfloat16().to(kind)
    before = copy.deepcopy(model)
    ours = unlearned(model, name, parts(kind))
    single = unlearned(net().half().bfloat16().float(), name)
    assert {p.dtype for p in ours.parameters()} == {kind}
    assert same_state(ours, single.to(kind))
    assert not same_parameters(ours, before)
    assert same_state(model, before)
    assert not ours[0]._forward_pre_hooks
    assert not ours._forward_pre_hooks


@pytest.mark.parametrize(("weights", "data"), [("float32", "float64"), ("float64", "float32"), ("float16", "float32")])
def test_a_mixture_of_precisions_is_said(weights: str, data: str) -> None:
    sets = parts(getattr(torch, data))
    names = (weights, "forget", data, f"x.to(torch.{weights})")
    with error(RegunError, *names):
        regun.unlearn(net().to(getattr(torch, weights)), **sets)
    with error(RegunError, *names):
        regun.audit(net().to(getattr(torch, weights)), forget=sets["forget"], test=sets["heldout"])


def test_double_precision_works() -> None:
    made = unlearned(net().double(), "regun", parts(torch.float64))
    assert {p.dtype for p in made.parameters()} == {torch.float64}


# --------------------------------------------------------------------------------------------------------------- frozen


def test_everything_frozen_is_said() -> None:
    with error(RegunError, "frozen", "p.requires_grad_(True)"):
        unlearned(net().requires_grad_(False), "ssd")


# -------------------------------------------------------------------------------------------------------------- retrain


def test_retrain_wants_the_recipe() -> None:
    for given in ({}, {"settings": {"layers": "last:1"}}, {"settings": {"epochs": 3}}):
        with error(SettingsError, "retrain", "recipe", "epochs", "lr"):
            regun.unlearn(net(), **parts(), method="retrain", **given)
    for recipe, missing in (
        ({}, ("epochs", "lr")),
        ({"epochs": 15}, ("lr",)),
        ({"lr": 0.1, "momentum": 0}, ("epochs",)),
    ):
        with error(SettingsError, "recipe", *missing):
            regun.unlearn(net(), **parts(), method="retrain", recipe=recipe)
        project = regun.Project(model=net(), train=parts()["retain"], test=parts()["heldout"], retrain=recipe)
        with error(SettingsError, *missing) if recipe else nullcontext():
            assert project.recipe is None
    with error(SettingsError, "recipe", "'epoch'", "epochs"):
        regun.unlearn(net(), **parts(), method="retrain", recipe={"epoch": 15, "lr": 0.1})
    ways = [
        {"settings": RECIPE, "method": "retrain"},
        {"method": "retrain,epochs=3,lr=0.05,batch_size=16"},
        {"method": "retrain", "recipe": RECIPE},
        {"method": "retrain,epochs=3", "recipe": {**RECIPE, "epochs": 9}},
    ]
    made = [regun.unlearn(net(), **parts(), **way).model for way in ways]
    assert all(same_state(made[0], other) for other in made[1:])
    assert regun.unlearn(net(), **parts(), method="retrain@digits", run=ONE).cost.steps == 1


# -------------------------------------------------------------------------------------------------- outputs and inputs


class Tuple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.net(x), x


class Named(Tuple):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"scores": self.net(x)}


def test_any_output_is_read_by_a_function_and_the_model_comes_back_as_it_was() -> None:
    plain = unlearned(net(), "regun")
    seen: list[type] = []
    for kind, read in ((Tuple, lambda out: out[0]), (Named, lambda out: out["scores"])):
        model = kind()
        made = unlearned(model, "regun", logits=read, on_epoch=lambda _, m: seen.append(type(m)))
        assert type(made) is kind
        assert same_state(made.net, plain)
        sets = parts(torch.float32, "test")
        audits = [
            regun.audit(made, **sets, inputs=InputOptions(logits=read), retrained=model, bootstrap=20),
            regun.audit(wrap(made, read), **sets, retrained=wrap(model, read), bootstrap=20),
            regun.audit(plain, **sets, retrained=net(), bootstrap=20),
        ]
        assert len({str(one.numbers) for one in audits}) == 1
        model.load_state_dict(made.state_dict())
        again = unlearned(model, "retrain", logits=read, rebuild=lambda seed, kind=kind: kind())
        assert type(again) is kind
    assert set(seen) == {Tuple, Named}


def test_outputs_that_cannot_be_read_are_refused_with_the_line_to_write() -> None:
    with error(RegunError, "Tuple", "tuple", "output[0]"):
        unlearned(Tuple())
    with error(RegunError, "Named", "dict", "['scores']", "logits=lambda"):
        unlearned(Named())
    with error(RegunError, "Named", "dict", "KeyError", "'logit'"):
        unlearned(Named(), logits=lambda output: output["logit"])
    with error(RegunError, "model", "Sequential", "3,", "inputs=regun.InputOptions(logits=lambda"):
        unlearned(nn.Sequential(net(), nn.Unflatten(1, (3, 1))))


def test_probabilities_are_not_logits() -> None:
    model = nn.Sequential(net(), nn.Softmax(1))
    with error(RegunError, "model", "probabilities", "p.clamp_min(1e-12).log())"):
        unlearned(model)
    made = unlearned(model, logits=lambda p: p.clamp_min(1e-12).log())
    for ours, theirs in zip(made[0].parameters(), unlearned(net()).parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)  # log softmax of logits, less a constant, is the logits


def test_what_is_read_as_logits_must_not_be_probabilities_either() -> None:
    soft = InputOptions(logits=lambda output: output.softmax(1))
    for call, sets in ((regun.unlearn, parts()), (regun.audit, parts(torch.float32, "test"))):
        with error(RegunError, "inputs.logits", "model", "probabilities"):
            call(net(), **sets, inputs=soft)
    with error(RegunError, "inputs.logits", "probabilities"):
        unlearned(wrap(net(), lambda output: output.softmax(1)))
    one = nn.Linear(6, 1)
    nn.init.zeros_(one.weight)
    nn.init.ones_(one.bias)  # two logits, 0 and 1: they happen to sum to 1
    sets = {name: (x, y % 2) for name, (x, y) in parts().items()}
    unlearned(one, sets=sets, logits=binary)


@pytest.mark.parametrize("flat", [True, False])
def test_one_logit_is_two_classes(flat: bool) -> None:
    """Unlearning by cross-entropy on (0, z) is unlearning by binary cross-entropy on z."""
    sets = {name: (x, (y > 0).float()) for name, (x, y) in parts().items()}
    model = nn.Sequential(nn.Linear(6, 1), *([nn.Flatten(0)] if flat else []))
    with error(RegunError, "model", "inputs=regun.InputOptions(logits=regun.models.binary)"):
        unlearned(model, sets=sets)
    made = unlearned(model, sets=sets, logits=binary)
    assert type(made) is nn.Sequential
    x, y = sets["retain"]
    z = made(x).reshape(-1)
    ours = nn.functional.cross_entropy(binary(z), y.long())
    assert torch.isclose(ours, nn.functional.binary_cross_entropy_with_logits(z, y))
    found = regun.audit(
        made, forget=sets["forget"], test=sets["heldout"], inputs=InputOptions(logits=binary), bootstrap=20
    )
    assert 0 <= found.numbers["smia_auc"].value <= 100


class Two(nn.Module):
    """Takes two inputs by position, whatever they are called."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.net(torch.cat([left, right], 1))


def test_items_of_several_inputs_go_by_position() -> None:
    plain = unlearned(net(), "regun")
    halves = {name: (x[:, :2], x[:, 2:], y) for name, (x, y) in parts().items()}

    class Items(Dataset):
        def __init__(self, tensors: tuple[Tensor, ...], shape: Callable) -> None:
            self.tensors, self.shape = tensors, shape

        def __len__(self) -> int:
            return len(self.tensors[0])

        def __getitem__(self, i: int):
            return self.shape(*(t[i] for t in self.tensors))

    kinds = [
        lambda a, b, y: ((a, b), y),
        lambda a, b, y: TensorDataset(a, b, y),
        lambda a, b, y: DataLoader(TensorDataset(a, b, y), batch_size=3),
        lambda a, b, y: Items((a, b, y), lambda *one: one),
        lambda a, b, y: Items((a, b, y), lambda a, b, y: ((a, b), y)),
    ]
    for kind in kinds:
        made = unlearned(Two(), "regun", {name: kind(*some) for name, some in halves.items()})
        assert same_state(made.net, plain)
    with error(RegunError, "Two", "forget", "TypeError", "position"):
        unlearned(Two())


# --------------------------------------------------------------------------------------- what looks wrong but may be meant


def test_labels_in_another_order_are_said_before_the_work(caplog) -> None:
    model = net().eval()
    sets = {name: (x, model(x).argmax(1)) for name, (x, _) in parts().items()}  # it is always right
    assert len(sets["retain"][1].unique()) > 1

    def told(labels: Callable[[Tensor], Tensor], method: str = "finetune") -> list[str]:
        given = {name: (x, labels(y)) for name, (x, y) in sets.items()}
        settings = RECIPE if method == "retrain" else {}
        outcome = regun.unlearn(model, **given, method=method, settings=settings, run=ONE)
        return [one for one in outcome.warnings if "accuracy on" in one and "same class" in one]

    assert told(lambda y: y) == []
    assert told(lambda y: (y + 1) % 3, "retrain") == []  # which does not care what the model knows
    caplog.clear()
    with caplog.at_level(logging.WARNING, "regun"):
        (remark,) = told(lambda y: (y + 1) % 3)
    assert_names(remark, "80", "0%", "renumbered", "100%")
    assert caplog.records[0].message == remark


def test_a_held_out_set_without_a_forgotten_class_is_said_where_it_is_used() -> None:
    sets = parts()
    kept = sets["heldout"][1] != 2
    sets["heldout"] = (sets["heldout"][0][kept], sets["heldout"][1][kept])
    told = lambda name: regun.unlearn(net(), **sets, method=name, run=ONE).warnings  # noqa: E731
    (remark,) = [one for one in told("regun") if "heldout" in one]
    assert_names(remark, "class", "2", "6")
    assert not any("heldout" in one for one in told("finetune"))


def test_equal_records_are_refused_unless_such_are_usual() -> None:
    sets = parts()
    x, y = sets["retain"]
    shared = {**sets, "heldout": (torch.cat([sets["heldout"][0], x[:2]]), torch.cat([sets["heldout"][1], y[:2]]))}
    with error(DataError, "retain", "heldout", 2, "check_content=False"):
        unlearned(net(), sets=shared)
    unlearned(net(), sets=shared, check_content=False)
    ids = {"forget": range(20), "retain": range(100, 180), "heldout": range(200, 232)}
    unlearned(net(), sets=shared, ids=ids)  # which says that they are different records
    twice = {**shared, "retain": (x.repeat(2, 1), y.repeat(2))}
    outcome = regun.unlearn(net(), **twice, method="finetune", run=ONE)
    assert any("heldout" in warning and "retain" in warning and "2 of 32" in warning for warning in outcome.warnings)
    with error(DataError, "retain", "heldout", 2):
        unlearned(net(), sets=twice, check_content=True)


def test_the_held_out_set_is_no_test_set() -> None:
    sets = parts(torch.float32, "test")
    for heldout in (sets["test"], (sets["test"][0].clone(), sets["test"][1].clone())):
        with error(DataError, "heldout", "test", 30):
            regun.audit(net(), forget=sets["forget"], heldout=heldout, test=sets["test"])


# -------------------------------------------------------------------------------------------------------------- fetching


class Counted(Dataset):
    """Items that count how often they are read; their labels are known from nothing else."""

    def __init__(self, pair: tuple[Tensor, Tensor], noise: float = 0.0) -> None:
        self.pair, self.noise, self.reads = pair, noise, 0

    def __len__(self) -> int:
        return len(self.pair[1])

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        self.reads += 1
        x = self.pair[0][i]
        return x + self.noise * torch.randn(x.shape), int(self.pair[1][i])


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("finetune", {"retain": 2}),
        ("neggrad", {"forget": 2}),
        ("regun", {"forget": 2, "retain": 0.5, "heldout": 1}),
        ("ssd", {"forget": 2, "retain": 1}),
        ("salun", {"forget": 3, "retain": 0.5}),
    ],
)
def test_no_example_is_read_more_often_than_it_is_used(name: str, passes: dict[str, float]) -> None:
    sets = {part: Counted(pair) for part, pair in parts().items()}
    settings = {"batch_size": 10, **({} if name == "ssd" else {"epochs": 2})}
    regun.unlearn(net(), **sets, method=name, settings=settings)
    # at most 128 to see whether the labels fit, at most 500 before and after for the guard rails, and forgotten labels
    relearning_sets = {"forget": 2 + 20, "retain": 80 + 2 * 80, "heldout": 2 * 30}
    for part, some in sets.items():
        assert some.reads == passes.get(part, 0) * len(some) + relearning_sets[part]


def test_an_audit_reads_every_example_once_for_all_models() -> None:
    sets = {part: Counted(pair) for part, pair in parts(torch.float32, "test").items()}
    models = {"retrained": [net(1), net(2), net(3)]}
    found = regun.audit(net(), **sets, **models, bootstrap=20)
    for part, some in sets.items():
        assert some.reads == len(some) + 8 + (2 if part == "forget" else 0)  # four are read twice before
    whole = regun.audit(net(), **parts(torch.float32, "test"), **models, bootstrap=20)
    assert found.numbers == whole.numbers
    assert found.gaps == whole.gaps


def test_data_that_augment_are_not_audited() -> None:
    sets = parts(torch.float32, "test")
    sets["forget"] = Counted(sets["forget"], noise=0.1)
    with error(DataError, "forget", "augments"):
        regun.audit(net(), **sets)
    loader = DataLoader(sets["forget"], batch_size=4)
    with error(DataError, "forget", "augments"):
        regun.audit(net(), **{**sets, "forget": loader})
    del sets["test"]
    regun.unlearn(net(), **sets, method="regun", run=ONE)  # in training it is wanted


# ------------------------------------------------------------------------------------------------------------- compiled


def test_a_compiled_model_is_never_compiled_again() -> None:
    compiled: list[int] = []

    def backend(graph, inputs):
        compiled.append(1)
        return graph.forward

    model = torch.compile(net(), backend=backend)
    sets = parts(torch.float32, "test")
    test = sets.pop("test")
    made = regun.unlearn(model, **sets, method="regun", run=RunOptions(budget=Budget(steps=3))).model
    assert type(made) is nn.Sequential
    assert same_state(made, regun.unlearn(net(), **sets, method="regun", run=RunOptions(budget=Budget(steps=3))).model)
    regun.audit(model, **sets, test=test, retrained=model, bootstrap=20)
    rebuilt = regun.unlearn(
        model,
        **sets,
        method="retrain",
        settings=RECIPE,
        rebuild=lambda seed: torch.compile(net(seed % 9), backend="eager"),
    )
    assert set(rebuilt.model.state_dict()) == set(net().state_dict())
    model._orig_mod.load_state_dict(made.state_dict())
    own = Named()  # in place: torch leaves its own Sequential alone
    own.compile(backend=backend)
    outcome = regun.unlearn(
        own,
        **sets,
        inputs=InputOptions(logits=lambda out: out["scores"]),
        method="regun",
        run=RunOptions(budget=Budget(steps=3)),
    )
    assert same_state(outcome.model.net, made)
    regun.audit(own, **sets, test=test, inputs=InputOptions(logits=lambda out: out["scores"]), bootstrap=20)
    assert compiled == []
    own(test[0])
    assert compiled == [1]  # it still is


# -------------------------------------------------------------------------------------------------------------- held-out


def test_without_held_out_data_the_ways_out_are_named() -> None:
    sets = parts()
    del sets["heldout"]
    with error(RegunError, "heldout", "regun@teacher", "auto", "finetune"):
        regun.unlearn(net(), **sets, method="regun")
    regun.unlearn(net(), **sets, method="regun@teacher", recipe=RECIPE, run=RunOptions(budget=Budget(steps=4)))


def test_weights_that_are_no_numbers_are_named_before_the_work() -> None:
    for name in ("3.weight", "1.running_var"):
        model = net()
        model.state_dict()[name].view(-1)[0] = torch.nan
        with error(RegunError, "NaN", name):
            unlearned(model)
    masked = net()
    masked.register_buffer("mask", torch.full((2,), -torch.inf))
    unlearned(masked)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"forget": slice(0, 0)}, ("forget", "empty")),
        ({"retain": slice(0, 0)}, ("retain", "empty")),
        ({"forget": -1}, ("forget", "labels[0]", "-1")),
        ({"heldout": -1}, ("heldout", "labels[0]", "-1")),
        ({"retain": 3}, ("retain", "labels[0]", 3, 0, 2, "model's")),
    ],
)
def test_wrong_labels_name_their_set(changes: dict, names: tuple) -> None:
    sets = parts()
    for name, change in changes.items():
        x, y = sets[name]
        sets[name] = (x[change], y[change]) if isinstance(change, slice) else (x, torch.full_like(y, change))
    with error(DataError, *names):
        unlearned(net(), sets=sets)


def test_wrong_labels_name_the_number_of_classes_that_was_given() -> None:
    with error(LabelError, "forget", "labels[2]", 2, "num_classes"):
        unlearned(net(), num_classes=2)


def test_a_model_of_fewer_classes_is_named() -> None:
    sets = parts(torch.float32, "test")
    for more, name in (
        ({"before": nn.Linear(6, 2)}, "before"),
        ({"out_models": [net(1), nn.Linear(6, 2)]}, "out_models[1]"),
    ):
        with error(RegunError, name, 2, "model", 3):
            regun.audit(net(), **sets, **more)


def test_numbers_of_classes_are_those_of_the_model() -> None:
    with error(RegunError, "num_classes", 5, 2, 3):
        unlearned(net(), num_classes=5)
    wide = nn.Sequential(nn.Linear(6, 10))
    assert np.isfinite(unlearned(wide, num_classes=3)[0].weight.detach().numpy()).all()
