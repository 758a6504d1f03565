"""Commands for other processes and machines: fleets, which have a process for each agent, and the service over HTTP."""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from swarmbo.cli import options
from swarmbo.errors import ConfigError, typed

if TYPE_CHECKING:
    from swarmbo.fleet import run


class _ScenarioFirst(TyperGroup):
    """Commands of a fleet; a first word that is not a command is a scenario or a problem to run."""

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
    Option("--host", metavar="NAME=ADDRESS", help="Address of a member on another machine, or of `world`; repeatable."),
]
Keys = Annotated[Path | None, Option(metavar="DIR", help="The folder that `swarmbo fleet keys` made.")]


@fleet.command("run")
def run_fleet(
    source: options.Source,
    seed: options.Seed = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="Default: runs/NAME-SEED-fleet.")] = None,
    overrides: options.Overrides = None,
    coordination: Annotated[
        str | None,
        Option("--coordination", "--algo", help="How agents choose. Default: the scenario's kind, or max-sum."),
    ] = None,
    protocol: Annotated[
        str | None, Option(metavar="tcp|tls|quic", help="Default: tls with --keys or --host, else tcp, here.")
    ] = None,
    keys: Keys = None,
    port: Annotated[int, Option(help="Port of the coordinator process; agents listen on the ports after it.")] = 7447,
    hosts: Hosts = None,
    elsewhere: Annotated[
        list[str] | None,
        Option("--elsewhere", metavar="NAME", help="An agent that `swarmbo agent` starts; may be repeated."),
    ] = None,
    measures: Annotated[
        list[str] | None,
        Option("--measures", metavar="NAME", help="An agent on another machine that measures there; may be repeated."),
    ] = None,
    patience: Annotated[float, Option(help="Seconds for which members wait for one another.")] = 60.0,
    tick: Annotated[float, Option(help="Seconds of a tick, for agents that agree by a deadline.")] = 0.05,
    no_figures: options.NoFigures = False,
    formats: options.FormatNames = None,
    dpi: options.Dpi = None,
    quiet: options.Quiet = False,
) -> None:
    """Run a scenario with a process for each agent; decisions equal those of `swarmbo run`.

    For a problem in tables, they equal those of `swarmbo solve`, and --set takes the method's settings.
    With a deadline, they depend on the times of arrival of messages, and continue without agents that are gone.
    """
    from swarmbo.cli import tables
    from swarmbo.fleet import run

    link_protocol: Any = protocol or ("tcp" if keys is None and not hosts else "tls")  # checked by a fleet
    started_elsewhere, measuring = tuple(elsewhere or ()), tuple(measures or ())
    network = run.Network(link_protocol, port, _hosts(hosts), keys, started_elsewhere, measuring, patience, tick)
    drawn_as = options.formats(formats, dpi, no_figures)
    if tables.is_in_tables(source):
        if formats or dpi:
            raise ConfigError("got a format of figures; wanted none: `swarmbo solve --figure` draws", at="--format")
        report = _solve_by_fleet(source, overrides, coordination, seed or 0, out, network)
    else:
        from swarmbo.runs import load
        from swarmbo.runs.progress import Progress
        from swarmbo.runs.sweep import folder_name

        method = [] if coordination is None else [f"coordination={coordination}"]
        drawn_from = [] if seed is None else [f"seed={seed}"]
        scenario = load(source, [*method, *(overrides or []), *drawn_from], None)
        out = out or Path("runs") / f"{folder_name(scenario.name)}-{scenario.seed}-fleet"
        with options.resumable(out, scenario), Progress(scenario.rounds, quiet=quiet) as progress:
            summary, report = run.run_fleet(scenario, out, network, progress.show, options.say_awaited)
        options.close(out, summary, was_there=False, drawn_as=drawn_as)
    typer.echo(f"network: {report.repeated:,} messages repeated, {report.refused:,} refused", err=True)
    options.say_notes(_network_notes(report))


def _solve_by_fleet(
    source: str,
    overrides: list[str] | None,
    coordination: str | None,
    seed: int,
    out: Path | None,
    network: "run.Network",
) -> "run.NetworkReport":
    """Solve a problem in tables, print the solution, and return the counts of its network."""
    from swarmbo.cli import tables
    from swarmbo.fleet.table_run import solve_by_fleet
    from swarmbo.interchange.solved import method_of
    from swarmbo.runs.sweep import folder_name

    problem, settings, transport = tables.table_problem(source, overrides, {"kind": coordination})
    if transport:
        wanted = "wanted none: a fleet uses real links; `swarmbo solve` simulates them"
        raise ConfigError(f"got settings of a transport; {wanted}", at="$.transport")
    out = out or Path("runs") / f"{folder_name(problem.name)}-{seed}-fleet"
    solved, report = solve_by_fleet(problem, method_of(settings), seed, out, network, options.say_awaited)
    options.show(solved.table())
    options.say_notes(solved.notes)
    typer.echo(f"written to {out}")
    return report


