"""Plan of a fleet, known to all members beforehand: the problem, the settings, and each member's endpoint."""

import math
import re
import secrets
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from swarmbo.agent import schema
from swarmbo.boundary import files, values
from swarmbo.coordination.plan import has_deadline
from swarmbo.coordination.tables import Table
from swarmbo.deciding.setup import Setup, part, refuse_unknown, settings_again
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.problem import Problem
from swarmbo.registry import FIELD
from swarmbo.settings import Positive
from swarmbo.transport import InProcess

HUB = "world"  # the member that has the world and the log
Protocol = Literal["tcp", "tls", "quic"]
_MOST_CHARACTERS = 32  # characters of a scenario's name in a run's name
_VERSION = 4  # 4: expected sums at many points; journals of earlier versions cannot be read
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=,+-]{0,63}")


class Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tables of a problem whose factors are known: the number of values by variable, and tables by factor, as bytes of
    float64 in C order. With a deadline, all agents know the forbidden pairs of each agent (``Conflicts.packed``).
    """

    sizes: dict[str, int]
    forbidden: dict[str, bytes]
    by_factor: dict[str, bytes]

    def require_fit(self, graph: FactorGraph, at: str, *, is_timed: bool) -> None:
        """Refuse tables of another graph, or with entries that are not utilities; ``is_timed``: there is a deadline."""
        sizes, tables = self.sizes, self.by_factor
        if set(sizes) != set(graph.variables) or not set(tables) <= set(graph.factors) or min(sizes.values()) < 1:
            raise ConfigError("got sizes or tables of another problem; wanted those of this problem", at=at)
        if wrong := [f for f, table in tables.items() if len(table) != 8 * math.prod(sizes[x] for x in graph.scope(f))]:
            raise ConfigError(f"got a table of {wrong[0]!r} that has another size", at=at)
        if wrong := [f for f, table in tables.items() if not (np.frombuffer(table, "<f8") < np.inf).all()]:
            raise ConfigError(f"got NaN or inf in the table of {wrong[0]!r}; wanted numbers or -inf", at=at)
        are_forbidden = schema.forbidden_pairs(graph, sizes)
        wrong = [agent for agent in graph.agents if not are_forbidden(agent, self.forbidden.get(agent, b""))]
        if wrong and (is_timed or self.forbidden):
            raise ConfigError(f"got no forbidden pairs of {wrong[0]!r} that fit; wanted those of its factors", at=at)

    def tables_of(self, graph: FactorGraph, agent: str) -> dict[str, Table]:
        """Tables of an agent's factors."""
        shapes = {f: [self.sizes[x] for x in graph.scope(f)] for f in graph.factors_owned_by(agent)}
        if not set(shapes) <= set(self.by_factor):
            raise ConfigError(f"got a plan without tables of {agent!r}; wanted its own, {agent}.json", at="--fleet")
        return {f: np.frombuffer(self.by_factor[f], "<f8").reshape(shape) for f, shape in shapes.items()}


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Plan in ``fleet.json``, with tables in ``NAME.json``: all inputs of a member on any machine, except its own key.

    Args:
        run: Name of the run, from ``new_run``; messages and journals of other runs are ignored.
        endpoints: Endpoint of each member in Zenoh's form: ``tls/192.168.0.7:7447``. The hub is ``world``.
        problem: From ``Problem.to_plain``; ``settings`` are from ``Setup.to_plain``, with tables only method and seed.
        sites: In a field, all measurable locations (k, d); None: the whole box.
        patience_s: Seconds that a member waits for others without arrivals.
        keys: Folder of the authority's certificate, and the member's own certificate and key; None with ``tcp``.
        tables: Known tables, if agents choose from them once; None if they learn.
        version: Version of messages and journals, the same for all.
    """

    run: str
    endpoints: dict[str, str]
    problem: dict[str, Any]
    settings: dict[str, Any]
    level: float | None = None
    sites: list[list[float]] | None = None
    measures: tuple[str, ...] = ()
    patience_s: Positive = 60.0
    tick_s: Positive = 0.05
    keys: str | None = None
    tables: Tables | None = None
    version: Annotated[int, msgspec.Meta(ge=_VERSION, le=_VERSION)] = _VERSION

    @property
    def setup(self) -> Setup:
        """Problem and settings; with tables, the settings of the coordination only."""
        problem, settings = Problem.from_plain(self.problem), settings_again(self.settings, {})
        if self.tables is None:
            return Setup.of(problem, **settings)
        refuse_unknown(settings, ("coordination", "seed"))
        method = part("coordination", settings["coordination"], FIELD)
        return Setup(problem, None, None, method, InProcess(), settings["seed"], None, 0)

    def for_agent(self, agent: str) -> "Plan":
        """Make the plan for one agent, without tables of other agents' factors."""
        if self.tables is None:
            return self
        factors = Problem.from_plain(self.problem).graph.factors_owned_by(agent)
        by_factor = {f: self.tables.by_factor[f] for f in factors}
        return msgspec.structs.replace(self, tables=msgspec.structs.replace(self.tables, by_factor=by_factor))

    @property
    def tolerates_failures(self) -> bool:
        """True if decisions have a deadline: the fleet then continues without failed members."""
        return has_deadline(self.setup.coordination)

    def checked(self) -> "Plan":
        """Return the plan, or raise a ConfigError if its content is not valid."""
        with values.intact("a problem and settings as `swarmbo fleet` writes them"):
            setup = self.setup
            if self.tables is None:
                schema.require_agent_settings(setup)
        agents = setup.problem.agents
        if set(self.endpoints) != {*agents, HUB}:
            raise ConfigError(f"got endpoints of {sorted(self.endpoints)}; wanted {sorted({*agents, HUB})}")
        for name in [self.run, *self.endpoints]:
            if not _NAME.fullmatch(name):
                raise ConfigError(f"got name {name!r}; wanted a-z, A-Z, digits and _.=,+-, at most 64")
        if self.tables is not None:
            self.tables.require_fit(setup.problem.graph, "$.tables", is_timed=has_deadline(setup.coordination))
        if strangers := sorted(set(self.measures) - set(agents)):
            raise ConfigError(f"got {strangers[0]!r}; wanted some of {list(agents)}", at="$.measures")
        protocols = {endpoint.partition("/")[0] for endpoint in self.endpoints.values()}
        if len(protocols) > 1 or not protocols <= {"tcp", "tls", "quic"}:
            raise ConfigError(f"got endpoints of {sorted(protocols)}; wanted all tls, all quic, or all tcp")
        if protocols == {"tcp"}:
            if far := [end for end in self.endpoints.values() if not end.startswith("tcp/127.0.0.1:")]:
                raise ConfigError(f"got {far[0]}: tcp is open to every process; wanted tls or quic, with keys")
        elif self.keys is None:
            raise ConfigError("got none; wanted a folder that `swarmbo fleet keys` made", at="--keys")
        return self

    def write(self, path: Path) -> None:
        """Write it as JSON, atomically: a waiting process may read it as soon as it exists."""
        with files.replacing(path) as file:
            file.write(msgspec.json.format(msgspec.json.encode(self)) + b"\n")

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """Read and check a plan."""
        with values.located(path), values.intact("the plan that `swarmbo fleet` wrote"):
            plain = msgspec.json.decode(files.read_regular(path))
            if isinstance(plain, dict) and (version := plain.get("version", 1)) != _VERSION:
                raise ConfigError(f"got version {version}; wanted {_VERSION}, of the same swarmbo everywhere")
            return msgspec.convert(plain, cls).checked()


