"""The page in a real browser: it loads nothing, sorts, explains, fits a phone, turns dark, and runs no foreign script."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from regun.experiments.report.page import build_report
from report_samples import evaluated, relabelled, tradeoff

api = pytest.importorskip("playwright.sync_api", reason="needs Python's playwright")
CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH")

ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
ARGS += ["--disable-component-update", "--disable-sync"]
EVIL = "</title></style><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'"

CLIPPED = """() => [...document.querySelectorAll("body *")].filter((e) => {
  if (e.closest(".scroll, nav ul, .unseen, svg, script, [hidden]") || !e.textContent.trim()) return false;
  if (getComputedStyle(e).display === "inline" || !e.getClientRects().length) return false;
  return e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth + 1;
}).map((e) => `${e.tagName}.${e.className}: ${e.textContent.trim().slice(0, 60)}`)"""

CONTRASTS = """() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = numbers(getComputedStyle(document.body).backgroundColor);
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const found = { text: 99, line: 99, ground };
  for (const text of document.querySelectorAll("svg text"))
    found.text = Math.min(found.text, ratio(numbers(getComputedStyle(text).fill), ground));
  for (const line of document.querySelectorAll(".panel svg path[clip-path]")) {
    const style = getComputedStyle(line);
    if (style.stroke !== "none" && parseFloat(style.strokeWidth) >= 1.4)
      found.line = Math.min(found.line, ratio(numbers(style.stroke), ground));
  }
  for (const word of document.querySelectorAll("main p, main li, td, th, dt, dd, figcaption, .chip")) {
    const style = getComputedStyle(word);
    if (!word.getClientRects().length) continue;
    let behind = word;
    while (behind && getComputedStyle(behind).backgroundColor.endsWith(", 0)")) behind = behind.parentElement;
    const back = behind ? numbers(getComputedStyle(behind).backgroundColor) : ground;
    found.text = Math.min(found.text, ratio(numbers(style.color), back));
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with everything in it and titles that try to break out."""
    whole, close = evaluated(
        5, ("ReGUn", EVIL, "A method with quite a long title", "Anaverylongtitlewithoutanyspaceinit" * 2)
    )
    whole = relabelled(whole, EVIL)
    whole = replace(whole, title=f"Toy {EVIL}", missing=(EVIL,), about={EVIL: EVIL}, machine={"processor": EVIL})
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(build_report(whole, [close], [tradeoff()]), "utf-8")
    return path


@pytest.fixture
def page(browser, report: Path) -> Iterator[object]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.goto(report.as_uri())
    yield opened
    context.close()


def column(page, name: str) -> list[str | None]:
    """What the cells of a column of the first table hold, in the order of the rows."""
    return page.evaluate(
        """(name) => {
          const table = document.querySelector("table.sortable");
          const heads = [...table.querySelectorAll("thead th")].map((h) => h.textContent);
          const cells = [...table.querySelectorAll("tbody.methods tr")].map((r) => r.children[heads.indexOf(name)]);
          return cells.map((c) => c.tagName === "TH" ? c.textContent : c.dataset.v ?? null);
        }""",
        name,
    )


def head(page, name: str):
    return page.locator("table.sortable").first.locator("thead th").filter(has_text=name)


def test_it_loads_itself_and_nothing_else(browser, report: Path) -> None:
    context = browser.new_context()
    opened, noise, asked = context.new_page(), [], []
    opened.on("console", lambda message: noise.append(message.text))
    opened.on("pageerror", lambda error: noise.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(report.as_uri(), wait_until="load")
    opened.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    opened.wait_for_timeout(100)
    assert asked == [report.as_uri()]
    assert noise == []
    assert opened.evaluate("window.hacked") is None
    assert opened.evaluate("document.scripts.length") == 1
    assert opened.evaluate("document.querySelectorAll('img').length") == 0
    assert EVIL in opened.title()
    assert EVIL in opened.locator("h1").text_content()
    context.close()


def test_sorting_reorders_numbers_both_ways(page) -> None:
    before = column(page, "Seconds")
    button = head(page, "Seconds").get_by_role("button")
    button.click()
    rising = [float(v) for v in column(page, "Seconds")[:-1]]
    assert rising == sorted(rising)
    assert rising != [float(v) for v in before[:-1]]
    assert head(page, "Seconds").get_attribute("aria-sort") == "ascending"
    assert "Lost" in column(page, "Method")[-1]
    button.click()
    falling = [float(v) for v in column(page, "Seconds")[:-1]]
    assert falling == rising[::-1]
    assert falling[0] > 9 > falling[-1]  # as text, 10 and 13 would stand before 4
    assert head(page, "Seconds").get_attribute("aria-sort") == "descending"
    assert "Lost" in column(page, "Method")[-1]
    assert page.locator("th[aria-sort=descending]").count() == 1
    assert page.locator("table.sortable").first.locator("tbody.anchors tr").first.text_content().startswith("Retrain")
    assert "Sorted by Seconds, largest first." in page.locator("#announcement").text_content()


def test_sorting_by_keyboard_and_by_name(page) -> None:
    head(page, "Gap TP").get_by_role("button").focus()
    page.keyboard.press("Enter")
    gaps = [float(v) for v in column(page, "Gap TP") if v is not None]
    assert gaps == sorted(gaps)
    assert column(page, "Gap TP")[-1] is None
    page.keyboard.press("Space")
    assert [float(v) for v in column(page, "Gap TP") if v is not None] == gaps[::-1]
    assert column(page, "Gap TP")[-1] is None
    head(page, "Method").get_by_role("button").click()
    assert column(page, "Method")[0].startswith(("<", "A"))


def test_explanations_on_hover_on_focus_and_by_tap(browser, page, report: Path) -> None:
    tip = page.locator("#tip")
    assert not tip.is_visible()
    head(page, "Gap RFTP").get_by_role("button").hover()
    assert "mean distance to retrain over retain, forget and test accuracy" in tip.text_content().lower()
    assert tip.is_visible()
    box = tip.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 1280
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    head(page, "RMIA AUC").get_by_role("button").focus()
    assert "near 50" in tip.text_content()
    assert tip.is_visible()
    page.mouse.click(5, 5)
    assert not tip.is_visible()
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    phone = context.new_page()
    phone.goto(report.as_uri())
    head(phone, "Verdict").get_by_role("button").tap()
    assert phone.locator("#tip").is_visible()
    box = phone.locator("#tip").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    context.close()


@pytest.mark.parametrize("width", [360, 768])
def test_no_text_is_cut_on_narrow_screens(browser, report: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 740})
    opened = context.new_page()
    opened.goto(report.as_uri())
    for folded in (True, False):
        if not folded:
            opened.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert opened.evaluate("document.documentElement.scrollWidth") == width
        assert opened.evaluate(CLIPPED) == []
    table = opened.locator(".scroll").filter(has=opened.locator("table.sortable")).first
    assert table.evaluate("(e) => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX === 'auto'")
    context.close()


def test_dark_mode_is_dark_and_legible(browser, report: Path) -> None:
    found = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        opened = context.new_page()
        opened.goto(report.as_uri())
        found[scheme] = opened.evaluate(CONTRASTS)
        context.close()
    assert sum(found["light"]["ground"][:3]) > 700
    assert sum(found["dark"]["ground"][:3]) < 120
    for scheme, contrast in found.items():
        assert contrast["text"] >= 4.5, scheme
        assert contrast["line"] >= 3.0, scheme


def test_on_paper_everything_is_open_and_light(browser, report: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    opened = context.new_page()
    opened.goto(report.as_uri())
    opened.emulate_media(media="print", color_scheme="dark")
    assert sum(opened.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")[:3]) > 700
    opened.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.locator("details:not([open])").count() == 0
    opened.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert opened.locator("details[open]").count() == 0
    context.close()
