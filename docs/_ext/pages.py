"""The directive ``pages``: a toctree by glob, of a section that may still have no pages."""

from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.directives.other import TocTree


def setup(app: Any) -> dict[str, bool]:
    """Make the directive known."""
    app.add_directive("pages", Pages)
    return {"parallel_read_safe": True}


class Pages(TocTree):
    """The pages beside this one that match the patterns, in their order; a pattern without a page is left out."""

    option_spec: ClassVar[Any] = {"caption": directives.unchanged, "maxdepth": int, "hidden": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Leave out patterns, then make a toctree."""
        here = Path(self.env.doc2path(self.env.docname))
        there = sorted(page.stem for page in here.parent.iterdir() if page.suffix in {".md", ".rst"} and page != here)
        listed = self.env.temp_data.setdefault("pages", set())  # on this page, so far
        names = [name for pattern in self.content for name in there if Path(name).match(pattern)]
        matched = [name for name in names if name not in listed]
        listed.update(matched)
        if not matched:
            return []
        self.content = StringList(list(dict.fromkeys(matched)), source=str(here))
        return super().run()
