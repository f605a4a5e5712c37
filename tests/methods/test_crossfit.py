"""Cross-fitted references: the loss by hand, its limits, and what unlearn, audit and auto make of a table."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import regun
from expect import error
from regun.data.arrays import ArrayExamples
from regun.data.augment import Flip
from regun.data.dataset import DatasetExamples
from regun.data.examples import Batch, InputPipeline
from regun.data.tensors import TensorExamples
from regun.data.views import Joined, Selected
from regun.errors import DataError, RegunError
from regun.methods import auto, crossfit
from regun.splits import Splits
from regun.training.fit import fit
from regun.training.job import Job
from regun.training.recipes import Recipe

CLASSES = 3
RECIPE = Recipe(epochs=50, lr=0.1, batch_size=16, momentum=0.0)


def records(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=draw), torch.randint(0, CLASSES, (n,), generator=draw)


def classifier(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(seed)
        return nn.Linear(4, CLASSES)


def job(forget: int = 6, retain: int = 20, table: torch.Tensor | None = None) -> Job:
    x, y = records(forget + retain)
    rows = np.arange(forget + retain)
    splits = Splits(retain=rows[forget:], forget=rows[:forget], heldout=rows[:0], val=rows[:0], total=len(rows))
    if table is None:
        table = functional.softmax(torch.randn(forget, CLASSES, generator=torch.Generator().manual_seed(5)), dim=1)
    return Job(
        model=classifier(),
        examples=TensorExamples(x, y.numpy(), CLASSES),
        splits=splits,
        seed=1,
        recipe=RECIPE,
        out_of_fold=table,
    )


def prepared(data: tuple[torch.Tensor, torch.Tensor], **changes: object) -> regun.Prepared:
    return regun.prepare(lambda dataset, seed: classifier(seed % 1000), data, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("temperature", "label_logit"), [(1.0, 0.0), (0.4, 0.0), (1.0, 0.5), (2.0, -1.0)])
def test_one_step_is_the_formula(temperature: float, label_logit: float) -> None:
    """Forget and retain sets fit into one batch each, so the gradient can be written down."""
    config = crossfit.Config(
        steps=1, batch_size=64, retain_batch=64, w=0.3, lr=0.2, plain=0.75, temperature=temperature,
        label_logit=label_logit,
    )  # fmt: skip
    mine, base = job(), classifier()
    x, y = records(26)
    p = functional.log_softmax(base(x), dim=1)
    assert mine.out_of_fold is not None
    odds = mine.out_of_fold ** (1 / temperature) * (1 + (np.exp(label_logit) - 1) * functional.one_hot(y[:6], CLASSES))
    target = odds / odds.sum(dim=1, keepdim=True)
    forget = 2 * (target * (target.log() - p[:6])).sum() / 64  # plain and augmented inputs are the same here
    expected = torch.autograd.grad(0.7 * forget + 0.3 * functional.cross_entropy(base(x[6:]), y[6:]), base.parameters())
    crossfit.unlearn(mine, config)
    for after, before, gradient in zip(mine.model.parameters(), base.parameters(), expected, strict=True):
        assert torch.allclose(after, before - 0.2 * gradient, atol=1e-6)


def test_targets_keep_impossible_classes_and_sharpen_to_the_most_probable_one() -> None:
    table = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.0, 0.0, 1.0, 0.0]])
    labels = torch.tensor([1, 0])
    assert torch.equal(crossfit.targets(table, labels, temperature=1.0, label_logit=0.0), table)
    sharp = crossfit.targets(table, labels, temperature=0.01, label_logit=0.5)
    assert torch.allclose(sharp, torch.tensor([[1.0, 0, 0, 0], [0, 0, 1.0, 0]]), atol=1e-6)
    raised = crossfit.targets(table, labels, temperature=0.5, label_logit=2.0)
    assert (raised.sum(dim=1) - 1).abs().max() < 1e-6
    assert (raised[:, 3] == 0).all()
    assert raised[0, 1] > table[0, 1]
    assert torch.equal(raised[1], table[1]), "a class that is impossible stays so"


@pytest.mark.parametrize("temperature", [0.25, 0.6, 0.95])
def test_the_temperature_is_the_one_that_gives_the_confidence(temperature: float) -> None:
    table = functional.softmax(torch.randn(50, CLASSES, generator=torch.Generator().manual_seed(3)), dim=1)
    sharp = functional.softmax(table.log() / temperature, dim=1)
    found = crossfit.fitted_temperature(table, float(sharp.amax(dim=1).mean()))
    assert found == pytest.approx(temperature, abs=1e-3)


@pytest.mark.parametrize(("confidence", "bound"), [(0.999, 0.2), (0.1, 1.0)])
def test_targets_are_never_softened_nor_sharpened_without_bound(confidence: float, bound: float) -> None:
    table = torch.tensor([[0.5, 0.3, 0.2], [0.4, 0.3, 0.3]])
    assert crossfit.fitted_temperature(table, confidence) == pytest.approx(bound, abs=1e-3)


@pytest.mark.parametrize(("more", "reached"), [(0.1, 0.1), (0.0, 0.0), (-0.1, 0.0)])
def test_labels_gain_the_probability_that_is_missing(more: float, reached: float) -> None:
    table = functional.softmax(torch.randn(50, CLASSES, generator=torch.Generator().manual_seed(4)), dim=1)
    labels = torch.arange(50) % CLASSES
    logit = crossfit.fitted_label_logit(table, labels, temperature=0.5, more=more)

    def mean(label_logit: float) -> float:
        return float(crossfit.targets(table, labels, 0.5, label_logit)[torch.arange(50), labels].mean())

    assert mean(logit) - mean(0.0) == pytest.approx(reached, abs=1e-3)


def test_targets_follow_the_model_on_held_out_examples() -> None:
    """By hand: as confident as the model there, labels more probable by half of what the table lacks in accuracy."""
    x, y = records(66)
    y[46:] = torch.where(
        torch.arange(20) < 15, classifier()(x[46:]).argmax(1), (classifier()(x[46:]).argmax(1) + 1) % 3
    )
    rows = np.arange(66)
    table = functional.softmax(torch.randn(6, CLASSES, generator=torch.Generator().manual_seed(5)), dim=1)
    table = table.roll(1, 1) if (table.argmax(1) == y[:6]).double().mean() > 0.6 else table

    def weights(heldout: int, optimizer: str | None = "adam", **settings: float) -> torch.Tensor:
        splits = Splits(retain=rows[6:46], forget=rows[:6], heldout=rows[46 : 46 + heldout], val=rows[:0], total=66)
        mine = replace(job(), examples=TensorExamples(x, y.numpy(), CLASSES), splits=splits, out_of_fold=table)
        mine = replace(mine, recipe=replace(RECIPE, optimizer=optimizer) if optimizer else None)
        crossfit.unlearn(mine, crossfit.Config(steps=2, **settings))
        return mine.model.state_dict()["weight"]

    confidence = float(classifier()(x[46:]).detach().softmax(1).amax(1).double().mean())
    temperature = crossfit.fitted_temperature(table, confidence)
    more = (0.75 - float((table.argmax(1) == y[:6]).double().mean())) / 2
    logit = crossfit.fitted_label_logit(table, y[:6], temperature, more)
    assert more > 0
    assert torch.equal(weights(20), weights(20, temperature=temperature, label_logit=logit))
    assert torch.equal(weights(20, temperature=0.3), weights(
        20, temperature=0.3, label_logit=crossfit.fitted_label_logit(table, y[:6], 0.3, more)
    ))  # fmt: skip
    usual = dict(zip(("temperature", "label_logit"), crossfit.WITHOUT_HELDOUT, strict=True))
    assert torch.equal(weights(0), weights(0, **usual))
    assert not torch.equal(weights(20), weights(0))
    for optimizer in ("sgd", None):  # an unknown recipe, too, leaves targets as they are
        assert torch.equal(weights(20, optimizer), weights(0, optimizer, temperature=1.0, label_logit=0.0))


SIGNS = {0.0: [-1], 0.75: [1, -1], 1.0: [1]}


@pytest.mark.parametrize(("plain", "retain_plain"), [(0.0, 1.0), (0.75, 0.0), (1.0, 1.0)])
def test_shares_of_the_inputs_are_plain(plain: float, retain_plain: float) -> None:
    """The augmentation negates its inputs. All records fit into either part of a step."""

    class Negates(TensorExamples):
        augments = True

        def fetch(self, indices: Any, *, augment: bool = False, **rest: Any) -> Batch:
            batch = super().fetch(indices, augment=augment, **rest)
            assert isinstance(batch.x, torch.Tensor)
            return replace(batch, x=-batch.x) if augment else batch

    seen: list[torch.Tensor] = []

    class Notes(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                seen.append(x)
            return super().forward(x)

    x, y = records(26)
    mine = replace(job(), model=Notes(4, CLASSES), examples=Negates(x, y.numpy(), CLASSES))
    config = crossfit.Config(steps=1, batch_size=80, retain_batch=80, plain=plain, retain_plain=retain_plain)
    crossfit.unlearn(mine, config)
    forgotten, retained = ([sign * x[part] for sign in SIGNS[share]] for part, share in
                           ((slice(6), plain), (slice(6, None), retain_plain)))  # fmt: skip
    expected = torch.cat([*forgotten, *retained])
    assert sorted(seen[0].tolist()) == sorted(expected.tolist())
    assert len(seen[0]) == crossfit.step_samples(config, 6, 20, RECIPE)


@pytest.mark.parametrize(
    ("share", "correct", "plain"),
    [
        (0.04, 1.0, 32),
        (0.08, 1.0, 32),
        (0.16, 1.0, 16),
        (0.64, 1.0, 4),
        (0.08, 0.85, 16),
        (0.16, 0.85, 8),
        (0.08, 0.6, 0),
    ],
)
def test_short_updates_of_models_that_fit_well_see_plain_retained_inputs(
    share: float, correct: float, plain: int
) -> None:
    augmented: list[int] = []

    class Counts(TensorExamples):
        augments = True

        def fetch(self, indices: Any, *, augment: bool = False, **rest: Any) -> Batch:
            if augment:
                augmented.append(len(indices))
            return super().fetch(indices, augment=augment, **rest)

    y = torch.arange(646) % CLASSES
    x = 9.0 * functional.one_hot(y, 4).float()
    wrong = 6 + torch.arange(round(640 * (1 - correct)))
    x[wrong] = 9.0 * functional.one_hot((y[wrong] + 1) % CLASSES, 4).float()
    mine = replace(job(6, 640), examples=Counts(x, y.numpy(), CLASSES))
    mine.model.load_state_dict({"weight": torch.eye(4)[:CLASSES], "bias": torch.zeros(CLASSES)})
    crossfit.unlearn(mine, crossfit.Config(share=share, steps=1, repair=0.0))
    assert sum(augmented) == 32 - plain


def test_the_last_part_sees_retained_examples_alone() -> None:
    """Where the forget term cannot move the model, the steps of the last part are those of fine-tuning."""
    sizes: list[int] = []

    class Notes(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                sizes.append(len(x))
            return super().forward(x)

    def run(repair: float) -> tuple[torch.Tensor, list[int]]:
        sizes.clear()
        mine = replace(job(forget=4, retain=40), model=Notes(4, CLASSES))
        mine.model.load_state_dict(classifier().state_dict())
        config = crossfit.Config(
            steps=20, batch_size=8, retain_batch=12, repair=repair, w=0.5, lr=0.1, plain=0.75, retain_plain=0
        )
        crossfit.unlearn(mine, config)
        return mine.model.state_dict()["weight"].clone(), list(sizes)

    moved, together = run(0.0)
    repaired, parts = run(0.25)
    assert set(together) <= {6 + 12, 6 + 4}  # four plain records, two augmented, and the rest of a pass over retain
    assert parts[:15] == together[:15]
    assert set(parts[15:]) == {18, 4}  # passes over 40 retained examples
    assert not torch.allclose(moved, repaired)


def test_a_record_weighs_the_same_alone_and_among_many() -> None:
    """The forget term of a request of one record is 1/b of what its batch of b would be."""
    moved: list[torch.Tensor] = []
    for size in (8, 16):
        mine = job(forget=1, table=torch.tensor([[1.0, 0.0, 0.0]]))
        crossfit.unlearn(mine, crossfit.Config(steps=1, batch_size=size, w=0.0, lr=0.1, plain=1.0))
        moved.append(mine.model.weight.detach() - classifier().weight.detach())  # type: ignore[operator]
    assert torch.allclose(moved[0], 2 * moved[1], atol=1e-7)


def test_repair_alone_is_fine_tuning() -> None:
    """With repair=1 no step sees a forgotten record, so the table does not matter."""
    tables = [torch.full((6, CLASSES), 1 / CLASSES), torch.eye(CLASSES).repeat(2, 1)]
    after: list[torch.Tensor] = []
    for table in tables:
        mine = job(table=table)
        crossfit.unlearn(mine, crossfit.Config(steps=8, repair=1.0))
        after.append(mine.model.state_dict()["weight"])
    assert torch.equal(*after)
    assert not torch.allclose(after[0], classifier().state_dict()["weight"])


@pytest.mark.parametrize(("known", "last"), [(0.0, 0), (0.25, 5), (0.9, 10)])
def test_what_unseen_models_know_decides_the_length_of_the_repair(known: float, last: int) -> None:
    """20 rounds of one step; the last of them see retained examples alone."""
    mine = job(forget=8, retain=64)
    labels = torch.from_numpy(mine.examples.labels_at(np.arange(8)))
    table = torch.full((8, CLASSES), (1 - known) / (CLASSES - 1)).scatter(1, labels[:, None], known)
    forgotten = {tuple(row) for row in records(72)[0][:8].tolist()}
    seen: list[bool] = []
    mine.model.register_forward_pre_hook(
        lambda module, args: (
            seen.append(any(tuple(row) in forgotten for row in args[0].tolist())) if module.training else None
        )
    )
    crossfit.unlearn(replace(mine, out_of_fold=table), crossfit.Config(steps=20, batch_size=8, retain_batch=8))
    assert seen == [True] * (20 - last) + [False] * last


def test_the_rate_follows_the_size_of_a_step() -> None:
    """Steps of half of training's batch move at half of the rate; larger ones not at more than the rate."""
    rates: list[float] = []
    for batch_size in (8, 32, 128):
        mine = replace(job(), recipe=replace(RECIPE, batch_size=batch_size), on_epoch=lambda e, _: rates.append(e.lr))
        crossfit.unlearn(mine, crossfit.Config(steps=1, batch_size=8, retain_batch=8, rate=0.5))
    assert rates == pytest.approx([0.5 * RECIPE.lr, 0.25 * RECIPE.lr, 0.5 * RECIPE.lr / 8])


