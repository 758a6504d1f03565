"""The command line: ``swarmbo run | resume | plot | export | list | check | sweep | compare | solve``.

Modules that load numpy are imported inside the commands, so that ``--help`` is quick.
"""

import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from swarmbo.boundary.data_warnings import tell_in_one_line
from swarmbo.errors import ConfigError, SwarmboError

if TYPE_CHECKING:
    from swarmbo.plotting import Formats
    from swarmbo.runs.summary import Summary

app = typer.Typer(
    help="Agents in simulated worlds agree by message passing on where to measure next.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _scenario_names(incomplete: str) -> list[str]:
    from swarmbo.runs.completion import scenario_names

    return scenario_names(incomplete)


def _setting_paths(context: typer.Context, incomplete: str) -> list[str]:
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
        autocompletion=_setting_paths,
    ),
]
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

_LONGEST_LINE = 1000


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


@app.command()
def run(
    source: Source,
    seed: Annotated[int | None, typer.Option(help="Seed of world and team; default: the scenario's.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Default: runs/<name>-<seed>[+<settings>].")] = None,
    overrides: Overrides = None,
    no_figures: NoFigures = False,
    formats: FormatNames = None,
    dpi: Dpi = None,
    quiet: Quiet = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run that lies in the folder.")] = False,
    trust: Trust = False,
) -> None:
    """Run a scenario into a folder of its own, with figures and a closing table."""
    with _one_line_errors():
        from swarmbo.runs import load, run as run_scenario
        from swarmbo.runs.sweep import folder_name, setting_slug

        given, drawn_as = list(overrides or []), _formats(formats, dpi, no_figures)
        scenario = load(source, [*given, *([] if seed is None else [f"seed={seed}"])], trust)
        if out is None:
            settings = f"+{setting_slug(given)}" if given else ""
            out = Path("runs") / f"{folder_name(scenario.name)}-{scenario.seed}{settings}"
        was_there = (out / "summary.json").is_file() and not force
        with _resumable(out):
            summary = run_scenario(scenario, out, force=force, progress=not quiet, trust=trust)
        _close(out, summary, was_there=was_there, drawn_as=drawn_as)


@app.command()
def resume(
    folder: RunPath,
    no_figures: NoFigures = False,
    formats: FormatNames = None,
    dpi: Dpi = None,
    quiet: Quiet = False,
    trust: Trust = False,
) -> None:
    """Go on with an interrupted run, as if it had never been interrupted."""
    with _one_line_errors():
        from swarmbo.runs import RunFolder, resume as resume_run
        from swarmbo.runs.summary import read_summary

        there, drawn_as = RunFolder.open(folder), _formats(formats, dpi, no_figures)
        was_there = read_summary(there) is not None
        with _resumable(folder):
            summary = resume_run(folder, progress=not quiet, trust=trust)
        _close(folder, summary, was_there=was_there, drawn_as=drawn_as)


@app.command()
def plot(folder: RunPath, formats: FormatNames = None, dpi: Dpi = None) -> None:
    """Draw the figures of a run again, complete or not."""
    with _one_line_errors():
        from swarmbo.runs.figures import draw_run

        files = draw_run(folder, _formats(formats, dpi))
        for path in files:
            typer.echo(path)
        if not files:
            typer.echo(f"swarmbo: {folder}: no round is logged yet, so there is nothing to draw", err=True)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run, or one with runs below it.")],
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Default: measurements.csv|parquet in DIR; - for stdout.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Write CSV, the default.")] = False,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Write Parquet; needs pip install swarmbo[pandas].")
    ] = False,
) -> None:
    """Write one tidy table of a run, complete or not: a row for each measurement."""
    with _one_line_errors():
        from swarmbo.runs.export import export as export_runs

        written = export_runs(folder, file, csv=csv, parquet=parquet)
        if written is not None:
            typer.echo(written)


@app.command()
def check(
    source: Source,
    overrides: Overrides = None,
    quick: Annotated[bool, typer.Option("--quick", help="Do not try a round to estimate time and memory.")] = False,
    trust: Trust = False,
) -> None:
    """Build the world and the team of a scenario, and try a round: what a run would refuse is refused here."""
    with _one_line_errors():
        from swarmbo.runs import check as check_scenario, load

        scenario, takes = load(source, overrides or [], trust), ""
        if quick:
            check_scenario(scenario, trust)
        else:
            from swarmbo.runs.trial import estimate

            takes = f"; a run takes {estimate(scenario, trust).text()}"
        what = f"{scenario.environment['id']}, {scenario.rounds} rounds, seed {scenario.seed}"
        typer.echo(f"{scenario.name}: ready to run ({what}{takes})")


