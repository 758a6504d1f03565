"""Commands that make, resume and read runs, solve problems in tables, and reproduce papers."""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from swarmbo.cli import options
from swarmbo.errors import typed


@options.app.command()
def run(
    source: options.Source,
    seed: options.Seed = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="Default: runs/NAME-SEED, and the settings.")] = None,
    overrides: options.Overrides = None,
    no_figures: options.NoFigures = False,
    formats: options.FormatNames = None,
    dpi: options.Dpi = None,
    quiet: options.Quiet = False,
    force: Annotated[bool, Option("--force", help="Replace the run that lies in the folder.")] = False,
    workers: options.WorkerCount = None,
    synchronous: Annotated[
        bool, Option("--synchronous", help="With workers: batches, instead of a decision for each outcome.")
    ] = False,
    engine: options.Engine = None,
    address: options.Address = None,
    log: Annotated[
        list[str] | None,
        Option(
            "--log", metavar="tensorboard|mlflow|MODULE:CLASS", help="Callback to tell of each round. May be repeated."
        ),
    ] = None,
    trust: options.Trust = False,
) -> None:
    """Run a scenario into a new folder, with figures and a closing table."""
    from swarmbo.runs import load, run as run_scenario
    from swarmbo.runs.sweep import folder_name, setting_slug

    stated_overrides, drawn_as = list(overrides or []), options.formats(formats, dpi, no_figures)
    more = [*([] if seed is None else [f"seed={seed}"]), *([f"callbacks={json.dumps(log)}"] if log else [])]
    stated_overrides += options.worker_settings(workers, engine, address, "synchronous" if synchronous else None)
    scenario = load(source, [*stated_overrides, *more], trust)
    if out is None:
        settings = f"+{setting_slug(stated_overrides)}" if stated_overrides else ""
        out = Path("runs") / f"{folder_name(scenario.name)}-{scenario.seed}{settings}"
    was_there = (out / "summary.json").is_file() and not force
    with options.resumable(out, scenario):
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
    from swarmbo.runs import RunFolder, resume as resume_run
    from swarmbo.runs.reading import read_summary
    from swarmbo.runs.stored_files import ELSEWHERE

    there, drawn_as = RunFolder.open(folder), options.formats(formats, dpi, no_figures)
    was_there = read_summary(there) is not None
    with options.resumable(folder):
        if (folder / ELSEWHERE).exists() and not was_there:
            from swarmbo.fleet.run import resume_fleet

            summary = resume_fleet(folder, options.say_awaited, progress=not quiet)
        else:
            summary = resume_run(folder, progress=not quiet, trust=trust)
    options.close(folder, summary, was_there=was_there, drawn_as=drawn_as)


@options.app.command()
def plot(folder: options.RunPath, formats: options.FormatNames = None, dpi: options.Dpi = None) -> None:
    """Draw the figures of a run again, also of an incomplete run."""
    from swarmbo.runs.figures import draw_run

    files = draw_run(folder, options.formats(formats, dpi))
    for path in files:
        typer.echo(path)
    if not files:
        typer.echo(f"swarmbo: {folder}: no round is logged yet, so there is nothing to draw", err=True)


@options.app.command()
def export(
    folder: Annotated[Path, Argument(metavar="DIR", help="The folder of a run, or one with runs below it.")],
    file: Annotated[
        Path | None, Argument(metavar="[FILE]", help="Default: measurements.csv|parquet in DIR; - for stdout.")
    ] = None,
    csv: Annotated[bool, Option("--csv", help="Write CSV, the default.")] = False,
    parquet: Annotated[bool, Option("--parquet", help="Write Parquet; needs the extra pandas.")] = False,
) -> None:
    """Write one tidy table of a run, also of an incomplete one: a row for each measurement."""
    from swarmbo.runs.reading import export as export_runs

    written, is_whole = export_runs(folder, file, csv=csv, parquet=parquet)
    if written is not None:
        typer.echo(written)
    if not is_whole:
        raise typer.Exit(1)


@options.app.command()
def check(
    source: options.Source,
    overrides: options.Overrides = None,
    quick: Annotated[bool, Option("--quick", help="Try no rounds, so estimate no time and memory.")] = False,
    workers: options.WorkerCount = None,
    trust: options.Trust = False,
) -> None:
    """Build the world and the team of a scenario, and try rounds; refuse whatever a run would refuse."""
    from swarmbo.boundary.values import counted
    from swarmbo.runs import check as check_scenario, load

    scenario, cost = load(source, [*(overrides or []), *options.worker_settings(workers)], trust), ""
    if quick:
        acquisition = check_scenario(scenario, trust)
    else:
        from swarmbo.runs.trial import estimate

        tried = estimate(scenario, trust)
        acquisition, cost = tried.acquisition, f"; its rounds take {tried.text()}"
    method = f", acquisition {acquisition}" if acquisition else ""
    run_text = f"{scenario.environment['id']}, {counted(scenario.rounds, 'round')}, seed {scenario.seed}"
    typer.echo(f"{scenario.name}: ready to run ({run_text}{method}{cost})")


