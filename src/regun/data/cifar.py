"""CIFAR-10 and CIFAR-100 from the publisher's python files."""

import pickle
import re
from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from regun.data.arrays import ArrayExamples, Images
from regun.data.examples import Data, InputPipeline
from regun.errors import DataError
from regun.types import Indices

ROW = 3 * 32 * 32  # one image: 1024 red, 1024 green, 1024 blue


@dataclass(frozen=True)
class CifarFiles:
    """File names and keys of one data set."""

    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels_key: str
    names_key: str

    @property
    def required(self) -> tuple[str, ...]:
        return (*self.train, self.test, self.meta)


CIFAR_FILES = {
    10: CifarFiles(
        "cifar-10-batches-py",
        tuple(f"data_batch_{i}" for i in range(1, 6)),
        "test_batch",
        "batches.meta",
        "labels",
        "label_names",
    ),
    20: CifarFiles("cifar-100-python", ("train",), "test", "meta", "coarse_labels", "coarse_label_names"),
    100: CifarFiles("cifar-100-python", ("train",), "test", "meta", "fine_labels", "fine_label_names"),
}
"""By the number of classes; CIFAR-20 is CIFAR-100 with its coarse labels."""
CifarClasses = Literal[10, 20, 100]


def load_cifar(root: Path | str, classes: CifarClasses, pipeline: InputPipeline) -> Data:
    """Return CIFAR-10, CIFAR-20 or CIFAR-100 from `root`, the published folder or its parent.

    Example: `load_cifar(Path("data"), 10, pipeline)` reads `data/cifar-10-batches-py`.
    """
    files = cifar_files(classes)
    root = Path(root)
    candidates = [root / files.folder, root]
    folder = next((c for c in candidates if any((c / name).is_file() for name in files.required)), None)
    if folder is None:
        content = f"it holds {_short(sorted(p.name for p in root.glob('*')))}" if root.exists() else "it does not exist"
        raise DataError(
            f"no CIFAR-{classes} in {root}: {content}. Expected the folder {files.folder} with "
            f"{_short(files.required)}; give that folder or its parent, or download the data set first."
        )
    missing = [name for name in files.required if not (folder / name).is_file()]
    if missing:
        raise DataError(
            f"CIFAR-{classes} in {folder} is incomplete: {', '.join(missing)} missing. Expected "
            f"{', '.join(files.required)}; extract the archive again."
        )
    names = _read_pickle(folder / files.meta, (files.names_key,))[files.names_key]
    if not isinstance(names, list) or len(cast(list[Any], names)) != classes:
        raise DataError(
            f"{folder / files.meta}: {files.names_key!r} is {_kind(names)}; expected a list of {classes} names. "
            f"{_NOT_PUBLISHED}"
        )
    train = _read_images([folder / name for name in files.train], files.labels_key, classes)
    test = _read_images([folder / files.test], files.labels_key, classes)
    return Data(
        name=f"cifar{classes}",
        train=ArrayExamples(*train, classes, pipeline),
        test=ArrayExamples(*test, classes, pipeline),
        image_size=(3, 32, 32),
        class_names=tuple(_text(name) for name in cast(list[Any], names)),
    )


def cifar_files(classes: int) -> CifarFiles:
    """Return the file names and keys of the CIFAR data set with so many classes."""
    if classes not in CIFAR_FILES:
        raise DataError(f"classes is {classes!r}; allowed are 10, 20 and 100.")
    return CIFAR_FILES[classes]


