"""A finished search as files and as sections of a page: settings to use, all trials, pictures."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from regun.errors import RegunError
from regun.page.frame import Extra, extra_section, frame, nav, section
from regun.page.look import save_figure
from regun.page.markup import Html, join, tag
from regun.page.svg import Gallery
from regun.tune.figures import front, history, importance_bars
from regun.tune.objectives import OBJECTIVES
from regun.tune.outcome import Tuned, trials_csv
from regun.tune.settings_file import format_settings

FIGURES: dict[str, tuple[Callable[[Mapping[str, Tuned]], Figure], str]] = {
    "history": (history, "Every trial and the best so far; the dashed line is the default."),
    "importance": (importance_bars, "How much of the score's variation each setting explains."),
    "front": (front, "Forgetting against utility, both in points from ideal; the star is the trial chosen."),
}


def write_report(folder: Path, found: Mapping[str, Tuned], request: str, about: str) -> list[Path]:
    """Write tuned.toml, trials.csv, trials.json, three pictures and report.html."""
    methods = {name: tuned.settings for name, tuned in found.items()}
    remarks = {(request, name): _remark(tuned, about) for name, tuned in found.items()}
    block = format_settings({request: methods}, remarks)
    texts = {
        "tuned.toml": block,
        "trials.csv": trials_csv({name: tuned.trials for name, tuned in found.items()}),
        "trials.json": json.dumps({name: tuned.to_json() for name, tuned in found.items()}, indent=1, allow_nan=False),
        "report.html": _page(found, about, block),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        pictures = [save_figure(draw(found), folder / f"{name}.svg") for name, (draw, _) in FIGURES.items()]
    except OSError as fault:
        raise RegunError(f"cannot write to {folder}: {fault.strerror or fault}. Name a folder you may write.") from None
    return [*(folder / name for name in texts), *pictures]


def sections(found: Mapping[str, Tuned], title: str) -> list[Extra]:
    """How settings were found: a table a search, and its pictures; `title` begins the name of each section."""
    objective = next(iter(found.values())).objective
    text = f"Score: {OBJECTIVES[objective]}; in points, good is 0."
    table = Extra(title, text, None, HEAD, summary_rows(found))
    return [table, *(Extra(f"{title}: {name}", said, draw(found)) for name, (draw, said) in FIGURES.items())]


def summary_rows(found: Mapping[str, Tuned]) -> list[list[str]]:
    """A row a method: score of the default, best score, trials, the settings of the best, a remark."""
    return [
        [
            name,
            f"{tuned.default_score:.2f}",
            f"{tuned.best_score:.2f}",
            str(len(tuned.trials)),
            " ".join(f"{k}={_short(v)}" for k, v in tuned.settings.items()) or "-",
            tuned.note or ("the default is kept" if tuned.best.number == 0 else ""),
        ]
        for name, tuned in found.items()
    ]


HEAD = ("method", "default", "best", "trials", "settings", "")


def _remark(tuned: Tuned, about: str) -> str:
    scores = f"score {tuned.best_score:.2f}, default {tuned.default_score:.2f}, {len(tuned.trials)} trials"
    return "\n".join([about, scores, *([tuned.note] if tuned.note else [])])


def _page(found: Mapping[str, Tuned], about: str, block: str) -> str:
    gallery, parts = Gallery(), sections(found, "Search")
    head = tag(
        "header", tag("p", "regun tune", class_="over"), tag("h1", "Tuned settings"), tag("p", about, class_="sub")
    )
    body: list[Html] = [extra_section(part, f"part-{k}", gallery) for k, part in enumerate(parts)]
    body.append(section("Settings file", "settings", tag("pre", block)))
    links = [*((f"part-{k}", part.title) for k, part in enumerate(parts)), ("settings", "Settings file")]
    return frame("Tuned settings", join([nav(links), tag("main", [head, *body], id="top")]), gallery.css())


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
