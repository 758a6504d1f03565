"""Check the output of tutorials: at least two figures, and neither NaN nor a warning in the printed text."""

import re
from pathlib import Path
from typing import Any

FIGURE = re.compile(r"^\.\. image-sg:: ", re.MULTILINE)
PRINTED = re.compile(r"^\.\. rst-class:: sphx-glr-script-out\n((?:[ \t].*\n|\n)*)", re.MULTILINE)
WRONG = re.compile(r"\bnan\b|\w*Warning: .*", re.IGNORECASE)


def setup(app: Any) -> dict[str, bool]:
    """Check the pages after sphinx-gallery has run their scripts."""
    app.connect("builder-inited", _look, priority=900)
    return {"parallel_read_safe": True}


def faults(page: str) -> list[str]:
    """Faults of a page that sphinx-gallery wrote, one line each."""
    shown = len(FIGURE.findall(page))
    few = [f"{shown} figures, wanted 2 or more"] if shown < 2 else []
    return few + [f"prints '{found}'" for text in PRINTED.findall(page) for found in WRONG.findall(text)]


def _look(app: Any) -> None:
    from sphinx.util import logging

    for script in sorted(Path(app.srcdir, "tutorials").glob("*.py")):
        page = Path(app.srcdir, "auto_tutorials", f"{script.stem}.rst")
        for fault in faults(page.read_text(encoding="utf-8")):
            logging.getLogger(__name__).warning(fault, location=str(script))
