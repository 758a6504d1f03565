"""The command line: ``swarmbo run | resume | sweep | compare | solve | plot | export | check | list | fleet | agent``.

Modules that load numpy are imported inside the commands, so that ``--help`` is quick.
"""

from importlib import import_module
from typing import Annotated

import typer

from swarmbo.cli.options import app as app

for commands in ("runs", "solve", "fleet"):  # each adds its own
    import_module(f"swarmbo.cli.{commands}")


def main() -> None:
    """Entry point of the ``swarmbo`` command."""
    app()


def _version(wanted: bool) -> None:
    if wanted:
        import swarmbo

        typer.echo(f"swarmbo {swarmbo.__version__}")
        raise typer.Exit


@app.callback()
def _swarmbo(  # pyright: ignore[reportUnusedFunction]
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take options that belong to no command."""
