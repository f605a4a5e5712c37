"""Settings: read from text and JSON, checked all at once, back to JSON without loss."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expect import assert_names, error
from regun.errors import RegunError, SettingsError
from regun.settings import bind, check, noun_of, parse_spec, read_json, read_toml, setting, to_json


@dataclass(frozen=True)
class Oven:
    """Settings of every kind."""

    degrees: float = setting(180.0, "how hot", low=0, high=300)
    minutes: int = setting(30, "how long", above=0)
    fan: bool = setting(False, "blow air around")
    mode: str = setting("bake", "what to do", choices=("bake", "grill"))
    trays: tuple[int, ...] = setting((), "which trays are used")
    timer: int | None = setting(None, "when to ring", low=1)
    label: str | None = setting(None, "what is in it")

    def __post_init__(self) -> None:
        check(self, "oven")


@dataclass(frozen=True)
class Config:
    size: int = setting(1, "a size")


@dataclass(frozen=True)
class Unchecked:
    """Limits that nobody but `bind` looks at; a default may be what nobody could give."""

    factor: float = setting(0.9, "what to multiply by", low=0, high=1)
    mode: str = setting("fast", "how", choices=("fast", "slow"))
    usual: float = setting(None, "found out if not given")
    free: int = -1


def problems_of(values: dict, base: Oven | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        bind(Oven, values, "oven", base)
    return caught.value.problems


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("degrees", "200", 200.0),
        ("degrees", "2e2", 200.0),
        ("minutes", "2.0", 2),
        ("minutes", "1e2", 100),
        ("minutes", 7.0, 7),
        ("minutes", "9007199254740993", 2**53 + 1),
        ("minutes", 2**60 + 1, 2**60 + 1),
        ("trays", "1/2/3", (1, 2, 3)),
        ("trays", [1, 2], (1, 2)),
        ("trays", "5", (5,)),
        ("timer", "none", None),
        ("timer", None, None),
        ("timer", "3", 3),
        ("label", "none", None),
        ("label", 12, "12"),
        *(("fan", word, True) for word in ("true", "True", "yes", "on", "1", True)),
        *(("fan", word, False) for word in ("false", "NO", "off", "0", False)),
    ],
)
def test_values_are_read_as_their_field_says(key: str, text: object, value: object) -> None:
    read = getattr(bind(Oven, {key: text}, "oven"), key)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("key", "value", "names"),
    [
        ("degrees", "hot", "oven.degrees 'hot' number"),
        ("degrees", "nan", "oven.degrees 'nan' finite"),
        ("degrees", "-inf", "oven.degrees '-inf' finite"),
        ("degrees", 10**400, "oven.degrees number"),
        ("degrees", True, "oven.degrees True number"),
        ("degrees", None, "oven.degrees None number"),
        ("degrees", "301", "oven.degrees 301.0 300"),
        ("degrees", "-1", "oven.degrees -1.0 0"),
        ("minutes", "2.5", "oven.minutes '2.5' whole"),
        ("minutes", "inf", "oven.minutes 'inf' number"),
        ("minutes", "nan", "oven.minutes 'nan' number"),
        ("minutes", "", "oven.minutes '' number"),
        ("minutes", False, "oven.minutes False whole"),
        ("minutes", [3], "oven.minutes [3] number"),
        ("minutes", "0", "oven.minutes 0"),
        ("minutes", "9" * 20, "oven.minutes 2**63"),
        ("minutes", 2**63, "oven.minutes 9223372036854775808 2**63"),
        ("minutes", "1e19", "oven.minutes '1e19' 2**63"),
        ("fan", "perhaps", "oven.fan 'perhaps' true false"),
        ("fan", 2, "oven.fan 2 true false"),
        ("mode", "Bake", "oven.mode 'Bake' bake grill"),
        ("trays", "1/x", "oven.trays '1/x' number"),
        ("trays", [1, 10**20], "oven.trays 2**63"),
        ("timer", "soon", "oven.timer 'soon' number"),
        ("timer", "0", "oven.timer 0 1"),
        ("degree", "1", "oven 'degree' 'degrees'"),
        ("zzzzzz", "1", "oven 'zzzzzz' degrees fan label minutes mode timer trays"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(key: str, value: object, names: str) -> None:
    (problem,) = problems_of({key: value})
    assert_names(problem, *names.split())


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"degrees": math.nan}, "oven.degrees nan"),
        ({"degrees": "hot"}, "oven.degrees 'hot' number"),
        ({"degrees": True}, "oven.degrees True number"),
        ({"minutes": 2.5}, "oven.minutes 2.5 whole"),
        ({"minutes": None}, "oven.minutes None"),
        ({"fan": 2}, "oven.fan 2 true false"),
        ({"timer": "soon"}, "oven.timer 'soon' whole"),
        ({"timer": 2.5}, "oven.timer 2.5 whole"),
        ({"label": 3}, "oven.label 3 text"),
        ({"trays": (2**63,)}, "oven.trays 2**63"),
    ],
)
def test_objects_made_in_code_are_checked_as_well(values: dict, names: str) -> None:
    with error(SettingsError, *names.split()) as caught:
        Oven(**values)
    assert len(caught.value.problems) == 1


def test_a_whole_number_will_do_for_a_number() -> None:
    assert Oven(degrees=200).degrees == 200


def test_every_fault_is_reported_at_once_in_the_order_given() -> None:
    problems = problems_of({"mode": "boil", "minuts": "1", "fan": "maybe", "degrees": "1000", "trays": "x"})
    starts = ["unknown setting of oven 'minuts'", "oven.fan", "oven.trays", "oven.degrees", "oven.mode"]
    assert [problem.startswith(start) for problem, start in zip(problems, starts, strict=True)] == [True] * 5
    assert str(SettingsError(problems)) == "\n".join(problems)


def test_limits_hold_for_a_class_that_does_not_check_itself() -> None:
    with pytest.raises(SettingsError) as caught:
        bind(Unchecked, {"factor": "-3", "mode": "odd", "free": "x"}, "mine.py")
    names = ["mine.py.free 'x' number", "mine.py.factor -3.0 0", "mine.py.mode 'odd' fast slow"]
    for problem, expected in zip(caught.value.problems, names, strict=True):
        assert_names(problem, *expected.split())
    with error(SettingsError, "mine.py.factor", 1):
        bind(Unchecked, {"factor": 2}, "mine.py", Unchecked())
    assert bind(Unchecked, {"factor": "1", "free": "-7"}, "mine.py") == Unchecked(1.0, free=-7)
    assert len(problems_of({"degrees": "301"})) == 1


def test_values_go_over_a_base_and_the_base_stays() -> None:
    base = Oven(degrees=90, fan=True)
    made = bind(Oven, {"degrees": "100"}, "oven", base)
    assert (made.degrees, made.fan) == (100.0, True)
    assert base.degrees == 90
    assert bind(Oven, {}, "oven") == Oven()
    (problem,) = problems_of({"degrees": "999"}, base)
    assert_names(problem, "oven.degrees", "999.0", 300)


def test_a_field_without_default_must_be_given() -> None:
    @dataclass(frozen=True)
    class Strict:
        size: int

    with error(SettingsError, "strict", "'size'"):
        bind(Strict, {}, "strict")


ovens = st.builds(
    Oven,
    degrees=st.floats(0, 300),
    minutes=st.integers(1, 2**63 - 1),
    fan=st.booleans(),
    mode=st.sampled_from(["bake", "grill"]),
    trays=st.lists(st.integers(1 - 2**63, 2**63 - 1), max_size=4).map(tuple),
    timer=st.none() | st.integers(1, 2**63 - 1),
    label=st.none() | st.text().filter(lambda text: text != "none"),
)


@given(ovens)
def test_json_and_back_is_the_same(oven: Oven) -> None:
    assert bind(Oven, to_json(oven), "oven") == oven


@given(ovens.filter(lambda oven: oven.trays))
def test_text_and_back_is_the_same(oven: Oven) -> None:
    values = {
        "degrees": repr(oven.degrees),
        "minutes": str(oven.minutes),
        "fan": str(oven.fan),
        "trays": "/".join(map(str, oven.trays)),
        "timer": str(oven.timer).lower(),
    }
    assert bind(Oven, values, "oven", oven) == oven


def test_what_cannot_be_stored_is_refused() -> None:
    @dataclass(frozen=True)
    class Free:
        size: float = setting(1.0, "any size")

    assert to_json(Free(2.0)) == {"size": 2.0}
    with error(SettingsError, "free", "inf"):
        to_json(Free(math.inf))


@pytest.mark.parametrize(("text", "name"), [("a = 1 b", "line"), ("a = 1\na = 2", "overwrite"), ("[a]\n[a]", "twice")])
def test_bad_toml_names_its_source(text: str, name: str) -> None:
    with error(RegunError, "study.toml", name):
        read_toml(text, "study.toml")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[1, 2", "line"),
        ("[" * 100_000, "recursion"),
        ('{"a": NaN}', "NaN"),
        (b"\xff\xfe\xfd", "decode"),
        ('{"ids": [1], "ids": [2]}', "'ids'"),
        ('[{"b": {"a": 1, "c": 2, "a": 1}}]', "'a'"),
    ],
)
def test_bad_json_names_its_source(text: str | bytes, name: str) -> None:
    with error(RegunError, "ids.json", name):
        read_json(text, "ids.json")


def test_good_toml_and_json_are_read() -> None:
    assert read_toml("a = 1\n[b]\nc = [2]", "x") == {"a": 1, "b": {"c": [2]}}
    assert read_json('{"a": [1, 2.5, null]}', "x") == {"a": [1, 2.5, None]}


def test_messages_name_a_config_by_its_file_and_others_by_their_class() -> None:
    assert noun_of(Oven()) == "oven"
    assert noun_of(Config()) == Config.__module__.rsplit(".", 1)[-1] == "test_settings"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("digits", ("digits", {})),
        ("cifar10,limit=3000,root=/a b/c", ("cifar10", {"limit": "3000", "root": "/a b/c"})),
        (" x , a = 1 , b=", ("x", {"a": "1", "b": ""})),
        ("x,formula=a=b", ("x", {"formula": "a=b"})),
        ("hf:owner/name,pretrained=true", ("hf:owner/name", {"pretrained": "true"})),
    ],
)
def test_a_spec_is_a_name_and_its_settings(text: str, parsed: tuple) -> None:
    assert parse_spec(text) == parsed


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "name,key=value,key=value"),
        ("lr=1", "['lr=1']"),
        ("x,lr", "['lr']"),
        ("x,", "['']"),
        ("x,=3", "['=3']"),
        ("x,lr=1,w=2,lr=3,w=2", "lr w once"),
    ],
)
def test_a_bad_spec_names_what_is_wrong(text: str, names: str) -> None:
    with error(SettingsError, *names.split()):
        parse_spec(text)


word = st.text("abcdefghijk_", min_size=1)


@given(word, st.dictionaries(word, st.text("0123456789./=-", max_size=6), max_size=4))
def test_specs_survive_being_written_and_read(name: str, settings: dict[str, str]) -> None:
    assert parse_spec(",".join([name, *(f"{k}={v}" for k, v in settings.items())])) == (name, settings)
