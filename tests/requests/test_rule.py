"""The acceptance rule: what it says, what it refuses, and that nothing unknown ever passes."""

import pytest

from regun.errors import SettingsError
from regun.evaluate import Gap, Number
from regun.requests.rule import Facts, default_rule, read_rule

FACTS = Facts(
    {"smia_auc": Number(52.0, 48.0, 56.0), "val_drop": Number(0.9), "test_acc": Number(90.0, 88.0, 92.0)},
    {"smia_auc": 47.0, "test_acc": 90.5},
    {"smia_auc": Gap(5.0, 1.0, 2.0, 3.0), "test_acc": Gap(0.5)},
)


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("smia_auc~50", True),
        ("smia_auc~48", True),
        ("smia_auc~56.1", False),
        ("smia_auc<52", False),
        ("smia_auc<=52", True),
        ("smia_auc>51.9", True),
        ("smia_auc>=52.1", False),
        ("val_drop<1", True),
        ("val_drop<-1", False),
        ("smia_auc~retrain", False),
        ("test_acc>=retrain", False),
        ("smia_auc<=floor", False),
        (" smia_auc ~ 50 ,val_drop<.95, ", True),
    ],
)
def test_conditions(text: str, passed: bool) -> None:
    findings = read_rule(text).judge({"all": FACTS})
    assert all(finding.passed for finding in findings) is passed
    assert all(finding.why and finding.meaning for finding in findings)


def test_both_scopes_count_for_forgetting_and_utility_counts_once() -> None:
    worse = Facts({**FACTS.numbers, "smia_auc": Number(70.0, 60.0, 80.0)}, {}, {})
    findings = read_rule("smia_auc~50, val_drop<1").judge({"all": FACTS, "new": worse})
    assert [(f.condition, f.scope, f.passed) for f in findings] == [
        ("smia_auc~50", "all", True),
        ("smia_auc~50", "new", False),
        ("val_drop<1", "utility", True),
    ]
    assert findings[1].why == "70.00, interval 60.00 to 80.00 does not contain 50"


def test_what_cannot_be_read_is_said_all_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        read_rule("smia_auc=50, val_drop<one, smia_auc~floor, 3<4, test_acc>=90")
    assert len(caught.value.problems) == 4
    assert "has 'smia_auc=50'; a condition is NAME~50, NAME<1" in caught.value.problems[0]
    assert any("words are NAME~retrain and NAME<=floor" in problem for problem in caught.value.problems)
    with pytest.raises(SettingsError, match="the acceptance rule is empty"):
        read_rule(" , ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("smia_acu~50", "unknown number in the acceptance rule 'smia_acu'. Did you mean 'smia_auc'?"),
        ("val_drop~0", "val_drop has no interval"),
        ("val_drop~retrain", "needs a retrained model's val_drop"),
        ("test_acc<=floor", "needs a noise floor for test_acc: a retrained model and at least 2 more"),
        ("val_drop<=floor", "needs a noise floor"),
    ],
)
def test_what_cannot_be_judged_is_an_error_and_no_pass(text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_rule(text).judge({"all": FACTS})
    assert message in str(caught.value)


def test_the_default_uses_what_there_is() -> None:
    assert default_rule({"train": 0, "val": 0, "test": 0, "heldout": 0}) == "smia_auc~50, val_drop<1"
    assert default_rule({"heldout": 0}) == "smia_auc_heldout~50, heldout_drop<1"
    assert default_rule({"val": 0}) == "smia_auc_val~50, val_drop<1"


@pytest.mark.parametrize("bound", ["0.99999999", "1234567.5", "1e-07", "50", "-1", "3e+20"])
def test_a_rule_is_shown_in_full_and_can_be_read_again(bound: str) -> None:
    rule = read_rule(f"val_drop<{bound}")
    assert read_rule(rule.text) == rule
    assert rule.conditions[0].bound == float(bound)
    assert rule.conditions[0].meaning.endswith(f"below {rule.text.partition('<')[2]}")


def test_a_bound_without_end_is_refused() -> None:
    with pytest.raises(SettingsError, match="its bound is too large for a number"):
        read_rule("smia_auc<1e999")
