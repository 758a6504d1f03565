"""The belief of a team in a field, be it one that all share or one of each agent's own: made, taught and asked."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.belief import ExactGP, ExactGPSettings, PlaceBelief
from swarmbo.belief.fusion import FusedBelief, FusedSettings
from swarmbo.belief.model.success import Requirement, SuccessGP, excess_of
from swarmbo.boundary.rng import stream
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.setup import Carrying, Setup
from swarmbo.problem import Problem
from swarmbo.problem.data import News, Reading
from swarmbo.registry.own_code import not_wanted
from swarmbo.transport import InProcess

TeamBelief = ExactGP | FusedBelief

_OFFERED = [
    *("X", "n_data", "has_time", "hyperparameters", "noise_variance", "prior_variance", "needs_fit", "fit", "update"),
    *("at", "condition_on_pending", "posterior", "posterior_mean", "posterior_cache", "state_dict"),
]


def empty_belief(setup: Setup, own: str | None = None) -> TeamBelief:
    """What a team believes before any data.

    Args:
        setup: What it is made of.
        own: Of beliefs that are agents' own, whose is at hand; None: those of all.
    """
    settings, domain = setup.belief, setup.problem.box
    if isinstance(settings, FusedSettings):
        return FusedBelief(settings, domain, setup.problem.agents, setup.seed, *_told_by(setup, own))
    if isinstance(settings, ExactGPSettings):
        return ExactGP.create(settings, domain)
    return _checked(settings.prior(domain), settings, "prior")


def saved_belief(setup: Setup, state: Mapping[str, Any], own: str | None) -> TeamBelief:
    """What a team, or the agent whose own belief is at hand, believed when ``state_dict`` was written.

    Raises:
        StateVersionError: If another version wrote it.
    """
    settings, domain = setup.belief, setup.problem.box
    if isinstance(settings, FusedSettings):
        agents = setup.problem.agents
        return FusedBelief.from_state_dict(settings, domain, agents, setup.seed, state, *_told_by(setup, own))
    if isinstance(settings, ExactGPSettings):
        return ExactGP.from_state_dict(settings, domain, state)
    return _checked(settings.restored(domain, state), settings, "restored")


def _told_by(setup: Setup, own: str | None) -> tuple[Sequence[str] | None, Carrying]:
    """Whose beliefs are at hand, and what carries what they say: of an agent by itself real links, with real faults."""
    return (None, setup.transport) if own is None else ([own], InProcess())


def _checked(belief: Any, settings: object, method: str) -> ExactGP:
    """A belief of a user's own, if it offers what a team asks of one."""
    if lacking := [name for name in _OFFERED if not hasattr(belief, name)]:
        wanted = f"a belief, like swarmbo.ExactGP: it has no {', '.join(lacking)}"
        raise not_wanted(belief, wanted, settings, method)
    return belief


def with_news(
    belief: TeamBelief,
    news: News,
    problem: Problem,
    links: "nx.Graph[str] | None",
    *,
    asked: int,
    now: int,
) -> TeamBelief:
    """What a team believes once agents have told one another what they measured.

    Args:
        belief: What it believed before; agents with beliefs of their own learn in place, and then have something to say
            (``due``). Over links with faults they say it at once.
        news: What agents measured. Of failures they tell where; these teach the belief nothing.
        problem: The field.
        links: Who hears whom; None means everyone.
        asked: The round that the news are of.
        now: The present round.

    Raises:
        ShapeError: If measurements are refused; then nothing was learned.
    """
    readings = _readings(news, problem)
    good = [reading for reading in readings if np.isfinite(reading.outcome)]
    if isinstance(belief, FusedBelief):
        own, dead, known = dict[str, Any](), dict[str, Any](), dict[str, Any]()
        for agent in dict.fromkeys(reading.agent for reading in readings if reading.agent in belief.agents):
            taken = [reading for reading in good if reading.agent == agent]
            lost = [reading.place for reading in readings if reading.agent == agent and np.isnan(reading.outcome)]
            if taken:
                own[agent] = np.array([reading.place for reading in taken]), [reading.outcome for reading in taken]
                known[agent] = np.array([reading.noise_std**2 for reading in taken])
            if lost:
                dead[agent] = np.array(lost)
        talking = belief.at(asked)
        talking.learn(own, links, dead, known, now, later=not talking.has_faults)
        return talking.at(now)
    if not good:
        return belief
    X, y = np.array([reading.place for reading in good]), np.array([reading.outcome for reading in good])
    noise = np.array([reading.noise_std for reading in good])
    return _updated(belief.at(asked), X, y, noise).at(now)


def _readings(news: News, problem: Problem) -> list[Reading]:
    """All that was measured: first what was asked for, in the order of the news, then what came on the way."""
    places = problem.places(news.point, news.factors)
    asked = [
        Reading(agent, place, news.factors[agent], news.noise.get(agent, np.nan)) for agent, place in places.items()
    ]
    return [*asked, *news.on_the_way]


def _updated(
    belief: ExactGP, X: Float[np.ndarray, "n c"], y: Float[np.ndarray, " n"], noise_std: Float[np.ndarray, " n"]
) -> ExactGP:
    """With further outcomes. A belief of a user's own is only told of noise that is known."""
    return belief.update(X, y) if np.isnan(noise_std).all() else belief.update(X, y, noise_std**2)