@options.app.command()
def sweep(
    source: options.Source,
    seeds: Annotated[int, Option(help="Number of seeds; the first is the scenario's.")] = 10,
    overrides: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="TABLE.KEY=A,B",
            help="Values of a setting; every combination is run. May be repeated.",
            autocompletion=options.setting_paths_of,
        ),
    ] = None,
    out: Annotated[Path, Option(metavar="DIR", help="Runs go to DIR/<name>/<settings>/seed-000.")] = Path("runs"),
    workers: Annotated[int, Option(help="Runs at a time.")] = 1,
    engine: options.Engine = None,
    address: options.Address = None,
    figures: Annotated[
        bool, Option("--figures", help="Draw every run when all are done; --format and --dpi do so too.")
    ] = False,
    formats: options.FormatNames = None,
    dpi: options.Dpi = None,
    quiet: options.Quiet = False,
    trust: options.Trust = False,
) -> None:
    """Run every combination of settings over several seeds; skip what is done, resume what is half done."""
    from swarmbo.evaluations import Workers
    from swarmbo.runs.sweep import plan
    from swarmbo.runs.world import require_trust

    drawn_as = options.formats(formats, dpi, no_figures=not (figures or formats or dpi))
    by = Workers.of(count=workers, engine=engine, address=address)
    require_trust({"workers": by}, trust)
    outcomes = options.run_trials(plan(source, seeds, overrides or [], out, trust), by, quiet=quiet)
    for outcome in outcomes:
        if outcome.status != "failed":
            options.draw(outcome.trial.out, drawn_as)
    counts = Counter(outcome.status for outcome in outcomes)
    statuses = ["done", "resumed", "skipped", *(["failed"] if counts["failed"] else [])]
    typer.echo(", ".join(f"{counts[status]} {status}" for status in statuses) + f": {out}")
    if counts["failed"]:
        raise typer.Exit(1)


@options.app.command()
def compare(
    folders: Annotated[list[Path], Argument(metavar="DIR...", help="Folders in which runs are searched.")],
    reference: Annotated[str | None, Option(help="The method that others are compared to; default: the first.")] = None,
    against: Annotated[list[str] | None, Option(help="A method to compare; default: all others. Repeatable.")] = None,
    level: Annotated[float, Option(help="Confidence level of the intervals.")] = 0.95,
    tables: Annotated[
        list[Path] | None,
        Option(
            "--table", metavar="FILE", help="Write tables; the ending names the format: csv, tex or md. Repeatable."
        ),
    ] = None,
    figure: Annotated[
        Path | None, Option(metavar="FILE", help="Draw the table; the ending names the format: png, pdf or svg.")
    ] = None,
    formats: options.FormatNames = None,
    dpi: options.Dpi = None,
) -> None:
    """Compare methods on each problem, seed by seed, by the score of its goal: regret, map error or F1 of a level."""
    from swarmbo.compare import compare as compare_runs
    from swarmbo.compare.output import comparison_tables, draw_comparison, table_writer

    writers = [(path, table_writer(path)) for path in tables or []]
    drawing = options.figure_at(figure, formats, dpi)
    comparison = compare_runs(folders, reference, against or [], level)
    options.show(*comparison_tables(comparison))
    options.say_notes(comparison.notes)
    for path, write in writers:
        typer.echo(write(comparison, path))
    if drawing is not None:
        typer.echo(draw_comparison(comparison, *drawing))


@options.app.command()
def cite(
    folders: Annotated[list[Path], Argument(metavar="DIR...", help="Folders in which runs are searched.")],
) -> None:
    """Print the BibTeX of what runs used: swarmbo, methods, data and simulators."""
    from swarmbo.runs.citing import cite as cite_runs
    from swarmbo.runs.reading import find_runs

    cited = cite_runs(find_runs(folders))
    typer.echo("\n\n".join(cited.entries.values()))
    options.say_notes(cited.notes)


