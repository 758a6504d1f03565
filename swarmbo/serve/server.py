"""Process of the service: broker, folder and log, token, address, TLS."""

import ipaddress
import os
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swarmbo.boundary.files import naming, read_regular
from swarmbo.boundary.processes import one_blas_thread
from swarmbo.errors import ConfigError, RunFolderError, needed
from swarmbo.evaluations import Ledger
from swarmbo.records import Query
from swarmbo.registry import SLOTS
from swarmbo.routing import Routes
from swarmbo.runs import RunFolder, Scenario, rounds
from swarmbo.runs.ledger_rounds import LedgerRounds
from swarmbo.runs.progress import run_hooks
from swarmbo.runs.runner import assemble
from swarmbo.runs.stored_files import Timing, locked
from swarmbo.runs.world import code_digests, naming_user_code
from swarmbo.serve import broker
from swarmbo.serve.app import Application
from swarmbo.team import Team
from swarmbo.worlds import FunctionWorld

TOKEN = "token"
_SHORTEST_TOKEN = 16
_MOST_CONNECTIONS = 1024
IDLE_S = 30  # a connection without a complete request for longer is closed


@dataclass(frozen=True)
class Address:
    """Address of the service; port 0 is a free one, files are PEM, and ``insecure`` permits any host without TLS."""

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
            got = f"got {self.host!r} without TLS, where others can read the token"
            wanted = "wanted --tls-cert and --tls-key, a loopback address, or --insecure, as behind a proxy with TLS"
            raise ConfigError(f"{got}; {wanted}", at="--host")
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
    most_pending: int = broker.MOST_PENDING,
    trust: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a scenario until an interrupt; a folder that was served before is continued.

    Its world defines the problem, but is not evaluated. ``say`` gets lines for the operator: address, and token once.
    """
    address.require_safe()
    if most_pending < 1:
        raise ConfigError(f"got {most_pending}; wanted an integer >= 1", at="--pending")
    uvicorn = needed("uvicorn", "serve", "swarmbo serve")
    opening = open_broker(scenario, out, most_pending, trust)
    with one_blas_thread(), opening as opened, _listening_socket(address) as listening:
        app = Application(opened, _token(address.token_file, out / TOKEN, say))
        tls = {"ssl_certfile": address.certificate, "ssl_keyfile": address.key}
        quiet = {"log_level": "warning", "access_log": False, "server_header": False, "ws": "none"}
        patient = {"timeout_keep_alive": IDLE_S, "timeout_graceful_shutdown": 10}
        config = uvicorn.Config(app, http="h11", limit_concurrency=_MOST_CONNECTIONS, **tls, **quiet, **patient)
        scheme, (host, port) = "http" if address.key is None else "https", listening.getsockname()[:2]
        say(f"swarmbo: serving {scenario.name} on {scheme}://{f'[{host}]' if ':' in host else host}:{port}/")
        with suppress(KeyboardInterrupt):  # the usual end; it comes once connections are closed
            _closing_idle_connections(uvicorn.Server(config)).run(sockets=[listening])
        say("swarmbo: stopped; the same command goes on from here")


def _closing_idle_connections(server: Any) -> Any:
    """Server that closes idle connections; uvicorn's timeout only counts after a response, and ends at any byte."""
    on_tick, since = server.on_tick, dict[tuple[Any, Any], float]()

    async def closing(counter: int) -> bool:
        nonlocal since
        links, now = server.server_state.connections, time.monotonic()
        cycles = [(link, link.cycle) for link in links]
        idle = [(link, of) for link, of in cycles if of is None or of.response_complete or of.more_body]
        since = {key: since.get(key, now) for key in idle}
        for link, cycle in idle:
            if now - since[link, cycle] > IDLE_S:
                link.transport.close()
        return await on_tick(counter)

    server.on_tick = closing
    return server


def _listening_socket(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=1024)
    except OSError as error:
        got = f"{address.host}:{address.port} cannot be listened to: {error}"
        raise ConfigError(f"{got}; wanted another --host or --port", at="--port") from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token(token_file: Path | None, default: Path, say: Callable[[str], None]) -> str:
    """Token from the user's file, or from the default file; a new one is written there and printed once."""
    path = default if token_file is None else token_file
    if token_file is None and not (path.exists() and path.stat().st_size):  # a kill or a full disk leaves it empty
        token = secrets.token_urlsafe(32)
        with naming(path, "cannot be written"):
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(token + "\n")
        say(f"swarmbo: token {token}, which {path} keeps")
        return token
    try:
        token = read_regular(path).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}; wanted a file with a token", at=str(path)) from error
    if len(token) < _SHORTEST_TOKEN or not token.isprintable() or " " in token:
        wanted = f"wanted a token of at least {_SHORTEST_TOKEN}, without spaces"
        raise ConfigError(f"got {len(token)} characters; {wanted}", at=str(path))
    return token


