"""A scraper of sphinx-gallery: the files of figures that a block calls ``pictures``, such as ``Run.plot`` returns."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx_gallery.scrapers import figure_rst


def _get_sg_image_scraper() -> Any:  # pyright: ignore[reportUnusedFunction]  sphinx-gallery's name
    return scrape


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Copy the files beside the page, and take them from the block's names, so that the next does not show them.

    Args:
        block: Of the script; not looked at.
        block_vars: Names and places of files.
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
