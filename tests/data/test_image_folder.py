"""Image folders: both layouts, one decoding, a cache that notices changes, and files that cannot be used."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import regun.data.image_folder as image_folder
from expect import error
from regun.data.arrays import ArrayExamples, content_digest
from regun.data.examples import InputPipeline
from regun.data.image_folder import decode_folder, decode_image, list_folder, load_image_folder
from regun.errors import DataError

PIPELINE = InputPipeline("p", (0.5,) * 3, (0.25,) * 3)


def picture(seed: int, width: int = 8, height: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(path: Path, pixels: np.ndarray, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes with nested and oddly named files; written in an order that is not the sorted one."""
    root = tmp_path / "pets"
    save(root / "train" / "dog" / "b.png", picture(3))
    save(root / "train" / "dog" / "a.PNG", picture(2))
    save(root / "train" / "cat" / "deep" / "z.bmp", picture(1))
    save(root / "train" / "cat" / "a.png", picture(0))
    (root / "train" / "cat" / "notes.txt").write_text("not an image")
    (root / "train" / "cat" / ".hidden.png").write_text("not an image")
    (root / "train" / ".cache").mkdir()
    save(root / "val" / "dog" / "t.webp", picture(4), lossless=True)
    return root


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Tiny-ImageNet's layout with two classes; wnids.txt is not in alphabetical order."""
    root = tmp_path / "tiny-imagenet-200"
    for wnid, seed in (("n01", 0), ("n02", 10)):
        for i in range(2):
            save(root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", picture(seed + i))
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t1\t1\n")
    for i in range(3):
        save(root / "val" / "images" / f"val_{i}.JPEG", picture(20 + i))
    rows = ["val_0.JPEG\tn01\t0\t0\t5\t5", "val_1.JPEG\tn02\t0\t0\t5\t5", "val_2.JPEG\tn01\t0\t0\t5\t5"]
    (root / "val" / "val_annotations.txt").write_text("\n".join(rows) + "\n")
    save(root / "test" / "images" / "test_0.JPEG", picture(30))  # unlabelled, never read
    (root / "wnids.txt").write_text("n02\nn01\n")
    (root / "words.txt").write_text("n00\tnothing\nn01\tgoldfish, Carassius auratus\nn02\tox\n")
    return root


def arrays(examples: Any) -> ArrayExamples:
    assert isinstance(examples, ArrayExamples)
    return examples


def test_class_folders_are_read_in_sorted_order(folder: Path) -> None:
    data = load_image_folder(folder, PIPELINE)
    train, test = arrays(data.train), arrays(data.test)
    assert np.array_equal(train.images, np.stack([picture(i) for i in range(4)]))
    assert train.labels.tolist() == [0, 0, 1, 1]
    assert np.array_equal(test.images[0], picture(4))
    assert test.labels.tolist() == [1]
    assert (data.name, data.class_names, data.image_size) == ("pets", ("cat", "dog"), (3, 8, 8))
    decoded = decode_folder(folder)
    assert decoded.train.paths == ("train/cat/a.png", "train/cat/deep/z.bmp", "train/dog/a.PNG", "train/dog/b.png")
    assert decoded.test.paths == ("val/dog/t.webp",)


def test_the_test_folder_goes_before_val(folder: Path) -> None:
    save(folder / "test" / "cat" / "t.png", picture(9))
    assert decode_folder(folder).test.paths == ("test/cat/t.png",)


def test_tiny_imagenet_takes_order_from_wnids_and_val_as_test(tiny: Path) -> None:
    data, decoded = load_image_folder(tiny, PIPELINE), decode_folder(tiny)
    assert data.class_names == ("ox", "goldfish, Carassius auratus")
    assert decoded.train.paths[:2] == ("train/n02/images/n02_0.JPEG", "train/n02/images/n02_1.JPEG")
    assert data.train.labels.tolist() == [0, 0, 1, 1]
    assert decoded.test.paths == tuple(f"val/images/val_{i}.JPEG" for i in (1, 0, 2))
    assert data.test.labels.tolist() == [0, 1, 1]
    assert np.array_equal(arrays(data.test).images[0], decode_image(tiny / "val/images/val_1.JPEG"))


def test_tiny_imagenet_without_words_names_classes_by_wnid(tiny: Path) -> None:
    (tiny / "words.txt").unlink()
    assert list_folder(tiny).class_names == ("n02", "n01")


def test_the_second_opening_decodes_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = decode_folder(folder, cache=tmp_path / "cache")
    monkeypatch.setattr(image_folder, "decode_image", lambda *_: pytest.fail("decoded again"))
    second = decode_folder(folder, cache=tmp_path / "cache")
    assert isinstance(second.train.images, np.memmap)
    assert not second.train.images.flags.writeable
    assert (second.train.digest, second.train.paths) == (first.train.digest, first.train.paths)
    assert second.train.digest == content_digest(np.array(second.train.images), second.train.labels, 2)
    manifest = json.loads((second.cache / "manifest.json").read_text())
    assert manifest["train"]["paths"] == list(first.train.paths)
    assert not (folder / ".regun-cache").exists()


@pytest.mark.parametrize("change", ["time", "name", "content", "removed", "added"])
def test_a_changed_folder_is_decoded_again(folder: Path, change: str) -> None:
    first = decode_folder(folder)
    path = folder / "train" / "dog" / "b.png"
    if change == "time":
        os.utime(path, ns=(1, 1))
    elif change == "name":
        path.rename(path.with_name("c.png"))
    elif change == "content":
        save(path, picture(77))
    elif change == "removed":
        path.unlink()
    else:
        save(path.with_name("c.png"), picture(78))
    second = decode_folder(folder)
    assert second.cache != first.cache
    assert (second.train.digest == first.train.digest) == (change in ("time", "name"))


def test_workers_and_progress_do_not_change_the_result(folder: Path, tmp_path: Path) -> None:
    for i in range(150):
        save(folder / "train" / "cat" / f"many{i:03}.png", picture(100 + i))
    seen: list[tuple[int, int]] = []
    one = decode_folder(folder, cache=tmp_path / "1", workers=1, on_progress=lambda d, t: seen.append((d, t)))
    three = decode_folder(folder, cache=tmp_path / "3", workers=3)
    assert one.train.digest == three.train.digest
    assert seen[-1] == (155, 155)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_an_interrupted_decoding_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(path: Path, size: int | None) -> np.ndarray:
        if path.name == "t.webp":
            raise KeyboardInterrupt
        return picture(0)

    with monkeypatch.context() as patch:
        patch.setattr(image_folder, "decode_image", decode)
        with pytest.raises(KeyboardInterrupt):
            decode_folder(folder)
    assert list((folder / ".regun-cache").iterdir()) == []
    assert np.array_equal(decode_folder(folder).train.images[3], picture(3))


def test_a_second_process_that_finished_first_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = decode_folder(folder).cache
    aside = shutil.move(entry, folder / "aside")
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        shutil.copytree(aside, target)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    assert decode_folder(folder).cache == entry


# -------------------------------------------------------------------------------------------------- single images


def test_grey_palette_and_transparent_images_become_rgb(tmp_path: Path) -> None:
    grey = picture(0)[:, :, 0]
    save(tmp_path / "grey.png", grey)
    assert np.array_equal(decode_image(tmp_path / "grey.png"), np.stack([grey] * 3, axis=2))
    rgba = np.dstack([picture(1), grey])
    save(tmp_path / "rgba.png", rgba)
    assert np.array_equal(decode_image(tmp_path / "rgba.png"), picture(1))
    few = picture(2) // 128 * 255
    palette = Image.fromarray(few).quantize(8)
    palette.save(tmp_path / "palette.png", transparency=bytes(range(8)))
    assert np.array_equal(decode_image(tmp_path / "palette.png"), np.asarray(palette.convert("RGB")))


@pytest.mark.parametrize(("width", "height"), [(12, 6), (6, 12), (3, 3), (6, 6), (7, 5)])
def test_image_size_resizes_the_shorter_side_and_cuts_the_centre(tmp_path: Path, width: int, height: int) -> None:
    save(tmp_path / "a.png", picture(0, width, height))
    got = decode_image(tmp_path / "a.png", 6)
    assert got.shape == (6, 6, 3)
    if (width, height) == (12, 6):
        assert np.array_equal(got, picture(0, 12, 6)[:, 3:9])
    if (width, height) == (6, 12):
        assert np.array_equal(got, picture(0, 6, 12)[3:9])


def test_image_size_admits_mixed_sizes_and_has_its_own_cache(folder: Path) -> None:
    plain = decode_folder(folder)
    resized = decode_folder(folder, image_size=4)
    assert resized.cache != plain.cache
    save(folder / "train" / "dog" / "wide.png", picture(5, 20, 9))
    assert decode_folder(folder, image_size=4).train.images.shape == (5, 4, 4, 3)


# ------------------------------------------------------------------------------------------------------ bad input


def break_folder(root: Path, how: str) -> None:
    dog = root / "train" / "dog"
    if how == "zero bytes":
        (dog / "b.png").write_bytes(b"")
    elif how == "cut":
        (dog / "b.png").write_bytes((dog / "b.png").read_bytes()[:100])
    elif how == "no image":
        (dog / "b.png").write_text("hello")
    elif how == "16 bits":
        save(dog / "b.png", np.full((8, 8), 40000, dtype=np.uint16))
    elif how == "size":
        save(dog / "b.png", picture(0, 9, 8))
    elif how == "size in val":
        save(root / "val" / "dog" / "u.png", picture(0, 8, 7))
    elif how == "empty class":
        (root / "train" / "eel").mkdir()
    elif how == "empty class in val":
        (root / "val" / "cat").mkdir()
    elif how == "strange class":
        save(root / "val" / "eel" / "a.png", picture(0))
    elif how == "no val":
        shutil.rmtree(root / "val")
    elif how == "nothing in val":
        shutil.rmtree(root / "val" / "dog")
    elif how == "nothing in train":
        shutil.rmtree(root / "train")
        (root / "train").mkdir()
    elif how == "no train":
        shutil.rmtree(root / "train")
    elif how == "cache is a file":
        (root / ".regun-cache").touch()


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("zero bytes", "dog/b.png 0"),
        ("cut", "dog/b.png 100"),
        ("no image", "dog/b.png 5"),
        ("16 bits", "dog/b.png 8"),
        ("size", "dog/b.png 9x8 8x8 image_size"),
        ("size in val", "dog/u.png 8x7 8x8 image_size"),
        ("empty class", "train/eel .png"),
        ("empty class in val", "val/cat .png"),
        ("strange class", "val/eel train"),
        ("no val", "train test val"),
        ("nothing in val", "val <class>/<images>"),
        ("nothing in train", "train <class>/<images>"),
        ("no train", "val train/<class>/<images>"),
        ("cache is a file", ".regun-cache cache"),
    ],
)
def test_a_folder_that_cannot_be_used_says_why(folder: Path, how: str, text: str) -> None:
    break_folder(folder, how)
    with error(DataError, *text.split()):
        load_image_folder(folder, PIPELINE)
    cache = folder / ".regun-cache"
    assert not cache.is_dir() or list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "content", "text"),
    [
        ("val/val_annotations.txt", "val_0.JPEG\tn99\t0", "1 'n99' wnids.txt"),
        ("val/val_annotations.txt", "val_0.JPEG", "entry 1: the class '' is not in wnids"),
        (
            "val/val_annotations.txt",
            "val_0.JPEG\tn01\nval_7.JPEG\tn01",
            "2 val/images/val_7.JPEG",
        ),
        ("val/val_annotations.txt", "val_0.JPEG\tn01\nval_0.JPEG\tn02", "2 val/images/val_0.JPEG"),
        ("val/val_annotations.txt", "\n", "val_annotations.txt"),
        ("val/val_annotations.txt", None, "val_annotations.txt"),
        ("wnids.txt", "n01\n", "wnids.txt n02"),
        ("wnids.txt", "n01\nn02\nn01\n", "wnids.txt twice"),
        ("wnids.txt", "n01\nn02\nn03\n", "train/n03"),
    ],
)
def test_tiny_imagenet_tables_that_disagree_are_refused(tiny: Path, file: str, content: str | None, text: str) -> None:
    (tiny / file).unlink()
    if content is not None:
        (tiny / file).write_text(content)
    with error(DataError, *text.split()):
        decode_folder(tiny)


