"""Commands of fleets: a process for each agent."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from swarmbo.cli import options
from swarmbo.errors import ConfigError


class _ScenarioFirst(TyperGroup):
    """Commands of a fleet; a word that is no command is a scenario or a problem to run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help", "-h"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


fleet = typer.Typer(
    cls=_ScenarioFirst,
    no_args_is_help=True,
    help="Run a scenario, or solve a problem in tables, with one process for each agent, over a network.",
)
options.app.add_typer(fleet, name="fleet")
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host", metavar="NAME=ADDRESS", help="Address of a member on another machine, or of `world`; repeatable."
    ),
]
Keys = Annotated[Path | None, typer.Option(metavar="DIR", help="The folder that `swarmbo fleet keys` made.")]


@fleet.command("run")
def run_fleet(
    source: options.Source,
    seed: options.Seed = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Default: runs/<name>-<seed>-fleet.")] = None,
    overrides: options.Overrides = None,
    coordination: Annotated[
        str | None,
        typer.Option("--coordination", "--algo", help="How agents choose. Default: the scenario's kind, or max-sum."),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(metavar="tcp|tls|quic", help="Default: tls with --keys or --host, else tcp, here.")
    ] = None,
    keys: Keys = None,
    port: Annotated[
        int, typer.Option(help="Port of the coordinator process; agents listen on the ports after it.")
    ] = 7447,
    hosts: Hosts = None,
    elsewhere: Annotated[
        list[str] | None,
        typer.Option("--elsewhere", metavar="NAME", help="An agent that `swarmbo agent` starts; may be repeated."),
    ] = None,
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "--measures", metavar="NAME", help="An agent on another machine that measures there; may be repeated."
        ),
    ] = None,
    patience: Annotated[float, typer.Option(help="Seconds for which members wait for one another.")] = 60.0,
    tick: Annotated[float, typer.Option(help="Seconds of a tick, for agents that agree by a deadline.")] = 0.05,
    no_figures: options.NoFigures = False,
    formats: options.FormatNames = None,
    dpi: options.Dpi = None,
    quiet: options.Quiet = False,
) -> None:
    """Run a scenario with a process for each agent; the decisions are those of `swarmbo run`.

    Of a problem in tables, as `swarmbo solve` takes it, they are those of `solve`, and --set has the method's settings.
    By a deadline they come as messages do, and go on without agents that are gone.
    """
    with options.one_line_errors():
        from swarmbo.cli.tables import is_in_tables, table_problem
        from swarmbo.fleet.run import Network, run_fleet as run_scenario
        from swarmbo.runs import load
        from swarmbo.runs.sweep import folder_name
        from swarmbo.runs.telling import Progress

        network = Network(
            protocol=protocol or ("tcp" if keys is None and not hosts else "tls"),  # pyright: ignore[reportArgumentType] - checked
            port=port,
            hosts=_hosts(hosts),
            keys=keys,
            elsewhere=tuple(elsewhere or ()),
            measures=tuple(measures or ()),
            patience_s=patience,
            tick_s=tick,
        )
        away = ", ".join([*network.elsewhere, *network.measures])
        drawn_as = options.formats(formats, dpi, no_figures)
        if is_in_tables(source):
            from swarmbo.fleet.table_run import solve_by_fleet
            from swarmbo.interchange.solved import method_of

            if formats or dpi:
                raise ConfigError("got a format of figures; wanted none: `swarmbo solve --figure` draws", at="--format")
            problem, settings, transport = table_problem(source, overrides, {"kind": coordination})
            if transport:
                wanted = "wanted none: a fleet uses real links; `swarmbo solve` simulates them"
                raise ConfigError(f"got settings of a transport; {wanted}", at="$.transport")
            out = out or Path("runs") / f"{folder_name(problem.name)}-{seed or 0}-fleet"
            _say_awaited(away, out / "fleet" / "NAME.json")
            solved, report = solve_by_fleet(problem, method_of(settings), seed or 0, out, network)
            options.show(solved.table())
            for note in solved.notes:
                typer.echo(f"swarmbo: {note}", err=True)
            typer.echo(f"written to {out}")
        else:
            given = [] if coordination is None else [f"coordination={coordination}"]
            given += [*(overrides or []), *([] if seed is None else [f"seed={seed}"])]
            scenario = load(source, given, False)
            out = out or Path("runs") / f"{folder_name(scenario.name)}-{scenario.seed}-fleet"
            _say_awaited(away, out / "fleet" / "fleet.json")
            with Progress(scenario.rounds, quiet=quiet) as progress:
                summary, report = run_scenario(scenario, out, network, progress.show)
            options.close(out, summary, was_there=False, drawn_as=drawn_as)
        typer.echo(f"network: {report.repeated:,} messages repeated, {report.refused:,} refused", err=True)
        if odd := ", ".join(f"{name} ({count})" for name, count in report.odd.items()):
            typer.echo(f"swarmbo: messages with inadmissible content were refused, of {odd}", err=True)
        if again := ", ".join(f"{name} {count} times" for name, count in report.restarts.items()):
            typer.echo(f"swarmbo: processes were started again: {again}", err=True)
        for name, rounds in report.missed.items():
            now = "gone" if name in report.absent else "back"
            count = f"{rounds} {'round' if rounds == 1 else 'rounds'}"
            typer.echo(f"swarmbo: {name} was gone in {count}, and is {now} at the end", err=True)


@fleet.command("keys")
def make_fleet_keys(
    source: options.Source,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the keys.")],
    overrides: options.Overrides = None,
    hosts: Hosts = None,
) -> None:
    """Make a test authority, and a certificate and a key for each member, good for 30 days."""
    with options.one_line_errors():
        from swarmbo.cli.tables import is_in_tables, table_problem
        from swarmbo.fleet import run
        from swarmbo.fleet.link import make_keys
        from swarmbo.runs import load

        if is_in_tables(source):
            members = [run.HUB, *table_problem(source, overrides, {})[0].graph.agents]
        else:
            members = run.members_of(load(source, overrides or [], False))
        given = _hosts(hosts)
        if strangers := sorted(set(given) - set(members)):
            raise ConfigError(f"got {strangers[0]!r}; wanted one of {members}", at="--host")
        written = make_keys(folder, {name: given.get(name, "127.0.0.1") for name in members})
        typer.echo(f"{len(written)} files: {folder}")


@options.app.command()
def agent(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the agent.")],
    plan: Annotated[Path, typer.Option("--fleet", metavar="FILE", help="The plan that `swarmbo fleet` wrote.")],
    keys: Keys = None,
    measure: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Function that measures at a location, the agent's own environment; needs --trust.",
        ),
    ] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Run the code that --measure names.")] = False,
    attached: Annotated[bool, typer.Option("--attached", hidden=True, help="End when standard input does.")] = False,
) -> None:
    """Run one agent of a fleet, here or on another machine, until the run ends."""
    with options.one_line_errors():
        from swarmbo.fleet.measuring import loaded
        from swarmbo.fleet.run import be_member

        own = None if measure is None else loaded(measure, trust)
        be_member(name, plan, attached=attached, keys=keys, measure=own)


def _say_awaited(away: str, plan: Path) -> None:
    if away:
        typer.echo(f"waiting for {away}: start each with `swarmbo agent NAME --fleet {plan}`", err=True)


def _hosts(given: list[str] | None) -> dict[str, str]:
    pairs = [(name, address) for name, _, address in (text.partition("=") for text in given or [])]
    if bad := [name for name, address in pairs if not (name and address)]:
        raise ConfigError(f"got {bad[0]!r}; wanted NAME=ADDRESS", at="--host")
    return dict(pairs)
