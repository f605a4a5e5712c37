"""ArrayExamples: the arithmetic of model inputs, which generator is drawn from, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from expect import error
from regun import rng
from regun.data.arrays import ArrayExamples, content_digest
from regun.data.examples import InputPipeline
from regun.errors import DataError

MEAN, STD = (0.49, 0.48, 0.44), (0.25, 0.24, 0.26)
PLAIN = InputPipeline("plain", MEAN, STD)


class Noise:
    """A transform that draws one whole number an image and stays in uint8."""

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        drawn = torch.randint(0, 256, (len(images), 1, 1, 1), generator=generator, dtype=torch.uint8)
        return images ^ drawn

    def describe(self) -> dict[str, Any]:
        return {"name": "noise"}


class Darken:
    """A float transform whose result is laid out channel by channel."""

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        return (images.float() / 255 * 0.5).contiguous()

    def describe(self) -> dict[str, Any]:
        return {"name": "darken"}


def make(n: int = 10, size: int = 4, pipeline: InputPipeline = PLAIN, seed: int = 0) -> ArrayExamples:
    draw = np.random.default_rng(seed)
    shape = (n, size, size + 1, len(pipeline.mean))
    return ArrayExamples(draw.integers(0, 256, shape, dtype=np.uint8), np.arange(n) % 3, 3, pipeline)


def expected(images: np.ndarray, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> np.ndarray:
    return ((images.astype(np.float64) / 255 - mean) / std).transpose(0, 3, 1, 2)


def tensor(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 5),
    height=st.integers(1, 6),
    width=st.integers(1, 6),
    channels=st.integers(1, 4),
    picked=st.lists(st.integers(0, 1000), max_size=7),
)
def test_inputs_are_pixels_less_mean_over_std_in_the_asked_order(
    n: int, height: int, width: int, channels: int, picked: list[int]
) -> None:
    mean, std = (0.1, 0.4, 0.5, 0.9)[:channels], (0.2, 0.3, 1.0, 2.0)[:channels]
    images = np.random.default_rng(n).integers(0, 256, (n, height, width, channels), dtype=np.uint8)
    labels = np.arange(n)
    indices = np.array([i % n for i in picked], dtype=np.int64)
    batch = ArrayExamples(images, labels, n, InputPipeline("p", mean, std)).fetch(indices)
    x = tensor(batch.x)
    assert x.shape == (len(picked), channels, height, width)
    assert x.dtype == torch.float32
    assert x.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(x.numpy(), expected(images[indices], mean, std), atol=2e-6)
    assert batch.y.tolist() == labels[indices].tolist()
    assert batch.indices.tolist() == indices.tolist()


def test_normalised_pixels_are_the_fetched_inputs() -> None:
    examples = make(pipeline=InputPipeline("p", MEAN, STD, evaluation=(Darken(),)))
    indices = np.array([4, 4, 0])
    pixels = examples.pixels(indices)
    np.testing.assert_allclose(pixels.numpy(), examples.images[indices].transpose(0, 3, 1, 2) / 510, atol=1e-7)
    assert pixels.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(examples.normalise(pixels), tensor(examples.fetch(indices).x))
    plain = make()
    torch.testing.assert_close(plain.normalise(plain.pixels(indices)), plain.fetch(indices).x)


def test_normalise_lets_gradients_through() -> None:
    examples = make()
    pixels = examples.pixels(np.arange(2)).requires_grad_()
    examples.normalise(pixels).sum().backward()
    assert pixels.grad is not None
    torch.testing.assert_close(pixels.grad, (1 / torch.tensor(STD)).view(1, 3, 1, 1).expand_as(pixels))


def test_train_transforms_only_when_augmenting() -> None:
    pipeline = InputPipeline("p", MEAN, STD, train=(Noise(),), evaluation=(Darken(),))
    examples, indices = make(pipeline=pipeline), np.arange(5)
    drawn = torch.randint(0, 256, (5, 1, 1, 1), generator=rng.generator(7), dtype=torch.uint8).numpy()
    augmented = examples.fetch(indices, augment=True, generator=rng.generator(7)).x
    np.testing.assert_allclose(tensor(augmented).numpy(), expected(examples.images[indices] ^ drawn), atol=2e-6)
    evaluated = tensor(examples.fetch(indices).x)
    np.testing.assert_allclose(evaluated.numpy(), expected(examples.images[indices] / 2), atol=2e-6)
    assert evaluated.is_contiguous(memory_format=torch.channels_last)


def test_evaluation_never_draws_from_the_callers_generator() -> None:
    examples = make(pipeline=InputPipeline("p", MEAN, STD, evaluation=(Noise(),)))
    generator = rng.generator(1)
    before = generator.get_state()
    first = examples.fetch(np.arange(5), generator=generator).x
    assert torch.equal(generator.get_state(), before)
    assert torch.equal(tensor(examples.fetch(np.arange(5)).x), tensor(first))


def test_streamed_batches_depend_on_seed_and_position_only() -> None:
    examples = make(pipeline=InputPipeline("p", MEAN, STD, train=(Noise(),)))
    plan = [np.array([3, 1]), np.array([0]), np.array([3, 1])]
    batches = list(examples.stream(plan, augment=True, seed=5))
    for i, batch in enumerate(batches):
        alone = examples.fetch(plan[i], augment=True, generator=rng.generator(5, i))
        assert torch.equal(tensor(batch.x), tensor(alone.x))
    assert not torch.equal(tensor(batches[0].x), tensor(batches[2].x))
    rest = list(examples.stream(plan[2:], augment=True, seed=5, first=2))
    assert torch.equal(tensor(rest[0].x), tensor(batches[2].x))
    assert [b.indices.tolist() for b in examples.stream(plan)] == [[3, 1], [0], [3, 1]]


def test_a_batch_does_not_change_with_the_callers_index_array() -> None:
    indices = np.array([1, 2])
    batch = make().fetch(indices)
    indices[:] = 0
    assert batch.indices.tolist() == [1, 2]


def test_digest_is_of_the_content_and_of_nothing_else() -> None:
    examples = make()
    other = InputPipeline("other", (0.0,) * 3, (1.0,) * 3)
    assert make(pipeline=other).digest == examples.digest == examples.with_pipeline(other).digest
    assert make(seed=1).digest != examples.digest
    assert ArrayExamples(examples.images, examples.labels[::-1], 3, PLAIN).digest != examples.digest
    assert ArrayExamples(examples.images, examples.labels, 4, PLAIN).digest != examples.digest
    assert examples.digest == content_digest(examples.images, examples.labels, 3)


def test_digest_is_computed_at_most_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr("regun.data.arrays.content_digest", lambda *_: calls.append(1) or "computed")
    examples = make()
    assert calls == []
    assert (examples.digest, examples.digest, examples.with_pipeline(PLAIN).digest) == ("computed",) * 3
    assert calls == [1]
    given_one = ArrayExamples(examples.images, examples.labels, 3, PLAIN, "given")
    assert (given_one.digest, given_one.with_pipeline(PLAIN).digest) == ("given", "given")
    assert calls == [1]


def test_with_pipeline_shares_the_pixels_and_describes_the_new_pipeline() -> None:
    examples = make()
    other = InputPipeline("other", MEAN, STD, train=(Noise(),))
    changed = examples.with_pipeline(other)
    assert changed.images is examples.images
    assert changed.describe_inputs() == other.describe() != examples.describe_inputs()
    assert len(changed) == 10


def test_a_read_only_memory_map_serves_the_same_inputs(tmp_path: Path) -> None:
    examples = make()
    np.save(tmp_path / "images.npy", examples.images)
    mapped = ArrayExamples(np.load(tmp_path / "images.npy", mmap_mode="r"), examples.labels, 3, PLAIN)
    assert torch.equal(tensor(mapped.fetch(np.array([2, 9])).x), tensor(examples.fetch(np.array([2, 9])).x))
    assert mapped.digest == examples.digest


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"images": np.zeros((2, 4, 4, 3), dtype=np.float32)},
            "images float32 uint8",
        ),
        ({"images": np.zeros((2, 4, 4), dtype=np.uint8)}, "images uint8 (N"),
        ({"images": np.zeros((0, 4, 4, 3), dtype=np.uint8)}, "images (0"),
        ({"labels": np.zeros(3, dtype=np.int64)}, "labels 3 2"),
        ({"labels": np.array([0, 7])}, "labels[1] 7 3 0 2"),
        ({"labels": np.array([-1, 0])}, "labels[0] -1"),
        ({"labels": np.array([0.5, 0])}, "labels float64"),
        (
            {"pipeline": InputPipeline("grey", (0.5,), (0.5,))},
            "'grey' 1 3",
        ),
        ({"pipeline": InputPipeline("flat", MEAN, (0.2, 0.0, 0.2))}, "'flat' std 0"),
    ],
)
def test_malformed_content_is_refused(change: dict[str, Any], text: str) -> None:
    sound = {"images": np.zeros((2, 4, 4, 3), dtype=np.uint8), "labels": np.zeros(2, np.int64), "pipeline": PLAIN}
    with error(DataError, *text.split()):
        ArrayExamples(num_classes=3, **{**sound, **change})


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        (np.array([0, 10]), "indices[1] 10 0 9"),
        (np.array([-1]), "indices[0] -1"),
        (np.array([[0, 1]]), "indices (1"),
        (np.array([True, False]), "indices bool np.flatnonzero"),
        (np.array([0.0]), "indices float64"),
    ],
)
def test_bad_indices_are_refused(indices: Any, text: str) -> None:
    with error(DataError, *text.split()):
        make().fetch(indices)
    with error(DataError, *text.split()):
        make().pixels(indices)


def test_augmenting_without_a_generator_is_refused() -> None:
    with error(DataError, "generator", "augment"):
        make().fetch(np.array([0]), augment=True)
