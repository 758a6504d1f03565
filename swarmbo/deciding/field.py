"""Learning and decisions of a team in a field."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import Situation
from swarmbo.acquisition.by_view import EachSends, are_numbers
from swarmbo.belief import PlaceBelief, Views, has_view, view_of
from swarmbo.belief.fusion import FusedBelief
from swarmbo.boundary.values import known_names, reported_number, short, table
from swarmbo.deciding.beliefs import FieldBelief, belief_of, known_places, required_of, with_pending
from swarmbo.deciding.logbook import Choice, Logbook
from swarmbo.deciding.offers import (
    allowed_places,
    allowed_sites,
    checked_candidates,
    places_to_recommend,
    random_candidates,
)
from swarmbo.deciding.own_rows import OwnRow, is_place, measurements_by_round
from swarmbo.deciding.places import place_steps
from swarmbo.deciding.setup import Setup
from swarmbo.errors import ConfigError
from swarmbo.problem import Problem
from swarmbo.problem.data import Dataset, News
from swarmbo.records import Recommendation, SolveReport
from swarmbo.registry import invalid_result
from swarmbo.steps import Steps
from swarmbo.transport import Faults
from swarmbo.worlds import Offers

_MANY = 2**11  # number of measurements times locations above which a joint prediction is faster than several
Sites = Float[np.ndarray, "k d"] | None
Places = Mapping[str, Float[np.ndarray, " d"]]


@dataclass(frozen=True, eq=False)
class FieldLearner:
    """Belief of a team in a field, positions of its agents, and each agent's first measured location in the episode
    (``starts``). The learner of one agent, ``own``, has only that agent's belief if beliefs are local.
    """

    setup: Setup
    team_belief: FieldBelief
    positions: Places = field(default_factory=dict[str, np.ndarray])
    starts: Places = field(default_factory=dict[str, np.ndarray])
    own: str | None = None

    @classmethod
    def empty(cls, setup: Setup, own: str | None = None) -> "FieldLearner":
        """Learner without data."""
        return cls(setup, belief_of(setup, own), own=own)

    def copied(self) -> "FieldLearner":
        """Copy that learns independently; local beliefs learn in place."""
        return replace(self, team_belief=self.team_belief.copied())

    @property
    def takes_rounds(self) -> bool:
        """True if the belief reads the rounds of data, which it does if it has a time axis."""
        return self.team_belief.belief.has_time

    def n_data(self, log: Logbook) -> int:
        """Number of successful measurements."""
        return int(np.isfinite(log.history.factors).sum())

    def begin(self) -> "FieldLearner":
        """Learner for a new episode, with the same belief."""
        return replace(self, positions={}, starts={})

    def learn(self, news: News, asked: int, now: int, links: "nx.Graph[str] | None") -> "FieldLearner":
        """Learn measurements of round ``asked`` in round ``now``, in the team's order, and note positions."""
        problem = self.setup.problem
        made = [(agent, news.measurement(agent, problem)) for agent in problem.channels if agent in news.factors]
        team_belief = self.team_belief.learned([*made, *news.on_the_way], links, asked=asked, now=now)
        places = problem.places(news.point, problem.channels_in(news.point))
        positions, starts = {**self.positions, **places}, {**places, **self.starts}
        return replace(self, team_belief=team_belief, positions=positions, starts=starts)

    def attach(self, data: Dataset) -> "FieldLearner":
        """Learn unrequested measurements; with local beliefs each agent gets its own."""
        problem, team_belief = self.setup.problem, self.team_belief
        for column, (agent, made) in enumerate(zip(problem.channels, problem.takes_part(data.X).T, strict=True)):
            if not made.any():
                continue
            X, y = data.X[np.ix_(made, problem.columns(agent))], data.factors[made, column]
            X = X if data.rounds is None else np.column_stack([X, data.rounds[made]])
            good, noise = np.isfinite(y), data.known_noise[made, 1 + column]
            team_belief = team_belief.attached(agent, X[good], y[good], X[~good], noise[good])
        return replace(self, team_belief=team_belief)

    def fitted(self, log: Logbook) -> "FieldLearner":
        """Learner with hyper-parameters fitted if a fit is due; with local beliefs agents fit during fusion."""
        return replace(self, team_belief=self.team_belief.fitted(self.setup.seed))

    def steps(self, log: Logbook, offers: Offers) -> Steps[tuple["FieldLearner", Choice]]:
        """Steps of a joint choice of a location for each agent that has candidates."""
        setup, problem, now = self.setup, self.setup.problem, log.round
        seed = log.seed_of_episode(setup.seed)
        agents, candidates, prices = _checked(problem, offers, seed, now)
        if isinstance(setup.transport, Faults):  # failed agents take no part, and relay nothing
            agents = setup.transport.present(agents, now)
            if offers.links is not None:
                gone = set(problem.agents) - set(setup.transport.present(problem.agents, now))
                offers = replace(offers, links=nx.restricted_view(offers.links, list(gone), []))
        # the fit comes before pending queries: these have no outcomes to fit
        learner, belief = self._with_pending(log)
        measured, measured_by = known_places(learner.team_belief, log)
        situation = Situation(
            agents=agents,
            candidates=candidates,
            positions={**self.positions, **offers.standpoints},
            starts=self.starts,
            belief=belief,
            links=offers.links,
            domain=problem.box,
            round=now,
            horizon=setup.horizon,
            seed=seed,
            prices=prices,
            unscaled=learner.team_belief.agents_without_scale(prices),
            level=problem.level if offers.level is None else offers.level,
            sites=allowed_sites(offers.sites, problem),
            travel=offers.travel,
            measured=measured,
            measured_by=measured_by,
            required=required_of(learner.team_belief, log, agents, now),
        )
        decision = yield from place_steps(situation, setup.rule(priced=bool(prices)), setup.coordination)
        for agent, place in decision.points.items():  # checked, as a planner may be a user's own
            if not len(allowed_places(place[None], problem)):
                wanted = "places outside the regions of no_go"
                raise invalid_result({agent: place}, wanted, setup.coordination, "decide")
        points = {agent: decision.points[agent] for agent in agents if agent in decision.points}
        report = decision.report
        offered = agents if offers.candidates is None else [a for a in agents if len(offers.candidates.get(a, ()))]
        if problem.no_go and offered and not situation.movers:
            violated = tuple(f"no_go[{n}]" for n in range(len(problem.no_go)))
            report = msgspec.structs.replace(report, status="infeasible", violated=violated)
        return learner, _expected(belief, problem, points, report)

    def decided_elsewhere(
        self, log: Logbook, point: Float[np.ndarray, " n"], report: SolveReport
    ) -> tuple["FieldLearner", Choice]:
        """Learner (as after a decision) and choice for a point that was decided elsewhere from the same log."""
        (after, belief), problem = self._with_pending(log), self.setup.problem
        return after, _expected(belief, problem, problem.places(point, problem.channels_in(point)), report)

    def _with_pending(self, log: Logbook) -> tuple["FieldLearner", PlaceBelief]:
        after = replace(self, team_belief=self.fitted(log).team_belief.at(log.round))
        return after, with_pending(after.team_belief, log, log.round)

    def recommend(self, log: Logbook, sites: Sites) -> Steps[tuple["FieldLearner", Recommendation | None]]:
        """Location with the largest mean over the allowed sites, or ``places_to_recommend``; None if there is none."""
        if isinstance(self.team_belief, FusedBelief):
            return self, (yield from self._recommended_by_message(self.team_belief.known_to, sites))
        if self.team_belief.belief.n_data == 0:
            return self, None
        fitted = self.fitted(log)
        return fitted, fitted._recommended(sites)

    def _recommended_by_message(self, n_known: Callable[[str], float], sites: Sites) -> Steps[Recommendation | None]:
        """Recommendation of the agent with the most measurements, which it sends to the others."""
        agents = self.setup.problem.agents
        known = yield EachSends("known", agents, lambda agent, _: n_known(agent), lambda _, n: are_numbers([n], 1))
        best = max(known, key=lambda agent: known[agent])  # the first of several equal maxima
        if not known[best]:
            return None

        # only this agent's belief can tell the location, so the other agents receive it by message
        sent = yield EachSends(
            "recommended", (best,), lambda *_: msgspec.to_builtins(self._recommended(sites)), self._can_be_recommended
        )
        return msgspec.convert(sent[best], Recommendation | None)

    def _can_be_recommended(self, agent: str, received: Any) -> bool:
        """True if received data can be an agent's recommendation."""
        try:
            found = msgspec.convert(received, Recommendation | None)
        except msgspec.ValidationError:
            return False
        problem = self.setup.problem
        return found is None or (is_place(found.location, problem) and math.isfinite(found.mean) and found.std >= 0.0)

    def _recommended(self, sites: Sites) -> Recommendation | None:
        problem, belief = self.setup.problem, self.team_belief.belief
        if sites is None:
            measured = self.team_belief.places[:, : problem.box.n_dims]
            sites = places_to_recommend(problem.box, measured, self.setup.seed)
        places = allowed_places(sites, problem)
        if not len(places):
            return None
        best = places[int(belief.posterior_mean(places).argmax())]
        mean, var = belief.posterior(best[None])
        return Recommendation(best.tolist(), float(mean[0]), float(np.sqrt(var[0])))

    def whereabouts(self) -> dict[str, Any]:
        """Positions and starts as plain data; all agents know them, with shared or local beliefs."""
        known = {"positions": self.positions, "starts": self.starts}
        return {kind: {agent: place.tolist() for agent, place in at.items()} for kind, at in known.items()}

    def returned(self, plain: Mapping[str, Any], rows: Mapping[str, OwnRow]) -> "FieldLearner":
        """Learner of a returning agent: its belief, all its measurements, and another agent's ``whereabouts``."""
        assert isinstance(self.team_belief, FusedBelief)
        assert self.own is not None
        by_round = measurements_by_round(rows, self.setup.problem.graph.variables_owned_by(self.own))
        own_data = [(asked, stop) for asked, stops in by_round for stop in stops]
        return replace(self, team_belief=self.team_belief.with_own_data(self.own, own_data), **_places(plain))

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """State as plain data and arrays."""
        belief = self.team_belief.belief.state_dict()
        plain = self.whereabouts() | {"belief": belief["json"]}
        return plain, {f"belief/{name}": array for name, array in belief["arrays"].items()}

    def from_state(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "FieldLearner":
        """Restore the state of ``to_state``, with the same setup."""
        own = {name.removeprefix("belief/"): array for name, array in arrays.items() if name.startswith("belief/")}
        state = {"json": plain["belief"], "arrays": own}
        return replace(self, team_belief=belief_of(self.setup, self.own, state), **_places(plain))


def _places(plain: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    return {kind: {a: np.array(place) for a, place in plain[kind].items()} for kind in ("positions", "starts")}


def _expected(belief: PlaceBelief, problem: Problem, points: Places, report: SolveReport) -> Choice:
    """Choice with the expected measurements of all agents whose beliefs are in this process."""
    known = [agent for agent in points if has_view(belief, agent)]
    at_once = not isinstance(belief, Views) and belief.n_data * len(known) > _MANY  # otherwise one by one
    found: dict[str, tuple[float, float]] = {}
    for agents in [known] if at_once else [[agent] for agent in known]:
        means, variances = view_of(belief, agents[0]).posterior(np.array([points[agent] for agent in agents]))
        found |= zip(agents, zip(means.tolist(), np.sqrt(variances).tolist(), strict=True), strict=True)
    means, stds = ({agent: pair[n] for agent, pair in found.items()} for n in (0, 1))
    return Choice(problem.joint(points), report, means=means, stds=stds)


def _checked(
    problem: Problem, offers: Offers, seed: int, round_number: int
) -> tuple[tuple[str, ...], dict[str, Float[np.ndarray, "k d"]], dict[str, float]]:
    team = problem.agents
    agents = tuple(known_names(team if offers.agents is None else offers.agents, team, "$.agents"))
    if offers.candidates is None:
        boxes = {agent: offers.boxes.get(agent, problem.box) for agent in agents}
        candidates = {a: random_candidates(a, box, problem, seed, round_number) for a, box in boxes.items()}
    else:
        known_names(table(offers.candidates, "{agent: places}", "$.candidates"), team, "$.candidates")
        given = {agent: offers.candidates.get(agent, ()) for agent in agents}  # a missing agent has none
        checked = {agent: checked_candidates(agent, places, problem.box) for agent, places in given.items()}
        candidates = {agent: allowed_places(places, problem) for agent, places in checked.items()}
    prices = table(offers.prices, "{agent: price}", "$.prices")
    known_names(prices, team, "$.prices")
    for agent, price in prices.items():
        if not reported_number(price) >= 0.0:
            raise ConfigError(f"got {short(price)}; wanted a finite number >= 0", at=f"$.prices.{agent}")
    return agents, candidates, {agent: float(price) for agent, price in prices.items() if price > 0.0}
