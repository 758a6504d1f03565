"""Scraper of sphinx-gallery for files of figures, such as ``Run.plot`` returns, in a block's variable ``pictures``."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx_gallery.scrapers import figure_rst


def _get_sg_image_scraper() -> Any:  # pyright: ignore[reportUnusedFunction]  sphinx-gallery's name
    return scrape


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Copy the files next to the page, and delete ``pictures``, so that the next block does not show them again.

    Args:
        block: Block of the script; not used.
        block_vars: Variables of the block, and paths for its figures.
        gallery_conf: Settings of sphinx-gallery.
    """
    pictures = block_vars["example_globals"].pop("pictures", ())
    targets: Iterator[str] = iter(block_vars["image_path_iterator"])
    shown = list[str]()
    for picture, target in zip(map(Path, pictures), targets, strict=False):
        path = Path(target).with_suffix(picture.suffix)
        shutil.copyfile(picture, path)
        shown.append(figure_rst([str(path)], gallery_conf["src_dir"], f"{picture.stem.replace('_', ' ')} of the run"))
    return "\n".join(shown)
