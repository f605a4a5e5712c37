"""Studies as data: what a file may say, and that every mistake in it is named at once."""

import json
from pathlib import Path

import pytest

from expect import assert_names, error
from mini import MINI, study
from regun.artifacts.setup import unlearning_pipeline
from regun.errors import RegunError, SettingsError
from regun.experiments.study.parse import builtin_names, parse_study, read_study
from regun.experiments.study.resolved import as_comments, resolved
from regun.experiments.study.spec import UPDATES_OF_BASE, Study, merged
from regun.training.job import Budget

PAPER = ("resnet18-cifar10", "resnet18-cifar100", "swin-t-tiny-imagenet", "resnet18-tiny-imagenet")
SMALL = (
    "resnet18-cifar10-small",
    "resnet18-cifar100-small",
    "swin-tiny-imagenet-small",
    "resnet18-tiny-imagenet-small",
)


@pytest.mark.parametrize("name", [*PAPER, *SMALL, "digits", "digits-all"])
def test_built_in_studies_are_there_and_sound(name: str) -> None:
    found = read_study(name)
    assert found.name == name
    assert found.title
    assert found.references == 4


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_studies_are_the_papers(name: str) -> None:
    found = read_study(name)
    assert found.forget == ("0.01", "0.1", "0.5")
    assert len(found.seeds) == 3
    assert found.budget_value is None
    base = {"regun", "finetune", "neggrad", "neggrad_plus", "l1_sparse", "ssd", "salun", "amun", "scrub"}
    names = {text.partition("@")[0] for text in found.methods}
    assert names == (base if name.startswith("swin") else base | {"lur"})
    assert found.recipe_value.epochs == (200 if name.startswith("swin") else 100)
    method, config = found.resolve("regun", "0.1")
    assert (config.epochs, config.batch_size) == (20 if name.startswith("swin") else 10, 128)
    assert found.setup(0, "DIR").pipeline == ("swin" if name.startswith("swin") else "resnet")
    assert unlearning_pipeline(found.setup(0, "DIR").pipeline) == (
        "swin-unlearn" if name.startswith("swin") else "resnet"
    )


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_studies_unlearn_as_the_text_says_and_tune_on_a_seed_they_do_not_report(name: str) -> None:
    found = read_study(name)
    recipe, (_, config) = found.recipe_value, found.resolve("regun", "0.1")
    for setting in UPDATES_OF_BASE:
        assert getattr(config, setting) == getattr(recipe, setting), setting
    assert config.lr != recipe.lr
    assert config.warmup_epochs == 0
    assert found.tuned_on not in found.seeds


def test_updates_of_the_base_are_under_what_the_study_says_and_leave_a_methods_own_alone() -> None:
    methods = ("regun,schedule=steps", "scrub", "regun@teacher", "ssd")
    block = {"0.1": {"regun": {"nesterov": False}}}
    found = study(updates="base", recipe="digits,weight_decay=0.01", methods=methods, settings=block)
    config = found.resolve("regun,schedule=steps", "0.1")[1]
    assert (config.weight_decay, config.nesterov, config.schedule) == (0.01, False, "steps")
    scrub = found.resolve("scrub", "0.1")[1]
    assert (scrub.schedule, scrub.nesterov) == ("steps", True)
    teacher = found.resolve("regun@teacher", "0.1")[1]  # whose preset has its own
    assert (teacher.weight_decay, teacher.schedule) == (5e-4, "cosine")
    assert found.resolve("ssd", "0.1")[1] == study().resolve("ssd", "0.1")[1]
    assert study(methods=("finetune",)).resolve("finetune", "0.1")[1].weight_decay == 0


def test_settings_are_searched_on_a_seed_that_is_not_reported_unless_the_study_says_so() -> None:
    assert study(seeds=(0, 1)).tuned_on == 100
    assert study(seeds=(100, 101, 3)).tuned_on == 102
    assert study(seeds=(0, 1), tune_seed=1).tuned_on == 1


@pytest.mark.parametrize("name", [*PAPER, *SMALL, "digits", "digits-all"])
def test_what_a_study_stands_for_may_follow_its_file(name: str) -> None:
    found = read_study(name)
    told = as_comments(found)
    assert all(line.startswith("#") for line in told.splitlines())
    for part in (f"epochs={found.recipe_value.epochs}", found.setup(0, "DIR").pipeline, *found.rows):
        assert part in told
    values = resolved(found)
    assert set(values["methods"]) == set(found.rows)
    assert values["methods"]["ssd"]["0.1"]["alpha"] == found.resolve("ssd", "0.1")[1].alpha
    json.dumps(values)


