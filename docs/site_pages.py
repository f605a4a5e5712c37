"""Pages of the site that follow from the code: Python API, commands, study keys, methods, how-to scripts, notebook."""

import argparse
import ast
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import regun
from regun.cli import build_parser
from regun.experiments.study.spec import Study, TuneSpec
from regun.methods import MethodSpec, method_names

ROOT = Path(__file__).parents[1]
GROUPS = {
    "Unlearn and audit": [
        "unlearn",
        "Recipe",
        "recipe_from_torch",
        "recipe_from_training_arguments",
        "Outcome",
        "audit",
        "Evaluation",
        "relearn",
        "InputOptions",
        "RunOptions",
    ],
    "Prepare before requests": ["prepare", "Prepared"],
    "Deletion requests": ["forget", "Project", "DeletionRequest", "model_card"],
    "Studies and tuning": ["run_study", "tune", "Store", "ForgetSpec", "Splits", "make_splits", "reserve"],
    "Write a method or a loop": ["steps", "Job", "Budget", "RegunError"],
}


def write_pages(docs: Path) -> None:
    """Write every generated page; a page that has not changed is not touched, so that Sphinx need not read it again."""
    pages = {
        "reference/api.md": api_page(),
        "reference/commands.md": commands_page(),
        "reference/study_keys.md": study_page(),
        "reference/all_methods.md": methods_page(),
        "howto/first_unlearning.md": notebook_page(docs / "howto/first_unlearning.ipynb"),
        "develop/contributing.md": (ROOT / "CONTRIBUTING.md").read_text(),
        "develop/changelog.md": (ROOT / "CHANGELOG.md").read_text(),
        "develop/decisions.md": decisions_page(docs / "decisions"),
    }
    titles = how_to_titles((docs / "index.md").read_text())
    pages |= {
        f"howto/{script.stem}.md": script_page(script, titles[script.stem])
        for script in sorted((docs / "howto").glob("*.py"))
    }
    pages |= {
        f"tables/{path.parent.name}.md": table_page(path) for path in sorted((ROOT / "results").glob("*/table.md"))
    }
    for name, text in pages.items():
        path = docs / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def rewrite_links(app: Any, page: str, source: list[str]) -> None:
    """Point links to files of the repository at the page that shows them; what has no page becomes its path."""
    here = (Path(app.srcdir) / page).parent

    def rewrite(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        base = ROOT if page in ("develop/contributing", "develop/changelog") else here
        path = (base / target).resolve()
        shown = {ROOT / "CONTRIBUTING.md": "develop/contributing.md", ROOT / "CHANGELOG.md": "develop/changelog.md"}
        shown |= {ROOT / "docs/howto": "index.md", ROOT / "docs/decisions": "develop/decisions.md"}
        if path in shown:
            path = Path(app.srcdir) / shown[path]
        elif path.name == "table.md" and path.parent.parent == ROOT / "results":
            path = Path(app.srcdir) / "tables" / f"{path.parent.name}.md"
        elif path.suffix in (".py", ".ipynb") and path.parent.name == "howto":
            path = path.with_suffix(".md")
        if path.suffix in (".md", ".png", ".svg") and path.is_relative_to(app.srcdir) and path.exists():
            depth = len(here.relative_to(app.srcdir).parts)
            return f"[{text}]({'../' * depth}{path.relative_to(app.srcdir)}{anchor})"
        if not path.is_relative_to(ROOT):
            return match[0]
        name = str(path.relative_to(ROOT))
        return f"`{name}`" if text in (name, path.name) else f"{text} (`{name}`)"

    source[0] = re.sub(r"\[([^\]\[]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)", rewrite, source[0])


def api_page() -> str:
    """Return the public Python names with their docstrings; each name of `regun.__all__` is on it."""
    missing = set(regun.__all__) - {name for names in GROUPS.values() for name in names}
    groups = GROUPS | ({"More": sorted(missing)} if missing else {})
    parts = ["# Python API\n\n`import regun` gives every name on this page.\n"]
    for title, names in groups.items():
        parts.append(f"## {title}\n")
        for name in names:
            kind = "autoclass" if inspect.isclass(getattr(regun, name)) else "autofunction"
            members = "\n   :members:" if kind == "autoclass" else ""
            parts.append(f"```{{eval-rst}}\n.. {kind}:: regun.{name}{members}\n```\n")
    return "\n".join(parts)


def commands_page() -> str:
    """Return every command with its help."""
    parser = build_parser()
    parts = ["# Commands\n\nEach command explains itself: `regun COMMAND --help`.\n", help_block(parser)]
    for name, command in commands(parser):
        parts.append(f"## {name}\n\n{help_block(command)}")
    return "\n".join(parts)


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands below `parser`, and theirs."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command.prog, command
                yield from commands(command)


def help_block(parser: argparse.ArgumentParser) -> str:
    """Return the help of a command as a block of text, at a width that does not depend on the terminal."""
    kind = parser.formatter_class
    parser.formatter_class = lambda prog: kind(prog, width=100)  # type: ignore[assignment,misc]
    return f"```text\n{parser.format_help().rstrip()}\n```\n"


def study_page() -> str:
    """Return the keys of a study's TOML file, from the class that reads it."""
    keys = [one for one in fields(Study) if one.name != "folder"]
    parts = [
        "# Study files\n\nA study is a TOML file with these keys; all have defaults. See [studies](../studies.md).\n"
    ]
    parts += [settings_table(keys), "\n## `[tune]`\n", settings_table(list(fields(TuneSpec)))]
    return "\n".join(parts)


def settings_table(settings: list[Field[Any]]) -> str:
    """Return a table of settings with default and meaning."""
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for one in settings:
        default = one.default if one.default_factory is MISSING else one.default_factory()
        shown = "none" if default is None or default in ("", (), {}) else json.dumps(default)
        meaning = str(one.metadata.get("help", "")).replace("|", "\\|")
        rows.append(f"| `{one.name}` | {shown if shown == 'none' else f'`{shown}`'} | {meaning} |")
    return "\n".join(rows) + "\n"


def methods_page() -> str:
    """Return every method: its description with formula, its settings and its presets."""
    parts = ["# All methods\n\n`regun methods NAME` prints the same. [Methods](../methods.md) compares them.\n"]
    for name in method_names():
        method = MethodSpec.parse(name).method
        text = inspect.getdoc(inspect.getmodule(method.config)) or ""
        parts.append(f"## {method.title} (`{name}`)\n\n{indented_as_code(escaped(text))}\n")
        parts.append(settings_table(list(fields(method.config))))
        if method.presets:
            parts.append("Presets:\n")
            for preset, values in method.presets.items():
                listed = ", ".join(f"`{key}={value}`" for key, value in values.items())
                parts.append(f"- `{name}@{preset}`: {listed}")
            parts.append("")
    return "\n".join(parts)


def how_to_titles(index: str) -> dict[str, str]:
    """Return the short title of every how-to, from the table of contents: `Title <howto/name>`."""
    return {name: title for title, name in re.findall(r"^(.+) <howto/(\w+)>$", index, re.MULTILINE)}


def table_page(path: Path) -> str:
    """Return the table of a study in `results/` as a page that only links lead to."""
    return f"---\norphan: true\n---\n\n# {path.parent.name}\n\n`{path.relative_to(ROOT)}`\n\n{path.read_text()}"


def script_page(script: Path, title: str) -> str:
    """Return a how-to script as a page: its docstring as text, then the code."""
    source = script.read_text()
    tree = ast.parse(source)
    text = ast.get_docstring(tree) or ""
    code = "\n".join(source.splitlines()[tree.body[0].end_lineno :]).strip()
    return f"# {title}\n\n{indented_as_code(text)}\n\n```python\n{code}\n```\n"


def escaped(text: str) -> str:
    """Return plain text whose characters mean nothing to Markdown; indented lines are code and stay."""
    return "\n".join(
        line if line.startswith("    ") else re.sub(r"([*<\[\]|])", r"\\\1", line) for line in text.splitlines()
    )


def indented_as_code(text: str) -> str:
    """Return text with indented lines as they are: Markdown shows them as code after an empty line."""
    return re.sub(r"(?m)^(?!    )(.+)\n(?=    )", r"\1\n\n", text).strip("\n")


def notebook_page(path: Path) -> str:
    """Return a notebook as a page, with the outputs that are stored in it."""
    parts: list[str] = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data:
                parts.append("```{raw} html\n" + "".join(data["text/html"]) + "\n```")
            elif "image/png" in data:
                parts.append(f'<img alt="output" src="data:image/png;base64,{data["image/png"].strip()}">')
            else:
                parts.append(f"```text\n{''.join(output.get('text', data.get('text/plain', []))).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def decisions_page(folder: Path) -> str:
    """Return the list of decisions."""
    listed = "\n".join(f"../decisions/{path.stem}" for path in sorted(folder.glob("[0-9]*.md")))
    intro = "# Decisions\n\nWhat a reader may question, and why it is so."
    return f"{intro}\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