def test_a_missing_root_is_named(tmp_path: Path) -> None:
    with error(DataError, tmp_path / "absent"):
        decode_folder(tmp_path / "absent")


@pytest.mark.parametrize("options", [{"image_size": 0}, {"workers": 0}])
def test_sizes_and_workers_start_at_one(folder: Path, options: dict[str, int]) -> None:
    with error(DataError, *options, 0, 1):
        decode_folder(folder, **options)


@pytest.mark.parametrize("file", ["manifest.json", "train.npy"])
def test_a_damaged_cache_says_what_to_delete(folder: Path, file: str) -> None:
    damaged = decode_folder(folder).cache / file
    damaged.write_bytes(damaged.read_bytes()[:150])
    with error(DataError, damaged.parent):
        decode_folder(folder)


def test_without_pillow_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with error(DataError, "Pillow", "images"):
        decode_folder(folder)


def test_a_large_folder_is_decoded_for_every_batch_into_the_same_images(folder: Path, tmp_path: Path) -> None:
    whole = load_image_folder(folder, PIPELINE, cache=tmp_path / "a")
    lazy = load_image_folder(folder, PIPELINE, cache=tmp_path / "b", limit=100, workers=2)
    assert not list((tmp_path / "b").rglob("*.npy"))
    assert (lazy.image_size, lazy.class_names, lazy.name) == (whole.image_size, whole.class_names, whole.name)
    plan = [np.array([3, 0]), np.array([1]), np.array([2, 2])]
    for mine, theirs in ((lazy.train, whole.train), (lazy.test, whole.test)):
        assert np.array_equal(mine.labels, theirs.labels)
        assert mine.fetch(np.array([0])).x.equal(theirs.fetch(np.array([0])).x)
    for one, other in zip(lazy.train.stream(plan), whole.train.stream(plan), strict=True):
        assert one.x.equal(other.x)
        assert one.y.equal(other.y)
        assert one.indices.equal(other.indices)
    chosen = lazy.train.select(np.array([2, 1]))
    assert chosen.fetch(np.array([0])).x.equal(whole.train.fetch(np.array([2])).x)


def test_the_digest_of_a_large_folder_follows_its_files(folder: Path, tmp_path: Path) -> None:
    def digests(cache: str) -> tuple[str, str]:
        data = load_image_folder(folder, PIPELINE, cache=tmp_path / cache, limit=0)
        return data.train.digest, data.test.digest

    before = digests("a")
    os.utime(folder / "train" / "dog" / "b.png", (1, 1))  # another time, the same content
    assert digests("a") == digests("b") == before
    save(folder / "train" / "dog" / "b.png", picture(9))
    assert digests("a")[0] != before[0]
    assert digests("a")[1] == before[1]


def test_an_image_of_another_size_is_named_when_it_is_decoded(folder: Path) -> None:
    save(folder / "train" / "dog" / "b.png", picture(3, width=9))
    data = load_image_folder(folder, PIPELINE, limit=0)
    with error(DataError, "b.png", "9x8", "8x8", "image_size"):
        list(data.train.stream([np.array([3])]))