def test_settings_may_differ_by_request() -> None:
    found = read_study("resnet18-cifar100")
    assert found.resolve("lur@cifar100", "0.1")[1].sparsity == 0.99
    assert found.resolve("lur@cifar100", "0.5")[1].sparsity == 0.9


def test_what_the_method_text_says_wins_over_a_block_and_tuned_values_over_both() -> None:
    text = "regun,lr=0.1"
    found = study(settings={"0.1": {"regun": {"lr": 0.2, "w": 0.3}}}, methods=(text,))
    assert (found.resolve(text, "0.1")[1].lr, found.resolve(text, "0.1")[1].w) == (0.1, 0.3)
    assert found.resolve(text, "0.1", {"w": 0.7})[1].w == 0.7
    assert found.resolve(text, "0.2")[1].w == 0.5


def test_a_study_survives_its_way_to_another_process() -> None:
    found = study(settings={"0.1": {"regun": {"lr": 0.2}}}, titles={"ssd": "Dampening"})
    assert Study.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_rows_have_unique_names_and_telling_titles() -> None:
    found = study(methods=("regun,w=0.1", "regun,w=0.9", "regun@wide_retain", "ssd"), titles={"ssd": "Dampening"})
    assert list(found.rows) == ["regun,w=0.1", "regun,w=0.9", "regun@wide_retain", "ssd"]
    titles = [found.title_of(name) for name in found.rows]
    assert titles == ["ReGUn (w=0.1)", "ReGUn (w=0.9)", "ReGUn (wide_retain)", "Dampening"]


def test_files_are_found_from_the_studys_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        '"""Nothing."""\nfrom dataclasses import dataclass\nTITLE = "Mine"\n@dataclass(frozen=True)\nclass Config:\n'
        "    strength: float = 1.0\ndef unlearn(job, config):\n    return None\n"
    )
    (tmp_path / "tuned.toml").write_text(
        '[settings."0.1".regun]\nlr = 0.25\n[settings."0.1"."mine.py"]\nstrength = 2.0\n'
    )
    text = MINI.replace('"ssd"]', '"mine.py"]\nsettings_from = "tuned.toml"')
    text += '[settings."0.1".regun]\nw = 0.9\n'
    found = parse_study(text, "s.toml", tmp_path)
    assert found.resolve("mine.py", "0.1")[1].strength == 2.0
    assert found.title_of("mine.py") == "Mine"
    config = found.resolve(found.methods[0], "0.1")[1]
    assert (config.lr, config.w) == (0.25, 0.9)


def test_blocks_merge_setting_by_setting() -> None:
    under = {"a": {"m": {"x": 1, "y": 2}}, "b": {"n": {"z": 3}}}
    over = {"a": {"m": {"y": 5}, "k": {"q": 7}}}
    assert merged(under, over) == {"a": {"m": {"x": 1, "y": 5}, "k": {"q": 7}}, "b": {"n": {"z": 3}}}


def test_every_mistake_is_named_at_once() -> None:
    text = """
    data = "cifar11"
    model = "resnet19"
    recipe = "digits,epochs=-1"
    forget = [0.1, 0.1, "sometimes"]
    seeds = []
    methods = ["regun,w=2", "regan", "ssd"]
    references = -1
    budget = "hours=3"
    [settings."0.1".finetune]
    lr = 1.0
    [titles]
    nobody = "x"
    """
    with pytest.raises(SettingsError) as caught:
        parse_study(text, "bad.toml", Path.cwd())
    assert "references" in str(caught.value)  # bounds of plain values first: the rest cannot be trusted yet
    with pytest.raises(SettingsError) as caught:
        parse_study(text.replace("references = -1", ""), "bad.toml", Path.cwd())
    said = "\n".join(caught.value.problems)
    assert_names(said, "cifar11", "resnet19", "epochs", "'0.1'", "sometimes", "study.seeds", "w", "regan", "hours=3")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("seeds = 3", ["study.seeds", 3]),
        ("unranked = 3", ["study.unranked", 3]),
        ("colour = 1", ["colour"]),
        ("titles = 3", ["study.titles", 3]),
        ("settings = 3", ["settings"]),
        ('[settings]\n"0.1" = 3', ["0.1"]),
        ("tune = {trials = 0}", ["trials", 0, 1]),
        ('tune = {objective = "luck"}', ["luck", "gap", "reference"]),
        ('tune = {objective = "gap"}\nreferences = 0', ["study.tune", "references"]),
        ("seeds = [-1]", ["study.seeds", -1, 1000]),
        ("seeds = [1001]", ["study.seeds", 1001, 1000]),
        ('name = "../up"', ["study.name", "../up"]),
        ('name = ".."', ["study.name", ".."]),
        ("forget = [0.1, '0.10']", ["study.forget", "'0.1'", "'0.10'"]),
        ("titles = {regun = 3}", ["study.titles.regun", 3]),
        ("tune = {trials = 3}\nval = 0.0", ["study.tune", "val"]),
        ('tune = {objective = "reference"}\nval = 0.0\nheldout = 0.0', ["study.tune", "val", "heldout"]),
        ('[settings."0.10".regun]\nlr = 0.1', ["0.10", "regun"]),
        ('unranked = ["nobody"]', ["nobody"]),
        ('tune = { trials = 2 }\nuntuned = ["ssd"]', ["study.untuned", "ssd", "regun"]),
        ('untuned = ["regun"]', ["study.untuned", "study.tune"]),
        ('unranked = ["ssd", "ssd"]', ["study.unranked", "'ssd'"]),
        ("beside = []", ["beside"]),
        ("data = digits", ["TOML"]),
    ],
)
def test_bad_values_name_the_key_and_what_is_allowed(text: str, names: list[object]) -> None:
    with error(RegunError, *names):
        parse_study(text, "s.toml", Path.cwd())


