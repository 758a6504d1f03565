"""Process of the service: folder, token, address, TLS."""

import ipaddress
import os
import secrets
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits

from swarmbo.boundary.files import read_regular
from swarmbo.errors import ConfigError, RunFolderError, needed
from swarmbo.runs.scenario import Scenario
from swarmbo.serve.app import make_app
from swarmbo.serve.desk import MOST_PENDING
from swarmbo.serve.place import opened

TOKEN = "token"
_SHORTEST_TOKEN = 16
_MOST_CONNECTIONS = 1024


@dataclass(frozen=True)
class Address:
    """Address of the service; port 0 is a free one, files are PEM, and ``insecure`` permits other hosts without TLS."""

    host: str = "127.0.0.1"
    port: int = 8000
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False

    def require_safe(self) -> None:
        """Refuse an address that other machines reach without TLS."""
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"got {self.port}; wanted a port from 0 to 65535", at="--port")
        if (self.certificate is None) is not (self.key is None):
            raise ConfigError("got one of --tls-cert and --tls-key; wanted both", at="--tls-cert")
        if self.certificate is None and not self.insecure and not _is_loopback(self.host):
            raise ConfigError(
                f"got {self.host!r} without TLS, where others can read the token; wanted --tls-cert and --tls-key, a "
                "loopback address, or --insecure, as behind a proxy with TLS",
                at="--host",
            )
        if self.certificate is not None and self.key is not None:
            try:
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.certificate, self.key)
            except OSError as error:  # also ssl.SSLError
                got = f"{self.certificate} and {self.key} cannot be used: {error.strerror or error}"
                raise ConfigError(f"{got}; wanted PEM files of a certificate and its key", at="--tls-cert") from error


def serve(
    scenario: Scenario,
    out: Path,
    address: Address = Address(),
    *,
    most_pending: int = MOST_PENDING,
    trust: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a scenario until an interrupt; a folder that was served before is continued.

    Its world gives the problem, and is not asked for outcomes. ``say`` receives lines for people: the address, and once
    the token.
    """
    address.require_safe()
    if most_pending < 1:
        raise ConfigError(f"got {most_pending}; wanted an integer >= 1", at="--pending")
    uvicorn = needed("uvicorn", "serve", "swarmbo serve")
    with (
        threadpool_limits(1, user_api="blas"),
        opened(scenario, out, most_pending, trust) as desk,
        _listening(address) as listening,
    ):
        app = make_app(desk, _token(address.token_file, out / TOKEN, say))
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=10,
            ws="none",
        )
        scheme, (host, port) = "http" if address.key is None else "https", listening.getsockname()[:2]
        say(f"serving {scenario.name} on {scheme}://{f'[{host}]' if ':' in host else host}:{port}/")
        with suppress(KeyboardInterrupt):  # the usual end; it comes once connections are closed
            uvicorn.Server(config).run(sockets=[listening])
        say("stopped; the same command goes on from here")


def _listening(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigError(
            f"{address.host}:{address.port} cannot be listened to: {error}; wanted another --host or --port",
            at="--port",
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token(given: Path | None, own: Path, say: Callable[[str], None]) -> str:
    """Token of a file; without one it is made, and told once."""
    path = own if given is None else given
    if given is None and not path.exists():
        token = secrets.token_urlsafe(32)
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(token + "\n")
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be written: {error.strerror}") from error
        say(f"token {token}, which {path} keeps")
        return token
    try:
        token = read_regular(path).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}; wanted a file with a token", at=str(path)) from error
    if len(token) < _SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigError(
            f"got {len(token)} characters; wanted a token of at least {_SHORTEST_TOKEN}, without spaces", at=str(path)
        )
    return token
