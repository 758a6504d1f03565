"""Commands that make runs, go on with them and read them, and the one that solves a problem in tables."""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from swarmbo.cli import options


@options.app.command()
def run(
    source: options.Source,
    seed: options.Seed = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Default: runs/<name>-<seed>[+<settings>].")] = None,
    overrides: options.Overrides = None,
    no_figures: options.NoFigures = False,
    formats: options.FormatNames = None,
    dpi: options.Dpi = None,
    quiet: options.Quiet = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run that lies in the folder.")] = False,
    workers: options.WorkerCount = None,
    synchronous: Annotated[
        bool, typer.Option("--synchronous", help="With workers: batches, instead of a decision for each outcome.")
    ] = False,
    engine: options.Engine = None,
    address: options.Address = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            "--log", metavar="tensorboard|mlflow|MODULE:CLASS", help="Callback to tell of each round. May be repeated."
        ),
    ] = None,
    trust: options.Trust = False,
) -> None:
    """Run a scenario into a new folder, with figures and a closing table."""
    with options.one_line_errors():
        from swarmbo.runs import load, run as run_scenario
        from swarmbo.runs.sweep import folder_name, setting_slug

        given, drawn_as = list(overrides or []), options.formats(formats, dpi, no_figures)
        more = [*([] if seed is None else [f"seed={seed}"]), *([f"callbacks={json.dumps(log)}"] if log else [])]
        given += options.worker_settings(workers, engine, address, "synchronous" if synchronous else None)
        scenario = load(source, [*given, *more], trust)
        if out is None:
            settings = f"+{setting_slug(given)}" if given else ""
            out = Path("runs") / f"{folder_name(scenario.name)}-{scenario.seed}{settings}"
        was_there = (out / "summary.json").is_file() and not force
        with options.resumable(out):
            summary = run_scenario(scenario, out, force=force, progress=not quiet, trust=trust)
        options.close(out, summary, was_there=was_there, drawn_as=drawn_as)


@options.app.command()
def resume(
    folder: options.RunPath,
    no_figures: options.NoFigures = False,
    formats: options.FormatNames = None,
    dpi: options.Dpi = None,
    quiet: options.Quiet = False,
    trust: options.Trust = False,
) -> None:
    """Go on with an interrupted run, as if it had never been interrupted."""
    with options.one_line_errors():
        from swarmbo.runs import RunFolder, resume as resume_run
        from swarmbo.runs.reading import read_summary

        there, drawn_as = RunFolder.open(folder), options.formats(formats, dpi, no_figures)
        was_there = read_summary(there) is not None
        with options.resumable(folder):
            summary = resume_run(folder, progress=not quiet, trust=trust)
        options.close(folder, summary, was_there=was_there, drawn_as=drawn_as)


@options.app.command()
def plot(folder: options.RunPath, formats: options.FormatNames = None, dpi: options.Dpi = None) -> None:
    """Draw the figures of a run again, also of an incomplete run."""
    with options.one_line_errors():
        from swarmbo.runs.figures import draw_run

        files = draw_run(folder, options.formats(formats, dpi))
        for path in files:
            typer.echo(path)
        if not files:
            typer.echo(f"swarmbo: {folder}: no round is logged yet, so there is nothing to draw", err=True)


@options.app.command()
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
    """Write one tidy table of a run, also of an incomplete one: a row for each measurement."""
    with options.one_line_errors():
        from swarmbo.runs.reading import export as export_runs

        written = export_runs(folder, file, csv=csv, parquet=parquet)
        if written is not None:
            typer.echo(written)


@options.app.command()
def check(
    source: options.Source,
    overrides: options.Overrides = None,
    quick: Annotated[bool, typer.Option("--quick", help="Do not try a round to estimate time and memory.")] = False,
    workers: options.WorkerCount = None,
    trust: options.Trust = False,
) -> None:
    """Build the world and the team of a scenario, and try a round; refuse whatever a run would refuse."""
    with options.one_line_errors():
        from swarmbo.runs import check as check_scenario, load

        scenario, takes = load(source, [*(overrides or []), *options.worker_settings(workers)], trust), ""
        if quick:
            acquisition = check_scenario(scenario, trust)
        else:
            from swarmbo.runs.trial import estimate

            tried = estimate(scenario, trust)
            acquisition, takes = tried.acquisition, f"; a run takes {tried.text()}"
        by = f", acquisition {acquisition}" if acquisition else ""
        what = f"{scenario.environment['id']}, {scenario.rounds} rounds, seed {scenario.seed}"
        typer.echo(f"{scenario.name}: ready to run ({what}{by}{takes})")