def _network_notes(report: "run.NetworkReport") -> Iterator[str]:
    if inadmissible := ", ".join(f"{name} ({count})" for name, count in report.inadmissible.items()):
        yield f"messages with inadmissible content were refused, of {inadmissible}"
    if again := ", ".join(f"{name} {count} times" for name, count in report.restarts.items()):
        yield f"processes were started again: {again}"
    for name, rounds in report.missed.items():
        count, state = f"{rounds} round{'s' * (rounds != 1)}", "gone" if name in report.absent else "back"
        yield f"{name} was gone in {count}, and is {state} at the end"


@fleet.command("keys")
def make_fleet_keys(
    source: options.Source,
    folder: Annotated[Path, Argument(metavar="DIR", help="Folder for the keys.")],
    overrides: options.Overrides = None,
    hosts: Hosts = None,
) -> None:
    """Make a test authority, and a certificate and a key for each member, good for 30 days."""
    from swarmbo.cli import tables
    from swarmbo.fleet import run
    from swarmbo.fleet.link import make_keys
    from swarmbo.runs import load

    if tables.is_in_tables(source):
        members = [run.HUB, *tables.table_problem(source, overrides, {})[0].graph.agents]
    else:
        members = run.members_of(load(source, overrides or [], None))
    addresses = _hosts(hosts)
    if unknown := sorted(set(addresses) - set(members)):
        raise ConfigError(f"got {unknown[0]!r}; wanted one of {members}", at="--host")
    written = make_keys(folder, {name: addresses.get(name, "127.0.0.1") for name in members})
    typer.echo(f"{len(written)} files, for `swarmbo fleet … --keys {typed(folder)}`: {folder}")


@options.app.command()
def agent(
    name: Annotated[str, Argument(metavar="NAME", help="Name of the agent.")],
    plan: Annotated[Path, Option("--fleet", metavar="FILE", help="The plan that `swarmbo fleet` wrote.")],
    keys: Keys = None,
    measure: Annotated[
        str | None,
        Option(
            metavar="MODULE:FUNCTION",
            help="Function that measures at a location, in place of the environment; needs --trust.",
        ),
    ] = None,
    trust: Annotated[bool, Option("--trust", help="Run the code that --measure names.")] = False,
    attached: Annotated[bool, Option("--attached", hidden=True, help="End when standard input does.")] = False,
) -> None:
    """Run one agent of a fleet, here or on another machine, until the run ends."""
    from swarmbo.fleet import run
    from swarmbo.fleet.measuring import load_instrument

    instrument = None if measure is None else load_instrument(measure, trust)
    run.run_member(name, plan, attached=attached, keys=keys, measure=instrument)


def _hosts(given: list[str] | None) -> dict[str, str]:
    pairs = [(name, address) for name, _, address in (text.partition("=") for text in given or [])]
    if incomplete := [name for name, address in pairs if not (name and address)]:
        raise ConfigError(f"got {incomplete[0]!r}; wanted NAME=ADDRESS", at="--host")
    return dict(pairs)


@options.app.command()
def serve(
    source: options.Source,
    seed: options.Seed = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="Default: runs/NAME-SEED-served.")] = None,
    overrides: options.Overrides = None,
    host: Annotated[str, Option(help="Host, or an IP address.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port; 0 for a free one.")] = 8000,
    token_file: Annotated[
        Path | None, Option(metavar="FILE", help="File with the token; default: one is made in the folder.")
    ] = None,
    tls_cert: Annotated[Path | None, Option(metavar="FILE", help="Certificate (PEM), for TLS.")] = None,
    tls_key: Annotated[Path | None, Option(metavar="FILE", help="Key of the certificate (PEM).")] = None,
    insecure: Annotated[
        bool, Option("--insecure", help="Permit another host than loopback without TLS, as behind a proxy.")
    ] = False,
    pending: Annotated[int, Option(help="Most pending queries.")] = 256,
    trust: options.Trust = False,
) -> None:
    """Serve a scenario over HTTP: clients ask for points and tell outcomes; the same command continues after a stop."""
    from swarmbo.runs import load
    from swarmbo.runs.sweep import folder_name
    from swarmbo.serve.server import Address, serve as serve_scenario

    scenario = load(source, [*(overrides or []), *([] if seed is None else [f"seed={seed}"])], trust)
    folder = Path("runs") / f"{folder_name(scenario.name)}-{scenario.seed}-served" if out is None else out
    address = Address(host, port, token_file, tls_cert, tls_key, insecure)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # systemd and Docker end services with it
    serve_scenario(scenario, folder, address, most_pending=pending, trust=trust, say=partial(typer.echo, err=True))