def test_one_forget_request_needs_no_list() -> None:
    assert parse_study('forget = "0.1"', "s.toml", Path.cwd()).forget == ("0.1",)


@pytest.mark.parametrize("unranked", ["regun,lr=0.1", "regun, lr=0.1"])
def test_a_method_is_either_ranked_or_unranked(unranked: str) -> None:
    with error(SettingsError, "study.unranked", "regun", "study.methods"):
        parse_study(f'methods = ["ssd", "regun,lr=0.1"]\nunranked = ["{unranked}"]', "s.toml", Path.cwd())


def test_a_setting_that_the_methods_text_overrules_is_refused_unless_another_row_takes_it(tmp_path: Path) -> None:
    block = '[settings."0.1".regun]\nepochs = 4\nlr = 0.02'
    with error(SettingsError, "settings.'0.1'.regun.epochs", 4, "'regun,epochs=10'"):
        parse_study(f'methods = ["regun,epochs=10"]\n{block}', "s.toml", tmp_path)
    both = parse_study(f'methods = ["regun", "regun,epochs=10"]\n{block}', "s.toml", tmp_path)
    assert [both.resolve(text, "0.1")[1].epochs for text in both.methods] == [4, 10]
    same = parse_study(f'methods = ["regun,epochs=4"]\n{block}', "s.toml", tmp_path)
    assert same.resolve("regun,epochs=4", "0.1")[1].lr == 0.02
    (tmp_path / "found.toml").write_text(block)
    own = parse_study('methods = ["regun,epochs=10"]\nsettings_from = "found.toml"', "s.toml", tmp_path)
    assert own.resolve("regun,epochs=10", "0.1")[1].epochs == 10, "a file's settings give way to the study's own text"


def test_an_unknown_study_names_those_there_are(tmp_path: Path) -> None:
    with error(SettingsError, "resnet18-cifar11", "resnet18-cifar10"):
        read_study("resnet18-cifar11")
    with error(RegunError, tmp_path / "none.toml"):
        read_study(str(tmp_path / "none.toml"))


def test_budget_and_split() -> None:
    assert study(budget="steps=90").budget_value == Budget(steps=90)
    assert [study().split_of(s) for s in (0, 1)] == [0, 1]
    assert [study(split_seed=7).split_of(s) for s in (0, 1)] == [7, 7]
    assert builtin_names() == sorted([*PAPER, *SMALL, "digits", "digits-all"])


def test_a_settings_file_for_more_than_the_study_is_fine_and_one_for_nothing_of_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "tuned.toml").write_text('[settings."0.1".regun]\nlr = 0.25\n[settings."0.1".salun]\nlr = 0.5\n')
    found = parse_study('settings_from = "tuned.toml"\nmethods = ["regun"]', "s.toml", tmp_path)
    assert found.settings == {"0.1": {"regun": {"lr": 0.25}}}
    with error(SettingsError, "tuned.toml", "regun/salun"):
        parse_study('settings_from = "tuned.toml"\nmethods = ["ssd"]', "s.toml", tmp_path)


def test_files_of_ids_are_found_from_the_studys_folder(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("3\n5\n")
    found = parse_study('forget = ["ids:ids.txt"]', "s.toml", tmp_path)
    assert found.requests["ids:ids.txt"].ids == (3, 5)


def test_unranked_methods_are_rows_too_and_a_short_retraining_is_no_second_truth() -> None:
    text = 'methods = ["regun"]\nunranked = ["retrain,epochs=3", "scrub"]'
    rows = parse_study(text, "s.toml", Path.cwd()).rows
    assert {row.text: row.unranked for row in rows.values()} == {
        "regun": False,
        "retrain,epochs=3": True,
        "scrub": True,
    }
    assert "retrain" not in rows
