"""A study's table as LaTeX that needs nothing but booktabs."""

import re
import unicodedata
from collections.abc import Sequence

from regun.study.layout import DIVERGED, Line, Piece, heading, heads, lines, mark_note, notes
from regun.study.table import Section, Table

_SPECIAL = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{c: f"{{{c}}}" for c in "[]*"},  # [ and * behind a \\ would be taken as its options
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedblright{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\to$",
    "∞": r"$\infty$",
    "ℓ": r"$\ell$",
    "†": r"$\dagger$",
    "…": r"\ldots{}",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "‘": r"\textquoteleft{}",
    "’": r"\textquoteright{}",
    "“": r"\textquotedblleft{}",
    "”": r"\textquotedblright{}",
    "ß": r"\ss{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
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


def latex(table: Table, wide: bool = False) -> str:
    r"""A `table` environment for each forget request, for a paper that has \usepackage{booktabs}."""
    made = (_environment(table, section, wide) for section in table.sections)
    return "% needs \\usepackage{booktabs}\n" + "\n".join(made)


def latex_document(table: Table, wide: bool = False) -> str:
    """The same as a document of its own."""
    empty = "" if table.sections else latex_text(f"{table.title or table.name}: nothing has been judged yet.")
    return _DOCUMENT % (latex(table, wide) + empty)


def latex_text(text: str) -> str:
    """Text of others as itself in LaTeX; a letter that its standard fonts lack is given by its code, [U+4E2D]."""
    letters = _letters("".join(c if c.isprintable() else " " for c in text))
    return " ".join(_LIGATURES.sub("{}", letters).split())


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


def _environment(table: Table, section: Section, wide: bool) -> str:
    """One table; the box lets columns that are wider than the text stand out to both sides alike."""
    names, told = heads(table, wide), map(latex_text, notes(table, wide, section))
    note = " ".join([mark_note(r"\textbf{Bold}", r"\underline{underlined}"), *told])
    label = re.sub(r"[^A-Za-z0-9.]+", "-", f"{table.name}-{section.forget}").strip("-")
    return "\n".join(
        [
            r"\begin{table}[htbp]",
            r"\centering",
            rf"\caption{{{latex_text(f'{table.title or table.name}. {heading(section)}.')}}}",
            rf"\label{{tab:{label}}}",
            r"\scriptsize",
            r"\setlength{\tabcolsep}{2.5pt}",
            rf"\makebox[\linewidth]{{\begin{{tabular}}{{@{{}}l{'r' * len(names)}@{{}}}}",
            r"\toprule",
            " & ".join(["", *map(latex_text, names)]).strip() + r" \\",
            r"\midrule",
            *_body(lines(table, section, wide)),
            r"\bottomrule",
            r"\end{tabular}}",
            rf"\par\smallskip\parbox{{\linewidth}}{{\raggedright {note}}}",
            r"\end{table}",
            "",
        ]
    )


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
    text = latex_text(line.title.removesuffix(f" {DIVERGED}") if line.diverged else line.title)
    if line.kind == "paper":
        return rf"\quad \textit{{{text}}}"
    return text + (r"$^\dagger$" if line.diverged else "")


def _piece(piece: Piece) -> str:
    """The number, and behind it in a smaller size its deviation or interval."""
    value = latex_text(piece.value)
    value = {"best": rf"\textbf{{{value}}}", "second": rf"\underline{{{value}}}", None: value}[piece.mark]
    return value + (rf" {{\tiny {latex_text(piece.behind)}}}" if piece.behind else "")
