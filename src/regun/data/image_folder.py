"""Folders of image files, decoded once into a memory-mapped array, or on the fly where that would be too large."""

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from regun import hashing, rng
from regun.data.arrays import ArrayExamples, Images, checked_index, content_digest
from regun.data.examples import Batch, Data, InputPipeline, ProgressCallback
from regun.errors import DataError, RegunError, not_installed
from regun.files import file_sha256, replace_file
from regun.settings import read_json
from regun.types import Device, Indices

Files = list[tuple[int, str]]  # label and path below the root, sorted

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
FORMAT = 1  # of the cache; part of an entry's name
CHUNK = 64  # images per task
LIMIT = 2**35
"""Bytes of decoded images up to which a folder is decoded once; images of larger ones are decoded for every batch."""


@dataclass(frozen=True)
class Listing:
    """Image files of a folder, not yet decoded, in order of class, then of name."""

    train: Files
    test: Files
    class_names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class DecodedPart:
    """Decoded images (memory-mapped, read-only), their labels, paths below the root, and content digest."""

    images: Images
    labels: Indices
    paths: tuple[str, ...]
    digest: str


@dataclass(frozen=True, eq=False)
class DecodedFolder:
    """Both parts of a decoded folder, and `cache`, the directory that holds them."""

    train: DecodedPart
    test: DecodedPart
    class_names: tuple[str, ...]
    cache: Path


def load_image_folder(
    root: Path | str,
    pipeline: InputPipeline,
    image_size: int | None = None,
    cache: Path | str | None = None,
    workers: int | None = None,
    on_progress: ProgressCallback | None = None,
    limit: int = LIMIT,
) -> Data:
    """Return the images below `root` as a data set; see `decode_folder`.

    Example: `load_image_folder("tiny-imagenet-200", pipeline)`; the first call decodes, later ones only open. If the
    decoded images would take more than `limit` bytes, `workers` threads decode them for every batch instead.
    """
    _check_numbers(image_size, workers)
    listing = list_folder(Path(root))
    first = decode_image(Path(root) / listing.train[0][1], image_size)
    if first.nbytes * (len(listing.train) + len(listing.test)) > limit:
        return _on_the_fly(Path(root), listing, pipeline, first, image_size, cache, workers, on_progress)
    decoded = _decode(Path(root), listing, image_size, cache, workers, on_progress)
    train, test = (
        ArrayExamples(part.images, part.labels, len(decoded.class_names), pipeline, part.digest)
        for part in (decoded.train, decoded.test)
    )
    _, height, width, channels = decoded.train.images.shape
    return Data(Path(root).resolve().name, train, test, (channels, height, width), decoded.class_names)


def decode_folder(
    root: Path | str,
    image_size: int | None = None,
    cache: Path | str | None = None,
    workers: int | None = None,
    on_progress: ProgressCallback | None = None,
) -> DecodedFolder:
    """Decode the images below `root` once, into `cache` (default `root/.regun-cache`), and open the result.

    Layouts: `train/<class>/**` with `test/<class>/**` or `val/<class>/**`; or Tiny-ImageNet's, where val is the test
    set. All images must have one size, unless `image_size` is given: then the shorter side is resized to it and the
    centre square cut out. A change of any file's name, size or time makes a new entry; old ones may be deleted.
    """
    _check_numbers(image_size, workers)
    return _decode(Path(root), list_folder(Path(root)), image_size, cache, workers, on_progress)


def _check_numbers(image_size: int | None, workers: int | None) -> None:
    for name, value in (("image_size", image_size), ("workers", workers)):
        if value is not None and value < 1:
            raise DataError(f"{name} is {value}; the least allowed is 1. Give a larger one, or None.")


def _decode(
    root: Path,
    listing: Listing,
    image_size: int | None,
    cache: Path | str | None,
    workers: int | None,
    on_progress: ProgressCallback | None,
) -> DecodedFolder:
    """Return the decoded images of a listing, from the cache or decoded into it now."""
    entry = (root / ".regun-cache" if cache is None else Path(cache)) / _fingerprint(root, listing, image_size)[:24]
    if not (entry / "manifest.json").is_file():
        try:
            _decode_into(entry, root, listing, image_size, workers or os.cpu_count() or 1, on_progress)
        except OSError as fault:
            raise DataError(
                f"cannot write decoded images to {entry.parent}: {fault}. Free space there, or pass cache=<a "
                "folder that can be written>."
            ) from fault
    return _open_cache(entry)


# ------------------------------------------------------------------------------------------------------- on the fly