@app.command("list")
def list_known() -> None:
    """List the scenarios that swarmbo brings, and the environments and kinds that scenarios can name."""
    with _one_line_errors():
        from swarmbo.registry import SLOTS, TEAMS, kinds, summary_of
        from swarmbo.runs.scenario import available, summary_line
        from swarmbo.runs.world import load_plug_ins, plug_in_ids

        typer.secho("scenarios", bold=True)
        for name, path in available().items():
            typer.echo(f"  {name:<20} {summary_line(path)}")
        typer.secho("environments", bold=True)
        for identifier in plug_in_ids():
            typer.echo(f"  {identifier}")
        for slot in SLOTS:
            typer.secho(f"{slot}: kind", bold=True)
            for name, settings in kinds(slot).items():
                teams = ", ".join(team for team in TEAMS if name in kinds(slot, team))
                typer.echo(f"  {name:<20} {teams:<15} {summary_of(settings)}")
        for name, why in load_plug_ins().items():
            typer.echo(f"swarmbo: plug-in {name!r} failed: {' '.join(why.split())}", err=True)


@app.command()
def sweep(
    source: Source,
    seeds: Annotated[int, typer.Option(help="Number of seeds, from the scenario's on.")] = 10,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="TABLE.KEY=A,B",
            help="Alternatives; every combination is run. May be repeated.",
            autocompletion=_setting_paths,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Runs go to DIR/<name>/<settings>/seed-000.")] = Path("runs"),
    jobs: Annotated[int, typer.Option(help="Processes at a time.")] = 1,
    figures: Annotated[
        bool, typer.Option("--figures", help="Draw every run when all are done; --format and --dpi do so too.")
    ] = False,
    formats: FormatNames = None,
    dpi: Dpi = None,
    quiet: Quiet = False,
    trust: Trust = False,
) -> None:
    """Run every combination of settings over several seeds; skip what is done, resume what is half done."""
    with _one_line_errors():
        from swarmbo.runs.progress import SweepProgress
        from swarmbo.runs.sweep import plan, sweep as run_trials

        drawn_as = _formats(formats, dpi, no_figures=not (figures or formats or dpi))
        trials = plan(source, seeds, overrides or [], out, trust)
        try:
            with SweepProgress(len(trials), quiet=quiet) as progress:
                outcomes = run_trials(trials, jobs, progress.show)
        except KeyboardInterrupt:
            typer.echo("swarmbo: interrupted; the same command goes on where it stopped", err=True)
            raise typer.Exit(130) from None
        for outcome in outcomes:
            if outcome.status != "failed":
                _draw(outcome.trial.out, drawn_as)
        counts = Counter(outcome.status for outcome in outcomes)
        told = ["done", "resumed", "skipped", *(["failed"] if counts["failed"] else [])]
        typer.echo(", ".join(f"{counts[status]} {status}" for status in told) + f": {out}")
        if counts["failed"]:
            raise typer.Exit(1)


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs, searched through.")],
    reference: Annotated[
        str | None, typer.Option(help="The method that others are compared to; default: the first.")
    ] = None,
    against: Annotated[list[str] | None, typer.Option(help="Which others; default: all. May be repeated.")] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table as CSV.")] = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the table; its ending names the format: png, pdf or svg.")
    ] = None,
    formats: FormatNames = None,
    dpi: Dpi = None,
) -> None:
    """Compare methods per problem, seed by seed, by what its goal is scored by: regret, map error, F1 of a level."""
    with _one_line_errors():
        from swarmbo.compare import compare as compare_runs
        from swarmbo.compare.table import comparison_tables, write_csv

        drawn_as = _formats(formats, dpi, no_figures=figure is None)
        comparison = compare_runs(folders, reference, against or [], level)
        _show(*comparison_tables(comparison))
        for note in comparison.notes:
            typer.echo(f"swarmbo: {note}", err=True)
        if csv is not None:
            typer.echo(write_csv(comparison, csv))
        if figure is not None and drawn_as is not None:
            from swarmbo.compare.figure import draw_comparison

            ends = figure.suffix and not formats
            path = figure if ends else figure.with_suffix(f".{drawn_as.figures}")
            typer.echo(draw_comparison(comparison, path, drawn_as.dpi))


