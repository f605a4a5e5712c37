"""CIFAR: what is read from the published files, and that a hostile or broken file does nothing but raise."""

import os
import pickle
import struct
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expect import error
from regun.data.arrays import ArrayExamples
from regun.data.cifar import _StoredArray, load_cifar
from regun.data.examples import InputPipeline
from regun.errors import DataError

PIPELINE = InputPipeline("p", (0.5,) * 3, (0.25,) * 3)
Writer = Callable[[Any], bytes]


def python2(value: Any) -> bytes:
    """`value` pickled as Python 2 wrote the published files: protocol 2, byte strings, numpy.core globals."""
    return b"\x80\x02" + _python2(value) + b"."


def _python2(value: Any) -> bytes:
    if isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        return b"T" + struct.pack("<i", len(raw)) + raw
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(_python2(k) + _python2(v) for k, v in value.items()) + b"u"
    assert isinstance(value, np.ndarray)
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + _python2(0) + b"\x85" + _python2("b") + b"tR"
    order = "|" if value.itemsize == 1 else "<"
    dtype = b"cnumpy\ndtype\n(" + _python2(value.dtype.str[1:]) + _python2(0) + _python2(1) + b"tR("
    dtype += _python2(3) + _python2(order) + b"NNN" + _python2(-1) + _python2(-1) + _python2(0) + b"tb"
    shape = b"(" + b"".join(map(_python2, value.shape)) + b"t"
    return made + b"(" + _python2(1) + shape + dtype + b"\x89" + _python2(value.tobytes()) + b"tb"


def python3(protocol: int, key: Callable[[str], Any] = str.encode) -> Writer:
    return lambda value: pickle.dumps({key(k): v for k, v in value.items()}, protocol=protocol)


def rows(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)


def write_cifar10(
    folder: Path, sizes: tuple[int, ...] = (3, 2, 4, 1, 2, 3), write: Writer = python2
) -> list[np.ndarray]:
    folder.mkdir(parents=True)
    written = [rows(n, i) for i, n in enumerate(sizes)]
    for i, (name, data) in enumerate(
        zip([*(f"data_batch_{b}" for b in range(1, 6)), "test_batch"], written, strict=True)
    ):
        labels = [(i + j) % 10 for j in range(len(data))]
        content = {"batch_label": "x", "labels": labels, "data": data, "filenames": ["a.png"] * len(data)}
        (folder / name).write_bytes(write(content))
    (folder / "batches.meta").write_bytes(write({"label_names": [f"name{i}" for i in range(10)], "num_vis": 3072}))
    return written


def write_cifar100(folder: Path, write: Writer = python2) -> None:
    folder.mkdir(parents=True)
    for name, n in (("train", 5), ("test", 2)):
        labels = [99 - j for j in range(n)]
        (folder / name).write_bytes(
            write({"data": rows(n, n), "fine_labels": labels, "coarse_labels": [19 - j for j in range(n)]})
        )
    names = {f"{kind}_label_names": [f"{kind}{i}" for i in range(n)] for kind, n in (("fine", 100), ("coarse", 20))}
    (folder / "meta").write_bytes(write(names))


def arrays(examples: Any) -> ArrayExamples:
    assert isinstance(examples, ArrayExamples)
    return examples


