"""Settings of the documentation site: `make docs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from schemas import __version__

project = "tillroll"
author = "the tillroll authors"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxcontrib.programoutput",
]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
smartquotes = False  # "--" of a flag is not a dash
html_show_copyright = False
html_theme = "furo"
html_title = "tillroll"
html_static_path = ["_static"]
html_css_files = ["site.css"]

autodoc_typehints = "none"  # the signatures have them
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
napoleon_use_rtype = False
# Docstrings name Python objects in single backticks, as the code's comments do.
default_role = "code"

# Names that the signatures of options hold, and that have no page here.
nitpick_ignore = [
    ("py:class", "collections.abc.Callable"),
    ("py:class", "schemas.excluded.Excluded"),
    ("py:class", "schemas.manifest.Manifest"),
]

programoutput_prompt_template = "$ {command}\n{output}"
