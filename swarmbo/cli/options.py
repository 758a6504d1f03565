"""Parts that all commands share: the application, its options, and how commands end."""

import re
import shutil
import sys
import traceback
import warnings
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from swarmbo import errors
from swarmbo.boundary.processes import warn_in_one_line

if TYPE_CHECKING:
    from swarmbo.plotting import Formats
    from swarmbo.runs.report import Summary
    from swarmbo.runs.scenario import Scenario


class _Commands(TyperGroup):
    """All commands. Errors end a command with one line, and an option that the command lacks gets a suggestion."""

    def invoke(self, ctx: Any) -> Any:
        given = [*getattr(ctx, "_protected_args", []), *ctx.args]
        with _one_line_errors():
            try:
                return super().invoke(ctx)
            except Exception as error:
                # typer brings click along, under a name that differs between its versions
                option = cast(Any, error).option_name if type(error).__name__ == "NoSuchOption" else ""
                if not option or (suggestion := self._suggestion(option, given)) is None:
                    raise
                end(f"{option}: no such option of `swarmbo {given[0]}`; {suggestion}")

    def _suggestion(self, option: str, given: list[str]) -> str | None:
        """Suggestion for an unknown option: a setting of that name, or else another command with the option."""
        command, *arguments = given
        known = self.commands.get(command)
        texts = [text for text in arguments if text.partition("=")[0] == option]
        if known is not None and texts and any("--set" in cast(Any, parameter).opts for parameter in known.params):
            index = arguments.index(texts[0])
            value = texts[0].partition("=")[2] or next(iter(arguments[index + 1 : index + 2]), "") or "VALUE"
            source = next((text for text in arguments if not text.startswith("-")), None)
            if command != "solve" and (paths := _setting_paths(source, option.lstrip("-").replace("-", "_"))):
                return f"wanted {' or '.join(f'--set {path}={value}' for path in paths)}"
        alternatives = [
            f"`swarmbo {name} {option}`"
            for name, other in self.commands.items()
            if any(option in cast(Any, parameter).opts for parameter in other.params)
        ]
        return f"wanted {' or '.join(alternatives)}" if alternatives else None


def _setting_paths(source: str | None, key: str) -> list[str]:
    from swarmbo.runs import scenario_files
    from swarmbo.runs.scenario import paths_to

    try:
        return paths_to(key, {} if source is None else scenario_files.read_toml(scenario_files.locate(source)))
    except (errors.SwarmboError, OSError):  # not a scenario; the command itself refuses it
        return []


app = typer.Typer(
    cls=_Commands,
    help="Agents agree by message passing on the next measurements.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _scenario_names(incomplete: str) -> list[str]:
    from swarmbo.runs import scenario_files

    return scenario_files.scenario_names(incomplete)


def setting_paths_of(context: typer.Context, incomplete: str) -> list[str]:
    """Completions of ``--set``."""
    from swarmbo.runs import scenario_files

    # After a --set without a value, words typed before it are not assigned to the command's arguments.
    source = context.params.get("source") or next(iter(context.args), None)
    return scenario_files.setting_completions(source, incomplete)


Source = Annotated[
    str,
    Argument(metavar="NAME|FILE", help="A scenario of `swarmbo list`, or a TOML file.", autocompletion=_scenario_names),
]
RunPath = Annotated[Path, Argument(metavar="DIR", help="The folder of a run.")]
Overrides = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="TABLE.KEY=VALUE",
        help="Override a setting; may be repeated. A new `kind` resets its table.",
        autocompletion=setting_paths_of,
    ),
]
Seed = Annotated[int | None, Option(help="Seed of the world and the team; default: the scenario's.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no progress, only the result.")]
Trust = Annotated[
    bool, Option("--trust", help='Run code that the scenario names as "module:Class"; without it such code is refused.')
]
WorkerCount = Annotated[
    int | None, Option(help="Number of points of a function evaluated at a time; default: one by one.")
]
Engine = Annotated[
    str | None,
    Option(metavar="pool|ray|MODULE:CLASS", help="Engine of the workers; default: processes on this machine."),
]
Address = Annotated[str | None, Option(help="Address of a Ray cluster to join; default: start one here.")]
NoFigures = Annotated[bool, Option("--no-figures", help="Draw no figures.")]
FormatNames = Annotated[
    list[str] | None,
    Option(
        "--format",
        metavar="png|pdf|svg|gif|mp4",
        help="Format of figures (default: png), or of the animation (default: gif); may be repeated.",
    ),
]
Dpi = Annotated[int | None, Option(help="Dots per inch of figures (default: 150).")]
_LONGEST_LINE = 1000
_EXPLAINABLE_KEY = re.compile(r"\$\.((?:environment|belief|acquisition|coordination|transport|workers)\.\w+)[^ ]*")