@pytest.mark.parametrize(("optimizer", "sizes"), [("sgd", {32 + 32}), ("adam", {12 + 20}), ("adamw", {12 + 20})])
def test_adam_takes_steps_of_half_of_the_batch_of_training(optimizer: str, sizes: set[int]) -> None:
    """And the last part, which sees retained examples alone, has steps of the same size."""
    seen: list[int] = []
    mine = job(forget=96, retain=640)
    mine = replace(mine, recipe=Recipe(epochs=4, batch_size=64, lr=0.1, optimizer=optimizer))
    mine.model.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])) if module.training else None)
    crossfit.unlearn(mine, crossfit.Config(steps=10))
    assert set(seen) == sizes
    assert crossfit.work(crossfit.Config(steps=10), 96, 640, mine.recipe).samples == sum(seen)


def test_retained_examples_are_smoothed_as_in_training() -> None:
    """With w=1 a step is one of training by the recipe."""
    mine = replace(job(), recipe=replace(RECIPE, label_smoothing=0.2))
    crossfit.unlearn(mine, crossfit.Config(steps=1, retain_batch=64, w=1.0, lr=0.3))
    twin = classifier()
    x, y = records(26)
    loss = functional.cross_entropy(twin(x[6:]), y[6:], label_smoothing=0.2)
    gradient = torch.autograd.grad(loss, twin.parameters())
    for after, before, slope in zip(mine.model.parameters(), twin.parameters(), gradient, strict=True):
        assert torch.allclose(after, before - 0.3 * slope, atol=1e-6)


