"""scikit-learn's handwritten digits with noise, so that a model must memorize them."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from regun.data.arrays import ArrayExamples
from regun.data.examples import Data, InputPipeline

NOISE = 0.3
TEST = 360


def load_digits(pipeline: InputPipeline) -> Data:
    """Return 1,797 real 8x8 digits, each with fixed Gaussian noise of 0.3 of the pixel range; 360 are for testing.

    The noise makes a model that fits its training images remember them one by one, so that there is something to
    forget. Stored values cover -1 to 2 of the original range, so that the noise is not clipped.
    """
    package = find_spec("sklearn")
    assert package is not None, "scikit-learn is a dependency"
    assert package.origin is not None
    # its file, not its loader: importing scikit-learn takes a second of every process
    rows = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    clean, labels = rows[:, :-1].reshape(-1, 8, 8) / 16, rows[:, -1].astype(np.int64)
    draw = np.random.Generator(np.random.PCG64(1797))
    noisy = clean + NOISE * draw.standard_normal(clean.shape)
    images = np.clip(np.rint((noisy + 1) / 3 * 255), 0, 255).astype(np.uint8)[..., None]
    order = draw.permutation(len(labels))
    test, train = order[:TEST], order[TEST:]
    return Data(
        "digits",
        ArrayExamples(images[train], labels[train], 10, pipeline),
        ArrayExamples(images[test], labels[test], 10, pipeline),
        (1, 8, 8),
        tuple(str(d) for d in range(10)),
    )