class ImageFiles:
    """Image files as an array (N, H, W, C) of which any rows can be decoded; `images[rows]` decodes them in threads."""

    dtype, ndim = np.dtype(np.uint8), 4

    def __init__(
        self, root: Path, paths: Sequence[str], shape: tuple[int, ...], size: int | None, workers: int
    ) -> None:
        self.root, self.paths, self.image_size, self.workers = root, tuple(paths), size, workers
        self.shape = (len(paths), *shape)
        self.size = int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """Threads, since Pillow decodes without the GIL."""
        return ThreadPoolExecutor(self.workers)

    def submit(self, rows: Indices) -> list[Future[Images]]:
        """Start to decode the images at `rows`."""
        return [self.pool.submit(self._decode, self.paths[row]) for row in cast("list[int]", rows.tolist())]

    def __getitem__(self, rows: Indices) -> Images:
        return np.stack([image.result() for image in self.submit(rows)])

    def _decode(self, path: str) -> Images:
        return _of_one_size(self.root / path, self.shape[1:], self.image_size)


@dataclass(frozen=True, eq=False)
class FolderExamples(ArrayExamples):
    """Images that are decoded when a batch needs them; while one batch is used, the next is being decoded."""

    @property
    def files(self) -> ImageFiles:
        return cast(ImageFiles, self.images)

    def stored(self, index: Indices) -> Images:
        return self.files[index]

    def select(self, rows: Indices) -> "FolderExamples":
        files = self.files
        some = ImageFiles(
            files.root,
            [files.paths[row] for row in cast("list[int]", rows.tolist())],
            files.shape[1:],
            files.image_size,
            files.workers,
        )
        digest = hashing.digest([self.digest, hashing.digest(rows)])
        return replace(self, images=cast(Images, some), labels=self.labels[rows], precomputed_digest=digest)

    def stream(
        self, plan: Sequence[Indices], *, augment: bool = False, seed: int = 0, first: int = 0, device: Device = "cpu"
    ) -> Iterator[Batch]:
        def submit(position: int) -> list[Future[Images]]:
            return self.files.submit(checked_index(plan[position], len(self))) if position < len(plan) else []

        ahead = submit(0)
        for position, indices in enumerate(plan):
            decoded = np.stack([image.result() for image in ahead])
            ahead = submit(position + 1)
            batch = ArrayExamples(decoded, self.labels[indices], self.num_classes, self.pipeline, "")
            generator = rng.generator(seed, first + position) if augment else None
            here = batch.fetch(np.arange(len(indices)), augment=augment, generator=generator, device=device)
            yield Batch(here.x, here.y, torch.from_numpy(indices))


def _on_the_fly(
    root: Path,
    listing: Listing,
    pipeline: InputPipeline,
    first: Images,
    image_size: int | None,
    cache: Path | str | None,
    workers: int | None,
    on_progress: ProgressCallback | None,
) -> Data:
    """Return the data set whose images are decoded batch by batch."""
    digests = _file_digests(root, listing, cache, workers or os.cpu_count() or 1, on_progress)
    parts: list[ArrayExamples] = []
    for name, files in (("train", listing.train), ("test", listing.test)):
        images = ImageFiles(root, [path for _, path in files], first.shape, image_size, workers or os.cpu_count() or 1)
        labels = np.array([label for label, _ in files], dtype=np.int64)
        digest = hashing.digest([digests[name], hashing.digest(labels), image_size])
        parts.append(FolderExamples(cast(Images, images), labels, len(listing.class_names), pipeline, digest))
    height, width, channels = first.shape
    return Data(root.resolve().name, parts[0], parts[1], (channels, height, width), listing.class_names)


def _file_digests(
    root: Path, listing: Listing, cache: Path | str | None, workers: int, on_progress: ProgressCallback | None
) -> dict[str, str]:
    """Return the digest of the files of each part; every file is read once, and again only when one has changed."""
    entry = (root / ".regun-cache" if cache is None else Path(cache)) / f"{_fingerprint(root, listing, None)[:24]}.json"
    if entry.is_file():
        return read_json(entry.read_bytes(), entry.name)
    parts, done = {"train": listing.train, "test": listing.test}, 0
    total, digests = len(listing.train) + len(listing.test), dict[str, str]()
    with ThreadPoolExecutor(workers) as pool:
        for name, files in parts.items():
            each: list[str] = []
            for one in pool.map(file_sha256, [root / path for _, path in files]):
                each.append(one)
                done += 1
                if on_progress is not None:
                    on_progress(done, total)
            digests[name] = hashing.digest([each, [path for _, path in files]])
    entry.parent.mkdir(parents=True, exist_ok=True)
    replace_file(entry, json.dumps(digests).encode())
    return digests


# ---------------------------------------------------------------------------------------------------------- layouts


