"""What it costs a team to tell one another what came out."""

import math
from collections.abc import Mapping, Sequence

import msgspec

from swarmbo.data import News
from swarmbo.graph import FactorGraph
from swarmbo.problem import OutcomeMode, Problem
from swarmbo.records import Traffic
from swarmbo.transport import Routes, multicast_traffic


def outcome_traffic(
    graph: FactorGraph,
    outcomes: OutcomeMode,
    routes: Routes,
    point: Mapping[str, float],
    news: News,
) -> Traffic:
    """Traffic after one evaluation, so that every agent can work out by itself what all of those it agrees with know.

    Totals tie all factors together, so everybody needs the joint point and its outcome: every agent tells all others
    the values of its own variables, the first one the total with them, and owners the outcomes of single factors if
    there are any. Outcomes by factor leave parts of the graph that share no variable independent: the owner of a factor
    tells its outcome, and where, to the agents of its part. If all of them failed, nobody knows whose fault it was, so
    that is told like a total. Where the noise of an outcome is known it goes with it, in nine bytes or ten.

    Args:
        graph: Scopes and owners.
        outcomes: What the team observes.
        routes: Who reaches whom; where no relay does, a base station passes it on.
        point: Value of each variable.
        news: What was told.

    Example:
        >>> import numpy as np
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["z"]})
        >>> point = {"x": 0.1, "y": 0.2, "z": 0.3}
        >>> place = np.array(list(point.values()))
        >>> outcome_traffic(graph, "total", Routes(graph.agents), point, News(place, 1.5, {})).messages
        6
        >>> news = News(place, None, {"f": 1.0, "g": 0.5})
        >>> outcome_traffic(graph, "per-factor", Routes(graph.agents), point, news).messages
        1
    """
    traffic, factors, told = Traffic(), news.factors, _with_noise(news)
    failed_as_a_whole = len(factors) == len(graph.factors) and all(math.isnan(value) for value in factors.values())
    if outcomes == "total" or failed_as_a_whole:
        everybody = frozenset(graph.agents)
        for place, agent in enumerate(graph.agents):
            values = [point[variable] for variable in graph.variables_owned_by(agent)]
            own = {factor: told[factor] for factor in graph.factors_owned_by(agent) if factor in factors}
            total = [] if math.isnan(news.total_noise) or place else [news.total_noise]
            content = (agent, values, news.total if place == 0 else None, own, *total)
            traffic += multicast_traffic(routes, agent, everybody, len(msgspec.msgpack.encode(content)))
        return traffic
    for part in graph.components:
        members = frozenset(part.agents)
        for factor in part.factors:
            if factor in factors:
                owner, values = part.owner(factor), [point[variable] for variable in part.scope(factor)]
                content = (factor, values, told[factor])
                traffic += multicast_traffic(routes, owner, members, len(msgspec.msgpack.encode(content)))
    return traffic


def draw_traffic(graph: FactorGraph, routes: Routes, n_evaluations: int) -> Traffic:
    """Traffic of drawing factors that totals tie together: each owner tells the owners of others its prior draw at
    every evaluated point, from which all work out the same correction.

    Args:
        graph: Of the factors drawn.
        routes: Who reaches whom.
        n_evaluations: Points with an outcome.

    Example:
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["z"]})
        >>> draw_traffic(graph, Routes(graph.agents), 10)
        Traffic(messages=2, bytes=170, transmissions=2)
    """
    traffic = Traffic()
    if not n_evaluations:
        return traffic
    owners = frozenset(graph.factor_owners)
    for factor in graph.factors:
        owner = graph.owner(factor)
        content = (factor, bytes(8 * n_evaluations))
        traffic += multicast_traffic(routes, owner, owners, len(msgspec.msgpack.encode(content)))
    return traffic


def spread_traffic(graph: FactorGraph, routes: Routes) -> Traffic:
    """Traffic of weighing penalties against what is maximised: each owner tells the agents of its part one number for
    each of its factors.

    Args:
        graph: Of the factors that are maximised.
        routes: Who reaches whom.

    Example:
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["w"]})
        >>> spread_traffic(graph, Routes(graph.agents))
        Traffic(messages=4, bytes=48, transmissions=4)
    """
    traffic = Traffic()
    for part in graph.components:
        members = frozenset(part.agents)
        for factor in part.factors:
            owner = part.owner(factor)
            traffic += multicast_traffic(routes, owner, members, len(msgspec.msgpack.encode((factor, 0.0))))
    return traffic


def check_traffic(graph: FactorGraph, routes: Routes, agents: Sequence[str]) -> Traffic:
    """Traffic of checking a joint point before it is evaluated: agents tell one another the values of their variables.

    Args:
        graph: With the variables.
        routes: Who reaches whom.
        agents: Who check together.

    Example:
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"]})
        >>> check_traffic(graph, Routes(graph.agents), graph.agents)
        Traffic(messages=2, bytes=26, transmissions=2)
    """
    traffic = Traffic()
    together = frozenset(agents)
    for agent in agents:
        values = [0.0] * len(graph.variables_owned_by(agent))
        traffic += multicast_traffic(routes, agent, together, len(msgspec.msgpack.encode((agent, values))))
    return traffic


def reading_traffic(news: News, problem: Problem, routes: Routes) -> Traffic:
    """Traffic after a round in a field: who measured tells all others its name, where, what, and its noise if known.

    What it measured on the way goes with it, in the same message.

    Args:
        news: What agents measured.
        problem: The field.
        routes: Who reaches whom; where no relay does, a base station passes it on.

    Example:
        >>> import numpy as np
        >>> from swarmbo.spaces import Domain
        >>> field = Problem.of_field(["a", "b", "c"], Domain(np.zeros(2), np.ones(2)))
        >>> news = News(field.joint({"a": np.zeros(2)}), None, {"a": 1.5})
        >>> reading_traffic(news, field, Routes(["a", "b", "c"]))
        Traffic(messages=2, bytes=62, transmissions=2)
    """
    traffic, told = Traffic(), _with_noise(news)
    places, everybody = problem.places(news.point, news.factors), frozenset(routes.agents)
    for agent in problem.agents:
        along = [(r.place.tolist(), _number(r.outcome, r.noise_std)) for r in news.along(agent)]
        asked = (places[agent].tolist(), told[agent]) if agent in places else ()
        if not asked and not along:
            continue
        report = msgspec.msgpack.encode((agent, *asked, along) if along else (agent, *asked))
        traffic += multicast_traffic(routes, agent, everybody, len(report))
    return traffic


def _with_noise(news: News) -> dict[str, float | tuple[float, float]]:
    """Outcomes of channels as they are told: with the standard deviation of their noise where that is known."""
    return {channel: _number(y, news.noise.get(channel, math.nan)) for channel, y in news.factors.items()}


def _number(outcome: float, noise_std: float) -> float | tuple[float, float]:
    return outcome if math.isnan(noise_std) else (outcome, noise_std)
