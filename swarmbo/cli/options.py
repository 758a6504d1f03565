"""The command line's application, and the options that its commands have in common."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Agents in simulated worlds agree by message passing on where to measure next.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _scenario_names(incomplete: str) -> list[str]:
    from swarmbo.runs.completion import scenario_names

    return scenario_names(incomplete)


def setting_paths_of(context: typer.Context, incomplete: str) -> list[str]:
    """What may follow ``--set``."""
    from swarmbo.runs.completion import setting_paths

    # Behind a --set that has no value yet, what was typed before is not assigned to the command's arguments.
    return setting_paths(context.params.get("source") or next(iter(context.args), None), incomplete)


Source = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE", help="A scenario of `swarmbo list`, or a TOML file.", autocompletion=_scenario_names
    ),
]
RunPath = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="TABLE.KEY=VALUE",
        help="Override a setting; may be repeated. A new `kind` starts its table afresh.",
        autocompletion=setting_paths_of,
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed of world and team; default: the scenario's.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only the result.")]
Trust = Annotated[
    bool, typer.Option("--trust", help='Run code that the scenario names as "module:Class"; else it is refused.')
]
NoFigures = Annotated[bool, typer.Option("--no-figures", help="Draw no figures.")]
FormatNames = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        metavar="png|pdf|svg|gif|mp4",
        help="Of figures (default: png) and, given once more, of the animation (default: gif).",
    ),
]
Dpi = Annotated[int | None, typer.Option(help="Dots per inch of figures (default: 150).")]
