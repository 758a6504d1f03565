"""Local beliefs of a team, one for each agent."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from msgspec.structs import replace
from numpy.typing import ArrayLike

from swarmbo.belief.fusion.covariance_intersection import CovarianceIntersection
from swarmbo.belief.fusion.experts import CommitteeFlooding
from swarmbo.belief.fusion.fused_view import FusedView, exchange
from swarmbo.belief.fusion.measurement_flooding import FailureFlooding, MeasurementFlooding
from swarmbo.belief.fusion.proposal import FusedSettings, FusionMethod, Proposal
from swarmbo.belief.fusion.push_sum import PushSum
from swarmbo.belief.gp.exact import ExactGP
from swarmbo.belief.gp.hyperparameters import Hyperparameters, TimeCorrelation
from swarmbo.belief.gp.observations import standardisation
from swarmbo.belief.gp.spatial import Delegating, PlaceBelief, Views, checked_noise, checked_outcomes, checked_places
from swarmbo.boundary.rng import stream
from swarmbo.boundary.values import check_links, distinct_names, known_names
from swarmbo.errors import StateVersionError
from swarmbo.graph.factor_graph import grouped
from swarmbo.problem.data import Measurement
from swarmbo.records import LinkReport, Neglected, Traffic, by_name
from swarmbo.spaces import Domain
from swarmbo.transport import Carrying, Faults, FaultyTransport, InProcess

if TYPE_CHECKING:
    import networkx as nx

_VERSION = 4  # 4: agents by their index, not by name
_FAULTLESS = InProcess()
ByAgent = Sequence[tuple[str, Measurement]]  # measurements with their agents
Rows = Float[np.ndarray, "n c"]  # physical locations; with a time axis, the last column is the round
KnownLocations = tuple[Rows, Rows, TimeCorrelation | None]  # of successes, of failures; correlation in time
_AGENTS: dict[FusionMethod, type[FusedView]] = {
    "consensus": PushSum,
    "covariance-intersection": CovarianceIntersection,
    "readings": MeasurementFlooding,
    "experts": CommitteeFlooding,
}


class FusionExchange(NamedTuple):
    """Agents before an exchange of messages, the medium of the messages, and the largest number of steps."""

    agents: Mapping[str, FusedView]
    medium: FaultyTransport
    steps: int


class FusedBelief(Delegating):
    """Agents that fuse beliefs, seen from outside: their measurements, exchanges of messages, and beliefs.

    Used as one belief, it is the belief of its representative: the first of the agents with the most measurements.

    An agent fits hyper-parameters to all raw measurements that it has, and proposes them, once the number has grown by
    a factor since the present proposal, or as soon as outcomes first differ. Agents propose in the order of their
    names: an agent waits one exchange for each known agent with an earlier name. So the first agent of each connected
    part proposes, and the next agent if it fails; if several agents propose, one proposal wins everywhere.

    An ``Agent`` holds the belief of one agent (``held``), adds its own measurements, and exchanges messages itself.
    Faults of the ``transport`` add to the losses of the settings.
    """

    def __init__(
        self,
        settings: FusedSettings,
        domain: Domain,
        agents: Sequence[str],
        seed: int,
        held: Sequence[str] | None = None,
        transport: Carrying = _FAULTLESS,
    ) -> None:
        self.settings = settings
        self.domain = domain
        self.seed = seed
        self.names = distinct_names(agents, "agent", "$.agents")
        self.link_report: LinkReport | None = None  # report of faulty links in the last exchange; None without faults
        self.sent = Traffic()  # traffic of the last exchange
        self._transport = transport
        at_hand = self.names if held is None else tuple(held)
        start = Proposal(0, "", ExactGP.create(settings.prior, domain).hyperparameters, seed, settings.n_features)
        self.agents = {name: _AGENTS[settings.method](name, domain, start) for name in at_hand}
        self.failures = {name: FailureFlooding(name, domain, start) for name in at_hand}
        for view in (*self.agents.values(), *self.failures.values()):
            view.team, view.is_whole = frozenset(self.names), held is not None
        self.due: tuple[FusionExchange, ...] = ()  # exchanges of local agents that must still be run
        self._waits = dict.fromkeys(self.agents, 0)  # exchanges in which an agent waited for another's proposal
        self.now = 0.0  # present round
        self._n_exchanges = 0  # number of exchanges

    def learn(
        self,
        measurements: Mapping[str, tuple[Any, Any]],
        links: "nx.Graph[str] | None",
        failed: Mapping[str, Any] | None = None,
        noise_variance: Mapping[str, ArrayLike | float] | None = None,
        round: int = 0,
        *,
        later: bool = False,
    ) -> Traffic:
        """Give agents their new measurements. If all agents are local, let them exchange messages over the links.

        ``measurements`` are points (n, d) and outcomes (n,) by agent. ``failed`` points and the noise, as in ``give``,
        are by agent, too. Without ``links``, every agent reaches every other. With ``later``, the caller runs the
        exchange. Then, or if agents are remote, the exchange is ``due``, and the returned traffic is empty.
        """
        check_links(links, self.names)
        failed, noise = failed or {}, noise_variance or {}
        known_names([*measurements, *failed], self.agents, "$.agents")
        for name, (X, y) in measurements.items():  # check everything first, so that a refusal changes nothing
            n = len(self._points(X))
            checked_outcomes(y, n)
            checked_noise(noise.get(name), n)
        for name, (X, y) in measurements.items():
            self.give(name, X, y, noise.get(name))
        for name, X in failed.items():
            self.give_failures(name, X)
        for name in self.agents:
            self.propose_if_due(name)
        for name in self.agents:
            heard = self.names if links is None else links.adj.get(name, ())
            met = [other for other in heard if other in self.names]
            self.agents[name].now = max(self.now, float(round))
            self.agents[name].meet(met)
            self.failures[name].meet(met)
        self._n_exchanges += 1
        exchanges = tuple(
            FusionExchange(agents, self._medium(purposes, links, round), self.settings.steps)
            for purposes, agents in ((("sharing",), self.agents), (("sharing", "failures"), self.failures))
        )
        if later or not self.has_all:
            self.due = exchanges
            return Traffic()
        self.sent = sum((exchange(agents.values(), medium, steps) for agents, medium, steps in exchanges), Traffic())
        if isinstance(self._transport, Faults):
            media = [talk.medium for talk in exchanges]
            summed = sum((LinkReport(medium.now, edges=by_name(medium.edges)) for medium in media), LinkReport(ticks=0))
            present = self._transport.present(self.names, round, math.inf)
            self.link_report = replace(summed, silent=tuple(name for name in self.names if name not in present))
        return self.sent

    def learned(self, measurements: ByAgent, links: "nx.Graph[str] | None", *, asked: int, now: int) -> "FusedBelief":
        """Beliefs at round ``now``, in which each local agent learned in place its own measurements of round ``asked``,
        failures included.
        """
        outcomes, failed, noise_variances = dict[str, Any](), dict[str, Any](), dict[str, Any]()
        for agent, measured in grouped(one for one in measurements if one[0] in self.agents).items():
            succeeded = [one for one in measured if one.outcome is not None]
            failed_places = [one.place for one in measured if one.outcome is None]
            if succeeded:
                outcomes[agent] = np.array([one.place for one in succeeded]), [one.outcome for one in succeeded]
                noise_variances[agent] = np.array([one.numbers[1] ** 2 for one in succeeded])
            if failed_places:
                failed[agent] = np.array(failed_places)
        # the time kernel uses the round of the request, not the present round
        belief = self.at(asked)
        belief.learn(outcomes, links, failed, noise_variances, now, later=not belief.has_faults)
        return belief.at(now)

    def attached(
        self, agent: str, X: Rows, y: Float[np.ndarray, " n"], failed: Rows, noise_std: Float[np.ndarray, " n"]
    ) -> "FusedBelief":
        """Give a local agent its unrequested measurements, in place; remote agents send theirs in the next fusion."""
        if agent in self.agents:
            self.give(agent, X, y, noise_std**2)
            self.give_failures(agent, failed)
            self.propose_if_due(agent)
        return self

    def take_due(self) -> tuple[FusionExchange, ...]:
        """Exchanges that are due, each returned only once: the caller runs them."""
        # taken once: a second caller must not fuse the same measurements again
        due, self.due = self.due, ()
        return due

    def fitted(self, seed: int) -> "FusedBelief":
        """Itself: agents fit during fusion."""
        return self

    def _medium(self, purposes: Sequence[str], links: "nx.Graph[str] | None", round: int) -> FaultyTransport:
        """Medium with losses; the losses of a link do not depend on other links."""
        drawn = int(stream(self.seed, *purposes, occasion=self._n_exchanges).integers(2**63))
        faults = Faults(loss=self.settings.loss, seed=drawn)
        if isinstance(self._transport, Faults):
            survives = (1.0 - self.settings.loss) * (1.0 - self._transport.loss)
            faults = replace(self._transport.after(round, self.names), loss=1.0 - survives)
            return faults.open(self.names, links, seed=drawn, round=round)
        return faults.open(self.names, links)

    @property
    def belief(self) -> "FusedBelief":
        """Itself: users see the beliefs of all local agents."""
        return self

    @property
    def has_faults(self) -> bool:
        """True if the transport has faults: links lose more messages than by the settings, and agents may fail."""
        return isinstance(self._transport, Faults)

    @property
    def has_all(self) -> bool:
        """True if the beliefs of all agents are local."""
        return len(self.agents) == len(self.names)

    def copied(self) -> "FusedBelief":
        """Copy that learns independently."""
        other = copy(self)
        other.agents, other.failures, other._waits = deepcopy((self.agents, self.failures, self._waits))
        return other

    def give(self, agent: str, X: ArrayLike, y: ArrayLike, noise_variance: ArrayLike | float | None = None) -> None:
        """Give an agent its own measurements of the present round, which others receive in the next exchange.

        With a time axis, points may state their round as a last coordinate. The noise is as for ``ExactGP.update``.
        """
        known_names([agent], self.agents, "$.agents")
        self.agents[agent].measure(self._points(X), y, noise_variance)

    def give_failures(self, agent: str, X: ArrayLike) -> None:
        """Give an agent the locations of its failed measurements, which others receive in the next exchange."""
        known_names([agent], self.agents, "$.agents")
        places = self._points(X)
        self.failures[agent].measure(places, np.zeros(len(places)))

    def with_own_data(self, agent: str, told: Sequence[tuple[int, Measurement]]) -> "FusedBelief":
        """Copy in which a returning agent has all its measurements, given with their rounds."""
        other = self.copied()
        good = [one for one in told if one[1].outcome is not None][other.agents[agent].n_measurements :]
        bad = [one for one in told if one[1].outcome is None][other.failures[agent].n_measurements :]
        for asked, one in good:
            outcome, std = one.numbers
            other.at(asked).give(agent, [one.place], [outcome], std**2)
        for asked, failed in bad:
            other.at(asked).give_failures(agent, [failed.place])
        return other

    def reports(self, agent: str) -> tuple[Float[np.ndarray, "n c"], Float[np.ndarray, "f c"]]:
        """Locations of the successful measurements that an agent knows individually, and of known failures."""
        return self._known_outcomes(agent)[0], self.failures[agent].known.X

    def known_locations(self, agents: Iterable[str], failed: Rows) -> dict[str, KnownLocations]:
        """Locations of successes and failures that have reached each local agent, and their correlation in time."""
        at_hand = {agent: self.agents[agent] for agent in agents if agent in self.agents}
        return {a: (*self.reports(a), own.proposal.hyperparameters.time) for a, own in at_hand.items()}

    def agents_without_scale(self, prices: Mapping[str, float]) -> set[str]:
        """Local agents with a price whose known outcomes do not differ, and whose belief has no scale yet."""
        return {agent for agent in prices.keys() & self.agents.keys() if not self.shows_scale(agent)}

    def shows_scale(self, agent: str) -> bool:
        """True if an agent's proposal has the outcomes' unit, or if the outcomes that the agent knows differ."""
        has_scale = self.agents[agent].proposal.hyperparameters.has_scale
        return has_scale or standardisation(self._known_outcomes(agent)[1])[2]

    def _known_outcomes(self, name: str) -> tuple[Any, Any, Any]:
        agent = self.agents[name]
        return agent.known if isinstance(agent, MeasurementFlooding) else (agent.X, agent.y, agent.noise)

    def _points(self, X: ArrayLike) -> Float[np.ndarray, "n c"]:
        return checked_places(X, self.domain, self.has_time, self.now)

    def propose_if_due(self, name: str) -> None:
        """Let an agent propose hyper-parameters, if it has enough new measurements and it is its turn."""
        agent, (X, y, noise) = self.agents[name], self._known_outcomes(name)
        known, differ = agent.proposal, standardisation(y)[2]
        # equal outcomes never replace a known unit; the first outcomes that differ are news whatever their number
        has_grown = len(y) >= max(self.settings.growth * known.n_measurements, 1)
        has_news = has_grown if known.hyperparameters.has_scale == differ else differ
        if has_news and self._waits[name] < sum(other < name for other in agent.reached):
            self._waits[name] += 1
            return
        self._waits[name] = 0
        if has_news:
            belief = ExactGP.create(self.settings.prior, self.domain).update(X, y, noise)
            fitted = belief.fit(stream(self.seed, "fit", agent=name, n=len(y)))
            agent.propose(fitted.hyperparameters, n_measurements=len(y))

    @property
    def has_time(self) -> bool:
        """True if data lose weight with time."""
        return self.settings.prior.time is not None

    def at(self, now: float) -> "FusedBelief":
        """Copy at another round, which applies to new measurements and to predictions."""
        other = copy(self)
        other.now = float(now)
        return other

    @property
    def representative(self) -> str:
        """First of the local agents with the most measurements."""
        return max(self.agents, key=self.known_to)  # the first of equals

    def known_to(self, agent: str) -> float:
        """Number of measurements that an agent knows."""
        return round(sum(self.agents[agent].reached.values()), 6)

    @property
    def views(self) -> Views:
        """Present beliefs of all local agents; agents with equal knowledge share one belief, computed once."""
        made: dict[Hashable, PlaceBelief] = {}
        by_agent: dict[str, PlaceBelief] = {}
        for name, agent in self.agents.items():
            key = name if agent.knowledge is None else agent.knowledge
            if key not in made:
                made[key] = agent.belief.at(self.now)
            by_agent[name] = made[key]
        return Views(by_agent, self.representative if self.has_all else "")

    @property
    def delegate(self) -> PlaceBelief:
        """Present belief of the representative."""
        return self.agents[self.representative].belief.at(self.now)

    def neglected(self) -> Neglected | None:
        """Effect of the measurements that the representative's belief leaves out; None if it leaves none out."""
        return self.agents[self.representative].belief.at(self.now).neglected()

    @property
    def places(self) -> Float[np.ndarray, "n d"]:
        """Locations (n, d) of the representative's own measurements, physical."""
        return self.agents[self.representative].X[:, : self.domain.n_dims]

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Hyper-parameters of the representative."""
        return self.agents[self.representative].hyperparameters

    @property
    def _views(self) -> list[FusedView]:
        """Local beliefs, then failures, in the order of a saved state: names of agents could clash with other keys."""
        return [*self.agents.values(), *self.failures.values()]

    def state_dict(self) -> dict[str, Any]:
        """State of all agents as ``{"json": plain data, "arrays": {name: array}}``, with failures if there are any."""
        has_failures = any(view.reached for view in self.failures.values())
        states = [view.state_dict() for view in (self._views if has_failures else self.agents.values())]
        plain = {"version": _VERSION, "waits": dict(self._waits), "occasions": self._n_exchanges, "now": self.now}
        plain |= {"views": [state["json"] for state in states]}
        arrays = {f"{i}/{key}": array for i, state in enumerate(states) for key, array in state["arrays"].items()}
        return {"json": plain, "arrays": arrays}

    @classmethod
    def from_state_dict(
        cls,
        settings: FusedSettings,
        domain: Domain,
        agents: Sequence[str],
        seed: int,
        state: Mapping[str, Any],
        held: Sequence[str] | None = None,
        transport: Carrying = _FAULTLESS,
    ) -> "FusedBelief":
        """Restore the beliefs of a ``state_dict``; they continue exactly."""
        plain, arrays = state["json"], state["arrays"]
        if plain.get("version") != _VERSION:
            raise StateVersionError(f"belief state: got version {plain.get('version')}; wanted {_VERSION}")
        fused = cls(settings, domain, agents, seed, held, transport)
        if list(plain["waits"]) != list(fused.agents):
            raise StateVersionError(f"belief state: got agents {list(plain['waits'])}; wanted {list(fused.agents)}")
        fused._waits, fused._n_exchanges = dict(plain["waits"]), plain["occasions"]
        fused.now = float(plain["now"])
        views = fused._views if len(plain["views"]) > len(fused.agents) else fused.agents.values()
        for i, (view, known) in enumerate(zip(views, plain["views"], strict=True)):
            own = {key.removeprefix(f"{i}/"): a for key, a in arrays.items() if key.startswith(f"{i}/")}
            view.load_state_dict({"json": known, "arrays": own})
        return fused