@contextmanager
def open_broker(scenario: Scenario, out: Path, most_pending: int, trust: bool) -> Generator[broker.Broker]:
    """Block with the broker of a scenario in its locked folder: new, or in the state where its last process ended."""
    if scenario.policy is not None:
        raise ConfigError("got a policy; wanted none, as clients are asked what the team decides", at="$.policy")
    if scenario.workers is not None:
        raise ConfigError("got workers; wanted none, as clients evaluate, and workers would simulate", at="$.workers")
    with naming_user_code(scenario):
        env, team = assemble(scenario, trust, is_served=True)
        if isinstance(team.setup.coordination, Routes):
            got = "got a planner of routes, which needs the paths of a simulated environment"
            wanted = "wanted a kind that chooses locations, such as 'max-sum'"
            raise ConfigError(f"{got}; {wanted}", at="$.coordination.kind")
    with (
        _locked_run(scenario, out) as folder,
        naming_user_code(scenario),
        run_hooks(scenario, out, rounds.ignore) as hooks,
    ):
        parts = rounds.RunParts(scenario, folder, env, team, hooks)
        start = rounds.start_run(parts)
        truth = start.truth
        is_peak = truth is not None and truth.at_round is None and truth.goal == "peak"
        maximum = float(truth.maximum) if truth is not None and is_peak else None
        service = broker.Service(scenario.name, scenario.seed, scenario.rounds, start.labels.unit, maximum)
        if team.problem.is_field:  # agents may be anywhere in its box, as no world moves them
            settings: dict[str, Any] = {part: getattr(scenario, part) for part in (*SLOTS, "seed", "rounds")}
            parts = replace(parts, team=Team(team.problem, **settings))
        log = RoundLog(parts, start)
        opened = broker.Broker(log.ledger(), service, most_pending)
        log.end()  # if the last service was killed after all queries were told
        yield opened
        log.end()


@contextmanager
def _locked_run(scenario: Scenario, out: Path) -> Generator[RunFolder]:
    """Block with the locked folder of a scenario: a new folder, or that of a service to continue."""
    with locked(RunFolder.make(out)):
        if not RunFolder.holds_run(out):
            yield RunFolder.create(out, scenario, code_digests(scenario))
            return
        folder = RunFolder.open(out)
        if folder.scenario() != scenario:
            raise RunFolderError(f"{out}: holds another run; choose another --out, or the scenario of that run")
        folder.require_same_code(code_digests(scenario))
        if len(folder.records()) > 1 and not Ledger.is_in(out):
            raise RunFolderError(f"{out}: holds a run without a ledger; choose another --out")
        yield folder


class RoundLog:
    """Rounds of a served scenario in its folder, one for each query with complete outcomes, logged as in a run."""

    def __init__(self, parts: rounds.RunParts, start: rounds.RunStart) -> None:
        self._parts, self._start, self._world = parts, start, parts.team.world
        self._rounds, self._assembler = LedgerRounds(parts, start), broker.OutcomeAssembler(parts.team.problem)
        self._partial_infos = dict[str, dict[str, dict[str, object]]]()  # in a field, by query and agent
        self._complete = list[str]()

    def ledger(self) -> Ledger:
        """Ledger of the folder; rounds that are missing are logged."""
        ledger = self._rounds.open_ledger(lambda ledger, event: self._update(ledger))
        self._update(ledger)
        self._rounds.require_queries(self._complete)
        ledger.watchers.append(lambda event: self._update(ledger))
        return ledger

    def end(self) -> None:
        """Write the summary, if all queries are told."""
        if self._rounds.last_record.round == self._parts.scenario.rounds:
            rounds.finish_run(self._parts, self._start, self._start.truth)

    def _update(self, ledger: Ledger) -> None:
        for event, outcomes in self._assembler.new_events(ledger):
            infos = self._infos(ledger.query(event.query), outcomes) if outcomes else None
            if infos is not None:
                self._complete.append(event.query)
                if not self._rounds.is_logged(self._complete):
                    took = max(0.0, event.at - ledger.asked(event.query).at)
                    self._rounds.record(ledger, event, Timing(len(self._complete), 0.0, took, 0.0, 0.0), infos)

    def _infos(self, query: Query, outcomes: list[broker.Outcome]) -> dict[str, dict[str, object]] | None:
        """Reports of all agents of a query, if new outcomes complete it; else None."""
        if isinstance(world := self._world, FunctionWorld):
            (outcome,), graph, whole = outcomes, self._parts.team.graph, dict[str, Any]()
            for agent, action in world.actions(outcome.point, world.agents).items():
                factors = {f: outcome.factors.get(f) for f in graph.factors if graph.owner(f) == agent}
                values = {"measurement": outcome.value} if world.outcomes == "total" else {"factors": factors}
                whole[agent] = {"location": action, "noise_std": outcome.noise_std, **values}
            return whole
        infos = self._partial_infos.setdefault(query.id, {})
        for outcome in outcomes:
            place = list(outcome.point.values())
            infos[outcome.agent] = {"location": place, "measurement": outcome.value, "noise_std": outcome.noise_std}
        return self._partial_infos.pop(query.id) if set(infos) == set(query.points) else None
