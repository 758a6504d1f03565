"""Belief of a team in a field, with the same methods for one shared belief and for local beliefs."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.belief import ExactGP, ExactGPSettings, PlaceBelief
from swarmbo.belief.fusion import FusedBelief, FusedSettings
from swarmbo.belief.fusion.fused import Talk
from swarmbo.belief.gp.hyperparameters import TimeCorrelation
from swarmbo.belief.model.success import Requirement, SuccessGP, excess_of, required_logit
from swarmbo.boundary.rng import stream
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.setup import Setup
from swarmbo.problem.data import Measurement
from swarmbo.records import LinkReport, Traffic
from swarmbo.registry import invalid_result
from swarmbo.transport import InProcess

_OFFERED = [
    *("X", "n_data", "has_time", "hyperparameters", "noise_variance", "prior_variance", "needs_fit", "fit", "update"),
    *("at", "condition_on_pending", "posterior", "posterior_mean", "posterior_cache", "state_dict"),
]

Rows = Float[np.ndarray, "n c"]  # locations, physical; with a time axis the round last
Links: TypeAlias = "nx.Graph[str] | None"
Column = Float[np.ndarray, " n"]
Measured = tuple[float, Sequence[float], float, float | None]  # round, location, outcome (NaN: failed), noise


class BeliefMessages(NamedTuple):
    """Messages about beliefs after learning: those due, the traffic of those sent, and the report of faulty links."""

    due: tuple[Talk, ...] = ()
    sent: Traffic = Traffic()
    link_report: LinkReport | None = None


@dataclass(frozen=True, eq=False)
class SharedBelief:
    """One belief that all agents share: an ``ExactGP``, or a user's own belief, which is immutable."""

    seen: ExactGP

    def copied(self) -> "SharedBelief":
        """Itself."""
        return self

    def learn(self, measurements: Sequence[Measurement], links: Links, *, asked: int, now: int) -> "SharedBelief":
        """Belief with measurements of round ``asked``; failed ones are ignored."""
        if not (good := [one for one in measurements if np.isfinite(one.outcome)]):
            return self
        X, y, noise = (np.array([getattr(one, name) for one in good]) for name in ("place", "outcome", "noise_std"))
        return self.at(asked)._updated(X, y, noise).at(now)

    def attach(self, agent: str, X: Rows, y: Column, dead: Rows, noise_std: Column) -> "SharedBelief":
        """Belief with unrequested measurements; ``dead`` are locations of failures, and a noise of NaN is unknown."""
        return self._updated(X, y, noise_std) if len(y) else self

    def _updated(self, X: Rows, y: Column, noise_std: Column) -> "SharedBelief":
        """Belief with further outcomes. A user's own belief gets known noise only."""
        gp = self.seen
        return SharedBelief(gp.update(X, y) if np.isnan(noise_std).all() else gp.update(X, y, noise_std**2))

    def take_messages(self) -> BeliefMessages:
        """No messages."""
        return BeliefMessages()

    def fitted(self, seed: int) -> "SharedBelief":
        """Belief with hyper-parameters fitted if a fit is due, or the last one was of outcomes that did not differ."""
        is_due = self.seen.needs_fit or (self._lacks_unit and self.seen.tells_since_fit > 0)
        return SharedBelief(self.seen.fit(stream(seed, "fit", n=self.seen.n_data))) if is_due else self

    def at(self, now: float) -> "SharedBelief":
        """Belief at another round."""
        return SharedBelief(self.seen.at(now))

    @property
    def asked(self) -> PlaceBelief:
        """Belief for acquisitions."""
        return self.seen

    @property
    def places(self) -> Rows:
        """Locations of the team's measurements."""
        return self.seen.X

    def known(self, agents: Iterable[str], failed: Rows) -> dict[str, tuple[Rows, Rows, TimeCorrelation | None]]:
        """Locations of successes and failures by agent, the round last, and how these fade; without remote agents."""
        return dict.fromkeys(agents, (self.seen.X, failed, self.seen.hyperparameters.time))

    def unscaled(self, prices: Mapping[str, float]) -> set[str]:
        """Agents with a price while the belief has no unit yet."""
        return set(prices) if self._lacks_unit else set()

    @property
    def _lacks_unit(self) -> bool:
        """True while no outcomes have shown their unit to the belief; a user's own one has one."""
        return type(self.seen) is ExactGP and not self.seen.hyperparameters.has_scale