@options.app.command()
def sweep(
    source: options.Source,
    seeds: Annotated[int, typer.Option(help="Number of seeds, from the scenario's on.")] = 10,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="TABLE.KEY=A,B",
            help="Alternatives; every combination is run. May be repeated.",
            autocompletion=options.setting_paths_of,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Runs go to DIR/<name>/<settings>/seed-000.")] = Path("runs"),
    workers: Annotated[int, typer.Option(help="Runs at a time.")] = 1,
    engine: options.Engine = None,
    address: options.Address = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Draw every run when all are done; --format and --dpi do so too.")
    ] = False,
    formats: options.FormatNames = None,
    dpi: options.Dpi = None,
    quiet: options.Quiet = False,
    trust: options.Trust = False,
) -> None:
    """Run every combination of settings over several seeds; skip what is done, resume what is half done."""
    with options.one_line_errors():
        from swarmbo.evaluations import Workers
        from swarmbo.runs.sweep import plan, sweep as run_trials
        from swarmbo.runs.telling import SweepProgress
        from swarmbo.runs.world import require_trust

        drawn_as = options.formats(formats, dpi, no_figures=not (figures or formats or dpi))
        by = Workers.of(count=workers, engine=engine, address=address)
        require_trust({"workers": by}, trust)
        trials = plan(source, seeds, overrides or [], out, trust)
        with options.resumable_sweep(), SweepProgress(len(trials), quiet=quiet) as progress:
            outcomes = run_trials(trials, by, lambda one: progress.show(one.status, one.trial.out, one.message))
        for outcome in outcomes:
            if outcome.status != "failed":
                options.draw(outcome.trial.out, drawn_as)
        counts = Counter(outcome.status for outcome in outcomes)
        told = ["done", "resumed", "skipped", *(["failed"] if counts["failed"] else [])]
        typer.echo(", ".join(f"{counts[status]} {status}" for status in told) + f": {out}")
        if counts["failed"]:
            raise typer.Exit(1)


@options.app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders in which runs are searched.")],
    reference: Annotated[
        str | None, typer.Option(help="The method that others are compared to; default: the first.")
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option(help="A method to compare; default: all others. Repeatable.")
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    tables: Annotated[
        list[Path] | None,
        typer.Option(
            "--table", metavar="FILE", help="Write tables; the ending names the format: csv, tex or md. Repeatable."
        ),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the table; the ending names the format: png, pdf or svg.")
    ] = None,
    formats: options.FormatNames = None,
    dpi: options.Dpi = None,
) -> None:
    """Compare methods on each problem, seed by seed, by the score of its goal: regret, map error or F1 of a level."""
    with options.one_line_errors():
        from swarmbo.compare import compare as compare_runs
        from swarmbo.compare.output import comparison_tables, table_writer

        writers = [(path, table_writer(path)) for path in tables or []]
        drawing = options.figure_at(figure, formats, dpi)
        comparison = compare_runs(folders, reference, against or [], level)
        options.show(*comparison_tables(comparison))
        for note in comparison.notes:
            typer.echo(f"swarmbo: {note}", err=True)
        for path, write in writers:
            typer.echo(write(comparison, path))
        if drawing is not None:
            from swarmbo.compare.output import draw_comparison

            path, drawn_as = drawing
            typer.echo(draw_comparison(comparison, path, drawn_as.dpi))


@options.app.command()
def cite(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders in which runs are searched.")],
) -> None:
    """Print the BibTeX of what runs used: swarmbo, methods, data and simulators."""
    with options.one_line_errors():
        from swarmbo.runs.citing import cite as cite_runs
        from swarmbo.runs.reading import find_runs

        cited = cite_runs(find_runs(folders))
        typer.echo("\n\n".join(cited.entries.values()))
        for note in cited.notes:
            typer.echo(f"swarmbo: {note}", err=True)


@options.app.command()
def solve(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A problem in tables: pyDCOP's YAML, UAI's, WCSP's; or the example channels."
        ),
    ],
    coordination: Annotated[
        str | None,
        typer.Option("--coordination", "--algo", help="How agents choose: max-sum (default), exact (dpop), dsa, mgm."),
    ] = None,
    bound: Annotated[str | None, typer.Option(help="Also compute a bound on every choice: mplp.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Most rounds; default: the method's.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random draws of agents.")] = 0,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting of the method, or transport.loss=0.3. May be repeated."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the solution as JSON, or in UAI's format (.MPE).")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write cost, bound and messages by round, as pyDCOP does.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the trace; the ending names the format: png, pdf or svg.")
    ] = None,
    dpi: options.Dpi = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Solve a problem in tables (DCOP, MAP): choose a value for every variable, with a bound if you ask for one."""
    with options.one_line_errors():
        from swarmbo.cli.tables import table_problem
        from swarmbo.interchange.solved import solve_problem

        drawing = options.figure_at(figure, None, dpi)
        given = {"kind": coordination, "bound": bound, "rounds": rounds}
        problem, settings, transport = table_problem(str(file), overrides, given)
        solved = solve_problem(problem, settings, seed, transport, needs_trace=bool(trace or figure))
        if as_json:
            typer.echo(solved.json())
        else:
            options.show(solved.table())
        for note in solved.notes:
            typer.echo(f"swarmbo: {note}", err=True)
        written = [solved.write(out)] if out is not None else []
        written += [solved.write_trace(trace)] if trace is not None else []
        if drawing is not None:
            from swarmbo.plotting.run_figures import draw_solve_trace

            path, drawn_as = drawing
            label = "cost" if problem.objective == "min" else "value"
            written.append(draw_solve_trace(solved.trace, path, problem.name, label, problem.told, drawn_as))
        for path in written:
            typer.echo(path, err=as_json)
