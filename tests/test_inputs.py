"""Models and data with surprises: they work, or one sentence says what to change."""

import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils import weight_norm as old_weight_norm

import regun
from expect import assert_names, error
from regun import RunOptions
from regun.errors import DataError, RegunError
from regun.models.forward import logits_of
from regun.predict import predict, predict_each
from regun.training.forward import eval_logits
from regun.training.job import Budget, copied
from toys import blobs, mlp, same_state

SHORT = RunOptions(budget=Budget(steps=3))


def parts(*names: str, n: int = 160) -> dict[str, tuple[Tensor, Tensor]]:
    examples = blobs(n=n, seed=1)
    x, y = examples.x, torch.from_numpy(examples.labels)
    cuts = {"forget": (0, 20), "retain": (20, 100), "heldout": (100, 130), "test": (130, n)}
    return {name: (x[slice(*cuts[name])], y[slice(*cuts[name])]) for name in names}


def unlearn(model: nn.Module, method: str = "finetune", **sets: object) -> regun.Outcome:
    return regun.unlearn(model, **{**parts("forget", "retain", "heldout"), **sets}, method=method, run=SHORT)


def audit(model: nn.Module, **changes: object) -> regun.Evaluation:
    return regun.audit(model, **{**parts("forget", "retain", "test"), "bootstrap": 0, **changes})


class Wrapped(nn.Module):
    """A small classifier with a change before it and one after it."""

    def __init__(self, before: Callable = lambda x: x, after: Callable = lambda z: z, seed: int = 0) -> None:
        super().__init__()
        self.net, self.before, self.after = mlp(seed=seed), before, after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.net(self.before(x)))


# ---------------------------------------------------------------------------------- models that change their input in place


def in_place(seed: int = 0) -> Wrapped:
    return Wrapped(before=lambda x: x.sub_(0.5).mul_(1.5), seed=seed)


def out_of_place(seed: int = 0) -> Wrapped:
    return Wrapped(before=lambda x: (x - 0.5) * 1.5, seed=seed)


@pytest.mark.parametrize("training", [True, False])
def test_inputs_are_never_changed(training: bool) -> None:
    model, x = in_place().train(training), torch.randn(4, 6)
    before = x.clone()
    first, second = logits_of(model, x), logits_of(model, x)
    assert torch.equal(x, before)
    assert torch.equal(first, second)
    assert torch.equal(first, logits_of(out_of_place().train(training), before))


def test_other_models_are_not_given_copies() -> None:
    seen: list[int] = []
    model, x = Wrapped(before=lambda x: seen.append(x.data_ptr()) or x), torch.randn(4, 6)
    for _ in range(3):
        logits_of(model, x)
    assert seen[0] != x.data_ptr()  # the first call, which shows what the model does
    assert seen[1:] == [x.data_ptr()] * 2


def test_models_of_an_audit_do_not_disturb_each_other() -> None:
    models = {"before": in_place(), "retrained": [mlp(seed=1), in_place(seed=2)]}
    plain = {"before": out_of_place(), "retrained": [mlp(seed=1), out_of_place(seed=2)]}
    ours, theirs = audit(in_place(), **models), audit(out_of_place(), **plain)
    assert ours.numbers == theirs.numbers
    assert ours.numbers["test_acc"].value == ours.before["test_acc"].value
    examples = blobs(n=40)
    single = [predict(model, examples).log_probs for model in (in_place(), mlp(seed=1))]
    for alone, together in zip(single, predict_each([in_place(), mlp(seed=1)], examples), strict=True):
        assert np.array_equal(alone, together.log_probs)


def test_the_probe_for_folding_leaves_the_first_rows_as_they_are() -> None:
    examples, rows = blobs(n=600), np.arange(600)
    assert torch.equal(eval_logits(in_place(), examples, rows), eval_logits(out_of_place(), examples, rows))


@pytest.mark.parametrize("method", ["bad_teacher", "scrub", "regun", "neggrad_plus"])
def test_teachers_and_students_see_the_same_inputs(method: str) -> None:
    ours, theirs = unlearn(in_place(), method), unlearn(out_of_place(), method)
    assert same_state(ours.model, theirs.model)


# ------------------------------------------------------------------------------------- answers that are not stable


UNSTABLE = {
    "random": (lambda: Wrapped(after=lambda z: z + torch.randn_like(z)), "each"),
    "dropout": (lambda: Wrapped(before=lambda x: nn.functional.dropout(x, 0.5)), "each"),
    "centered": (lambda: Wrapped(before=lambda x: x - x.mean(0)), "batch"),
    "batchnorm": (lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.ReLU(), nn.Linear(8, 3)), "batch"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSTABLE)
def test_logits_that_are_random_or_depend_on_the_batch_are_warned_about(name: str) -> None:
    make, word = UNSTABLE[name]
    for warnings in (unlearn(make()).warnings, audit(make()).warnings):
        assert_names(warnings[0], "model", word)
    assert_names(audit(mlp(), retrained=[mlp(seed=1), make()]).warnings[0], "retrained[1]", word)


@pytest.mark.parametrize("model", [mlp(), in_place(), nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))])
def test_stable_logits_are_not_warned_about(model: nn.Module) -> None:
    assert not any("logits" in warning for warning in (*audit(model).warnings, *unlearn(model).warnings))