def new_run(name: str, seed: int) -> str:
    """Unique name of a run on the network and on disks, so that agents of an earlier run are not its members."""
    short = re.sub(r"[^A-Za-z0-9_.=,+-]+", "_", name).lstrip("_.=,+-")[:_MOST_CHARACTERS]
    return f"{short or 'run'}-{seed}-{secrets.token_hex(4)}"


def endpoints_of(
    agents: Sequence[str], protocol: Protocol, port: int, hosts: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Endpoints of members at their ``hosts``, with consecutive ports, the hub's first, or a ConfigError."""
    if HUB in agents:
        got = f"got an agent called {HUB!r}, which is the name of the coordinator process"
        raise ConfigError(f"{got}; wanted another name")
    members, hosts = [HUB, *agents], dict(hosts or {})
    if protocol not in ("tcp", "tls", "quic"):
        raise ConfigError(f"got {protocol!r}; wanted tcp, tls or quic", at="--protocol")
    if strangers := [name for name in hosts if name not in members]:
        raise ConfigError(f"got a host of {strangers[0]!r}; wanted one of {members}", at="--host")
    if not 1024 <= port <= 65536 - len(members):
        raise ConfigError(f"got port {port}; wanted 1024 to {65536 - len(members)}", at="--port")
    addresses = {name: f"[{host}]" if ":" in host else host for name, host in checked_hosts(hosts).items()}
    return {name: f"{protocol}/{addresses.get(name, '127.0.0.1')}:{port + i}" for i, name in enumerate(members)}


def checked_hosts(hosts: Mapping[str, str]) -> dict[str, str]:
    """Host names and IP addresses of members, those of IPv6 without brackets, or a ConfigError."""
    bare = {name: host.removeprefix("[").removesuffix("]") for name, host in hosts.items()}
    for name, host in bare.items():
        try:
            ip_address(host)
        except ValueError:
            if not re.fullmatch(r"[\w.-]+", host, re.ASCII):
                wanted = "a host name or an IP address, without a port"
                raise ConfigError(f"got {hosts[name]!r} for {name!r}; wanted {wanted}", at="--host") from None
    return bare