@dataclass(frozen=True, eq=False)
class OwnBeliefs:
    """Local beliefs of agents. They learn in place, and receive others' measurements by fusion."""

    seen: FusedBelief

    def copied(self) -> "OwnBeliefs":
        """Copy that learns independently."""
        return OwnBeliefs(self.seen.copied())

    def learn(self, measurements: Sequence[Measurement], links: Links, *, asked: int, now: int) -> "OwnBeliefs":
        """Give each local agent its own measurements, also failed ones."""
        own, dead, known = dict[str, Any](), dict[str, Any](), dict[str, Any]()
        for agent in dict.fromkeys(one.agent for one in measurements if one.agent in self.seen.agents):
            made = [one for one in measurements if one.agent == agent]
            taken = [one for one in made if np.isfinite(one.outcome)]
            lost = [one.place for one in made if np.isnan(one.outcome)]
            if taken:
                own[agent] = np.array([one.place for one in taken]), [one.outcome for one in taken]
                known[agent] = np.array([one.noise_std**2 for one in taken])
            if lost:
                dead[agent] = np.array(lost)
        # the kernel of time sees the round of the request, not the present one
        talking = self.seen.at(asked)
        talking.learn(own, links, dead, known, now, later=not talking.has_faults)
        return OwnBeliefs(talking.at(now))

    def attach(self, agent: str, X: Rows, y: Column, dead: Rows, noise_std: Column) -> "OwnBeliefs":
        """Give a local agent its unrequested measurements; remote agents send theirs in the next fusion."""
        if agent in self.seen.agents:
            self.seen.give(agent, X, y, noise_std**2)
            self.seen.give_failures(agent, dead)
            self.seen.propose_if_due(agent)
        return self

    def take_messages(self) -> BeliefMessages:
        """Due messages, once: the caller runs the exchange."""
        # taken once: a second caller must not fuse the same measurements again
        due, self.seen.due = self.seen.due, ()
        return BeliefMessages(due, self.seen.sent, self.seen.link_report)

    def fitted(self, seed: int) -> "OwnBeliefs":
        """Itself: agents fit during fusion."""
        return self

    def at(self, now: float) -> "OwnBeliefs":
        """Beliefs at another round."""
        return OwnBeliefs(self.seen.at(now))

    def with_own_data(self, agent: str, rows: Sequence[Measured]) -> "OwnBeliefs":
        """Beliefs with all measurements of a returning agent; it knows the first of ``rows`` already."""
        return OwnBeliefs(self.seen.with_own_data(agent, rows))

    @property
    def asked(self) -> PlaceBelief:
        """Beliefs of all local agents."""
        return self.seen.views

    def n_known(self, agent: str) -> float:
        """Number of measurements that have reached an agent."""
        return self.seen.known_to(agent)

    @property
    def places(self) -> Rows:
        """Locations of the representative's own measurements."""
        return self.seen.places

    def known(self, agents: Iterable[str], failed: Rows) -> dict[str, tuple[Rows, Rows, TimeCorrelation | None]]:
        """Locations of successes and failures that have reached each agent, and how these fade with time."""
        at_hand = {agent: self.seen.agents[agent] for agent in agents if agent in self.seen.agents}
        return {a: (*self.seen.reports(a), own.proposal.hyperparameters.time) for a, own in at_hand.items()}

    def unscaled(self, prices: Mapping[str, float]) -> set[str]:
        """Local agents with a price that know no different outcomes, nor a belief fitted to such."""
        return {agent for agent in prices.keys() & self.seen.agents.keys() if not self.seen.shows_scale(agent)}


FieldBelief = SharedBelief | OwnBeliefs