def list_folder(root: Path) -> Listing:
    """Return the image files below `root` in either layout, in an order that does not change."""
    if not (root / "train").is_dir():
        names = ", ".join(sorted(p.name for p in root.iterdir())[:8]) if root.is_dir() else ""
        content = f"it holds {names or 'nothing'}" if root.is_dir() else "it does not exist"
        raise DataError(
            f"no images in {root}: {content}. Expected train/<class>/<images> and test/ or val/; give the folder that "
            "contains train."
        )
    if (root / "wnids.txt").is_file():
        return _list_tiny_imagenet(root)
    part = next((name for name in ("test", "val") if (root / name).is_dir()), None)
    if part is None:
        raise DataError(f"{root} has train but neither test nor val; add one of them, with the same class folders.")
    classes, tested = _subfolders(root / "train"), _subfolders(root / part)
    if not classes or not tested:
        raise DataError(f"{root / ('train' if tested else part)} holds no class folder; expected <class>/<images>.")
    extra = sorted(set(tested) - set(classes))
    if extra:
        raise DataError(f"{root / part / extra[0]}: train has no such class. Add it to train, or remove it here.")
    return Listing(_list_classes(root, "train", classes), _list_classes(root, part, classes, tested), tuple(classes))


def _list_tiny_imagenet(root: Path) -> Listing:
    """Return the files of Tiny-ImageNet: `wnids.txt` numbers the classes, a table labels the images of val."""
    wnids = [line.strip() for line in _lines(root / "wnids.txt")]
    unlisted = sorted(set(_subfolders(root / "train")) - set(wnids))
    if unlisted or len(set(wnids)) != len(wnids):
        fault = f"the class {unlisted[0]} of train is not in it" if unlisted else "it names a class twice"
        raise DataError(f"{root / 'wnids.txt'}: {fault}; expected every class of train once, one per line.")
    words: dict[str, str] = {}
    if (root / "words.txt").is_file():
        words = {wnid: name.strip() for wnid, _, name in (line.partition("\t") for line in _lines(root / "words.txt"))}
    names = tuple(words.get(wnid) or wnid for wnid in wnids)
    table = root / "val" / "val_annotations.txt"
    if not table.is_file():
        raise DataError(f"{table} is missing; expected a line <file><tab><class> for each image of val/images.")
    number = {wnid: label for label, wnid in enumerate(wnids)}
    labels: dict[str, int] = {}
    for at, line in enumerate(_lines(table), start=1):
        name, wnid, *_ = (*(part.strip() for part in line.split("\t")), "")
        path = f"val/images/{name}"
        if wnid not in number:
            raise DataError(f"{table}, entry {at}: the class {wnid!r} is not in wnids.txt; correct one of the two.")
        if not (root / path).is_file():
            raise DataError(f"{table}, entry {at}: {path} does not exist; restore the image or delete the line.")
        if labels.setdefault(path, number[wnid]) != number[wnid]:
            raise DataError(f"{table}, entry {at}: {path} has another class above; delete one of the lines.")
    if not labels:
        raise DataError(f"{table} names no image; expected a line <file><tab><class> for each image of val/images.")
    test = sorted((label, path) for path, label in labels.items())
    return Listing(_list_classes(root, "train", wnids), test, names)


def _list_classes(root: Path, part: str, classes: list[str], present: list[str] | None = None) -> Files:
    """Return the images of each class; a class that is not in `present` may have none."""
    files: Files = []
    for label, name in enumerate(classes):
        if present is not None and name not in present:
            continue
        folder = root / part / name
        images = [
            f"{Path(place).relative_to(root).as_posix()}/{file}"
            for place, _, names in os.walk(folder)
            for file in names
            if file.lower().endswith(SUFFIXES) and not file.startswith(".")
        ]
        if not images:
            what = "holds no image" if folder.is_dir() else "does not exist"
            raise DataError(f"{folder} {what}; expected {', '.join(SUFFIXES)} files. Add images, or drop the class.")
        files += [(label, path) for path in sorted(images)]
    return files


def _subfolders(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]


# ------------------------------------------------------------------------------------------------ decoding and cache


def decode_image(path: Path, image_size: int | None = None) -> Images:
    """Return an image as (H, W, 3) uint8; `image_size` resizes the shorter side to it and cuts the center square."""
    try:
        from PIL import Image
    except ImportError as fault:
        raise DataError(not_installed("reading image files", "Pillow", "images")) from fault
    try:
        with Image.open(path) as opened:
            if opened.mode.startswith(("I", "F")):
                raise ValueError(f"mode {opened.mode} has more than 8 bits per channel")
            # a palette with transparency must pass through RGBA
            image = (opened.convert("RGBA") if opened.mode == "P" else opened).convert("RGB")
        if image_size is not None and image.size != (image_size, image_size):
            width, height = (max(image_size, round(side * image_size / min(image.size))) for side in image.size)
            left, top = (width - image_size) // 2, (height - image_size) // 2
            image = image.resize((width, height), Image.Resampling.BILINEAR)
            image = image.crop((left, top, left + image_size, top + image_size))
        return np.asarray(image)
    except Exception as fault:  # Pillow's decoders raise nearly anything on a damaged file
        size = path.stat().st_size if path.exists() else 0
        raise DataError(
            f"{path} cannot be decoded ({size} bytes; {type(fault).__name__}: {fault}). Expected a whole 8-bit image; "
            "restore, convert or delete it."
        ) from fault


