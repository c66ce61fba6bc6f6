"""Sphinx: `make docs` builds into docs/_build, without network; warnings are errors."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.application import Sphinx

from dali_pipelines.cli import main as cli

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
COMMANDS = (*cli.COMMANDS, "train")

sys.path.insert(0, str(DOCS / "examples"))
sys.path.append(str(DOCS))
# Reader processes that an example starts inherit the path.
os.environ["PYTHONPATH"] = sys.path[0]

project = "dali-pipelines"
author = "the dali-pipelines authors"
release = version = installed_version("dali-pipelines")
html_title = f"{project} {release}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_build",
    "generated/*.txt",
    "examples",
    "gallery/*.ipynb",
    "sg_execution_times.rst",
]
templates_path = ["_templates"]
default_role = "obj"
smartquotes = False  # -- of flags stays as it is
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
myst_url_schemes = ["http", "https", "mailto"]

# The reference: all that is documented stands in the docstrings.
autosummary_generate = True
autosummary_imported_members = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# Links into other projects' pages need their inventories from the network, so they are optional.
intersphinx_mapping = (
    {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "astropy": ("https://docs.astropy.org/en/stable", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
    }
    if os.environ.get("DOCS_INTERSPHINX") == "1"
    else {}
)

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"^(?!plot_)",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "notebook_extensions": set(),  # reader processes cannot import what a notebook defines
    "remove_config_comments": True,
}

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": html_title},
    "navbar_align": "left",
    "show_prev_next": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": {"**": ["page-toc"], "guide/batch": []},
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "default",
    "pygments_dark_style": "github-dark",
}
html_sidebars = {"quickstart": [], "architecture": [], "benchmarks": [], "coming_from/*": []}
html_sidebars |= {"contributing": [], "changelog": []}
html_context = {"default_mode": "auto"}
copyright = f"{author}, Apache 2.0"


def write_help(app: Sphinx) -> None:
    """Write what each command says to --help, for the page of commands."""
    del app
    folder = DOCS / "generated"
    folder.mkdir(exist_ok=True)
    for name in COMMANDS:
        started = ["scripts/train.py"] if name == "train" else ["-m", "dali_pipelines", name]
        found = subprocess.run(
            [sys.executable, *started, "--help"],
            cwd=ROOT,
            env={**os.environ, "COLUMNS": "82"},
            capture_output=True,
            text=True,
            check=True,
        )
        (folder / f"{name}.txt").write_text(found.stdout)


def draw_figures(app: Sphinx) -> None:
    """Draw what was measured."""
    del app
    from figures import draw_speeds

    draw_speeds(ROOT / "benchmarks" / "results", DOCS / "generated" / "speeds.svg")


def make_samples(app: Sphinx) -> None:
    """Make the sample sets, where they are not yet, before the examples run."""
    del app
    from dali_pipelines import fits_samples, jpeg_samples

    fits_samples(num_frames=4)
    jpeg_samples(num_per_class=48)


def setup(app: Sphinx) -> None:
    """Connect what runs before the pages are read; the gallery has priority 500."""
    app.connect("builder-inited", write_help, priority=400)
    app.connect("builder-inited", draw_figures, priority=400)
    app.connect("builder-inited", make_samples, priority=400)
