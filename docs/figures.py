"""Draw the diagrams of the documentation: `python docs/figures.py` writes docs/figures/*.svg.

Every diagram has its own light background, so that it reads the same on light and dark pages.
"""

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent / "figures"
INK, QUIET, PAPER = "#1f2937", "#6b7280", "#f8fafc"
BLUE, GREEN, RED, AMBER = "#dbeafe", "#dcfce7", "#fee2e2", "#fef3c7"
LINE = {BLUE: "#2563eb", GREEN: "#16a34a", RED: "#dc2626", AMBER: "#d97706", PAPER: QUIET}


class Drawing:
    """A growing SVG."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="14">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 8 4 0 8z" fill="{QUIET}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>',
        ]

    def box(self, x: int, y: int, width: int, height: int, text: str, fill: str = BLUE, quiet: str = "") -> None:
        """Draw a box with a line of text, and a smaller line below it."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{LINE[fill]}"/>'
        )
        middle = x + width / 2
        self.text(middle, y + height / 2 + (-3 if quiet else 5), text, bold=True)
        if quiet:
            self.text(middle, y + height / 2 + 16, quiet, size=12, fill=QUIET)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = 14,
        fill: str = INK,
        bold: bool = False,
        anchor: str = "middle",
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="{fill}"{weight}>'
            f"{escape(text)}</text>"
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float, dashed: bool = False) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" stroke="{QUIET}" fill="none" marker-end="url(#tip)"{dash}/>'
        )

    def raw(self, part: str) -> None:
        self.parts.append(part)

    def __str__(self) -> str:
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def judging() -> Drawing:
    """Base, retrained and unlearned models on one axis: the distance to the retrained model, and its noise floor."""
    drawing = Drawing(760, 330, "How unlearning is judged")
    drawing.box(20, 20, 210, 50, "Base", RED, "trained on retain + forget")
    drawing.box(275, 20, 210, 50, "Unlearned", BLUE, "base, updated by a method")
    drawing.box(530, 20, 210, 50, "Retrained", GREEN, "trained on retain alone")
    drawing.arrow(230, 45, 273, 45)
    drawing.text(
        380, 105, "Each model is measured on retain, forget and test data, and by privacy attacks.", fill=QUIET
    )
    drawing.text(380, 128, "Gap RFTP is the mean absolute distance to the retrained model over these four.", fill=QUIET)
    drawing.raw(f'<rect x="60" y="180" width="120" height="70" fill="{GREEN}"/>')
    drawing.raw(f'<path d="M60 250H720" stroke="{INK}"/><path d="M60 172V250" stroke="{INK}"/>')
    drawing.text(120, 170, "noise floor", fill=LINE[GREEN], bold=True)
    for at, name, fill in (
        (60, "retrained", GREEN),
        (105, "", GREEN),
        (150, "", GREEN),
        (250, "unlearned", BLUE),
        (640, "base", RED),
    ):
        drawing.raw(f'<circle cx="{at}" cy="250" r="8" fill="{LINE[fill]}"/>')
        drawing.text(at, 282, name, bold=True)
    drawing.text(720, 240, "gap to retrained", anchor="end", fill=QUIET)
    drawing.text(
        380,
        314,
        "Other retrained models differ from the first by chance: no method can be shown to be closer.",
        size=12,
        fill=QUIET,
    )
    return drawing


def cross_fitting() -> Drawing:
    """Four folds, four short models, one table; a request looks up its records."""
    drawing = Drawing(760, 400, "Cross-fitted references")
    drawing.text(20, 34, "Once, before any request", bold=True, anchor="start")
    for fold in range(4):
        y = 52 + 50 * fold
        for part in range(4):
            fill = AMBER if part == fold else BLUE
            drawing.raw(
                f'<rect x="{20 + 52 * part}" y="{y}" width="48" height="36" rx="4" '
                f'fill="{fill}" stroke="{LINE[fill]}"/>'
            )
            if part == fold:
                drawing.text(44 + 52 * part, y + 23, f"fold {fold + 1}", size=12)
        drawing.arrow(232, y + 18, 268, y + 18)
        drawing.box(272, y, 150, 36, f"short model {fold + 1}", PAPER)
        drawing.arrow(424, y + 18, 496, 140)
    drawing.text(124, 272, "blue: trained on · amber: left out", size=12, fill=QUIET)
    drawing.box(500, 100, 240, 80, "Table", GREEN, "out-of-fold prediction per record")
    drawing.text(620, 204, "the short models are deleted", size=12, fill=QUIET)
    drawing.raw(f'<path d="M20 290H740" stroke="{QUIET}" stroke-dasharray="3 5"/>')
    drawing.text(20, 318, "For each request", bold=True, anchor="start")
    drawing.box(20, 332, 200, 50, "Forgotten records", AMBER, "looked up in the table")
    drawing.arrow(222, 357, 288, 357)
    drawing.box(292, 332, 200, 50, "Short update", BLUE, "predict as the table does")
    drawing.arrow(494, 357, 556, 357)
    drawing.box(560, 332, 180, 50, "Audit", GREEN, "with the same table")
    return drawing


def layers() -> Drawing:
    """The packages of the code, each importing only from those below."""
    drawing = Drawing(760, 380, "Layers of the code: each imports only from those below it")
    rows = (
        (("cli", "commands, progress, exit codes"),),
        (("deletion", "requests, ledger, receipts"), ("experiments", "studies, tuning, reports")),
        (("artifacts", "content-addressed store"),),
        (("api", "unlearn, audit, relearn"), ("crossfit", "prepare")),
        (("methods", "one file per method"), ("auditing", "attacks, metrics, verdict")),
        (("training", "one loop, batches, recipes"),),
        (("data", "data sets, augmentation"), ("models", "architectures"), ("splits, folds", "who is where")),
    )
    for level, row in enumerate(rows):
        width = (720 - 12 * (len(row) - 1)) // len(row)
        for column, (name, what) in enumerate(row):
            fill = BLUE if level < 2 else GREEN if level > 3 else PAPER
            drawing.box(20 + column * (width + 12), 16 + 51 * level, width, 43, name, fill, what)
    return drawing


DRAWINGS = {"judging": judging, "cross_fitting": cross_fitting, "layers": layers}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(str(draw()))