def _of_one_size(path: Path, shape: tuple[int, ...], image_size: int | None) -> Images:
    """Return a decoded image; raise if it has another shape than the first one."""
    image = decode_image(path, image_size)
    if image.shape != shape:
        raise DataError(
            f"{path} is {image.shape[1]}x{image.shape[0]} pixels, the first image of train is "
            f"{shape[1]}x{shape[0]}; expected one size. Pass image_size to resize and crop all."
        )
    return image


def _fingerprint(root: Path, listing: Listing, image_size: int | None) -> str:
    """Return a digest of the names, sizes and times of all files."""
    stats = [os.stat(root / path) for _, path in (*listing.train, *listing.test)]
    times = [[stat.st_size, stat.st_mtime_ns] for stat in stats]
    return hashing.digest([FORMAT, image_size, listing.class_names, listing.train, listing.test, times])


def _decode_into(
    entry: Path,
    root: Path,
    listing: Listing,
    image_size: int | None,
    workers: int,
    on_progress: ProgressCallback | None,
) -> None:
    """Decode to a temporary neighbor, then rename it: `entry` appears complete or not at all."""
    parts = {"train": listing.train, "test": listing.test}
    total, done = len(listing.train) + len(listing.test), 0
    manifest: dict[str, Any] = {"format": FORMAT, "image_size": image_size, "class_names": listing.class_names}
    entry.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=entry.parent, prefix=".decoding-") as temporary:
        made = Path(temporary) / entry.name
        made.mkdir()
        first = decode_image(root / listing.train[0][1], image_size)
        for name, files in parts.items():
            with (made / f"{name}.npy").open("wb") as file:
                header = {"descr": "|u1", "fortran_order": False, "shape": (len(files), *first.shape)}
                np.lib.format.write_array_header_1_0(file, header)
                for block in _decode_blocks(root, files, first, image_size, workers):
                    file.write(block.data)
                    done += len(block)
                    if on_progress is not None:
                        on_progress(done, total)
            images: Images = np.load(made / f"{name}.npy", mmap_mode="r")
            labels = np.array([label for label, _ in files], dtype=np.int64)
            manifest[name] = {
                "shape": images.shape,
                "digest": content_digest(images, labels, len(listing.class_names)),
                "labels": labels.tolist(),
                "paths": [path for _, path in files],
            }
        (made / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        try:
            made.rename(entry)
        except OSError:
            if not (entry / "manifest.json").is_file():  # otherwise another process finished first, with the same
                raise


def _decode_blocks(root: Path, files: Files, first: Images, image_size: int | None, workers: int) -> Iterator[Images]:
    """Yield blocks of decoded images, in order.

    Threads, since Pillow decodes without the GIL; processes would import torch first and need a main guard in every
    user's script.
    """

    def decode(start: int) -> Images:
        block = np.empty((len(files[start : start + CHUNK]), *first.shape), dtype=np.uint8)
        for position, (_, path) in enumerate(files[start : start + CHUNK]):
            block[position] = _of_one_size(root / path, first.shape, image_size)
        return block

    wave = CHUNK * workers * 8  # bounds the decoded blocks that wait to be written
    with ThreadPoolExecutor(workers) as pool:
        for begin in range(0, len(files), wave):
            yield from pool.map(decode, range(begin, min(begin + wave, len(files)), CHUNK))


def _open_cache(entry: Path) -> DecodedFolder:
    try:
        manifest = read_json((entry / "manifest.json").read_bytes(), "manifest.json")
        parts: dict[str, DecodedPart] = {}
        for name in ("train", "test"):
            about, images = manifest[name], np.load(entry / f"{name}.npy", mmap_mode="r")
            if list(images.shape) != about["shape"] or images.dtype != np.uint8:
                raise ValueError(f"{name}.npy is {images.dtype} of shape {images.shape}; expected {about['shape']}")
            labels = np.array(about["labels"], dtype=np.int64)
            parts[name] = DecodedPart(images, labels, tuple(about["paths"]), about["digest"])
        return DecodedFolder(parts["train"], parts["test"], tuple(manifest["class_names"]), entry)
    except (OSError, ValueError, KeyError, TypeError, RegunError) as fault:
        raise DataError(
            f"the decoded images in {entry} are damaged ({type(fault).__name__}: {fault}). Delete that folder and try "
            "again: the images are then decoded again."
        ) from fault