WRITERS = {
    "python 2": python2,
    **{f"python 3, protocol {p}": python3(p) for p in range(2, 6)},
    "text keys": python3(4, str),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_cifar10_pixels_and_labels_come_out_in_file_order(tmp_path: Path, write: Writer) -> None:
    written = write_cifar10(tmp_path / "cifar-10-batches-py", write=write)
    data = load_cifar(tmp_path, 10, PIPELINE)
    train, test = arrays(data.train), arrays(data.test)
    stored = np.concatenate(written[:5])
    assert train.images.shape == (12, 32, 32, 3)
    for row, column, channel in ((0, 0, 0), (31, 0, 1), (5, 17, 2)):
        plane = stored[:, 1024 * channel : 1024 * (channel + 1)]
        assert train.images[:, row, column, channel].tolist() == plane[:, 32 * row + column].tolist()
    assert np.array_equal(test.images.transpose(0, 3, 1, 2).reshape(3, -1), written[5])
    assert train.labels.tolist() == [0, 1, 2, 1, 2, 2, 3, 4, 5, 3, 4, 5]
    assert (data.name, data.image_size, train.num_classes) == ("cifar10", (3, 32, 32), 10)
    assert data.class_names[9] == "name9"
    assert train.images.flags.c_contiguous


def test_cifar100_uses_fine_labels_and_accepts_the_folder_itself(tmp_path: Path) -> None:
    write_cifar100(tmp_path / "cifar-100-python")
    data = load_cifar(tmp_path / "cifar-100-python", 100, PIPELINE)
    assert data.train.labels.tolist() == [99, 98, 97, 96, 95]
    assert (len(arrays(data.test)), data.train.num_classes, data.name) == (2, 100, "cifar100")
    assert data.class_names[:2] == ("fine0", "fine1")
    assert load_cifar(str(tmp_path), 100, PIPELINE).train.digest == data.train.digest


def test_cifar20_is_cifar100_with_its_coarse_labels(tmp_path: Path) -> None:
    write_cifar100(tmp_path / "cifar-100-python")
    fine, coarse = load_cifar(tmp_path, 100, PIPELINE), load_cifar(tmp_path, 20, PIPELINE)
    assert (coarse.name, coarse.train.num_classes, coarse.class_names[:2]) == ("cifar20", 20, ("coarse0", "coarse1"))
    assert coarse.train.labels.tolist() == [19, 18, 17, 16, 15]
    np.testing.assert_array_equal(arrays(coarse.test).images, arrays(fine.test).images)


@pytest.mark.parametrize(
    "labels", [np.array([1, 2, 3]), np.array([1, 2, 3], dtype=">i4"), [np.int64(1), np.int32(2), 3]]
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_labels_may_be_numpy_numbers(tmp_path: Path, labels: Any, protocol: int) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    (folder / "test_batch").write_bytes(python3(protocol)({"data": np.asfortranarray(rows(3, 0)), "labels": labels}))
    data = load_cifar(tmp_path, 10, PIPELINE)
    assert data.test.labels.tolist() == [1, 2, 3]
    assert np.array_equal(arrays(data.test).images[:, 0, 1, 0], rows(3, 0)[:, 1])


def test_loading_needs_little_more_memory_than_the_result(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py", sizes=(300,) * 6)
    tracemalloc.start()
    try:
        data = load_cifar(tmp_path, 10, PIPELINE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * (arrays(data.train).images.nbytes + arrays(data.test).images.nbytes)


# ------------------------------------------------------------------------------------------------- hostile files


class Calls:
    """Pickles to a call of `function(*arguments)`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def hostile(command: str) -> dict[str, Any]:
    return {
        "system": Calls(os.system, command),
        "eval": Calls(eval, f"__import__('os').system({command!r})"),
        "check_call": Calls(subprocess.check_call, ["sh", "-c", command]),
    }


@pytest.mark.parametrize("kind", ["system", "eval", "check_call"])
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("name", ["data_batch_2", "batches.meta"])
def test_a_file_that_calls_a_function_is_refused_and_runs_nothing(
    tmp_path: Path, kind: str, protocol: int, name: str
) -> None:
    marker = tmp_path / "it-ran"
    value = hostile(f"touch {marker}")[kind]
    content = pickle.dumps({b"data": rows(2, 0), b"labels": [0, 1], b"label_names": value}, protocol=protocol)
    pickle.loads(content)  # the proof that the file is dangerous
    assert marker.exists()
    marker.unlink()
    write_cifar10(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / name).write_bytes(content)
    with error(DataError, name) as caught:
        load_cifar(tmp_path, 10, PIPELINE)
    assert "download the publisher's" in str(caught.value)
    assert not marker.exists()


def test_a_file_cannot_set_attributes_on_what_is_admitted(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    attack = b"\x80\x02cnumpy\nndarray\n(N}X\x05\x00\x00\x00arrayK\x01stb."
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(attack)
    with error(DataError, "test_batch"):
        load_cifar(tmp_path, 10, PIPELINE)
    assert _StoredArray.array is None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.", "'rot13' latin1"),
        (python2({"data": np.zeros((1, 3072)), "labels": [1]}), "'<f8'"),
        (python3(4)({"data": np.array([[None]]), "labels": [1]}), "'|O8'"),
        (python3(4)({"data": rows(1, 0), "labels": [Path("x")]}), "pathlib"),
        (b"", "0 EOFError"),
        (b"not a pickle at all", "UnpicklingError"),
        (pickle.dumps([1, 2, 3]), "list 3 data labels"),
        (python2({"data": rows(2, 0)}), "data labels"),
        (python2({"labels": [0]}), "data labels"),
        (python2({"data": rows(2, 0)[:, :3000], "labels": [0, 1]}), "'data' 3000 3072"),
        (python2({"data": rows(2, 0).astype(np.int16), "labels": [0, 1]}), "'data' int16 uint8"),
        (python2({"data": [0, 1], "labels": [0, 1]}), "'data' list uint8"),
        (python2({"data": rows(2, 0), "labels": [0]}), "'labels' 1 2"),
        (python2({"data": rows(2, 0), "labels": "ab"}), "'labels' bytes"),
        (python2({"data": rows(2, 0), "labels": [0, 10]}), "'labels'[1] 10 0 9"),
        (python2({"data": rows(2, 0), "labels": [-1, 0]}), "'labels'[0] -1"),
        (python2({"data": rows(2, 0), "labels": [0, "3"]}), "'labels'[1] b'3'"),
    ],
)
def test_a_malformed_batch_is_refused_by_name(tmp_path: Path, content: bytes, text: str) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(content)
    with error(DataError, "data_batch_3", *text.split()):
        load_cifar(tmp_path, 10, PIPELINE)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    path = tmp_path / "cifar-10-batches-py" / "data_batch_5"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with error(DataError, "data_batch_5"):
        load_cifar(tmp_path, 10, PIPELINE)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with error(DataError, tmp_path / "absent", "cifar-10-batches-py"):
        load_cifar(tmp_path / "absent", 10, PIPELINE)
    (tmp_path / "notes.txt").touch()
    with error(DataError, "notes.txt", "cifar-100-python"):
        load_cifar(tmp_path, 100, PIPELINE)
    write_cifar10(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "data_batch_4").unlink()
    with error(DataError, "data_batch_4"):
        load_cifar(tmp_path, 10, PIPELINE)


def test_wrong_class_names_are_refused(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "batches.meta").write_bytes(python2({"label_names": ["cat"]}))
    with error(DataError, "batches.meta", "'label_names'", 1, 10):
        load_cifar(tmp_path, 10, PIPELINE)


def test_only_10_20_and_100_classes_exist(tmp_path: Path) -> None:
    with error(DataError, 30, 10, 20, 100):
        load_cifar(tmp_path, 30, PIPELINE)  # type: ignore[arg-type]
