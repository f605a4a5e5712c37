"""A data set of the user's own: one file, one function, from Python as from text."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import regun
from expect import assert_names, error
from regun import rng
from regun.artifacts.setup import Setup, default_model, default_pipeline, read_data, unlearning_pipeline
from regun.data import ArrayExamples, Data, Examples, TensorExamples
from regun.data.augment import Flip
from regun.data.dataset import DatasetExamples
from regun.data.pipelines import IMAGENET, PIPELINES, with_pipeline
from regun.data.registry import DATA_SETS, DataSpec, data_help, data_set, get_pipeline, load_data, takes_root
from regun.data.views import Selected
from regun.errors import DataError, RegunError, SettingsError
from regun.settings import parse_spec

TEXT = """
import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from regun.data import ArrayExamples, Batch, Data, Examples, InputPipeline, TensorExamples

NUMBER = 3


def pairs(n: int = 60, classes: int = 3, shift: float = 0.0):
    x = torch.arange(n * 2).float().reshape(n, 2) + shift
    y = torch.arange(n) % classes
    return (x[: n // 2], y[: n // 2]), (x[n // 2 :], y[n // 2 :])


class Invert:
    def __call__(self, images, generator):
        return 255 - images

    def describe(self):
        return {"transform": "Invert"}


def pixels(n=40):
    draw = np.random.default_rng(0)
    pipeline = InputPipeline("mine", (0.1, 0.2, 0.3), (0.5, 0.6, 0.7), train=(Invert(),))
    parts = [ArrayExamples(draw.integers(0, 256, (n, 8, 8, 3), np.uint8), np.arange(n) % 4, 4, pipeline) for _ in "ab"]
    return Data("ignored", *parts, (3, 8, 8), tuple("abcd"))


class Items(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, i):
        return torch.full((3,), float(i)), i % 5


def items():
    return Items(), Items()


class Squares(Examples):
    def __init__(self, n):
        self.labels, self.num_classes = np.arange(n) % 2, 2

    def fetch(self, indices, *, augment=False, generator=None, device="cpu"):
        x = torch.tensor(indices).float()[:, None] ** 2
        if augment:
            x = x + torch.rand(x.shape, generator=generator)
        return Batch(x, torch.tensor(self.labels[indices]), torch.tensor(indices))


def squares(n: int = 10):
    return Squares(n), Squares(n)


def drawn():
    x = torch.rand(20, 2)
    return (x, torch.arange(20) % 2), (x, np.random.randint(0, 2, 20))


def filed(root: Path, part: str = "x"):
    assert isinstance(root, Path), type(root)
    value = float((root / part).read_text())
    return ((torch.full((4, 1), value), [0, 1, 0, 1]),) * 2


def leaves():
    sys.exit(0)


def fails():
    raise ValueError("no such shelf")


def nothing():
    return {"train": 1}


def wrong_part():
    return 3, 4


def unequal():
    return TensorExamples(torch.zeros(2, 1), np.array([0, 1]), 2), TensorExamples(torch.zeros(2, 1), np.array([0, 1]), 3)


def beyond():
    return TensorExamples(torch.zeros(2, 1), np.array([0, 1]), 2), (torch.zeros(2, 1), [0, 2])


class Bare:
    labels, num_classes = np.array([0, 1]), 2

    def fetch(self, *args, **more): ...

    def stream(self, *args, **more): ...


def bare():
    return Bare(), Bare()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_data.py"
    path.write_text(TEXT)
    return path


def load(text: str, preset: str = "own", folder: Path | None = None) -> Data:
    name, values = parse_spec(text)
    return load_data(DataSpec.read(name, values, folder), preset)


def test_a_pair_of_tensors_with_settings_read_by_the_signature(file: Path) -> None:
    data = load(f"{file}:pairs,n=40,shift=0.5")
    assert (len(data.train), len(data.test), data.train.num_classes, data.image_size) == (20, 20, 3, None)
    assert isinstance(data.train, TensorExamples)
    assert data.test.fetch(np.array([0])).x.tolist() == [[40.5, 41.5]]
    assert data.name == f"{file}:pairs"


def test_the_content_names_it(file: Path) -> None:
    once, again, other = (load(f"{file}:pairs,n={n}") for n in (40, 40, 42))
    assert once.train.digest == again.train.digest != other.train.digest
    moved = file.with_name("moved.py")
    file.rename(moved)
    assert load(f"{moved}:pairs,n=40").train.digest == once.train.digest


def test_what_it_draws_is_the_same_every_time_and_leaves_the_caller_alone(file: Path) -> None:
    before = torch.get_rng_state()
    one, two = load(f"{file}:drawn"), load(f"{file}:drawn")
    assert torch.equal(before, torch.get_rng_state())
    assert (one.train.digest, one.test.digest) == (two.train.digest, two.test.digest)


def test_a_dataset_s_classes_are_counted_and_its_labels_looked_for_once(file: Path) -> None:
    data = load(f"{file}:items")
    assert isinstance(data.train, DatasetExamples)
    assert data.train.num_classes == 5
    assert data.train.item_labels is not None
    assert data.train.labels.tolist() == [i % 5 for i in range(20)]


def test_examples_of_one_s_own_need_labels_classes_and_fetch_alone(file: Path) -> None:
    train = load(f"{file}:squares,n=9").train
    assert isinstance(train, Examples)
    plan = [np.array([3, 1]), np.array([8])]
    first, second = train.stream(plan)
    assert (first.x[:, 0].tolist(), second.x[:, 0].tolist()) == ([9.0, 1.0], [64.0])
    later = list(train.stream(plan[1:], augment=True, seed=4, first=1))
    assert torch.equal(later[0].x, list(train.stream(plan, augment=True, seed=4))[1].x)
    assert torch.equal(later[0].x, train.fetch(plan[1], augment=True, generator=rng.generator(4, 1)).x)
    assert not torch.equal(later[0].x, second.x)
    assert train.digest == load(f"{file}:squares,n=9").train.digest != load(f"{file}:squares,n=8").train.digest
    assert train.describe_inputs()["kind"] == "Squares"
    with pytest.raises(TypeError, match="abstract"):
        Examples()  # type: ignore[abstract]


@pytest.mark.parametrize("function", ["pairs", "pixels", "items", "squares,n=30"])
def test_limits_work_for_every_data_set(function: str, file: Path) -> None:
    whole = load(f"{file}:{function}")
    some, again = (load(f"{file}:{function},limit=8,test_limit=5") for _ in "ab")
    assert (len(some.train.labels), len(some.test.labels)) == (8, 5)
    assert some.train.digest == again.train.digest != whole.train.digest
    rows = np.arange(8)
    assert torch.equal(some.train.fetch(rows).x, again.train.fetch(rows).x)
    assert isinstance(some.train, Selected) != isinstance(whole.train, ArrayExamples)
    with error(DataError, "data.limit", 999):
        load(f"{file}:{function},limit=999")


def test_its_own_pipeline_is_used_unless_another_is_named_for_its_images(file: Path) -> None:
    own = load(f"{file}:pixels")
    assert (own.train.pipeline.name, own.class_names, own.image_size) == ("own", tuple("abcd"), (3, 8, 8))
    assert [type(t).__name__ for t in own.train.pipeline.train] == ["Invert"]
    named = load(f"{file}:pixels", "resnet-code")
    assert named.train.pipeline.train[1] == Flip(0.5)
    assert (named.train.pipeline.mean, named.test.pipeline.std) == ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    assert named.train.digest == own.train.digest
    large = load(f"{file}:pixels", "swin")
    assert (large.train.pipeline.mean, large.train.pipeline.std) == IMAGENET
    for data in (named, large):  # and back again, its own constants not forgotten
        assert with_pipeline(data, "own").train.describe_inputs() == own.train.describe_inputs()
        assert with_pipeline(data, "resnet").train.pipeline.mean == (0.1, 0.2, 0.3)
    with error(DataError, "'resnet'", "TensorExamples", "ArrayExamples"):
        load(f"{file}:pairs", "resnet")


def test_a_file_of_a_study_is_found_beside_it_and_remembered_whole(file: Path, tmp_path: Path) -> None:
    spec = DataSpec.read("my_data.py:pairs", {"n": "30", "limit": "12"}, tmp_path)
    assert spec.name == f"{file}:pairs"
    assert json.loads(json.dumps(spec.to_json())) == {"n": 30, "limit": 12}
    assert DataSpec.read(spec.name, spec.to_json()) == spec
    assert DataSpec.read("digits", DataSpec("digits").to_json()) == DataSpec("digits")
    assert read_data("my_data.py:pairs,n=30,limit=12", folder=tmp_path) == spec
    assert len(load_data(spec, "own").train) == 12


def test_a_function_of_a_module_on_the_path_works(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.rename(file.with_name("my_own_sets.py"))
    monkeypatch.syspath_prepend(str(file.parent))
    assert len(load("my_own_sets:pairs,n=8").train) == 4


def test_a_folder_is_handed_to_a_function_that_takes_one(file: Path, tmp_path: Path) -> None:
    for folder, value in (("one", "1.5"), ("two", "2.5")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_text(value)
    assert takes_root("my_data.py:filed", tmp_path)
    assert [takes_root(name) for name in (f"{file}:pairs", f"{file}:none", "none:of_it", "digits", "folder", "")] == [
        *[False] * 4,
        True,
        False,
    ]
    spec = read_data(f"{file}:filed", str(tmp_path / "one"))
    assert load_data(spec, "own").train.fetch(np.array([0])).x.item() == 1.5
    assert spec.to_json() == {"root": str(tmp_path / "one")}
    below = spec.below(str(tmp_path / "two"))
    assert load_data(below, "own").train.fetch(np.array([0])).x.item() == 2.5
    assert DataSpec.read(f"{file}:filed", {"root": tmp_path / "one"}).to_json() == spec.to_json()
    assert spec.below(None) is spec
    assert read_data(f"{file}:pairs", str(tmp_path)).to_json() == {}


@pytest.mark.parametrize(
    ("function", "names"),
    [
        ("leaves", "leaves SystemExit"),
        ("fails", "fails ValueError shelf"),
        ("nothing", "nothing dict regun.data.Data (train"),
        ("wrong_part", "train {file}:wrong_part int Dataset DataLoader"),
        ("unequal", "unequal [2 3] train test"),
        ("beyond", "labels[1] 2 0 1"),
        ("bare", "Bare regun.data.Examples"),
        ("pears", "{file} 'pears' 'pairs'"),
        ("NUMBER", "NUMBER int function"),
        ("pairs,m=3", "{file}:pairs 'm'"),
        ("filed", "'root'"),
    ],
)
def test_mistakes_are_named(function: str, names: str, file: Path) -> None:
    with error(RegunError, *names.format(file=file).split()):
        load(f"{file}:{function}")


def test_all_wrong_settings_are_reported_at_once(file: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(f"{file}:pairs,n=many,limit=0,sift=1")
    assert len(caught.value.problems) == 3
    assert_names(str(caught.value), "n", "'many'", "data.limit", 0, 1, "'sift'", "'shift'")


@pytest.mark.parametrize("body", ["import sys\nsys.exit(0)", "raise SystemExit"])
def test_a_file_that_leaves_python_is_no_success(body: str, tmp_path: Path) -> None:
    (tmp_path / "leaver.py").write_text(body)
    with error(RegunError, "leaver.py", "SystemExit"):
        load(f"{tmp_path / 'leaver.py'}:load")


def test_a_dataset_whose_item_leaves_python_is_no_success(tmp_path: Path) -> None:
    text = "import sys\nclass Items:\n    targets = [0, 1]\n    def __len__(self): return 2\n"
    (tmp_path / "items.py").write_text(
        text + "    def __getitem__(self, i): sys.exit(0)\ndef load(): return Items(), Items()\n"
    )
    with error(DataError, "item", 0, "SystemExit"):
        load(f"{tmp_path / 'items.py'}:load").train.fetch(np.array([0]))


def test_a_data_set_that_a_store_names_is_run_only_if_it_is_named_too(file: Path) -> None:
    about = {"data_name": f"{file}:leaves", "data_settings": {}, "pipeline": "own", "split": {"seed": 0}}
    model = {"model": {"name": "cnn", "settings": {}}}
    file.write_text("import sys\nsys.exit('was run')")
    with error(RegunError, f"{file}:leaves", "--data"):
        Setup.of(SimpleNamespace(info=about, inputs=model, trusted=()))
    file.write_text(TEXT)
    found = Setup.of(SimpleNamespace(info=about, inputs=model, trusted=(f"{file}:leaves",)))
    assert found.data.name == f"{file}:leaves"


# ------------------------------------------------------------------------------------------------------------ records


def test_every_data_set_is_one_record_with_what_goes_with_it() -> None:
    assert all(name == record.name and record.about for name, record in DATA_SETS.items())
    assert list(data_help()) == [*DATA_SETS, "module:function"]
    assert {record.pipeline for record in DATA_SETS.values()} - {None} <= set(PIPELINES)
    assert [default_model(name) for name in (*DATA_SETS, "any.py:load", "")] == [
        "cnn", "resnet18", "resnet18", "resnet18", "swin-t", "resnet18", "resnet18", "resnet18",
    ]  # fmt: skip
    assert data_set("any.py:load").pipeline == "own"
    with error(SettingsError, "'cifar'", "cifar10", "module:function"):
        data_set("cifar")


def test_a_data_set_settles_the_pipeline_before_the_model_does() -> None:
    assert [default_pipeline("swin-t", data) for data in ("digits", "cifar10", "x.py:load")] == [
        "digits",
        "swin",
        "own",
    ]
    assert {name: unlearning_pipeline(name) for name in PIPELINES if unlearning_pipeline(name) != name} == {
        "swin": "swin-unlearn",
        "swin-small": "resnet",
    }
    assert {p.unlearn_with for p in PIPELINES.values()} - {None} <= set(PIPELINES)
    assert unlearning_pipeline("gone") == "gone"
    assert get_pipeline("own", "cifar10").train == ()


@pytest.mark.parametrize(
    ("name", "values", "names"),
    [
        ("digits", {"root": "/x"}, "data.root '/x' digits cifar10 cifar100 tiny-imagenet folder"),
        ("digits", {"download": True}, "data.download True digits cifar10 cifar100"),
        ("cifar10", {"root": "/x", "image_size": 8}, "data.image_size 8 cifar10 tiny-imagenet folder"),
        ("folder", {"root": "/x", "download": True}, "data.download True folder"),
        ("folder", {}, "folder root=FOLDER data_dir REGUN_DATA"),
    ],
)
def test_settings_are_refused_where_they_would_be_ignored(name: str, values: dict, names: str) -> None:
    with error(SettingsError, *names.split()):
        DataSpec.read(name, values)


# --------------------------------------------------------------------------------------------------- code in the key

ASK = """
import json, sys
from pathlib import Path
import numpy as np, torch
import regun
from regun import hashing
from regun.data.registry import get_pipeline
from regun.data.tensors import TensorExamples
from regun.models import ModelSpec

def described():
    hashing._SOURCES |= {path: (hashing.ROOT / path).read_text() for path in hashing._SOURCES}
    for cached in (hashing.code_digest, hashing._module):
        cached.cache_clear()
    found = {name: get_pipeline(name, "cifar10").describe() for name in ("none", "resnet", "swin")}
    found["tensors"] = TensorExamples(torch.zeros(2, 1), np.array([0, 1]), 2).describe_inputs()
    return found | {name: ModelSpec(name).describe() for name in ("resnet18", "cnn", "vit")}

untouched, changed = described(), []
for file, old, new in json.loads(sys.argv[1]):
    path = Path(regun.__file__).parent / file
    text = path.read_text()
    assert old in text, (file, old)
    path.write_text(text.replace(old, new))
    changed.append([name for name, now in described().items() if now != untouched[name]])
    path.write_text(text)
print(json.dumps([str(path), changed]))
"""

EDITS = [  # file, old text, new text, whose descriptions change
    ("data/augment.py", "offsets = torch.randint(2 *", "offsets = torch.randint(3 *", ["resnet", "swin"]),
    ("data/randaugment.py", "0.3 * share", "0.2 * share", ["swin"]),
    ("data/arrays.py", "divisor = 255.0", "divisor = 256.0", ["none", "resnet", "swin"]),
    ("data/tensors.py", "len(tensor) !=", "len(tensor) <", ["tensors"]),
    ("models/resnet.py", "stride = 1 if stem", "stride = 2 if stem", ["resnet18"]),
    ("models/small.py", "2 if max(height, width)", "3 if max(height, width)", ["cnn"]),
    ("models/adapters.py", "output.logits", "output.logits * 2", ["vit"]),
    ("data/augment.py", "# only the CPU has", "# a comment says that only the CPU has", []),
    ("models/resnet.py", "# mean, not", "# another comment, not", []),
    ("models/resnet.py", '"""Two 3x3 convolutions', '"""Some convolutions', []),
]


def test_a_change_of_code_changes_the_descriptions_that_depend_on_it_and_a_comment_none(tmp_path: Path) -> None:
    package = shutil.copytree(Path(regun.__file__).parent, tmp_path / "regun")
    asked = [sys.executable, "-c", ASK, json.dumps([edit[:3] for edit in EDITS])]
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(asked, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    where, changed = json.loads(done.stdout)
    assert Path(where).is_relative_to(package)
    assert changed == [edit[3] for edit in EDITS]


def test_a_transform_of_one_s_own_is_known_by_its_file(file: Path) -> None:
    before = load(f"{file}:pixels").train.describe_inputs()
    file.write_text(TEXT.replace("255 - images", "254 - images"))
    after = load(f"{file}:pixels").train.describe_inputs()
    assert before["train"] != after["train"]
    assert {k: v for k, v in before.items() if k != "train"} == {k: v for k, v in after.items() if k != "train"}


def test_a_dataset_of_one_s_own_is_known_by_its_file(file: Path) -> None:
    before = load(f"{file}:items").train.describe_inputs()
    assert before["class"] == "Items"
    moved = file.with_name("moved.py")
    moved.write_text(TEXT)
    assert load(f"{moved}:items").train.describe_inputs() == before
    file.write_text(TEXT + "\n# anything\n")
    assert load(f"{file}:items").train.describe_inputs()["items"] != before["items"]
