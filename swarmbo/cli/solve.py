"""The command that solves a problem in tables."""

from pathlib import Path
from typing import Annotated

import typer

from swarmbo.cli.ending import figure_at, one_line_errors, show
from swarmbo.cli.options import Dpi, app


@app.command()
def solve(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A problem in tables: pyDCOP's YAML, or UAI's; or the example, channels."),
    ],
    coordination: Annotated[
        str, typer.Option("--coordination", "--algo", help="How agents choose: exact (dpop), max-sum, dsa or mgm.")
    ] = "max-sum",
    bound: Annotated[str | None, typer.Option(help="Also find what no choice is beyond: mplp.")] = None,
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
    with one_line_errors():
        from swarmbo.interchange import read_problem
        from swarmbo.interchange.solved import solve_problem
        from swarmbo.runs.override import parse_override
        from swarmbo.runs.scenario import find

        drawing = figure_at(figure, None, dpi)
        settings = {".".join(path): value for path, value in map(parse_override, overrides or [])}
        given = {"kind": coordination, "bound": bound, "rounds": rounds}
        settings |= {key: value for key, value in given.items() if value is not None}
        brought = None if file.suffix else find(str(file), ".yaml")
        problem = read_problem(brought or file)
        solved = solve_problem(problem, settings, seed)
        if as_json:
            typer.echo(solved.json())
        else:
            show(solved.table())
        for note in problem.notes:
            typer.echo(f"swarmbo: {note}", err=True)
        written = [solved.write(out)] if out is not None else []
        written += [solved.write_trace(trace)] if trace is not None else []
        if drawing is not None:
            from swarmbo.plotting.solve_trace import draw_solve_trace

            path, drawn_as = drawing
            label = "cost" if problem.objective == "min" else "value"
            written.append(draw_solve_trace(solved.trace, path, problem.name, label, problem.told, drawn_as))
        for path in written:
            typer.echo(path, err=as_json)
