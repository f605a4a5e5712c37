"""A study's tables as LaTeX that needs nothing but booktabs."""

import re
import unicodedata
from collections.abc import Sequence

from regun.experiments.report import notes
from regun.experiments.report.layout import Layout, Line, Piece, Sheet
from regun.render.tables import one_line

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
_DOCUMENT = r"""\documentclass{article}
\usepackage[a4paper,landscape,margin=12mm]{geometry}
\usepackage{booktabs}
\begin{document}
%s
\end{document}
"""


def latex(laid: Layout) -> str:
    r"""A `table` environment for each sheet, for a paper that has \usepackage{booktabs}."""
    return "% needs \\usepackage{booktabs}\n" + "\n".join(_environment(laid, sheet) for sheet in laid.sheets)


def latex_document(laid: Layout) -> str:
    """The same as a document of its own."""
    empty = "" if laid.sheets else latex_text(f"{laid.title}: nothing has been judged yet.")
    return _DOCUMENT % (latex(laid) + empty)


def latex_text(text: str) -> str:
    """Text of others as itself in LaTeX; a letter that its standard fonts lack is given by its code, [U+4E2D]."""
    return _LIGATURES.sub("{}", _letters(one_line(text)))


def _letters(text: str) -> str:
    made: list[str] = []
    for letter in unicodedata.normalize("NFC", text):
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
    return "".join(made)


def _environment(laid: Layout, sheet: Sheet) -> str:
    """One table; the box lets columns that are wider than the text stand out to both sides alike."""
    marks = [notes.marks(r"\textbf{Bold}", r"\underline{underlined}")] * sheet.marked
    note = " ".join([*marks, *map(latex_text, (*laid.notes, *sheet.notes))])
    label = re.sub(r"[^A-Za-z0-9.]+", "-", sheet.name).strip("-")
    return "\n".join(
        [
            r"\begin{table}[htbp]",
            r"\centering",
            rf"\caption{{{latex_text(f'{laid.title}. {sheet.heading}.')}}}",
            rf"\label{{tab:{label}}}",
            r"\scriptsize",
            r"\setlength{\tabcolsep}{2.5pt}",
            rf"\makebox[\linewidth]{{\begin{{tabular}}{{@{{}}l{'r' * len(sheet.heads)}@{{}}}}",
            r"\toprule",
            *_groups(sheet),
            " & ".join(["", *map(latex_text, sheet.heads)]).strip() + r" \\",
            r"\midrule",
            *_body(sheet.lines),
            r"\bottomrule",
            r"\end{tabular}}",
            rf"\par\smallskip\parbox{{\linewidth}}{{\raggedright {note}}}",
            r"\end{table}",
            "",
        ]
    )


def _groups(sheet: Sheet) -> list[str]:
    """A line of heads over several columns each, with a rule below each of them."""
    if not sheet.groups:
        return []
    each = len(sheet.heads) // len(sheet.groups)
    heads = [rf"\multicolumn{{{each}}}{{c}}{{{latex_text(group)}}}" for group in sheet.groups]
    starts = [2 + k * each for k in range(len(heads))]
    rules = [rf"\cmidrule(lr){{{start}-{start + each - 1}}}" for start in starts]
    return [" & ".join(["", *heads]).strip() + r" \\", " ".join(rules)]


def _body(found: Sequence[Line]) -> list[str]:
    """The rows, with a rule where the methods begin."""
    rows: list[str] = []
    begun = False
    for line in found:
        if line.kind == "method" and not begun:
            begun = True
            rows += [r"\midrule"] * bool(rows)
        rows.append(" & ".join([_title(line), *map(_piece, line.pieces)]) + r" \\")
    return rows


def _title(line: Line) -> str:
    text = latex_text(line.title)
    if line.kind == "paper":
        return rf"\quad \textit{{{text}}}"
    return text + (r"$^\dagger$" if line.diverged else "")


def _piece(piece: Piece) -> str:
    """The number, and behind it in a smaller size its deviation or interval."""
    value = latex_text(piece.value)
    value = {"best": rf"\textbf{{{value}}}", "second": rf"\underline{{{value}}}", None: value}[piece.mark]
    return value + (rf" {{\tiny {latex_text(piece.behind)}}}" if piece.behind else "")
