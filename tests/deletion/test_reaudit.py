"""The re-audit: a receipt forged from end to end, ledger line and all, fails when its audit is repeated."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce
from pathlib import Path

import pytest
from safetensors.torch import load_file
from small_project import EASY, QUICK, data, failed, forge, forget, ids, network, project, receipt_of, receipt_path

import regun
from expect import error
from regun.deletion import Options, reaudit_receipt, verify_receipt
from regun.errors import RegunError


@pytest.fixture(scope="module")
def rejected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rejected request."""
    out = tmp_path_factory.mktemp("rejected") / "out"
    rule = Options(accept="smia_auc<0, val_drop_total<=100", bootstrap=20)
    assert forget(out, ids()[:20], rule).status == "rejected"
    return out


@pytest.fixture
def out(rejected: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(rejected, tmp_path / "out"))


def accept(receipt: dict) -> None:
    receipt["acceptance"]["verdict"] = receipt["ledger"]["status"] = "accepted"
    for finding in receipt["acceptance"]["findings"]:
        finding["result"] = "passed"


def without_findings(receipt: dict) -> None:
    accept(receipt)
    receipt["acceptance"]["findings"] = []


def without_audit(receipt: dict) -> None:
    accept(receipt)
    receipt["audit"].update(scopes={}, drops={})


def without_a_number(receipt: dict) -> None:
    del receipt["audit"]["scopes"]["all"]["after"]["numbers"]["smia_auc"]


def with_another_number(receipt: dict) -> None:
    receipt["audit"]["scopes"]["all"]["after"]["numbers"]["smia_auc"][0] = 50.0


def with_another_total(receipt: dict) -> None:
    receipt["audit"]["drops"]["val_drop_total"] -= 5


def by_one_set(receipt: dict) -> None:
    receipt["audit"]["unseen_sets"] = ["val"]


@pytest.mark.parametrize(
    ("edit", "status", "check", "names"),
    [
        (accept, "accepted", "acceptance", ["smia_auc<0"]),
        (without_findings, "accepted", "acceptance", []),
        (without_audit, "accepted", "audit", []),
        (without_a_number, "rejected", "audit after, all", ["smia_auc"]),
        (with_another_number, "rejected", "audit after, all", ["smia_auc", "50.0"]),
        (with_another_total, "rejected", "audit: accuracy lost", ["val_drop_total"]),
        (by_one_set, "rejected", "acceptance", ["val", "test", "heldout"]),
    ],
)
def test_a_consistent_forgery_shows_in_the_re_audit(
    out: Path, edit: Callable[[dict], None], status: str, check: str, names: list[str]
) -> None:
    path = forge(out, 1, edit, status=status)
    assert failed(verify_receipt(path)) == [], "it shows by the audit only"
    (fault,) = [one for one in reaudit_receipt(path, project()) if one.passed is False]
    assert fault.name == check
    assert all(name in fault.note for name in names), fault.note


def test_what_was_not_changed_is_reproduced(original: Path, rejected: Path) -> None:
    for path in (receipt_path(original, 1), receipt_path(original, 2), receipt_path(rejected)):
        checks = reaudit_receipt(path, project())
        assert all(check.passed for check in checks), checks
        assert {"acceptance", "audit: accuracy lost"} <= {check.name for check in checks}


def test_inconclusive_is_not_accepted_however_consistent_the_forgery(tmp_path: Path) -> None:
    assert forget(tmp_path, ids()[:20], Options(accept=EASY, bootstrap=20)).status == "inconclusive"
    assert failed(reaudit_receipt(receipt_path(tmp_path), project())) == []
    path = forge(tmp_path, 1, lambda receipt: receipt["ledger"].update(status="accepted"), status="accepted")
    assert failed(reaudit_receipt(path, project())) == ["acceptance"]


def test_a_diverged_run_may_lack_numbers(tmp_path: Path) -> None:
    forget(tmp_path, ids()[:20], Options(bootstrap=20), method="regun,lr=1e30,epochs=2,batch_size=8")
    assert failed(reaudit_receipt(receipt_path(tmp_path), project())) == []


