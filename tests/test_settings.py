"""Settings: read from text and JSON, checked all at once, back to JSON without loss."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expect import error
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
    ("key", "value", "message"),
    [
        ("degrees", "hot", "oven.degrees is 'hot'; give a number."),
        ("degrees", "nan", "oven.degrees is 'nan'; give a finite number."),
        ("degrees", "-inf", "oven.degrees is '-inf'; give a finite number."),
        ("degrees", 10**400, "give a number."),
        ("degrees", True, "oven.degrees is True; give a number."),
        ("degrees", None, "oven.degrees is None; give a number."),
        ("degrees", "301", "oven.degrees is 301.0; the most allowed is 300. (how hot)"),
        ("degrees", "-1", "oven.degrees is -1.0; the least allowed is 0. (how hot)"),
        ("minutes", "2.5", "oven.minutes is '2.5'; give a whole number."),
        ("minutes", "inf", "oven.minutes is 'inf'; give a whole number."),
        ("minutes", "nan", "oven.minutes is 'nan'; give a whole number."),
        ("minutes", "", "oven.minutes is ''; give a whole number."),
        ("minutes", False, "oven.minutes is False; give a whole number."),
        ("minutes", [3], "oven.minutes is [3]; give a whole number."),
        ("minutes", "0", "oven.minutes is 0; it must be above 0. (how long)"),
        ("fan", "perhaps", "oven.fan is 'perhaps'; give true or false."),
        ("fan", 2, "oven.fan is 2; give true or false."),
        ("mode", "Bake", "oven.mode is 'Bake'; give one of bake, grill. (what to do)"),
        ("trays", "1/x", "oven.trays is '1/x'; give a whole number."),
        ("timer", "soon", "oven.timer is 'soon'; give a whole number."),
        ("timer", "0", "oven.timer is 0; the least allowed is 1. (when to ring)"),
        ("degree", "1", "unknown setting of oven 'degree'. Did you mean 'degrees'?"),
        ("minutes", "9" * 20, "oven.minutes is '99999999999999999999'; give a whole number below 2**63."),
        ("minutes", "-" + "9" * 4400, "(4401 characters); give a whole number below 2**63."),
        ("minutes", 2**63, "oven.minutes is 9223372036854775808; give a whole number below 2**63."),
        ("minutes", "1e19", "oven.minutes is '1e19'; give a whole number below 2**63."),
        ("trays", [1, 10**20], "oven.trays is [1, 100000000000000000000]; give a whole number below 2**63."),
        ("zzzzzz", "1", "unknown setting of oven 'zzzzzz'. Known: degrees, fan, label, minutes, mode, timer, trays."),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(key: str, value: object, message: str) -> None:
    (problem,) = problems_of({key: value})
    assert message in problem


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"degrees": math.nan}, "oven.degrees is nan; it is not a number. (how hot)"),
        ({"degrees": "hot"}, "oven.degrees is 'hot'; give a number. (how hot)"),
        ({"degrees": True}, "oven.degrees is True; give a number. (how hot)"),
        ({"minutes": 2.5}, "oven.minutes is 2.5; give a whole number. (how long)"),
        ({"minutes": None}, "oven.minutes is None; give a value. (how long)"),
        ({"fan": 2}, "oven.fan is 2; give true or false. (blow air around)"),
        ({"timer": "soon"}, "oven.timer is 'soon'; give a whole number. (when to ring)"),
        ({"timer": 2.5}, "oven.timer is 2.5; give a whole number. (when to ring)"),
        ({"label": 3}, "oven.label is 3; give text. (what is in it)"),
        (
            {"minutes": 10**5000},
            "oven.minutes is a number of thousands of digits; give a whole number below 2**63. (how long)",
        ),
        (
            {"trays": (2**63,)},
            "oven.trays is (9223372036854775808,); give a whole number below 2**63. (which trays are used)",
        ),
    ],
)
def test_objects_made_in_code_are_checked_as_well(values: dict, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Oven(**values)
    assert caught.value.problems == [message]


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
    assert caught.value.problems == [
        "mine.py.free is 'x'; give a whole number.",
        "mine.py.factor is -3.0; the least allowed is 0. (what to multiply by)",
        "mine.py.mode is 'odd'; give one of fast, slow. (how)",
    ]
    with pytest.raises(SettingsError, match="the most allowed is 1"):
        bind(Unchecked, {"factor": 2}, "mine.py", Unchecked())
    assert bind(Unchecked, {"factor": "1", "free": "-7"}, "mine.py") == Unchecked(1.0, free=-7)
    assert len(problems_of({"degrees": "301"})) == 1


def test_values_go_over_a_base_and_the_base_stays() -> None:
    base = Oven(degrees=90, fan=True)
    made = bind(Oven, {"degrees": "100"}, "oven", base)
    assert (made.degrees, made.fan) == (100.0, True)
    assert base.degrees == 90
    assert bind(Oven, {}, "oven") == Oven()
    assert problems_of({"degrees": "999"}, base) == ["oven.degrees is 999.0; the most allowed is 300. (how hot)"]


def test_a_field_without_default_must_be_given() -> None:
    @dataclass(frozen=True)
    class Strict:
        size: int

    with pytest.raises(SettingsError, match="strict: .*missing 1 required .*'size'"):
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
    with pytest.raises(SettingsError, match="free holds a number that is not finite: .*inf.* cannot be stored"):
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
    ("text", "message"),
    [
        ("", "'' is not of the form name,key=value,key=value"),
        ("lr=1", "at fault: ['lr=1']"),
        ("x,lr", "at fault: ['lr']"),
        ("x,", "at fault: ['']"),
        ("x,=3", "at fault: ['=3']"),
        ("x,lr=1,w=2,lr=3,w=2", "gives lr, w more than once; give each setting once."),
    ],
)
def test_a_bad_spec_names_what_is_at_fault(text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_spec(text)
    assert message in str(caught.value)


word = st.text("abcdefghijk_", min_size=1)


@given(word, st.dictionaries(word, st.text("0123456789./=-", max_size=6), max_size=4))
def test_specs_survive_being_written_and_read(name: str, settings: dict[str, str]) -> None:
    assert parse_spec(",".join([name, *(f"{k}={v}" for k, v in settings.items())])) == (name, settings)