@pytest.mark.parametrize(("forget", "retain"), [(1, 30), (6, 40), (200, 400)])
def test_the_plan_is_what_is_spent(forget: int, retain: int) -> None:
    mine, config = job(forget, retain), crossfit.Config(share=0.1)
    planned = crossfit.work(config, forget, retain, RECIPE)
    crossfit.unlearn(mine, config)
    assert mine.cost.steps == planned.steps
    assert mine.cost.backward <= planned.samples
    if planned.steps > crossfit.LEAST_STEPS + 2:
        assert planned.samples <= 0.11 * RECIPE.epochs * retain


def test_batches_pass_together_so_that_batchnorm_sees_both() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.out, self.sizes = nn.BatchNorm1d(4), nn.Linear(4, CLASSES), list[int]()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.sizes.append(len(x))
            return self.out(self.norm(x))

    mine = replace(job(), model=Norm())
    crossfit.unlearn(mine, crossfit.Config(steps=1, batch_size=4, retain_batch=5, plain=0.75))
    assert mine.model.sizes == [4 + 5]  # three plain, one augmented, five retained


def test_unlearn_looks_the_forgotten_records_up() -> None:
    x, y = records(40)
    table = prepared((x, y))
    seen: list[torch.Tensor | None] = []

    def method(job: Job) -> None:
        seen.append(job.out_of_fold)
        fit(job, *_nothing(job))

    regun.unlearn(classifier(), forget=(x[:3], y[:3]), retain=(x[3:], y[3:]), method=method, prepared=table)
    assert seen[0] is not None
    assert torch.equal(seen[0], table.probabilities(np.arange(3)))


