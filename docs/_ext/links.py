"""Make links to tutorials work on the site: in a clone they lead to the script, on the site to its page."""

import re
from pathlib import Path
from typing import Any

SCRIPT = re.compile(r"\]\((?P<folder>(?:\.\./)*(?:docs/)?)(?P<name>(?:tutorials|gallery)/\w+)\.py\)")


def setup(app: Any) -> dict[str, bool]:
    """Register the change of links in page sources."""
    app.connect("source-read", _change)
    return {"parallel_read_safe": True}


def _change(app: Any, name: str, source: list[str]) -> None:
    if Path(app.srcdir, f"{name}.md").exists():
        source[0] = SCRIPT.sub(r"](/auto_\g<name>.rst)", source[0])