# -------------------------------------------------------------------------- a forward pass before the copy: it works


def pruned(seed: int = 0) -> nn.Module:
    model = mlp(seed=seed)
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    return model


def normed(seed: int = 0) -> nn.Module:
    model = mlp(seed=seed)
    with pytest.warns(FutureWarning):
        old_weight_norm(model[0])
    return model


@pytest.mark.parametrize("make", [pruned, normed])
@pytest.mark.parametrize("method", ["finetune", "auto", "bad_teacher", "regun@teacher"])
def test_pruned_and_weight_normed_models_work_after_a_forward_pass(make: Callable[..., nn.Module], method: str) -> None:
    model = make()
    x = parts("retain")["retain"][0]
    model(x)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    arguments = (
        {} if method == "finetune" else {"rebuild": lambda seed: make(1 + seed % 9), "recipe": {"epochs": 2, "lr": 0.1}}
    )
    run = RunOptions() if method == "auto" else SHORT
    made = regun.unlearn(model, **parts("forget", "retain", "heldout"), method=method, run=run, **arguments)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert set(made.model.state_dict()) == set(before)
    if make is pruned:
        made.model(x)
        assert int((made.model[0].weight == 0).sum()) == 48  # half of them, pruned as before or as rebuilt


def test_a_copy_after_a_forward_pass_has_its_own_weights() -> None:
    model, x = pruned(), torch.randn(4, 6)
    expected = model(x)
    twin = copied(model)
    assert torch.equal(twin(x), expected)
    nn.init.zeros_(twin[0].weight_orig)
    assert torch.equal(model(x), expected)


# -------------------------------------------------------------------------------------------- one sentence for the rest


def leave(x: Tensor) -> Tensor:
    sys.exit(0)


def without_gradient(z: Tensor) -> Tensor:
    with torch.no_grad():
        return z * 1


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(torch.complex64) @ self.weight).real


def objects() -> tuple[np.ndarray, Tensor]:
    rows = np.empty(20, dtype=object)
    rows[:] = [np.zeros(k % 3 + 1) for k in range(20)]
    return rows, torch.zeros(20, dtype=torch.long)


def scripted() -> nn.Module:
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        return torch.jit.script(mlp())


Y = torch.zeros(20, dtype=torch.long)
SURPRISES = {
    # name: (functions that refuse it, model, sets, error, names)
    "sys.exit in forward": ("ua", lambda: Wrapped(before=leave), {}, RegunError, ("Wrapped", "sys.exit(0)")),
    "integer logits": ("ua", lambda: Wrapped(after=lambda z: z.round().long()), {}, RegunError, ("model", "int64")),
    "complex logits": ("ua", lambda: Wrapped(after=lambda z: z + 0j), {}, RegunError, ("model", "complex64")),
    "one logit": ("ua", lambda: nn.Linear(6, 1), {}, RegunError, ("model", "Linear")),
    "no gradient": ("u", lambda: Wrapped(after=without_gradient), {}, RegunError, ("Wrapped", "no_grad", "detach")),
    "detached": ("u", lambda: Wrapped(after=Tensor.detach), {}, RegunError, ("Wrapped", "no_grad", "detach")),
    "complex parameters": ("u", Complex, {}, RegunError, ("'weight'", "complex64", "real")),
    "TorchScript": ("u", scripted, {}, RegunError, ("TorchScript", "torch.nn.Module")),
    "model on meta": ("ua", lambda: mlp().to("meta"), {}, RegunError, ("meta", "'0.weight'")),
    "inputs on meta": ("ua", mlp, {"forget": (torch.zeros(20, 6, device="meta"), Y)}, DataError, ("forget", "meta")),
    "labels on meta": ("ua", mlp, {"forget": (torch.zeros(20, 6), Y.to("meta"))}, DataError, ("forget", "labels")),
    "sparse inputs": ("ua", mlp, {"retain": (torch.eye(6).to_sparse(), Y[:6])}, DataError, ("retain", "x.to_dense()")),
    "object array": ("ua", mlp, {"forget": objects()}, DataError, ("forget", "object")),
    "texts": ("ua", mlp, {"forget": (["a"] * 20, Y)}, DataError, ("forget", "list")),
    "ragged labels": ("ua", mlp, {"forget": (torch.zeros(2, 6), [[0], [1, 2]])}, DataError, ("forget", "labels")),
    "a bug in forward": ("ua", lambda: Wrapped(before=lambda x: x.shapes), {}, RegunError, ("Wrapped", "AttributeError")),
}  # fmt: skip


@pytest.mark.parametrize("name", SURPRISES)
def test_one_sentence_says_what_to_change(name: str) -> None:
    functions, make, sets, kind, names = SURPRISES[name]
    for letter, call in (("u", unlearn), ("a", audit)):
        if letter in functions:
            with error(kind, *names) as caught:
                call(make(), **sets)
            assert "\n" not in str(caught.value)
        else:
            call(make(), **sets)


def test_a_model_that_exits_later_does_not_end_the_program() -> None:
    calls: list[int] = []

    def later(x: Tensor) -> Tensor:
        calls.append(1)
        return leave(x) if len(calls) > 6 else x

    with error(RegunError, "Wrapped", "sys.exit(0)"):
        unlearn(Wrapped(before=later))