def _nothing(job: Job):
    from regun.training.streams import one_pass

    stream = one_pass(job, "retain", job.indices("retain"), 16)
    return stream, lambda step: 0.0 * job.logits(step.retain.x).sum(), replace(RECIPE, epochs=1)


def test_bad_tables_are_named() -> None:
    x, y = records(40)
    sets = {"forget": (x[:3], y[:3]), "retain": (x[3:], y[3:])}
    with error(RegunError, "regun.prepare", "prepared"):
        regun.unlearn(classifier(), **sets, method="crossfit")
    with error(DataError, "train"):
        regun.unlearn(classifier(), **sets, method="crossfit", prepared=prepared(records(40, seed=7)))
    with error(RegunError, "prepared"):
        regun.unlearn(classifier(), **sets, method="crossfit", prepared="table.safetensors")  # type: ignore[arg-type]
    wide = regun.prepare(lambda dataset, seed: nn.Linear(4, 5), (x, y))
    with error(RegunError, 5, 3):
        regun.unlearn(classifier(), **sets, method="crossfit", prepared=wide)


def test_auto_uses_a_table_where_retraining_is_long_and_keeps_to_its_plan() -> None:
    long, short = RECIPE, replace(RECIPE, epochs=2)
    config = auto.Config(short=100)
    assert auto.plan_of(config, 6, 20, short, table=True).training == "whole"
    plan = auto.plan_of(config, 6, 20, long, table=True)
    assert plan.training == "table"
    assert plan.teacher.samples == 0
    mine = job()
    fitted = auto.unlearn(mine, config)
    assert fitted.notes["price"]["branch"] == "cross-fitted"
    assert mine.cost.steps == plan.distilling.steps
    assert mine.cost.backward <= plan.distilling.samples


