"""The tables of docs/studies/bytes.md: messages and bytes in a round, by method and by kind of message.

    python studies/decentralisation.py      # a minute and a half on an idle core

Here, separate agents make the agreements, and the encoded messages that they exchange are counted. All other numbers
are those that a team counts. Tests compare them with the messages that separate agents send.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from study import markdown, play, say
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.messages import Codec
from swarmbo.coordination.participant import maximise_with_agents
from swarmbo.graph import BoxFunctions
from swarmbo.records import Traffic
from swarmbo.transport import Envelope, InProcessTransport, Routes
from swarmbo.worlds import FunctionWorld
from swarmbo_envs import robot_team_v0, wlan_power_v0

INITIAL, DECISIONS, SEED = 10, 4, 0
MODES = ("per-factor", "total")  # a third mode, "mixed", alternates between them
KINDS = {"Copy": "copies", "Consensus": "copies", "Slope": "slopes", "Published": "published"}
KINDS |= {"Reduced": "sums", "Broadcast": "sums"}  # all other kinds belong to max-sum
SUMS = {"news": "what came", "ranking": "best", "best": "best", "spread": "best", "point": "point"}  # not agreements
SUMS |= {"splits": "sums", "box": "sums"}
COLUMNS = ("copies", "slopes", "published", "sums", "max-sum", "what came", "best", "point")


class CountingTransport(InProcessTransport):
    """Transport that counts sent bytes by the kind of the decoded message."""

    def __init__(self, routes: Routes) -> None:
        super().__init__(routes)
        self.by_kind = Counter[str]()

    def send(self, envelope: Envelope) -> None:
        """Send a message and count it."""
        super().send(envelope)
        name = type(Codec.read(envelope.payload)[1]).__name__
        self.by_kind[KINDS.get(name, "max-sum")] += len(envelope.payload)


class Counted:
    """A coordination method whose agents exchange real messages, which are counted."""

    def __init__(self, method: Any) -> None:
        self.method, self.by_kind = method, Counter[str]()

    def maximise(self, functions: BoxFunctions, links: Any = None, seed: int = 0) -> Agreement:
        """Agree, and record the bytes sent."""
        transport = CountingTransport(Routes(functions.graph.agents, links))
        agreement = maximise_with_agents(self.method, functions, transport, seed)
        assert sum(transport.by_kind.values()) == agreement.report.traffic.bytes
        self.by_kind += transport.by_kind
        return agreement


Evaluate = Callable[[Any, str], Any]  # from a point and the kind of outcome to the outcome
World = Callable[[], tuple[sb.FactorGraph, Any, Any, Evaluate]]


def wlan() -> tuple[sb.FactorGraph, Any, Any, Evaluate]:
    """The default WLAN: twelve access points, each in range of some others only."""
    worlds = {kind: FunctionWorld(wlan_power_v0.parallel_env(outcomes=kind)) for kind in ("per-factor", "total")}
    world = worlds["per-factor"]
    assert world.graph is not None

    def evaluate(point: Any, kind: str) -> Any:
        env = wlan_power_v0.parallel_env(outcomes=kind)
        env.reset(seed=SEED)
        return worlds[kind].outcome(env.step(world.actions(point, env.agents))[-1])

    return world.graph, world.bounds, world.links(), evaluate


def function(scopes: dict[str, list[str]]) -> World:
    """Factors of two variables each, on the unit cube; an agent for each variable."""
    graph = sb.FactorGraph.from_scopes(scopes)
    bounds = dict.fromkeys(graph.variables, (0.0, 1.0))

    def evaluate(point: Any, kind: str) -> Any:
        parts = {
            factor: float(np.sin(6.0 * point[a] + i) - (point[b] - 0.6 * point[a]) ** 2)
            for i, (factor, (a, b)) in enumerate(scopes.items())
        }
        return parts if kind == "per-factor" else sum(parts.values())

    return lambda: (graph, bounds, None, evaluate)


WORLDS: dict[str, World] = {
    "WLAN, 12 access points": wlan,
    "chain of 8 pairs": function({f"f{i}": [f"x{i}", f"x{i + 1}"] for i in range(8)}),
    "4 disjoint pairs": function({f"f{i}": [f"x{2 * i}", f"x{2 * i + 1}"] for i in range(4)}),
}
METHODS: dict[str, tuple[Any, Any]] = {
    "auto": ("auto", sb.ADMM()),
    "dec-hbo": ("dec-hbo", sb.ADMM()),
    "dec-hbo by max-sum": ("dec-hbo", sb.RefinedMaxSum()),
    "dumbo": (sb.DuMBO(exploration="paper"), sb.ADMM()),
    "coupled dumbo": (sb.DuMBO(coupled=True, exploration="paper"), sb.ADMM()),
    "thompson": ("thompson", sb.ADMM()),
    "expected-improvement": ("expected-improvement", sb.ADMM()),
    "add-gp-ucb": ("add-gp-ucb", sb.ADMM()),
    "add-gp-ucb with learned groups of 2": (sb.AddGPUCB(groups="learned", group_size=2), sb.ADMM()),
}


def fits(name: str, title: str, mode: str) -> bool:
    """True if a method supports a graph and its kind of outcomes."""
    if name == "add-gp-ucb":
        return "disjoint" in title  # it needs groups that share no variable
    return "learned" not in name or mode == "total"


def measured(
    world: World, mode: str, acquisition: Any, method: Any, decisions: int = DECISIONS
) -> tuple[Counter[str], Traffic]:
    """Bytes by kind over all decisions, and all messages, bytes and transmissions of agreements and sharing."""
    counted, (graph, bounds, links, evaluate) = Counted(method), world()
    owners = dict(zip(graph.variables, graph.variable_owners, strict=True))
    given: dict[str, Any] = {"acquisition": acquisition, "coordination": counted, "variable_owners": owners}
    outcomes = "per-factor" if mode == "per-factor" else "total"
    team = sb.Team(graph, bounds, seed=SEED, initial=INITIAL, outcomes=outcomes, **given)
    total = Traffic()
    for turn in range(INITIAL + decisions):
        query = team.ask(links=links)
        kind = ("total", "per-factor")[turn % 2] if mode == "mixed" else mode
        team.tell(query, evaluate(query.point, kind))
        if turn >= INITIAL:
            total = sum(team.sent.values(), total)
            counted.by_kind.update({SUMS[what]: took.bytes for what, took in team.sent.items() if what in SUMS})
    assert sum(counted.by_kind.values()) == total.bytes
    return counted.by_kind, total


def robots(coordination: str) -> tuple[Traffic, Traffic]:
    """Messages of four robots for agreements, and for reports of measurements and reachable locations."""
    env = robot_team_v0.parallel_env(robots=4, field={"elevation": "jacksboro"})
    rule = sb.DBGPUCB(exploration="annealed")
    team = sb.Team.for_env(env, acquisition=rule, coordination=coordination, seed=SEED)
    agreement = sharing = Traffic()
    for _ in islice(play(env, team, SEED), DECISIONS):
        assert team.last_report is not None
        agreement, sharing = agreement + team.last_report.traffic, sharing + team.last_sharing
    return agreement, sharing


def row_of(name: str, *numbers: float) -> list[str]:
    """A name, and means over decisions."""
    return [name, *(f"{number / DECISIONS:,.0f}" for number in numbers)]


def cells_of(by_kind: Counter[str], total: Traffic) -> list[int]:
    """The numbers of a row, from the results of ``measured``."""
    return [total.messages, total.transmissions, total.bytes, *(by_kind[kind] for kind in COLUMNS)]


def tables() -> Iterator[str]:
    """All tables; methods with the same numbers share a row."""
    for title, world in WORLDS.items():
        for mode in MODES:
            names: dict[tuple[str, ...], list[str]] = {}
            for name, kinds in METHODS.items():
                if fits(name, title, mode):
                    _, *cells = row_of(name, *cells_of(*measured(world, mode, *kinds)))
                    names.setdefault(tuple(cells), []).append(name)
            yield f"\n**{title[0].upper()}{title[1:]}, {mode}**\n"
            rows = [[", ".join(alike), *cells] for cells, alike in names.items()]
            yield from markdown(["method", "messages", "transmissions", "bytes", *COLUMNS], rows, right=True)
    yield "\n**Four robots, by coordination**\n"
    rows = list[list[str]]()
    for coordination in ("exact", "max-sum", "greedy", "independent"):
        both = robots(coordination)
        rows.append(row_of(coordination, *(number for sent in both for number in (sent.messages, sent.bytes))))
    head = [f"{purpose}: {what}" for purpose in ("agreement", "reports") for what in ("messages", "bytes")]
    yield from markdown(["db-gp-ucb and", *head], rows, right=True)


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        say(tables())
