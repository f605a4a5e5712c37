"""A study's tables as LaTeX that needs nothing but booktabs."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from regun.experiments.report.table import Table
from regun.experiments.study.results import Results
from regun.render.tables import one_line
from regun.render.template import environment

_SIGNS = r"""
\ \textbackslash{}  ~ \textasciitilde{}  ^ \textasciicircum{}  < \textless{}  > \textgreater{}  | \textbar{}
" \textquotedblright{}  “ \textquotedblleft{}  ” \textquotedblright{}  ‘ \textquoteleft{}  ’ \textquoteright{}
– \textendash{}  — \textemdash{}  … \ldots{}  ± $\pm$  × $\times$  · $\cdot$  ≤ $\leq$  ≥ $\geq$  → $\to$  ∞ $\infty$
ℓ $\ell$  † $\dagger$  ß \ss{}  ø \o{}  Ø \O{}  æ \ae{}  Æ \AE{}  œ \oe{}  Œ \OE{}  ł \l{}  Ł \L{}
"""
_PAIRS = _SIGNS.split()
_SPECIAL = {
    **dict(zip(_PAIRS[::2], _PAIRS[1::2], strict=True)),
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{c: f"{{{c}}}" for c in "[]*"},  # [ and * behind a \\ would be taken as its options
}
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
)
_GREEK = dict(zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ", _GREEK_NAMES.split(), strict=True))
_ACCENTS = dict(
    zip("\u0300\u0301\u0302\u0303\u0308\u030a\u030c\u0327\u0304\u0306\u0307\u030b", "`'^~\"rvc=u.H", strict=True)
)
_LIGATURES = re.compile(r"(?<=-)(?=-)|(?<=')(?=')|(?<=[`?!])(?=`)")
_DELIMITERS: Any = {
    "block_start_string": "<%",
    "block_end_string": "%>",
    "variable_start_string": "<<",
    "variable_end_string": ">>",
    "comment_start_string": "<#",
    "comment_end_string": "#>",
}
"""LaTeX has braces of its own."""


def latex(results: Results, tables: Sequence[Table], document: bool = False) -> str:
    r"""Return a `table` environment per table, for a paper that has \usepackage{booktabs}; or a whole document."""
    made = environment("regun.experiments.report").overlay(**_DELIMITERS)
    made.filters.update({"tex": latex_text, "slug": slug})
    return made.get_template("table.tex").render(results=results, tables=tables, document=document)


def slug(text: str) -> str:
    """Return a text as part of a LaTeX label."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")


def latex_text(text: str) -> str:
    """Escape text for LaTeX; a letter that its standard fonts lack becomes its code, [U+4E2D]."""
    made: list[str] = []
    for letter in unicodedata.normalize("NFC", one_line(text)):
        base, *accents = unicodedata.normalize("NFD", letter)
        if letter in _SPECIAL:
            made.append(_SPECIAL[letter])
        elif letter in _GREEK:
            made.append(f"$\\{_GREEK[letter]}$")
        elif letter.isascii():
            made.append(letter)
        elif base.isascii() and base.isalpha() and len(accents) == 1 and accents[0] in _ACCENTS:
            made.append(f"\\{_ACCENTS[accents[0]]}{{{base}}}")
        else:
            made.append(f"{{[}}U+{ord(letter):04X}{{]}}")
    return _LIGATURES.sub("{}", "".join(made))