@app.command()
def solve(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A problem in tables: pyDCOP's YAML, or UAI's; or the example, channels."),
    ],
    coordination: Annotated[str, typer.Option(help="How agents choose: exact, max-sum, dsa or mgm.")] = "max-sum",
    bound: Annotated[
        str | None, typer.Option(help="Also find what no choice is beyond: sum-of-maxima, bounded-max-sum or mplp.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Most rounds; default: the method's.")] = None,
    seed: Annotated[int, typer.Option(help="Of what agents draw.")] = 0,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another setting of the method. May be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the solution: as JSON, or as UAI has it (.MPE).")
    ] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Write value, bound and traffic by round.")] = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the same; its ending names the format: png, pdf or svg.")
    ] = None,
    dpi: Dpi = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Choose for all variables of a problem in tables (DCOP, MAP), and say how good that is at least."""
    with _one_line_errors():
        from swarmbo.interchange import read_problem
        from swarmbo.interchange.solved import solve_problem
        from swarmbo.plotting.formats import ANIMATION_FORMATS
        from swarmbo.runs.override import parse_override
        from swarmbo.runs.scenario import find

        drawn_as = _formats([figure.suffix[1:]] if figure and figure.suffix else None, dpi, no_figures=figure is None)
        if figure is not None and figure.suffix[1:] in ANIMATION_FORMATS:
            raise ConfigError(f"got {figure.suffix[1:]!r}; wanted png, pdf or svg", at="--figure")
        settings = {".".join(path): value for path, value in map(parse_override, overrides or [])}
        given = {"kind": coordination, "bound": bound, "rounds": rounds}
        settings |= {key: value for key, value in given.items() if value is not None}
        brought = None if file.suffix else find(str(file), ".yaml")
        problem = read_problem(brought or file)
        solved = solve_problem(problem, settings, seed)
        if as_json:
            typer.echo(solved.json())
        else:
            _show(solved.table())
        for note in problem.notes:
            typer.echo(f"swarmbo: {note}", err=True)
        written = [solved.write(out)] if out is not None else []
        written += [solved.write_trace(trace)] if trace is not None else []
        if figure is not None and drawn_as is not None:
            from swarmbo.plotting.solve_trace import draw_solve_trace

            label = "cost" if problem.objective == "min" else "value"
            written.append(draw_solve_trace(solved.trace, figure, problem.name, label, problem.told, drawn_as))
        for path in written:
            typer.echo(path, err=as_json)


class _ScenarioFirst(TyperGroup):
    """What is no command is a scenario to run."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help", "-h"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


fleet = typer.Typer(
    cls=_ScenarioFirst, no_args_is_help=True, help="Run a scenario with one process for each agent, over a network."
)
app.add_typer(fleet, name="fleet")
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="NAME=ADDRESS", help="Of a member on another machine, or `world`; may be repeated."),
]
Keys = Annotated[Path | None, typer.Option(metavar="DIR", help="What `swarmbo fleet keys` made.")]


@fleet.command("run")
def run_fleet(
    source: Source,
    seed: Annotated[int | None, typer.Option(help="Seed of world and team; default: the scenario's.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Default: runs/<name>-<seed>-fleet.")] = None,
    overrides: Overrides = None,
    protocol: Annotated[
        str | None, typer.Option(metavar="tcp|tls|quic", help="Default: tls with --keys, else tcp, on this machine.")
    ] = None,
    keys: Keys = None,
    port: Annotated[int, typer.Option(help="Of the hub; agents listen on the following ones.")] = 7447,
    hosts: Hosts = None,
    elsewhere: Annotated[
        list[str] | None,
        typer.Option("--elsewhere", metavar="NAME", help="An agent that `swarmbo agent` starts; may be repeated."),
    ] = None,
    patience: Annotated[float, typer.Option(help="Seconds for which members wait for one another.")] = 60.0,
    no_figures: NoFigures = False,
    formats: FormatNames = None,
    dpi: Dpi = None,
    quiet: Quiet = False,
) -> None:
    """Run a scenario of a function, each agent a process of its own; decisions are those of `swarmbo run`."""
    with _one_line_errors():
        from swarmbo.fleet.run import Network, run_fleet as run_scenario
        from swarmbo.runs import load
        from swarmbo.runs.progress import Progress
        from swarmbo.runs.sweep import folder_name

        drawn_as = _formats(formats, dpi, no_figures)
        scenario = load(source, [*(overrides or []), *([] if seed is None else [f"seed={seed}"])], False)
        out = out or Path("runs") / f"{folder_name(scenario.name)}-{scenario.seed}-fleet"
        network = Network(
            protocol=protocol or ("tcp" if keys is None else "tls"),  # pyright: ignore[reportArgumentType] - checked
            port=port,
            hosts=_hosts(hosts),
            keys=keys,
            elsewhere=tuple(elsewhere or ()),
            patience_s=patience,
        )
        with Progress(scenario.rounds, quiet=quiet) as progress:
            summary, report = run_scenario(scenario, out, network, progress.show)
        _close(out, summary, was_there=False, drawn_as=drawn_as)
        if again := ", ".join(f"{name} {count} times" for name, count in report.restarts.items()):
            typer.echo(f"swarmbo: processes were started again: {again}", err=True)


