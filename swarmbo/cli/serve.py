"""The command that serves a scenario to clients over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from swarmbo.cli.options import Overrides, Seed, Source, Trust, app, one_line_errors


@app.command()
def serve(
    source: Source,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Default: runs/<name>-<seed>-served.")] = None,
    overrides: Overrides = None,
    host: Annotated[str, typer.Option(help="Host, or an IP address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for a free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the token; default: one is made in the folder.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate (PEM), for TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Key of the certificate (PEM).")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Permit a host other than loopback without TLS, such as behind a proxy.")
    ] = False,
    pending: Annotated[int, typer.Option(help="Largest number of pending queries.")] = 256,
    trust: Trust = False,
) -> None:
    """Serve a scenario over HTTP: clients ask for points and tell outcomes; the same command continues after a stop."""
    with one_line_errors():
        from swarmbo.runs import load
        from swarmbo.runs.sweep import folder_name
        from swarmbo.serve.server import Address, serve as serve_scenario

        scenario = load(source, [*(overrides or []), *([] if seed is None else [f"seed={seed}"])], trust)
        folder = Path("runs") / f"{folder_name(scenario.name)}-{scenario.seed}-served" if out is None else out
        address = Address(host, port, token_file, tls_cert, tls_key, insecure)
        serve_scenario(scenario, folder, address, most_pending=pending, trust=trust, say=_say)


def _say(text: str) -> None:
    typer.echo(f"swarmbo: {text}", err=True)