def say_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error, a line for each."""
    for note in notes:
        typer.echo(f"swarmbo: {note}", err=True)


def end(line: str, status: int = 2) -> NoReturn:
    """End the command with a line on standard error."""
    say_notes([line])
    raise typer.Exit(status) from None


@contextmanager
def _one_line_errors() -> Generator[None]:
    """Block in which bad input, and unreadable or unwritable files, end the command with one line and status 2."""
    try:
        with warnings.catch_warnings():
            warn_in_one_line()
            yield
    except errors.SwarmboError as error:
        text = f"{error.at}: {error.message}" if isinstance(error, errors.ConfigError) else str(error)
        if isinstance(error, errors.ConfigError) and (key := _EXPLAINABLE_KEY.fullmatch(error.at)):
            text += f" (see: swarmbo explain {key[1]})"
        end(one_line(text))
    except KeyboardInterrupt:
        end("interrupted", 130)
    except BrokenPipeError:  # the program that read the output has ended; typer ends quietly
        raise
    except OSError as error:
        text = str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
        end(one_line(text))


@contextmanager
def resumable(folder: Path, scenario: "Scenario | None" = None) -> Generator[None]:
    """Block with a run: if anything stops it once rounds are logged, the command ends with a line how to resume it."""
    try:
        yield
    except KeyboardInterrupt:
        end(f"interrupted{_resume_hint(folder, scenario)}", 130)
    except (errors.TransportError, errors.EvaluationError, errors.OwnCodeError) as error:
        hint = _resume_hint(folder, scenario)  # none if nothing is logged: then own code that raises is a refused input
        end(f"{one_line(str(error))}{hint}", 1 if hint or isinstance(error, errors.TransportError) else 2)
    except errors.UnwritableError as error:  # it says how to resume
        end(one_line(str(error)), 1)
    except errors.SwarmboError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  from the world: its whole traceback is shown
        if not isinstance(error, MemoryError):
            traceback.print_exc()
        end(f"stopped by {one_line(f'{type(error).__name__}: {error}')}{_resume_hint(folder, scenario)}", 1)


def _resume_hint(folder: Path, scenario: "Scenario | None") -> str:
    """Words on how to resume, if the run in the folder has logged anything and is the scenario's; None is any."""
    from swarmbo.runs import RunFolder

    there = RunFolder(folder)
    is_logged = RunFolder.holds_run(folder) and there.has_begun and scenario in (None, there.scenario())
    return f"; what was logged is safe, {there.resume_hint}" if is_logged else ""


def say_awaited(agents: Sequence[str], plan: Path) -> None:
    """Print which agents of a fleet have to be started, if any."""
    if agents:
        command = f"swarmbo agent NAME --fleet {errors.typed(plan)}"
        typer.echo(f"waiting for {', '.join(agents)}: start each with `{command}`", err=True)


def run_trials(trials: Sequence[Any], workers: Any, *, quiet: bool) -> list[Any]:
    """Run the trials of a sweep, with progress; if interrupted, end with the way to continue."""
    from swarmbo.runs.progress import SweepProgress
    from swarmbo.runs.sweep import sweep

    try:
        with SweepProgress(len(trials), quiet=quiet) as progress:
            return sweep(trials, workers, lambda ended: progress.show(ended.status, ended.trial.out, ended.message))
    except KeyboardInterrupt:
        end("interrupted; the same command goes on where it stopped", 130)


def worker_settings(
    workers: int | None, engine: str | None = None, address: str | None = None, mode: str | None = None
) -> list[str]:
    """Settings of a scenario for the options about workers."""
    given = {"count": workers, "engine": engine, "address": address, "mode": mode}
    return [f"workers.{key}={value}" for key, value in given.items() if value is not None]


def formats(names: list[str] | None, dpi: int | None, no_figures: bool = False) -> "Formats | None":
    """Formats of figures, checked before anything runs; None if nothing is to be drawn."""
    if no_figures:
        return None
    from swarmbo.plotting import Formats

    return Formats.of(names or [], dpi)


def figure_at(path: Path | None, names: list[str] | None, dpi: int | None) -> tuple[Path, int] | None:
    """Path and dots per inch of one figure, in the format of ``--format`` or the path's ending; checked in advance."""
    if path is None:
        if names or dpi is not None:
            raise errors.ConfigError("got none; wanted the file of the figure for --format and --dpi", at="--figure")
        return None
    from swarmbo.boundary.files import FIGURE_FORMATS
    from swarmbo.plotting import Formats

    stated = names or ([path.suffix[1:]] if path.suffix else [])
    if unknown := [name for name in stated if name not in FIGURE_FORMATS]:
        raise errors.ConfigError(f"got {unknown[0]!r}; wanted png, pdf or svg", at="--figure")
    drawn_as = Formats.of(stated, dpi)
    return path if path.suffix and not names else path.with_suffix(f".{drawn_as.figures}"), drawn_as.dpi


def draw(folder: Path, drawn_as: "Formats | None") -> None:
    """Draw the figures of a run unless they are there already."""
    if drawn_as is not None:
        from swarmbo.runs.figures import draw_run, drawn_files

        if not drawn_files(folder, drawn_as):
            draw_run(folder, drawn_as)


def close(folder: Path, summary: "Summary", *, was_there: bool, drawn_as: "Formats | None") -> None:
    """End a run: print the closing tables and the folder, and draw figures."""
    from swarmbo.runs.report import reference_table, report_table

    if was_there:
        typer.echo(f"{folder}: this run is complete already")
    show(report_table(summary))
    if (others := reference_table(summary)) is not None:
        show(others)
    typer.echo(f"written to {folder}")
    draw(folder, drawn_as)


def line_width() -> int:
    """Columns of the terminal, or the number in COLUMNS; 160 without a terminal."""
    return shutil.get_terminal_size((160, 24)).columns


def show(*tables: object) -> None:
    """Print tables, at most ``line_width()`` columns wide."""
    from rich.console import Console

    console = Console(file=sys.stdout, width=line_width(), markup=False, emoji=False)
    for table in tables:
        console.print(table)


def one_line(text: str) -> str:
    """Text in one line of readable length, without control characters, which may come from a file."""
    if len(text) > _LONGEST_LINE:
        text = f"{text[: _LONGEST_LINE - 300]} … {text[-300:]}"  # the end says what is wanted
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