@fleet.command("keys")
def make_fleet_keys(
    source: Source,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where they go.")],
    overrides: Overrides = None,
    hosts: Hosts = None,
) -> None:
    """Make a test authority, and a certificate and a key for each member, good for 30 days."""
    with _one_line_errors():
        from swarmbo.fleet.keys import make_keys
        from swarmbo.fleet.run import members_of
        from swarmbo.runs import load

        members, given = members_of(load(source, overrides or [], False)), _hosts(hosts)
        if strangers := sorted(set(given) - set(members)):
            raise ConfigError(f"got {strangers[0]!r}; wanted one of {members}", at="--host")
        written = make_keys(folder, {name: given.get(name, "127.0.0.1") for name in members})
        typer.echo(f"{len(written)} files: {folder}")


@app.command()
def agent(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the agent.")],
    plan: Annotated[Path, typer.Option("--fleet", metavar="FILE", help="The fleet.json that `swarmbo fleet` wrote.")],
    keys: Keys = None,
    attached: Annotated[bool, typer.Option("--attached", hidden=True, help="End when standard input does.")] = False,
) -> None:
    """Be one agent of a fleet, here or on another machine, until its run ends."""
    with _one_line_errors():
        from swarmbo.fleet.run import be_member

        be_member(name, plan, attached=attached, keys=keys)


def _hosts(given: list[str] | None) -> dict[str, str]:
    pairs = [(name, address) for name, _, address in (text.partition("=") for text in given or [])]
    if bad := [name for name, address in pairs if not (name and address)]:
        raise ConfigError(f"got {bad[0]!r}; wanted NAME=ADDRESS", at="--host")
    return dict(pairs)


@contextmanager
def _one_line_errors() -> Generator[None]:
    """Bad input, and files that cannot be read or written, end the command with one line and status 2."""
    try:
        with warnings.catch_warnings():
            tell_in_one_line()
            yield
    except SwarmboError as error:
        text = f"{error.at}: {error.message}" if isinstance(error, ConfigError) else str(error)
        typer.echo("swarmbo: " + _one_line(text), err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("swarmbo: interrupted", err=True)
        raise typer.Exit(130) from None
    except BrokenPipeError:  # whoever read the output has gone; typer ends quietly
        raise
    except OSError as error:
        text = str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
        typer.echo("swarmbo: " + _one_line(text), err=True)
        raise typer.Exit(2) from None


@contextmanager
def _resumable(folder: Path) -> Generator[None]:
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
        line = _one_line(f"{type(error).__name__}: {error}")
        typer.echo(f"swarmbo: stopped by {line}; what was logged is safe, `swarmbo resume {folder}` goes on", err=True)
        raise typer.Exit(1) from None


def _formats(names: list[str] | None, dpi: int | None, no_figures: bool = False) -> "Formats | None":
    """What to draw as; refused before anything is run. None: nothing is to be drawn."""
    if no_figures:
        return None
    from swarmbo.plotting import Formats

    return Formats.of(names or [], dpi)


def _draw(folder: Path, drawn_as: "Formats | None") -> None:
    if drawn_as is not None:
        from swarmbo.runs.figures import draw_run, is_drawn

        if not is_drawn(folder, drawn_as):
            draw_run(folder, drawn_as)


def _close(folder: Path, summary: "Summary", *, was_there: bool, drawn_as: "Formats | None") -> None:
    from swarmbo.runs.report import reference_table, report_table

    if was_there:
        typer.echo(f"{folder}: this run is complete already")
    _draw(folder, drawn_as)
    _show(report_table(summary))
    if (others := reference_table(summary)) is not None:
        _show(others)
    typer.echo(f"written to {folder}")


def _show(*tables: object) -> None:
    from rich.console import Console

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
    for table in tables:
        console.print(table)


def _one_line(text: str) -> str:
    """Text of a length that can be read, without line ends and control characters, whatever a file held."""
    if len(text) > _LONGEST_LINE:
        text = f"{text[: _LONGEST_LINE - 300]} … {text[-300:]}"  # what is wanted comes last
    return "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))


if __name__ == "__main__":
    main()