@options.app.command()
def solve(
    file: Annotated[
        Path,
        Argument(metavar="FILE", help="A problem in tables: pyDCOP's YAML, UAI's, WCSP's; or the example channels."),
    ],
    coordination: Annotated[
        str | None,
        Option("--coordination", "--algo", help="How agents choose: max-sum (default), exact (dpop), dsa, mgm."),
    ] = None,
    bound: Annotated[str | None, Option(help="Also compute a bound on every choice: mplp.")] = None,
    rounds: Annotated[int | None, Option(help="Most rounds; default: the method's.")] = None,
    seed: Annotated[int, Option(help="Seed of the random draws of agents.")] = 0,
    overrides: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="A setting of the method, or transport.loss=0.3. May be repeated."),
    ] = None,
    out: Annotated[
        Path | None, Option(metavar="FILE", help="Write the solution as JSON, or in UAI's format (.MPE).")
    ] = None,
    trace: Annotated[
        Path | None, Option(metavar="FILE", help="Write cost, bound and messages by round, as pyDCOP does.")
    ] = None,
    figure: Annotated[
        Path | None, Option(metavar="FILE", help="Draw the trace; the ending names the format: png, pdf or svg.")
    ] = None,
    dpi: options.Dpi = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Solve a problem in tables (DCOP, MAP): choose a value for every variable, with a bound if you ask for one."""
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
    options.say_notes(solved.notes)
    written = [solved.write(out)] if out is not None else []
    written += [solved.write_trace(trace)] if trace is not None else []
    if drawing is not None:
        from swarmbo.plotting import save
        from swarmbo.plotting.run_figures import solve_trace_figure

        label = "cost" if problem.objective == "min" else "value"
        written.append(save(solve_trace_figure(solved.trace, problem.name, label, problem.told), *drawing))
    for path in written:
        typer.echo(path, err=as_json)


@options.app.command()
def reproduce(
    name: Annotated[
        str | None, Argument(metavar="[NAME|FILE]", help="A reproduction, or a TOML file; without it: a list.")
    ] = None,
    seeds: Annotated[int | None, Option(min=1, help="Number of seeds; default: as defined.")] = None,
    problems: Annotated[
        list[str] | None, Option("--problem", metavar="NAME", help="Only this problem. May be repeated.")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Few seeds and rounds, to check that all works.")] = False,
    out: Annotated[Path | None, Option(metavar="DIR", help="Default: runs/papers/NAME, or NAME-quick.")] = None,
    workers: Annotated[int, Option(min=1, help="Runs at a time.")] = 1,
    engine: options.Engine = None,
    address: options.Address = None,
    formats: options.FormatNames = None,
    dpi: options.Dpi = None,
    quiet: options.Quiet = False,
) -> None:
    """Run what is missing of a paper's table or figure, and show the printed next to the measured numbers.

    The same command goes on where it stopped, and adds seeds to those that are there.
    """
    if name is None:
        from swarmbo.runs.scenario_files import reproductions, summary_line

        known = reproductions()
        for paper, path in known.items():
            typer.echo(f"{paper:<{max(map(len, known))}} {summary_line(path)}")
        return
    from swarmbo.compare import reproduction
    from swarmbo.evaluations import Workers

    definition = reproduction.read_reproduction(name)
    folder = out or Path("runs") / "papers" / (Path(name).stem + ("-quick" if quick else ""))
    drawing = options.figure_at(folder / "figure.png", formats, dpi)
    cells, notes = reproduction.plan(definition, folder, seeds, problems or (), quick=quick)
    by = Workers.of(count=workers, engine=engine, address=address)
    outcomes = options.run_trials([trial for cell in cells for trial in cell.trials], by, quiet=quiet)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    scores, left_out = reproduction.read_scores(definition, cells, outcomes)
    notes += [*(f"{outcome.trial.out}: failed: {outcome.message}" for outcome in failed), *left_out]
    rows = reproduction.rows_of(definition, scores)
    options.show(reproduction.reproduction_table(definition, rows))
    for text in (*definition.deviations, *notes):
        typer.echo(f"- {text}")
    given_options = [f"--problem {typed(problem)}" for problem in problems or ()] + ["--quick"] * quick
    given_options += [f"{option} {typed(value)}" for option, value in (("--seeds", seeds), ("--out", out)) if value]
    command = " ".join(["swarmbo reproduce", typed(name), *given_options])
    typer.echo(reproduction.write_markdown(definition, rows, notes, command, folder / "table.md"))
    if drawing is not None and scores:
        typer.echo(reproduction.draw_reproduction(definition, scores, *drawing))
    if failed:
        raise typer.Exit(1)