def test_an_audit_takes_the_table_for_models_that_never_saw_the_records() -> None:
    """The same numbers as from a module that returns the table's predictions."""
    x, y = records(200)
    unseen = records(100, seed=1)
    table = prepared((x, y), test=unseen)
    whole = torch.cat([x, unseen[0]])
    answers = table.probabilities(np.arange(300)).log()

    class Recites(nn.Module):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            place = (batch[:, None] == whole[None]).all(2).float().argmax(1)
            return answers[place]

    sets = {"forget": (x[:20], y[:20]), "retain": (x[20:], y[20:]), "test": unseen}
    models = {"model": classifier(3), "before": classifier(4)}
    by_table = regun.audit(**models, **sets, prepared=table, bootstrap=0)
    by_model = regun.audit(**models, **sets, out_models=[Recites()], bootstrap=0)
    assert by_table.influence is not None
    assert by_model.influence is not None
    assert by_table.influence.share.value == pytest.approx(by_model.influence.share.value, abs=1e-3)
    assert by_table.influence.verdict == by_model.influence.verdict
    with error(DataError, "val"):
        regun.audit(**models, **sets, val=records(30, seed=2), prepared=table, bootstrap=0)


def test_data_without_augmentation_have_one_kind_of_retained_inputs() -> None:
    """One pass over the retained examples instead of two, whatever the share; and no look at the base's fit."""
    fetched: list[int] = []

    class Counts(TensorExamples):
        def fetch(self, indices: Any, **rest: Any) -> Batch:
            fetched.append(len(indices))
            return super().fetch(indices, **rest)

    x, y = records(646)
    mine = replace(job(6, 640), examples=Counts(x, y.numpy(), CLASSES))
    crossfit.unlearn(mine, crossfit.Config(steps=1, repair=0.0, retain_plain=0.5))
    assert sorted(fetched) == [6, 32]


def test_which_examples_augment() -> None:
    plain = TensorExamples(*(part if number == 0 else part.numpy() for number, part in enumerate(records(4))), CLASSES)
    pixels, labels = np.zeros((4, 8, 8, 3), dtype=np.uint8), np.zeros(4, dtype=np.int64)
    images = [
        ArrayExamples(pixels, labels, CLASSES, InputPipeline("p", (0.5,) * 3, (0.5,) * 3, train=transforms))
        for transforms in ((), (Flip(),))
    ]
    assert [data.augments for data in (plain, *images)] == [False, False, True]
    assert [Joined((images[k], images[1])).augments for k in (0, 1)] == [True, True]
    assert not Joined((images[0], images[0])).augments
    assert [Selected(data, np.arange(2)).augments for data in images] == [False, True]
    same = TensorDataset(*records(4))
    assert not DatasetExamples(same, CLASSES).augments
    assert DatasetExamples(same, CLASSES, evaluation=same).augments
