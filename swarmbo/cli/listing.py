"""Command that lists what scenarios can name."""

import textwrap

import typer

from swarmbo.cli.options import app, line_width, one_line_errors


@app.command("list")
def list_known() -> None:
    """List the scenarios that swarmbo brings, and the environments and kinds that scenarios can name."""
    with one_line_errors():
        from swarmbo.registry import SLOTS, TEAMS, kinds, summary_of
        from swarmbo.runs.scenario_files import available, summary_line
        from swarmbo.runs.world import load_plug_ins, plug_in_ids

        typer.secho("scenarios", bold=True)
        for name, path in available().items():
            _say(f"  {name:<20} ", summary_line(path))
        typer.secho("environments", bold=True)
        for identifier in plug_in_ids():
            typer.echo(f"  {identifier}")
        for slot in SLOTS:
            typer.secho(f"{slot}: kind", bold=True)
            for name, settings in kinds(slot).items():
                teams = ", ".join(team for team in TEAMS if name in kinds(slot, team))
                _say(f"  {name:<20} {teams:<15} ", summary_of(settings))
        _say("", "Meaning, keys and defaults of a name: swarmbo explain NAME")
        for name, why in load_plug_ins().items():
            typer.echo(f"swarmbo: plug-in {name!r} failed: {' '.join(why.split())}", err=True)


def _say(label: str, text: str) -> None:
    """Print a label and a text beside it, in lines as wide as those who read them have."""
    width = max(line_width() - len(label), 20)
    typer.echo(label + f"\n{' ' * len(label)}".join(textwrap.wrap(text, width) or [""]))
