"""Settings of the site: ``python -m sphinx -W -b html docs build/site`` builds it, without a network."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import swarmbo  # noqa: E402

SITE = ""  # the address at which the site is served; empty until it has one

project = "swarmbo"
author = "The swarmbo authors"
copyright = author
release = version = swarmbo.__version__
html_baseurl = SITE

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "fragments",
    "links",
    "mathml",
    "outputs",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_fragments/**", "_ext/**", "tutorials/*", "gallery/*", "README.md"]
suppress_warnings = ["myst.header"]  # a page skips a level of headings
default_role = "code"  # docstrings set code in single backticks, too

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings name types where they matter
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
add_module_names = False
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Warns", "params_style")]

html_theme = "pydata_sphinx_theme"
html_title = "swarmbo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_context = {"default_mode": "auto"}
html_copy_source = False
html_sidebars = {"index": []}
html_theme_options = {
    "header_links_before_dropdown": 9,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "logo": {"text": "swarmbo"},
}
sphinx_gallery_conf = {
    "examples_dirs": ["tutorials", "gallery"],
    "gallery_dirs": ["auto_tutorials", "auto_gallery"],
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "parallel": 2,
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 0,
    "write_computation_times": False,
    "show_signature": False,
    "remove_config_comments": True,
    "image_scrapers": ("matplotlib", "pictures"),
    "reset_modules": ("matplotlib",),
    "within_subsection_order": "FileNameSortKey",
    "default_thumb_file": str(HERE / "images" / "agreement.png"),
}
