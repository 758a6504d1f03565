"""Belief of a team in a field, with the same methods for one shared belief and for local beliefs."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.belief import ExactGP, ExactGPSettings, PlaceBelief
from swarmbo.belief.fusion import FusedBelief, FusedSettings
from swarmbo.belief.fusion.fused import ByAgent, FusionExchange, KnownLocations
from swarmbo.belief.model.success import Requirement, SuccessGP, excess_of, required_logit
from swarmbo.boundary.rng import stream
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.setup import Setup
from swarmbo.registry import invalid_result
from swarmbo.transport import InProcess

_REQUIRED_MEMBERS = [
    *("X", "n_data", "has_time", "hyperparameters", "noise_variance", "prior_variance", "needs_fit", "fit", "update"),
    *("at", "condition_on_pending", "posterior", "posterior_mean", "posterior_cache", "state_dict"),
]

Rows = Float[np.ndarray, "n c"]  # physical locations; with a time axis, the last column is the round
Links: TypeAlias = "nx.Graph[str] | None"
Column = Float[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class SharedBelief:
    """One belief that all agents share: an ``ExactGP``, or a user's own belief, which is immutable."""

    belief: ExactGP

    def copied(self) -> "SharedBelief":
        """Itself."""
        return self

    def learned(self, measurements: ByAgent, links: Links, *, asked: int, now: int) -> "SharedBelief":
        """Belief at round ``now`` with successful measurements of round ``asked``; itself if all failed."""
        if not (succeeded := [one for _, one in measurements if one.outcome is not None]):
            return self
        X, y = np.array([one.place for one in succeeded]), np.array([one.outcome for one in succeeded])
        return self.at(asked)._updated(X, y, np.array([one.noise_std for one in succeeded], float)).at(now)

    def attached(self, agent: str, X: Rows, y: Column, failed: Rows, noise_std: Column) -> "SharedBelief":
        """Belief with unrequested measurements; ``failed`` are locations of failures, and a noise of NaN is unknown."""
        return self._updated(X, y, noise_std) if len(y) else self

    def _updated(self, X: Rows, y: Column, noise_std: Column) -> "SharedBelief":
        """Belief with further outcomes. Noise is passed on only if known, as a user's own belief may not accept it."""
        gp = self.belief
        return SharedBelief(gp.update(X, y) if np.isnan(noise_std).all() else gp.update(X, y, noise_std**2))

    def take_due(self) -> tuple[FusionExchange, ...]:
        """No exchanges."""
        return ()

    def fitted(self, seed: int) -> "SharedBelief":
        """Belief with fitted hyper-parameters, if a fit is due or all outcomes of the last fit were equal."""
        is_due = self.belief.needs_fit or (self._lacks_scale and self.belief.tells_since_fit > 0)
        return SharedBelief(self.belief.fit(stream(seed, "fit", n=self.belief.n_data))) if is_due else self

    def at(self, now: float) -> "SharedBelief":
        """Belief at another round."""
        return SharedBelief(self.belief.at(now))

    @property
    def places(self) -> Rows:
        """Locations of the team's measurements."""
        return self.belief.X

    def known_locations(self, agents: Iterable[str], failed: Rows) -> dict[str, KnownLocations]:
        """Locations of successes and failures (round last) and their correlation in time, equal for all agents."""
        return dict.fromkeys(agents, (self.belief.X, failed, self.belief.hyperparameters.time))

    def agents_without_scale(self, prices: Mapping[str, float]) -> set[str]:
        """Agents with a price while the belief has no scale; empty once it has a scale."""
        return set(prices) if self._lacks_scale else set()

    @property
    def _lacks_scale(self) -> bool:
        """True until the belief is fitted to outcomes that differ; a user's own belief always has a scale."""
        return type(self.belief) is ExactGP and not self.belief.hyperparameters.has_scale


FieldBelief = SharedBelief | FusedBelief


