"""Write the tables that commands on a page print into that page, in place of those that stand there.

    python research/refresh.py docs/results.md

A block of commands (lines indented by four spaces) with `python research/compare.py ...` is followed by the tables that
they print, in their order. What is not such a table is left as it is; check the words around it yourself.
"""

import re
import shlex
import sys
from pathlib import Path

import compare

COMMAND = re.compile(r"^    python research/compare\.py ([^#\n]+)", re.MULTILINE)


def tables(text: str) -> list[str]:
    """The paragraphs of a text that are tables."""
    return [part for part in text.strip().split("\n\n") if part.startswith("|")]


def commands(text: str) -> list[str]:
    """The arguments of every command of a text; a line that ends in a backslash goes on in the next one."""
    return COMMAND.findall(text.replace("\\\n", ""))


def refreshed(page: str) -> str:
    """The page with the tables that its commands print now; those that are missing are put where they belong."""
    parts: list[str] = []
    due: list[str] = []
    for part in page.rstrip("\n").split("\n\n"):
        if due and part.startswith("|"):
            parts.append(due.pop(0))
            continue
        parts += due
        due = [table for words in commands(part) for table in tables(compare.printed(shlex.split(words)))]
        parts.append(part)
    return "\n\n".join([*parts, *due]) + "\n"


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit("give the pages to write, as in: python research/refresh.py docs/results.md")
    for path in map(Path, sys.argv[1:]):
        path.write_text(refreshed(path.read_text(encoding="utf-8")), encoding="utf-8")