def with_survey(
    belief: TeamBelief,
    agent: str,
    X: Float[np.ndarray, "n c"],
    y: Float[np.ndarray, " n"],
    dead: Float[np.ndarray, "f c"],
    noise_std: Float[np.ndarray, " n"],
) -> TeamBelief:
    """What a team believes with measurements that it did not ask for.

    Args:
        belief: What it believed before; agents with beliefs of their own learn in place.
        agent: Who is given them, where agents have beliefs of their own; the others hear of them when next they talk.
        X: Where (n, d), or (n, d + 1) with the round last.
        y: What (n,), finite.
        dead: Where others failed (f, d), or (f, d + 1).
        noise_std: Of the noise of each (n,); NaN where nobody says.
    """
    if isinstance(belief, FusedBelief):
        if agent not in belief.agents:
            return belief  # it is elsewhere, and tells what it has when next they talk
        belief.give(agent, X, y, noise_std**2)
        belief.give_failures(agent, dead)
        return belief
    return _updated(belief, X, y, noise_std) if len(y) else belief


def with_fit(belief: TeamBelief, seed: int) -> TeamBelief:
    """The belief, its hyper-parameters fitted if they are due; agents with beliefs of their own fit when they talk."""
    if not isinstance(belief, FusedBelief) and belief.needs_fit:
        return belief.fit(stream(seed, "fit", n=belief.n_data))
    return belief


def with_pending(belief: TeamBelief, log: Logbook, round_number: int) -> PlaceBelief:
    """What is to be decided by: what is pending taken as measured in the variance, each batch in its own round.

    Args:
        belief: What the team believes, at the present round.
        log: What is pending.
        round_number: The present round.
    """
    given: PlaceBelief = belief.views if isinstance(belief, FusedBelief) else belief
    for query in log.open.values():
        places = log.problem.places(query.point, query.waits)
        given = given.at(query.round).condition_on_pending(np.array(list(places.values())))
    return given.at(round_number)


def required_of(belief: TeamBelief, log: Logbook, agents: Iterable[str], round_number: int) -> dict[str, Requirement]:
    """How likely measurements must be to succeed; of agents that know of a failure, and whose belief is at hand.

    What agents know of failures is what the team does, or where beliefs are their own what has reached each. Each is as
    careful as its own record asks for.

    Args:
        belief: What the team believes.
        log: With the measurements that failed, which all know of, and each agent's record.
        agents: Whose.
        round_number: The present round.
    """
    failed = _failed_places(log)
    domain = log.problem.box
    d, made, out = domain.n_dims, dict[tuple[bytes, bytes], SuccessGP](), dict[str, Requirement]()
    for agent in agents:
        if isinstance(belief, FusedBelief):
            if agent not in belief.agents:
                continue
            good, bad = belief.reports(agent)
            memory = belief.agents[agent].proposal.hyperparameters.time
        else:
            good, bad = belief.X, failed
            memory = belief.hyperparameters.time
        if not len(bad):
            continue
        bad = bad if belief.has_time else bad[:, :d]
        key = good.tobytes(), bad.tobytes()
        if key not in made:
            rows = np.concatenate([good, bad])
            made[key] = SuccessGP.learned(
                domain.to_unit(rows[:, :d]),
                np.arange(len(rows)) < len(good),
                rounds=rows[:, d] if belief.has_time else None,
                now=round_number,
                memory=memory,
            )
        out[agent] = Requirement.after(excess_of(log.record(agent).tolist()), made[key], np.arange(d))
    return out


def _failed_places(log: Logbook) -> Float[np.ndarray, "f c"]:
    """Where and when measurements failed: places, physical, and the round last."""
    data, problem = log.history, log.problem
    rows, channels = np.nonzero(data.failed)
    columns = [problem.columns(problem.channels[number]) for number in channels]
    rounds = np.zeros(len(data)) if data.rounds is None else data.rounds
    found = [[*data.X[row, own], rounds[row]] for row, own in zip(rows, columns, strict=True)]
    return np.array(found).reshape(len(found), problem.domain.n_dims // len(problem.channels) + 1)


def measured_places(belief: TeamBelief, n_dims: int) -> Float[np.ndarray, "n d"]:
    """Where the team has measured (n, d), physical; of several beliefs where its representative has."""
    return (belief.places if isinstance(belief, FusedBelief) else belief.X)[:, :n_dims]


def known_places(
    belief: TeamBelief, log: Logbook
) -> tuple[Float[np.ndarray, "n d"], dict[str, Float[np.ndarray, "m d"]]]:
    """Where the team has measured, as its representative knows; and as each agent with a belief of its own does.

    Where pending queries measure is known to all. It counts once something was measured.
    """
    n_dims, problem = log.problem.box.n_dims, log.problem
    out = [place for query in log.open.values() for place in problem.places(query.point, query.waits).values()]

    def with_out(X: Float[np.ndarray, "n e"]) -> Float[np.ndarray, "m d"]:
        return np.vstack([X[:, :n_dims], *out]) if len(X) else X[:, :n_dims]

    if not isinstance(belief, FusedBelief):
        return with_out(belief.X), {}
    by_agent = {agent: with_out(belief.reports(agent)[0]) for agent in belief.agents}
    return by_agent[belief.representative], by_agent
