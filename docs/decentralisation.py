"""The tables of docs/decentralisation.md: what crosses the wire in a round, by method and by kind of message.

Agents run as such here, and what is counted are the encoded messages that they really exchange. Reports of outcomes,
and what a joint draw takes, are counted by the library's formulas; tests hold these to counts of their own.
Run it with one BLAS thread: OPENBLAS_NUM_THREADS=1 python docs/decentralisation.py
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
from threadpoolctl import threadpool_limits

import swarmbo as sb
from swarmbo.agent import Agent, run
from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.messages import Codec
from swarmbo.coordination.participant import maximise_with_agents
from swarmbo.data import News
from swarmbo.deciding.sharing import outcome_traffic
from swarmbo.records import Traffic
from swarmbo.transport import Envelope, InProcessTransport, Routes
from swarmbo.worlds import FieldWorld, FunctionWorld, Step
from swarmbo_envs import robot_team_v0, wlan_power_v0

INITIAL, DECISIONS, SEED = 10, 4, 0
MODES = ("per-factor", "total", "mixed")
KINDS = {
    "Copy": "copies",
    "Consensus": "copies",
    "Slope": "slopes",
    "Published": "published",
    "Reduced": "sums",
    "Broadcast": "sums",
}  # all else belongs to max-sum
OWN_ACCOUNT = {
    "agreement": "agreement",
    "news": "what came, and where",
    "ranking": "best evaluations",
    "point": "what was agreed",
}
OWN_REPORTS = {
    "agreement": "agreement",
    "reports": "measurements and reach",
    "choices": "what was agreed",
}
COLUMNS = ("copies", "slopes", "published", "sums", "max-sum", "draws", "outcomes")


class CountingTransport(InProcessTransport):
    """Sorts what is sent by its kind, after decoding it."""

    def __init__(self, routes: Routes) -> None:
        super().__init__(routes)
        self.by_kind = Counter[str]()

    def send(self, envelope: Envelope) -> None:
        """Take a message."""
        super().send(envelope)
        name = type(Codec.decode(envelope.payload)).__name__
        self.by_kind[KINDS.get(name, "max-sum")] += len(envelope.payload)


class Counted:
    """A way to agree, by real messages that are counted."""

    def __init__(self, method: Any) -> None:
        self.method, self.by_kind = method, Counter[str]()

    def maximise(self, functions: LocalFunctions, links: Any = None, seed: int = 0) -> Agreement:
        """Agree, and note what was sent."""
        transport = CountingTransport(Routes(functions.graph.agents, links))
        agreement = maximise_with_agents(self.method, functions, transport, seed)
        assert sum(transport.by_kind.values()) == agreement.report.traffic.bytes
        self.by_kind += transport.by_kind
        return agreement


Evaluate = Callable[[Any, str], Any]  # a point and the kind of outcome to what comes out
World = Callable[[], tuple[sb.FactorGraph, Any, Any, Evaluate]]


def wlan() -> tuple[sb.FactorGraph, Any, Any, Evaluate]:
    """The default WLAN: twelve access points, who hear only some of the others."""
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


CHAIN = {f"f{i}": [f"x{i}", f"x{i + 1}"] for i in range(8)}
PAIRS = {f"f{i}": [f"x{2 * i}", f"x{2 * i + 1}"] for i in range(4)}
WORLDS: dict[str, World] = {
    "WLAN, 12 access points": wlan,
    "chain of 8 pairs": function(CHAIN),
    "4 disjoint pairs": function(PAIRS),
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
ALONE = ("auto", "dec-hbo", "dumbo", "coupled dumbo", "thompson", "expected-improvement")


def fits(name: str, title: str, mode: str) -> bool:
    """Whether a method takes such a graph and such outcomes."""
    if name == "add-gp-ucb":
        return "disjoint" in title  # it wants groups that share no variable
    return "learned" not in name or mode == "total"


def team_of(world: World, mode: str, acquisition: Any, coordination: Any) -> tuple[sb.Team, Any, Evaluate]:
    """A team, its links, and what it asks."""
    graph, bounds, links, evaluate = world()
    team = sb.Team(
        graph,
        bounds,
        acquisition=acquisition,
        coordination=coordination,
        seed=SEED,
        initial=INITIAL,
        outcomes="per-factor" if mode == "per-factor" else "total",
        variable_owners=dict(zip(graph.variables, graph.variable_owners, strict=True)),
    )
    return team, links, evaluate


def kind_of(mode: str, turn: int) -> str:
    """What the team is told in this turn: with mixed outcomes totals and outcomes by factor alternate."""
    return ("total", "per-factor")[turn % 2] if mode == "mixed" else mode


def measured(
    world: World, mode: str, acquisition: Any, method: Any, decisions: int = DECISIONS
) -> tuple[Counter[str], Traffic]:
    """Bytes by kind over all decisions, and all messages, bytes and transmissions of agreements and sharing."""
    counted = Counted(method)
    team, links, evaluate = team_of(world, mode, acquisition, counted)
    routes, total = Routes(team.agents, links), Traffic()
    for turn in range(INITIAL + decisions):
        query = team.ask(links=links)
        outcome = evaluate(query.point, kind_of(mode, turn))
        team.tell(query, outcome)
        assert team.last_report is not None
        if turn >= INITIAL:
            by_factor = dict(outcome) if kind_of(mode, turn) == "per-factor" else {}
            news = News(np.array(list(query.point.values())), None if by_factor else outcome, by_factor)
            told = outcome_traffic(team.graph, team.outcomes, routes, query.point, news)
            assert told.bytes == team.last_sharing.bytes  # the team, which knows no links here, counts no relays
            total = total + team.last_report.traffic + told
            counted.by_kind["draws"] += team.last_report.traffic.bytes
            counted.by_kind["outcomes"] += told.bytes
    counted.by_kind["draws"] -= sum(counted.by_kind[kind] for kind in COLUMNS[:5])  # what agreements did not send
    assert sum(counted.by_kind.values()) == total.bytes
    return counted.by_kind, total


def alone(world: World, acquisition: Any, method: sb.ADMM) -> dict[str, Traffic]:
    """What agents send that know no outcomes but their own: by what it is for, over all decisions.

    They run in one process here, which makes no difference to what they say, and are held to the team's points.
    """
    team, links, evaluate = team_of(world, "per-factor", acquisition, method)
    graph, settings = team.graph, {"acquisition": acquisition, "coordination": method, "seed": SEED, "initial": INITIAL}
    agents = {name: Agent(name, team.problem, links=links, **settings) for name in graph.agents}
    transport, sent = InProcessTransport(Routes(graph.agents, links)), dict.fromkeys(OWN_ACCOUNT, Traffic())
    for turn in range(INITIAL + DECISIONS):
        query = team.ask(links=links)
        for agent in agents.values():
            agent.ask()
        crossed, purposes = run(agents, transport), [agent.sent for agent in agents.values()]
        if turn >= INITIAL:
            for purpose in sent:
                sent[purpose] = sum((took[purpose] for took in purposes if purpose in took), sent[purpose])
        assert sum((traffic for took in purposes for traffic in took.values()), Traffic()) == crossed
        assert {x: value for agent in agents.values() for x, value in (agent.word() or {}).items()} == query.point
        outcomes = evaluate(query.point, "per-factor")
        team.tell(query, outcomes)
        for name, agent in agents.items():
            agent.tell(query.id, {factor: outcomes[factor] for factor in graph.factors_owned_by(name)})
    return sent


def robots(coordination: str) -> tuple[Traffic, Traffic]:
    """What four robots send to agree, and to tell one another what they measured, over all rounds."""
    env = robot_team_v0.parallel_env(robots=4, field={"elevation": "jacksboro"})
    observations, infos = env.reset(seed=SEED)
    rule = sb.DBGPUCB(exploration="annealed")
    team = sb.Team.for_env(env, acquisition=rule, coordination=coordination, seed=SEED)
    team.begin(infos)
    agreement = sharing = Traffic()
    for _ in range(DECISIONS):
        told = env.step(team.act(observations, infos))
        team.observe(*told)
        observations, infos = told[0], told[-1]
        assert team.last_report is not None
        agreement, sharing = agreement + team.last_report.traffic, sharing + team.last_sharing
    return agreement, sharing


def robots_by_themselves(coordination: str) -> dict[str, Traffic]:
    """What the same robots send as agents that are told their own measurements only, by purpose."""
    env = robot_team_v0.parallel_env(robots=4, field={"elevation": "jacksboro"})
    world, (_, infos) = FieldWorld(env), env.reset(seed=SEED)
    problem = world.problem
    given: Any = {"coordination": coordination, "seed": SEED, "rounds": world.horizon, "sites": world.sites()}
    agents = {name: Agent(name, problem, **given) for name in problem.agents}
    sent, query, news = dict.fromkeys(OWN_REPORTS, Traffic()), None, world.begin(infos)
    for _ in range(DECISIONS):
        for name, place in problem.places(news.point, news.factors).items():
            agents[name].tell(query, news.factors[name], location=place)
        offers = world.offers(list(agents))
        assert offers.candidates is not None
        assert offers.links is not None
        links = offers.links.copy()
        if not nx.is_connected(links):  # over a base station, as a team's reports go
            links.add_edges_from(("base station", name) for name in agents)
        for name, agent in agents.items():
            agent.links = links
            query = agent.ask(candidates=offers.candidates[name])
        run(agents, InProcessTransport(Routes(problem.agents, links)))
        for agent in agents.values():
            for purpose, traffic in agent.sent.items():
                sent[purpose] += traffic
        point = {x: value for agent in agents.values() for x, value in (agent.word() or {}).items()}
        news = world.news(point, Step(*env.step(world.actions(point, problem.agents))))
    return sent


def row_of(name: str, *numbers: float) -> str:
    """A name, and means over decisions."""
    cells = " | ".join(f"{number / DECISIONS:,.0f}".replace(",", " ") for number in numbers)
    return f"| {name} | {cells} |"


def cells_of(by_kind: Counter[str], total: Traffic) -> list[int]:
    """The numbers of a row: what ``measured`` found."""
    return [total.messages, total.transmissions, total.bytes, *(by_kind[kind] for kind in COLUMNS)]


def print_row(name: str, *numbers: float) -> None:
    """A row of a table."""
    print(row_of(name, *numbers), flush=True)  # noqa: T201


def print_head(title: str, *columns: str) -> None:
    """The head of a table."""
    print(f"\n{title}\n\n| {' | '.join(columns)} |\n|---|{'--:|' * (len(columns) - 1)}")  # noqa: T201


def main() -> None:
    """Print all tables, in Markdown."""
    for title, world in WORLDS.items():
        for mode in MODES:
            print_head(f"{title}, outcomes {mode}", "method", "messages", "transmissions", "bytes", *COLUMNS)
            for name, (acquisition, method) in METHODS.items():
                if fits(name, title, mode):
                    print_row(name, *cells_of(*measured(world, mode, acquisition, method)))
    columns = [f"{purpose}: {what}" for purpose in OWN_ACCOUNT.values() for what in ("messages", "bytes")]
    print_head("WLAN, agents that know no outcomes but their own", "method", *columns)
    for name in ALONE:
        sent = alone(wlan, METHODS[name][0], sb.ADMM())
        print_row(name, *(n for phase in OWN_ACCOUNT for n in (sent[phase].messages, sent[phase].bytes)))
    columns = [f"{purpose}: {what}" for purpose in ("agreement", "reports") for what in ("messages", "bytes")]
    print_head("Four robots, by coordination", "db-gp-ucb and", *columns)
    for coordination in ("exact", "max-sum", "greedy", "independent"):
        agreement, sharing = robots(coordination)
        print_row(coordination, agreement.messages, agreement.bytes, sharing.messages, sharing.bytes)
    columns = [f"{purpose}: {what}" for purpose in OWN_REPORTS.values() for what in ("messages", "bytes")]
    print_head("Four robots, agents that are told their own measurements only", "db-gp-ucb and", *columns)
    for coordination in ("exact", "max-sum", "greedy", "independent"):
        sent = robots_by_themselves(coordination)
        print_row(coordination, *(n for phase in OWN_REPORTS for n in (sent[phase].messages, sent[phase].bytes)))


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        main()
