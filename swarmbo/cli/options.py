"""The command line's application, and the options that its commands have in common."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup


class _Commands(TyperGroup):
    """The commands; of an option that one of them does not have, what may be meant is said."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        given = [*getattr(ctx, "_protected_args", []), *ctx.args]
        try:
            return super().invoke(ctx)
        except Exception as error:
            # typer brings click along, under a name that differs between its versions
            option = cast(Any, error).option_name if type(error).__name__ == "NoSuchOption" else ""
            if not option or (meant := self._meant(option, given)) is None:
                raise
            typer.echo(f"swarmbo: {option}: no such option of `swarmbo {given[0]}`; {meant}", err=True)
            raise typer.Exit(2) from None

    def _meant(self, option: str, given: list[str]) -> str | None:
        """The setting, or else the command, that an unknown option stands for."""
        command, *arguments = given
        own = self.commands.get(command)
        texts = [text for text in arguments if text.partition("=")[0] == option]
        if own is not None and texts and any("--set" in cast(Any, one).opts for one in own.params):
            at = arguments.index(texts[0])
            value = texts[0].partition("=")[2] or next(iter(arguments[at + 1 : at + 2]), "") or "VALUE"
            source = next((text for text in arguments if not text.startswith("-")), None)
            if command != "solve" and (paths := _setting_paths(source, option.lstrip("-").replace("-", "_"))):
                return f"wanted {' or '.join(f'--set {path}={value}' for path in paths)}"
        others = [
            f"`swarmbo {name} {option}`"
            for name, other in self.commands.items()
            if any(option in cast(Any, one).opts for one in other.params)
        ]
        return f"wanted {' or '.join(others)}" if others else None


def _setting_paths(source: str | None, key: str) -> list[str]:
    from swarmbo.errors import SwarmboError
    from swarmbo.runs.scenario import locate, paths_to, read_toml

    try:
        return paths_to(key, {} if source is None else read_toml(locate(source)))
    except (SwarmboError, OSError):  # no scenario, of which the command itself says so once its options are right
        return []


app = typer.Typer(
    cls=_Commands,
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
