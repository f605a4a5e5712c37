"""Sphinx configuration of the documentation site: `make docs` builds it into build/docs."""

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from site_pages import rewrite_links, write_pages

project, author, project_copyright = "regun", "The regun authors", "The regun authors"
release = metadata.version("regun")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["decisions/README.md"]
suppress_warnings = ["myst.header"]  # generated pages start at the level of their parent
myst_heading_anchors = 3
default_role = "code"  # docstrings quote names with single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
napoleon_google_docstring, napoleon_numpy_docstring = True, False
html_theme = "furo"
html_title = "regun"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp"


def setup(app: object) -> None:
    """Write the generated pages before Sphinx reads the sources, and follow links to files of the repository."""
    write_pages(Path(__file__).parent)
    app.connect("source-read", rewrite_links)  # type: ignore[attr-defined]