def belief_of(setup: Setup, own: str | None = None, state: Mapping[str, Any] | None = None) -> FieldBelief:
    """Belief of a team, or of agent ``own`` (whose messages cross real links), before any data or from a state."""
    settings, domain, agents = setup.belief, setup.problem.box, setup.problem.agents
    if isinstance(settings, FusedSettings):
        own_transport = (None, setup.transport) if own is None else ([own], InProcess())
        if state is None:
            return FusedBelief(settings, domain, agents, setup.seed, *own_transport)
        return FusedBelief.from_state_dict(settings, domain, agents, setup.seed, state, *own_transport)
    if isinstance(settings, ExactGPSettings):
        gp = ExactGP.create(settings, domain) if state is None else ExactGP.from_state_dict(settings, domain, state)
        return SharedBelief(gp)
    if state is None:
        return SharedBelief(_checked(settings.prior(domain), settings, "prior"))
    return SharedBelief(_checked(settings.restored(domain, state), settings, "restored"))


def _checked(belief: Any, settings: object, method: str) -> ExactGP:
    """Check that a user's own belief has all members that a team needs."""
    if lacking := [name for name in _REQUIRED_MEMBERS if not hasattr(belief, name)]:
        wanted = f"a belief, like swarmbo.ExactGP: it has no {', '.join(lacking)}"
        raise invalid_result(belief, wanted, settings, method)
    return belief


def with_pending(belief: FieldBelief, log: Logbook, round_number: int) -> PlaceBelief:
    """Belief for a decision: pending queries count as measured in the variance, each in its own round."""
    given: PlaceBelief = belief.views if isinstance(belief, FusedBelief) else belief.belief
    for query in log.open.values():
        places = log.problem.places(query.point, query.awaited)
        given = given.at(query.round).condition_on_pending(np.array(list(places.values())))
    return given.at(round_number)


def required_of(belief: FieldBelief, log: Logbook, agents: Iterable[str], round_number: int) -> dict[str, Requirement]:
    """Required probability of success of each local agent that knows of a failure, from its own outcomes."""
    domain = log.problem.box
    d, models, out = domain.n_dims, dict[Hashable, SuccessGP](), dict[str, Requirement]()
    for agent, (succeeded_rows, failed_rows, memory) in belief.known_locations(agents, _failed_places(log)).items():
        if not len(failed_rows):
            continue
        failed_rows = failed_rows if belief.belief.has_time else failed_rows[:, :d]
        # agents that know the same data share one model, which is made once: equal bytes give equal results
        key = succeeded_rows.tobytes(), failed_rows.tobytes(), memory
        if key not in models:
            rows = np.concatenate([succeeded_rows, failed_rows])
            U, succeeded = domain.to_unit(rows[:, :d]), np.arange(len(rows)) < len(succeeded_rows)
            rounds = rows[:, d] if belief.belief.has_time else None
            models[key] = SuccessGP.learned(U, succeeded, rounds=rounds, now=round_number, memory=memory)
        least = required_logit(excess_of(log.successes(agent).tolist()), models[key].odds)
        out[agent] = Requirement(np.arange(d), models[key], least)
    return out


def _failed_places(log: Logbook) -> Float[np.ndarray, "f c"]:
    """Physical locations of failed measurements; the last column is the round."""
    data, problem = log.history, log.problem
    rows, channels = np.nonzero(data.failed)
    columns = [problem.columns(problem.channels[number]) for number in channels]
    rounds = np.zeros(len(data)) if data.rounds is None else data.rounds
    found = [[*data.X[row, own], rounds[row]] for row, own in zip(rows, columns, strict=True)]
    return np.array(found).reshape(len(found), problem.domain.n_dims // len(problem.channels) + 1)


def known_places(
    belief: FieldBelief, log: Logbook
) -> tuple[Float[np.ndarray, "n d"], dict[str, Float[np.ndarray, "m d"]]]:
    """Measured and pending locations that the representative knows; with local beliefs, also those of each agent."""
    n_dims, problem = log.problem.box.n_dims, log.problem
    out = [place for query in log.open.values() for place in problem.places(query.point, query.awaited).values()]

    def with_pending_places(X: Float[np.ndarray, "n e"]) -> Float[np.ndarray, "m d"]:
        return np.vstack([X[:, :n_dims], *out]) if len(X) else X[:, :n_dims]

    if isinstance(belief, SharedBelief):
        return with_pending_places(belief.places), {}
    known = belief.known_locations(problem.agents, np.zeros((0, 1)))
    by_agent = {agent: with_pending_places(succeeded) for agent, (succeeded, _, _) in known.items()}
    return by_agent[belief.representative], by_agent