def belief_of(setup: Setup, own: str | None = None, state: Mapping[str, Any] | None = None) -> FieldBelief:
    """Belief of a team, or of agent ``own`` (whose messages cross real links), before any data or from a state."""
    settings, domain, agents = setup.belief, setup.problem.box, setup.problem.agents
    if isinstance(settings, FusedSettings):
        hears = (None, setup.transport) if own is None else ([own], InProcess())
        if state is None:
            return OwnBeliefs(FusedBelief(settings, domain, agents, setup.seed, *hears))
        return OwnBeliefs(FusedBelief.from_state_dict(settings, domain, agents, setup.seed, state, *hears))
    if isinstance(settings, ExactGPSettings):
        gp = ExactGP.create(settings, domain) if state is None else ExactGP.from_state_dict(settings, domain, state)
        return SharedBelief(gp)
    if state is None:
        return SharedBelief(_checked(settings.prior(domain), settings, "prior"))
    return SharedBelief(_checked(settings.restored(domain, state), settings, "restored"))


def _checked(belief: Any, settings: object, method: str) -> ExactGP:
    """A user's own belief, if it has all methods that a team needs."""
    if lacking := [name for name in _OFFERED if not hasattr(belief, name)]:
        wanted = f"a belief, like swarmbo.ExactGP: it has no {', '.join(lacking)}"
        raise invalid_result(belief, wanted, settings, method)
    return belief


def with_pending(belief: FieldBelief, log: Logbook, round_number: int) -> PlaceBelief:
    """Belief for a decision: pending queries count as measured in the variance, each batch in its own round."""
    given = belief.asked
    for query in log.open.values():
        places = log.problem.places(query.point, query.waits)
        given = given.at(query.round).condition_on_pending(np.array(list(places.values())))
    return given.at(round_number)


def required_of(belief: FieldBelief, log: Logbook, agents: Iterable[str], round_number: int) -> dict[str, Requirement]:
    """Required probability of success, for local agents that know of a failure, by each agent's own record."""
    domain = log.problem.box
    d, made, out = domain.n_dims, dict[Hashable, SuccessGP](), dict[str, Requirement]()
    for agent, (good, bad, memory) in belief.known(agents, _failed_places(log)).items():
        if not len(bad):
            continue
        bad = bad if belief.seen.has_time else bad[:, :d]
        # agents that know the same share one model, made once; equal bytes give equal bits
        key = good.tobytes(), bad.tobytes(), memory
        if key not in made:
            rows = np.concatenate([good, bad])
            U, succeeded = domain.to_unit(rows[:, :d]), np.arange(len(rows)) < len(good)
            rounds = rows[:, d] if belief.seen.has_time else None
            made[key] = SuccessGP.learned(U, succeeded, rounds=rounds, now=round_number, memory=memory)
        least = required_logit(excess_of(log.record(agent).tolist()), made[key].odds)
        out[agent] = Requirement(np.arange(d), made[key], least)
    return out


def _failed_places(log: Logbook) -> Float[np.ndarray, "f c"]:
    """Locations (physical) and rounds, last, of failed measurements."""
    data, problem = log.history, log.problem
    rows, channels = np.nonzero(data.failed)
    columns = [problem.columns(problem.channels[number]) for number in channels]
    rounds = np.zeros(len(data)) if data.rounds is None else data.rounds
    found = [[*data.X[row, own], rounds[row]] for row, own in zip(rows, columns, strict=True)]
    return np.array(found).reshape(len(found), problem.domain.n_dims // len(problem.channels) + 1)


def known_places(
    belief: FieldBelief, log: Logbook
) -> tuple[Float[np.ndarray, "n d"], dict[str, Float[np.ndarray, "m d"]]]:
    """Measured and pending locations by the representative's knowledge, and by each agent's with local beliefs."""
    n_dims, problem = log.problem.box.n_dims, log.problem
    out = [place for query in log.open.values() for place in problem.places(query.point, query.waits).values()]

    def with_out(X: Float[np.ndarray, "n e"]) -> Float[np.ndarray, "m d"]:
        return np.vstack([X[:, :n_dims], *out]) if len(X) else X[:, :n_dims]

    if isinstance(belief, SharedBelief):
        return with_out(belief.places), {}
    by_agent = {agent: with_out(good) for agent, (good, _, _) in belief.known(problem.agents, np.zeros((0, 1))).items()}
    return by_agent[belief.seen.representative], by_agent
