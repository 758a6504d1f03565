"""The command line: ``swarmbo run``, ``resume``, ``sweep``, ``compare``, ``solve``, ``explain`` and others.

Modules that load numpy are imported inside the commands, so that ``--help`` is quick.
"""

import atexit
import gc
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated

import typer
from typer import Option

from swarmbo.cli.options import app as app

for commands in ("runs", "explain", "survey", "fleet"):  # each adds its own commands
    import_module(f"swarmbo.cli.{commands}")


def main() -> None:
    """Entry point of the ``swarmbo`` command."""
    # Modules keep half a million objects; searching them for cycles would take a third of a short command's time.
    gc.set_threshold(10_000, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):  # characters that the terminal lacks are shown as "?"
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()


def _version(wanted: bool) -> None:
    if wanted:
        import swarmbo

        typer.echo(f"swarmbo {swarmbo.__version__}")
        raise typer.Exit


@app.callback()
def _swarmbo(  # pyright: ignore[reportUnusedFunction]
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take options that belong to no command."""