def _read_images(paths: list[Path], labels_key: str, classes: int) -> tuple[Images, Indices]:
    """Return images (N, 32, 32, 3) and labels of several files."""
    # A pickle holds its pixels uncompressed, so the file sizes bound the number of rows; pages beyond the last row
    # are never touched and cost no memory. Only one file's pixels are alive beside the result.
    bound = sum(path.stat().st_size // ROW for path in paths)
    images: Images = np.empty((bound, 32, 32, 3), dtype=np.uint8)
    labels: list[Indices] = []
    end = 0
    for path in paths:
        content = _read_pickle(path, ("data", labels_key))
        rows = content["data"].array if isinstance(content["data"], _StoredArray) else None
        if rows is None or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != ROW:
            raise DataError(
                f"{path}: 'data' is {_kind(content['data'])}; expected a uint8 array of shape (images, {ROW}). "
                f"{_NOT_PUBLISHED}"
            )
        labels.append(_labels(path, content[labels_key], labels_key, len(rows), classes))
        for channel, plane in enumerate(np.split(rows, 3, axis=1)):
            images[end : end + len(rows), :, :, channel] = plane.reshape(-1, 32, 32)
        end += len(rows)
    return images[:end], np.concatenate(labels)


def _labels(path: Path, stored: Any, key: str, count: int, classes: int) -> Indices:
    listed: Any = stored
    if isinstance(stored, _StoredArray) and stored.array is not None:
        listed = stored.array.tolist()
    if not isinstance(listed, list) or len(values := cast(list[Any], listed)) != count:
        raise DataError(f"{path}: {key!r} is {_kind(stored)}; expected a list of {count} labels. {_NOT_PUBLISHED}")
    for position, label in enumerate(values):
        if not isinstance(label, int) or not 0 <= label < classes:
            raise DataError(
                f"{path}: {key!r}[{position}] is {label!r}; expected a whole number from 0 to {classes - 1}. "
                f"{_NOT_PUBLISHED}"
            )
    return np.array(values, dtype=np.int64)


# ------------------------------------------------------------------------------------------------ reading pickles
# Unpickling calls whatever the file names. Here a name leads to one of the five stand-ins below or to an error: no
# function of numpy or of Python ever sees the file's arguments. Each is a class with a `__setstate__`, so that the
# BUILD instruction cannot set attributes on the class itself either.

_NOT_PUBLISHED = "The file is not the published one: extract the archive again."
_INTEGERS = re.compile(r"[|<>=]?[biu][1248]")


class _StoredDtype:
    """`numpy.dtype(code, align, copy)`, whole numbers only."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = _text(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.code = _text(state[1]) + self.code

    def numpy(self) -> np.dtype[Any]:
        if not _INTEGERS.fullmatch(self.code):
            raise DataError(f"an array of type {self.code!r} is in it; only whole numbers are expected")
        return np.dtype(self.code)


class _StoredArray:
    """`numpy.core.multiarray._reconstruct(...)` followed by its state (version, shape, dtype, fortran, bytes)."""

    array: npt.NDArray[Any] | None = None

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        self.array = np.frombuffer(content, dtype.numpy()).reshape(shape, order="F" if fortran else "C")


class _StoredBuffer(_StoredArray):
    """`numpy.core.numeric._frombuffer(bytes, dtype, shape, order)`: the same in pickle protocol 5."""

    def __init__(self, content: Any, dtype: Any, shape: Any, order: Any) -> None:
        self.__setstate__((1, shape, dtype, order == "F", content))


class _StoredScalar:
    """`numpy.core.multiarray.scalar(dtype, bytes)`, read as a Python int."""

    def __new__(cls, dtype: Any, content: Any) -> Any:
        return int(np.frombuffer(content, dtype.numpy(), count=1)[0])

    def __setstate__(self, state: Any) -> None: ...


class _StoredBytes:
    """`_codecs.encode(text, "latin1")` and `bytes()`: how Python 3 writes bytes in protocol 2."""

    def __new__(cls, text: str = "", encoding: str = "latin1") -> Any:
        if encoding != "latin1":
            raise DataError(f"bytes in the encoding {encoding!r} are in it; only latin1 is expected")
        return text.encode("latin1")

    def __setstate__(self, state: Any) -> None: ...


_ADMITTED: dict[tuple[str, str], type] = {
    ("numpy", "ndarray"): _StoredArray,
    ("numpy", "dtype"): _StoredDtype,
    ("_codecs", "encode"): _StoredBytes,
    ("__builtin__", "bytes"): _StoredBytes,
    **{(f"numpy.{c}.multiarray", "_reconstruct"): _StoredArray for c in ("core", "_core")},
    **{(f"numpy.{c}.multiarray", "scalar"): _StoredScalar for c in ("core", "_core")},
    **{(f"numpy.{c}.numeric", "_frombuffer"): _StoredBuffer for c in ("core", "_core")},
}


class _ForbiddenGlobal(DataError):
    """The file names a class or function that is neither an array nor a plain container."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) not in _ADMITTED:
            raise _ForbiddenGlobal(f"{module_name}.{global_name}")
        return _ADMITTED[module_name, global_name]


def _read_pickle(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
    except _ForbiddenGlobal as fault:
        raise DataError(
            f"{path} names {fault}, which could run code; nothing was run. Expected numpy arrays and plain "
            "containers only: do not trust this file, download the publisher's."
        ) from None
    except OSError as fault:
        raise DataError(f"{path} cannot be read: {fault}. Expected a file of the CIFAR archive; check it.") from fault
    except Exception as fault:  # a damaged pickle can raise nearly anything
        size = path.stat().st_size
        raise DataError(
            f"{path} is truncated or damaged ({size} bytes; {type(fault).__name__}: {fault}). Expected a pickle with "
            f"{', '.join(keys)}; extract the archive again."
        ) from fault
    named = {_text(k): v for k, v in cast(dict[Any, Any], content).items()} if isinstance(content, dict) else {}
    missing = [key for key in keys if key not in named]
    if missing:
        content_text = _short(sorted(named)) if isinstance(content, dict) else _kind(content)
        raise DataError(f"{path} holds {content_text}; expected the keys {', '.join(keys)}. {_NOT_PUBLISHED}")
    return named


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _short(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "nothing"


def _kind(value: Any) -> str:
    if isinstance(value, _StoredArray) and value.array is not None:
        return f"an array of {value.array.dtype} of shape {value.array.shape}"
    size = f" of {len(value)}" if isinstance(value, Sized) else ""
    return f"a {type(value).__name__}{size}"
