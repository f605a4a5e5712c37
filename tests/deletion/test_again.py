"""A receipt forged from end to end, ledger line and all, fails when the audit is done again."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce
from pathlib import Path

import pytest
from small_project import QUICK, data, ids, network, project

import regun
from regun.deletion import Options, Pseudonyms, verify_audit, verify_receipt
from regun.deletion.ledger import read_ledger
from regun.deletion.receipt_page import page
from regun.deletion.signing import SECTIONS, read_receipt, seal, written
from regun.errors import RegunError


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rejected request."""
    out = tmp_path_factory.mktemp("out")
    rule = Options(accept="smia_auc<0, val_drop_total<=100", bootstrap=20)
    assert not regun.forget(project(method=QUICK), regun.deletion_request(ids()[:20]), out, rule).accepted
    return out


@pytest.fixture
def out(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "out"))


def forge(out: Path, edit: Callable[[dict], None], status: str = "accepted") -> Path:
    """Edit the only receipt, then seal it, make its page and write its ledger line anew."""
    path, (line,) = out / "requests/0001/receipt.json", read_ledger(out / "ledger.jsonl").lines
    content, _ = read_receipt(path)
    edit(content)
    new = seal(content, None)
    own = {"receipt.json": written(new), "receipt.html": page(new).encode()}
    for name, some in own.items():
        (path.parent / name).write_bytes(some)
    files = {**line.files, **{name: hashlib.sha256(some).hexdigest() for name, some in own.items()}}
    (out / "ledger.jsonl").write_text(line._replace(status=status, files=files).text() + "\n")
    assert [check for check in verify_receipt(path) if check.fine is False] == [], "it shows only by the audit"
    return path


def wrong(path: Path, **changes) -> list[str]:
    checks = verify_audit(path, project(**changes), Pseudonyms())
    return [f"{check.what}: {check.note}" for check in checks if check.fine is False]


def accept(content: dict) -> None:
    content["acceptance"].update(answer="accepted", status="accepted")
    for finding in content["acceptance"]["findings"]:
        finding["answer"] = "passed"


def test_what_is_as_it_was_comes_out_again(original: Path) -> None:
    checks = verify_audit(original / "requests/0001/receipt.json", project(), Pseudonyms())
    assert all(check.fine for check in checks)
    assert checks[-1].note == "2 findings and the verdict come out again"


def test_a_verdict_turned_around_is_found(out: Path) -> None:
    assert wrong(forge(out, accept)) == ["acceptance: the rule comes out otherwise: smia_auc<0 (all)"]


def test_an_accepted_without_its_findings_is_found(out: Path) -> None:
    def edit(content: dict) -> None:
        content["acceptance"].update(answer="accepted", status="accepted", findings=[])

    (fault,) = wrong(forge(out, edit))
    assert fault.startswith("acceptance: the rule comes out otherwise")


def test_numbers_that_were_left_out_are_found(out: Path) -> None:
    def edit(content: dict) -> None:
        del content["audit"]["scopes"]["all"]["after"]["numbers"]["smia_auc"]

    (fault,) = wrong(forge(out, edit, "rejected"))
    assert fault.startswith("audit after, all: smia_auc is not in the receipt")


def test_an_audit_that_was_left_out_is_found(out: Path) -> None:
    def edit(content: dict) -> None:
        accept(content)
        content["audit"].update(scopes={}, drops={})

    assert wrong(forge(out, edit)) == ["audit: the receipt has no numbers, and no reason to lack them"]


def test_a_total_that_was_made_up_is_found(out: Path) -> None:
    def edit(content: dict) -> None:
        content["audit"]["drops"]["val_drop_total"] -= 5

    (fault,) = wrong(forge(out, edit, "rejected"))
    assert fault.startswith("audit: accuracy lost: val_drop_total is ")


def test_a_diverged_run_may_lack_numbers(tmp_path: Path) -> None:
    given = project(method="regun,lr=1e30,epochs=2,batch_size=8")
    regun.forget(given, regun.deletion_request(ids()[:20]), tmp_path, Options(bootstrap=20))
    assert wrong(tmp_path / "requests/0001/receipt.json") == []


def test_values_and_gaps_of_retrained_models_are_compared(tmp_path: Path) -> None:
    x, y = data()["train"]
    recipe = {"epochs": 3, "lr": 0.05, "batch_size": 16}
    sets = {"forget": (x[:20], y[:20]), "retain": (x[20:], y[20:])}
    models = [regun.unlearn(network(), **sets, method="retrain", settings=recipe, seed=s).model for s in range(4)]
    given = {"method": QUICK, "accept": "smia_auc<0", "retrained": lambda forgotten: models}
    regun.forget(project(**given), regun.deletion_request(ids()[:20]), tmp_path, Options(bootstrap=20))
    path = tmp_path / "requests/0001/receipt.json"
    assert wrong(path, **given) == []

    def edit(content: dict) -> None:
        content["audit"]["scopes"]["all"]["after"]["gaps"]["gap_rftp"]["value"] += 1

    (fault,) = wrong(forge(tmp_path, edit, "rejected"), **given)
    assert fault.startswith("audit after, all: gap of gap_rftp is ")


ODD = (None, -1, 10**30, 1e300, "", "x" * 2000, [], {}, [None], {"~": 1}, True)


def places(value: object, path: tuple = ()) -> Iterator[tuple]:
    """Where something stands in a receipt."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*path, key))


@pytest.mark.timeout(200)
def test_a_receipt_sealed_with_anything_in_it_is_judged_or_refused(out: Path) -> None:
    """Whatever stands where in a receipt with good digests, checking it ends in words."""
    path, draw = out / "requests/0001/receipt.json", random.Random(0)
    content, _ = read_receipt(path)
    every = [place for place in places({name: content[name] for name in SECTIONS if name != "signer"}) if place]
    for number, place in enumerate(draw.sample(every, 120)):
        changed = json.loads(json.dumps(content))
        *above, last = place
        reduce(lambda part, key: part[key], above, changed)[last] = draw.choice(ODD)
        path.write_bytes(written(seal(changed, None)))
        with suppress(RegunError):
            assert verify_receipt(path)
        with suppress(RegunError):
            assert number % 6 or verify_audit(path, project(), Pseudonyms())


def test_a_fallback_that_retrained_is_judged_as_then(tmp_path: Path) -> None:
    options = Options(accept="smia_auc<0", fallback="retrain,epochs=2", bootstrap=20)
    assert regun.forget(project(method=QUICK), regun.deletion_request(ids()[:20]), tmp_path, options).accepted
    checks = verify_audit(tmp_path / "requests/0001/receipt.json", project(), Pseudonyms())
    assert all(check.fine for check in checks)
    assert checks[-1].note.endswith("that the model was trained anew is the receipt's word")