def test_values_and_gaps_of_retrained_models_are_compared(tmp_path: Path) -> None:
    x, y = data()["train"]
    recipe = {"epochs": 3, "lr": 0.05, "batch_size": 16}
    sets = {"forget": (x[:20], y[:20]), "retain": (x[20:], y[20:])}
    models = [regun.unlearn(network(), **sets, method="retrain", settings=recipe, seed=s).model for s in range(4)]
    given = {"method": QUICK, "accept": "smia_auc<0", "retrained": lambda forgotten: models}
    forget(tmp_path, ids()[:20], Options(bootstrap=20), **given)
    assert failed(reaudit_receipt(receipt_path(tmp_path), project(**given))) == []

    def edit(receipt: dict) -> None:
        receipt["audit"]["scopes"]["all"]["after"]["gaps"]["gap_rftp"]["value"] += 1

    assert failed(reaudit_receipt(forge(tmp_path, 1, edit), project(**given))) == ["audit after, all"]


def test_a_model_retrained_from_scratch_is_judged_as_then(tmp_path: Path) -> None:
    options = Options(accept="smia_auc<0", fallback="retrain,epochs=2", bootstrap=20)
    assert forget(tmp_path, ids()[:20], options).accepted
    assert all(check.passed for check in reaudit_receipt(receipt_path(tmp_path), project()))


def test_other_data_are_found(original: Path) -> None:
    x, y = data()["heldout"]
    checks = reaudit_receipt(receipt_path(original, 2), project(heldout=(x + 1e-3, y)))
    assert failed(checks) == ["data: heldout"]
    assert checks[-1].passed is None


def test_records_that_are_gone_cannot_be_audited_again(original: Path) -> None:
    x, y = data()["train"]
    (check,) = reaudit_receipt(receipt_path(original, 2), project(train=(x[40:], y[40:]), ids=ids()[40:]))
    assert (check.name, check.passed) == ("audit", None)


def test_an_audit_cannot_be_repeated_once_the_model_before_is_gone(original: Path) -> None:
    """An owner who deploys the accepted model has not tampered with anything."""
    deployed = project().model
    deployed.load_state_dict(load_file(receipt_path(original).parent / "model.safetensors"))
    for number, missing in ((1, "before"), (2, "base")):
        checks = reaudit_receipt(receipt_path(original, number), project(model=deployed))
        assert failed(checks) == []
        assert receipt_of(original, number)["ledger"][missing][:12] in checks[-1].note


def test_ids_of_another_kind_are_refused(original: Path) -> None:
    with error(RegunError, "positions", "given"):
        reaudit_receipt(receipt_path(original), project(ids=None, unseen_ids={}))


def test_code_that_a_receipt_names_is_not_run(out: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef method(job):\n    pass\n")
    code = f"{tmp_path}/evil.py:method"

    def edit(receipt: dict) -> None:
        receipt["method"]["attempts"][-1].update(spec=code, method=code)
        receipt["model"]["class"] = code

    reaudit_receipt(forge(out, 1, edit), project())
    assert not (tmp_path / "ran").exists()


ODD = (None, -1, 10**30, 1e300, "", "x" * 2000, [], {}, [None], {"~": 1}, True)


def places(value: object, path: tuple = ()) -> Iterator[tuple]:
    """Where something stands in a receipt."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*path, key))


@pytest.mark.timeout(200)
def test_a_receipt_with_anything_in_it_is_checked_or_refused(out: Path) -> None:
    """Whatever stands where in a receipt with fitting digests, checking it ends without a crash."""
    path, draw = receipt_path(out), random.Random(0)
    content = receipt_of(out)
    every = [place for place in places(content) if place]
    for number, place in enumerate(draw.sample(every, 100)):

        def edit(receipt: dict, place: tuple = place) -> None:
            receipt.update(json.loads(json.dumps(content)))
            *above, last = place
            reduce(lambda part, key: part[key], above, receipt)[last] = draw.choice(ODD)

        path.write_text(json.dumps(content))
        forge(out, 1, edit)
        assert verify_receipt(path)
        with suppress(RegunError):
            assert number % 6 or reaudit_receipt(path, project())
