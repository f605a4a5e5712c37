"""The embedded digits: the same bytes for everyone, hard enough to be memorised."""

import numpy as np
import pytest
import sklearn.datasets
import torch

from expect import error
from regun.data.digits import load_digits
from regun.data.examples import Data
from regun.data.registry import DataSpec, get_pipeline, load_data
from regun.errors import DataError, SettingsError


@pytest.fixture(scope="module")
def digits() -> Data:
    return load_digits(get_pipeline("digits", "digits"))


def test_the_content_is_pinned(digits: Data) -> None:
    """Another digest would make every stored model and every number of the documentation another one's."""
    assert digits.train.digest == "e3eda1db512c8d9c18d4fccbec9dc7037492b4dcad6528e50ac4d0212f09e0f0"
    assert digits.test.digest == "839511c30bf64a75e45ad37f5809427545552589fb42590edc6fd67ab106daba"


def test_sizes_and_shapes(digits: Data) -> None:
    assert (len(digits.train.labels), len(digits.test.labels)) == (1437, 360)
    assert (digits.name, digits.image_size, digits.train.num_classes) == ("digits", (1, 8, 8), 10)
    assert digits.class_names == tuple("0123456789")
    batch = digits.train.fetch(np.array([5, 0, 900]))
    assert (batch.x.shape, batch.x.dtype) == ((3, 1, 8, 8), torch.float32)
    assert batch.y.tolist() == digits.train.labels[[5, 0, 900]].tolist()


def test_every_class_has_its_share(digits: Data) -> None:
    for part in (digits.train, digits.test):
        counts = np.bincount(part.labels, minlength=10)
        assert counts.min() >= 0.7 * len(part.labels) / 10
        assert counts.max() <= 1.3 * len(part.labels) / 10


def original_range(digits: Data) -> tuple[np.ndarray, np.ndarray]:
    """All images in units of the original pixel range, and their labels."""
    parts = (digits.train, digits.test)
    x = np.concatenate([p.images[..., 0].astype(float) / 255 * 3 - 1 for p in parts])
    return x, np.concatenate([p.labels for p in parts])


def test_each_image_is_a_real_one_with_noise_of_its_own(digits: Data) -> None:
    """Matched to the nearest clean image of its class, what is left is Gaussian of 0.3 of the range."""
    noisy, labels = original_range(digits)
    pixels, target = sklearn.datasets.load_digits(return_X_y=True)
    clean = pixels.reshape(-1, 8, 8) / 16
    assert sorted(labels) == sorted(target)
    noise = []
    for digit in range(10):
        own, pool = noisy[labels == digit], clean[target == digit]
        distance = ((own[:, None] - pool[None]) ** 2).sum((2, 3))
        noise.append(own - pool[distance.argmin(1)])
    left = np.concatenate(noise)
    assert left.std() == pytest.approx(0.3, abs=0.01)
    assert abs(left.mean()) < 0.01
    assert np.abs(np.corrcoef(left.reshape(len(left), -1).T)[~np.eye(64, dtype=bool)]).max() < 0.15
    assert ((noisy <= -1) | (noisy >= 2)).mean() < 1e-3  # next to nothing is clipped


def test_no_image_is_in_both_parts(digits: Data) -> None:
    train, test = ({image.tobytes() for image in part.images} for part in (digits.train, digits.test))
    assert len(train) == 1437
    assert not train & test


def test_a_limit_takes_a_fixed_part(digits: Data) -> None:
    def limited(**values: int) -> Data:
        return load_data(DataSpec.read("digits", values), "digits")

    some = limited(limit=400, test_limit=50)
    assert (len(some.train.labels), len(some.test.labels)) == (400, 50)
    assert some.train.digest == limited(limit=400).train.digest != limited(limit=401).train.digest
    assert limited(limit=1437).train.digest == digits.train.digest
    with error(DataError, "data.limit", 1438, 1437):
        limited(limit=1438)
    with error(DataError, "data.test_limit", 361, 360):
        limited(test_limit=361)
    with error(SettingsError, "data.limit", 0, 1):
        limited(limit=0)


def test_every_fault_of_a_data_spec_is_reported_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        DataSpec.read("digit", {"limit": "many", "rot": "/x"})
    assert [problem.split(";")[0].split(" Known")[0] for problem in caught.value.problems] == [
        "unknown data set 'digit'. Did you mean 'digits'?",
        "unknown setting of data 'rot'. Did you mean 'root'?",
        "data.limit is 'many'",
    ]
    with error(SettingsError, "cifar10", "root=FOLDER"):
        DataSpec.read("cifar10", {})
