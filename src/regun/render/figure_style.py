"""The look that all figures share, and a figure as the bytes of a file."""

import io
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from regun.errors import RegunError, unknown
from regun.render.template import clean

INK, MUTED, RULE, NOISE, ACCENT = "#1c2126", "#5a6470", "#d5d9de", "#009d73", "#0071b3"
COLOURS = (ACCENT, "#d45f00", "#00896b", "#b3548d", "#bd7f00", "#2f93cc", "#7b7400", "#6b5fb5")
"""Okabe and Ito's colours, the light ones darkened until they stand out from white by 3:1; then one violet."""
MARKERS = "osD^vPXhp<>d"
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (5, 1.5, 1, 1.5)), (0, (1.2, 1.4)), (0, (8, 2, 2, 2)))

UNIT = 1 / 72
"""Figures are laid out in points: one point is one pixel of the page and one point on paper."""

_LOOK: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.5,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED,
    "axes.labelsize": 10.5,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.unicode_minus": True,
    "figure.facecolor": "none",
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.7,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "regun",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
}
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def label_of(title: str) -> str:
    """A title as one line of a figure; one that starts with `_` would be left out of legends, so it gets a space."""
    line = " ".join(clean(title).split())
    return f"\N{NO-BREAK SPACE}{line}" if line.startswith("_") else line


@contextmanager
def look() -> Generator[None]:
    """The settings under which every figure is made and drawn; what was set before comes back afterwards.

    Texts are data, so a `$` in them is a dollar; a character that the layout font lacks is left to the reader's fonts.
    """
    with matplotlib.rc_context(_LOOK), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph", category=UserWarning)
        yield


@dataclass(frozen=True)
class Series:
    """The colour, marker and dashes that distinguish one method from the others."""

    colour: str
    marker: str
    dashes: Any


def series(number: int) -> Series:
    """The look of the n-th method; no two of the first forty share colour and marker."""
    return Series(COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)], DASHES[number % len(DASHES)])


def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """The figure as a file that ends in .png, .svg or .pdf; the same figure gives the same bytes."""
    if suffix not in _METADATA:
        raise RegunError(unknown("suffix of a figure", suffix, _METADATA))
    out = io.BytesIO()
    with look():
        figure.savefig(
            out, format=suffix[1:], dpi=200, facecolor="white", metadata=_METADATA[suffix], bbox_inches="tight"
        )
    return out.getvalue()


def colour_names() -> Mapping[str, str]:
    """Every colour a figure uses, with the name a style sheet may give it: `ink`, `muted`, `c0`, ..."""
    named = {INK: "ink", MUTED: "muted", RULE: "rule", NOISE: "noise", "#ffffff": "paper"}
    return named | {colour: f"c{k}" for k, colour in enumerate(COLOURS)}
