"""How commands end: tables and figures where all went well, and one line where not."""

import shutil
import sys
import traceback
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from swarmbo.boundary.data_warnings import tell_in_one_line
from swarmbo.errors import ConfigError, SwarmboError

if TYPE_CHECKING:
    from swarmbo.plotting import Formats
    from swarmbo.runs.summary import Summary

_LONGEST_LINE = 1000


@contextmanager
def one_line_errors() -> Generator[None]:
    """Bad input, and files that cannot be read or written, end the command with one line and status 2."""
    try:
        with warnings.catch_warnings():
            tell_in_one_line()
            yield
    except SwarmboError as error:
        text = f"{error.at}: {error.message}" if isinstance(error, ConfigError) else str(error)
        typer.echo("swarmbo: " + one_line(text), err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("swarmbo: interrupted", err=True)
        raise typer.Exit(130) from None
    except BrokenPipeError:  # whoever read the output has gone; typer ends quietly
        raise
    except OSError as error:
        text = str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
        typer.echo("swarmbo: " + one_line(text), err=True)
        raise typer.Exit(2) from None


@contextmanager
def resumable(folder: Path) -> Generator[None]:
    """Whatever stops a run, say how to go on with it."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"swarmbo: interrupted; `swarmbo resume {folder}` goes on from here", err=True)
        raise typer.Exit(130) from None
    except SwarmboError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  the world's own: its traceback is shown whole
        if not isinstance(error, MemoryError):
            traceback.print_exc()
        line = one_line(f"{type(error).__name__}: {error}")
        typer.echo(f"swarmbo: stopped by {line}; what was logged is safe, `swarmbo resume {folder}` goes on", err=True)
        raise typer.Exit(1) from None


def formats(names: list[str] | None, dpi: int | None, no_figures: bool = False) -> "Formats | None":
    """What to draw as; refused before anything is run. None: nothing is to be drawn."""
    if no_figures:
        return None
    from swarmbo.plotting import Formats

    return Formats.of(names or [], dpi)


def figure_at(path: Path | None, names: list[str] | None, dpi: int | None) -> "tuple[Path, Formats] | None":
    """Where one figure goes and as what: as ``--format`` says, or the ending of its name; refused before it is drawn.

    Raises:
        ConfigError: If that is no format of figures.
    """
    if path is None:
        return None
    from swarmbo.plotting import Formats
    from swarmbo.plotting.formats import ANIMATION_FORMATS

    said = names or ([path.suffix[1:]] if path.suffix else [])
    if moving := [name for name in said if name in ANIMATION_FORMATS]:
        raise ConfigError(f"got {moving[0]!r}; wanted png, pdf or svg", at="--figure")
    drawn_as = Formats.of(said, dpi)
    return path if path.suffix and not names else path.with_suffix(f".{drawn_as.figures}"), drawn_as


def draw(folder: Path, drawn_as: "Formats | None") -> None:
    """Draw the figures of a run that are not there yet."""
    if drawn_as is not None:
        from swarmbo.runs.figures import draw_run, is_drawn

        if not is_drawn(folder, drawn_as):
            draw_run(folder, drawn_as)


def close(folder: Path, summary: "Summary", *, was_there: bool, drawn_as: "Formats | None") -> None:
    """What a run ends with: figures, the closing tables, and where all that lies."""
    from swarmbo.runs.report import reference_table, report_table

    if was_there:
        typer.echo(f"{folder}: this run is complete already")
    draw(folder, drawn_as)
    show(report_table(summary))
    if (others := reference_table(summary)) is not None:
        show(others)
    typer.echo(f"written to {folder}")


def line_width() -> int:
    """Columns of the terminal, or those that COLUMNS says; 160 where nobody looks at one."""
    return shutil.get_terminal_size((160, 24)).columns


def show(*tables: object) -> None:
    """Print tables, at most as wide as lines are."""
    from rich.console import Console

    console = Console(file=sys.stdout, width=line_width())
    for table in tables:
        console.print(table)


def one_line(text: str) -> str:
    """Text of a length that can be read, without line ends and control characters, whatever a file held."""
    if len(text) > _LONGEST_LINE:
        text = f"{text[: _LONGEST_LINE - 300]} … {text[-300:]}"  # what is wanted comes last
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
