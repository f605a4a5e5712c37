"""`ForgetSpec`: what each text means, and what cannot be read."""

from pathlib import Path

import pytest

from expect import error
from regun.errors import SplitError
from regun.forget_spec import ForgetSpec, split_forget_list


@pytest.mark.parametrize(
    ("text", "spec", "needs_model", "label"),
    [
        ("0.1", ForgetSpec.random(0.1), False, "10 %"),
        ("stratified:0.1", ForgetSpec.stratified(0.1), False, "stratified 0.1"),
        ("class:3/5", ForgetSpec("class", "class:3/5", classes=(3, 5)), False, "class 3/5"),
        (
            "class:3=0.5/1=0.1",
            ForgetSpec("class_fraction", "", classes=(3, 1), fractions=(0.5, 0.1)),
            False,
            "class 3=0.5/1=0.1",
        ),
        ("hard:0.1", ForgetSpec("hard", "", fraction=0.1), True, "hardest 10 %"),
        ("easy:1e-2", ForgetSpec("easy", "", fraction=0.01), True, "easiest 1 %"),
        ("like:17,50", ForgetSpec("like", "", example=17, count=50), True, "50 like example 17"),
        ("cluster:1/8", ForgetSpec("cluster", "", part=1, parts=8), True, "cluster 1 of 8"),
        ("subclass:3/2/4", ForgetSpec("subclass", "", classes=(3,), part=2, parts=4), True, "class 3, cluster 2 of 4"),
    ],
)
def test_each_text_means_one_spec(text: str, spec: ForgetSpec, needs_model: bool, label: str) -> None:
    parsed = ForgetSpec.parse(text)
    assert parsed == spec
    assert hash(parsed) == hash(spec)
    assert (parsed.text, parsed.needs_model, parsed.label) == (text, needs_model, label)


@pytest.mark.parametrize("spec", [ForgetSpec.random(0.1), ForgetSpec.stratified(0.25), ForgetSpec.parse("class:3/5")])
def test_the_text_of_a_built_spec_parses_to_the_same_spec(spec: ForgetSpec) -> None:
    assert ForgetSpec.parse(spec.text) == spec


def test_ids_are_read_from_the_folder_as_lines_or_json(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("3\n5 8\n")
    (tmp_path / "list.json").write_text("[3, 5, 8]")
    for file in ("lines.txt", "list.json"):
        spec = ForgetSpec.parse(f"ids:{file}", tmp_path)
        assert spec == ForgetSpec.of_ids([3, 5, 8])
        assert spec.text == f"ids:{file}"
    (tmp_path / "wrong.txt").write_text("3\nfive\n")
    with error(SplitError, tmp_path / "wrong.txt", "five"):
        ForgetSpec.parse("ids:wrong.txt", tmp_path)
    with error(SplitError, tmp_path / "nowhere.txt"):
        ForgetSpec.parse("ids:nowhere.txt", tmp_path)


@pytest.mark.parametrize(
    "text",
    ["hard:", "hard:x", "hard:0", "hard:1", "hard:nan", "easy:-0.1", "like:17", "like:17,0", "like:a,3", "cluster:0/3",
     "cluster:4/3", "cluster:3", "subclass:3/4", "subclass:3/0/4", "class:", "class:x", "class:3=0.1/3=0.2",
     "stratified:", "ten percent", "clas:3"],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(SplitError):
        ForgetSpec.parse(text)


def test_an_error_shows_how_to_write_it() -> None:
    with error(SplitError, "'like:17'", "like:17,50"):
        ForgetSpec.parse("like:17")
    with error(SplitError, "'clas'", "'class'", "subclass"):
        ForgetSpec.parse("clas:3")


def test_lists_of_specs_keep_the_comma_of_like() -> None:
    assert split_forget_list("0.1,like:17,50,class:3/4,hard:0.1") == ("0.1", "like:17,50", "class:3/4", "hard:0.1")
