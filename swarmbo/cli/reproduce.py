"""The command that runs a paper's experiment, and shows printed numbers next to measured ones."""

from pathlib import Path
from typing import Annotated

import typer

from swarmbo.cli import options


@options.app.command()
def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME|FILE]", help="A reproduction, or a TOML file; default: list all.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds; default: as defined.")] = None,
    problems: Annotated[
        list[str] | None, typer.Option("--problem", metavar="NAME", help="Only this problem. May be repeated.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few seeds and rounds, to check that all works.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Default: runs/papers/NAME, or NAME-quick.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    engine: options.Engine = None,
    address: options.Address = None,
    formats: options.FormatNames = None,
    dpi: options.Dpi = None,
    quiet: options.Quiet = False,
) -> None:
    """Run the missing trials of a paper's table or figure, and show printed numbers next to measured ones.

    The same command continues after a stop, and adds seeds to existing ones.
    """
    with options.one_line_errors():
        from swarmbo.runs.scenario_files import reproductions, summary_line

        if name is None:
            known = reproductions()
            for of, path in known.items():
                typer.echo(f"{of:<{max(map(len, known))}} {summary_line(path)}")
            return
        from swarmbo.compare.reproduced import draw_reproduction, reproduction_table, rows_of, write_markdown
        from swarmbo.compare.reproduction import plan, read_reproduction, read_scores
        from swarmbo.evaluations import Workers
        from swarmbo.runs.sweep import sweep
        from swarmbo.runs.telling import SweepProgress

        given = read_reproduction(name)
        folder = out or Path("runs") / "papers" / (Path(name).stem + ("-quick" if quick else ""))
        drawing = options.figure_at(folder / "figure.png", formats, dpi)
        cells, notes = plan(given, folder, seeds, problems or (), quick=quick)
        trials = [trial for cell in cells for trial in cell.trials]
        by = Workers.of(count=workers, engine=engine, address=address)
        with options.resumable_sweep(), SweepProgress(len(trials), quiet=quiet) as progress:
            outcomes = sweep(trials, by, lambda one: progress.show(one.status, one.trial.out, one.message))
        failed = [outcome for outcome in outcomes if outcome.status == "failed"]
        notes += [f"{outcome.trial.out}: failed: {outcome.message}" for outcome in failed]
        scores = read_scores(given, cells, outcomes)
        rows = rows_of(given, scores)
        options.show(reproduction_table(given, rows))
        for text in (*given.deviations, *notes):
            typer.echo(f"- {text}")
        told = [f"--problem {problem}" for problem in problems or ()] + ["--quick"] * quick
        command = " ".join(["swarmbo reproduce", name, *told, *([f"--seeds {seeds}"] if seeds else [])])
        typer.echo(write_markdown(given, rows, notes, command, folder / "table.md"))
        if drawing is not None and scores:
            path, drawn_as = drawing
            typer.echo(draw_reproduction(given, scores, path, drawn_as.dpi))
        if failed:
            raise typer.Exit(1)
