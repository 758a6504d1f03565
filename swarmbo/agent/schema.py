"""Checks of an agent: settings, participants of a decision by a deadline, and content of messages."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.baselines import Random, Sobol
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.fusion import FusedSettings
from swarmbo.belief.fusion.fused_view import read_body
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.boundary.values import LARGEST_OUTCOME
from swarmbo.coordination.plan import BoxMethod, TableMethod
from swarmbo.coordination.schema import Fits, FitsWord, each_own
from swarmbo.coordination.tables import Packed
from swarmbo.deciding import own_rows
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.offers import PackedOffer, unpacked
from swarmbo.deciding.own_rows import OwnRow, OwnRows, is_place
from swarmbo.deciding.places import ignores_beliefs, plans_by_steps
from swarmbo.deciding.reports import Report
from swarmbo.deciding.setup import Maximiser, Setup, Solver
from swarmbo.errors import ConfigError, TransportError
from swarmbo.graph import FactorGraph
from swarmbo.problem import Problem
from swarmbo.transport import InProcess


class Participants(msgspec.Struct, frozen=True):
    """Participants of a decision by a deadline; ``said``: absent agents' data since; ``over``: finished queries."""

    number: int
    members: tuple[str, ...]
    said: dict[str, OwnRows] = {}
    over: tuple[str, ...] = ()

    def checked(self, name: str, problem: Problem) -> "Participants":
        """Return itself if it fits the agent and the problem."""
        at = "$.participants"
        if not 0 < self.number < 2**31:
            raise ConfigError(f"got decision {self.number}; wanted 1 to {2**31 - 1}", at=at)
        if self.members != tuple(agent for agent in problem.agents if agent in self.members):
            raise ConfigError(f"got {list(self.members)}; wanted some of {list(problem.agents)}, in this order", at=at)
        if name not in self.members:
            raise ConfigError(f"got {list(self.members)}; wanted {name!r} among them", at=at)
        if strange := [agent for agent in self.said if agent in self.members or agent not in problem.agents]:
            raise ConfigError(f"got what {strange[0]!r} received; wanted what absent agents received", at=at)
        for agent, rows in self.said.items():
            if not all(is_row(row, agent, problem) for row in (*rows.told.values(), *rows.attached)):
                raise ConfigError(f"got data that {agent!r} cannot have; wanted its parts", at=at)
        return self

    def absent(self, agents: Collection[str]) -> dict[str, OwnRows]:
        """Data of those of some agents that do not take part."""
        return {agent: self.said.get(agent, OwnRows()) for agent in agents if agent not in self.members}


def is_row(row: OwnRow, name: str, problem: Problem) -> bool:
    """True if an agent can have these data about an evaluation."""
    own, variables = problem.graph.factors_owned_by(name), problem.graph.variables_owned_by(name)
    total = row.total if isinstance(row.total, float) else None
    is_own = set(own).issuperset([*row.factors, *row.noise]) and 0 <= row.order < _MOST
    stds = [*row.noise.values(), *([] if row.total_noise is None else [row.total_noise])]
    is_known = are_outcomes([*row.factors.values(), total]) and are_stds(stds)
    are_stops = all(problem.is_field and stop.is_admissible(problem) for stop in row.on_the_way)
    is_there = are_values(row.place, variables, problem)
    if problem.is_field and row.factors:
        is_there = is_there and is_place([row.place.get(variable, math.nan) for variable in variables], problem)
    return is_own and is_known and is_there and are_stops


def are_outcomes(outcomes: Iterable[float | None]) -> bool:
    """True if all are outcomes that may be told, or failures."""
    return all(y is None or abs(y) <= LARGEST_OUTCOME for y in outcomes)


def are_stds(stds: Iterable[float]) -> bool:
    """True if all are standard deviations that may be told."""
    return all(0.0 <= std <= LARGEST_OUTCOME for std in stds)


def are_values(values: Mapping[str, float], variables: Collection[str], problem: Problem) -> bool:
    """True if codes are of some variables, and in or near their bounds."""
    if not set(variables).issuperset(values):
        return False
    if problem.is_field:
        return all(abs(x) < LARGEST_OUTCOME for x in values.values())
    if problem.is_mixed:
        return all(problem.variables[x].axis.has(code) for x, code in values.items())
    low, high = (problem.coded(end) for end in (problem.domain.low, problem.domain.high))
    return all(2 * low[x] - high[x] <= y <= 2 * high[x] - low[x] for x, y in values.items())


def learns_alike(setup: Setup) -> bool:
    """True if agents report outcomes to one another: totals, and in a field those of a shared belief."""
    if setup.problem.is_field:
        return not isinstance(setup.belief, FusedSettings)
    return own_rows.shares_outcomes(setup.problem)


def public(rows: OwnRows, setup: Setup) -> OwnRows:
    """The part of an agent's rows that others may know: private outcomes are masked."""
    if learns_alike(setup):
        return rows
    masked = partial(OwnRow.masked, shows_failures=not setup.problem.is_field)
    return OwnRows({name: masked(row) for name, row in rows.told.items()}, tuple(map(masked, rows.attached)))


def require_own(setup: Setup) -> None:
    """Refuse settings that need more than one agent's knowledge."""
    coordination, belief = setup.coordination, setup.belief
    if not isinstance(setup.transport, InProcess):
        got = f"got {type(setup.transport).__name__}, which simulates links"
        raise ConfigError(f"{got}; wanted 'in-process', as agents use real links", at="$.transport.kind")
    if setup.problem.is_field:
        if isinstance(belief, FusedSettings):
            _require_shares(setup)
        if isinstance(coordination, Solver) and not isinstance(coordination, TableMethod):
            raise _unfit(coordination, "knows no agents", "'max-sum'")
        setup.rule().check_world(setup.problem.level)
        return
    if setup.problem.ranges:
        got = "got limits on measured quantities, which an agent does not learn"
        raise ConfigError(f"{got}; wanted a Team", at="$.limits")
    everything = own_rows.shares_outcomes(setup.problem)
    if not isinstance(coordination, Maximiser):
        if not everything and not isinstance(coordination, Sobol | Random):
            wanted = "a coordination method such as 'admm', or outcomes = 'total'"
            raise _unfit(coordination, "needs all outcomes", wanted)
    elif not isinstance(coordination, BoxMethod):
        raise _unfit(coordination, "knows no agents", "'admm'")
    if not everything and not isinstance(belief, AdditiveGPSettings | EnsembleSettings):
        wanted = "'additive', 'ensemble' or outcomes = 'total'"
        raise _unfit(belief, "needs all outcomes", wanted, "$.belief")


def _require_shares(setup: Setup) -> None:
    """Refuse settings that need all agents' beliefs, if each has a local belief."""
    acquisition, coordination = setup.rule(), setup.coordination
    if isinstance(coordination, Solver) and not acquisition.splits:
        why = "its local_problem(situation) looks at what all agents believe"
        wanted = "a ChainAcquisition with utility(situation, n_agents), or a shared belief"
        got = f"got {type(acquisition).__name__} with belief 'fused': {why}"
        raise ConfigError(f"{got}; wanted {wanted}", at="$.acquisition")
    if not (isinstance(coordination, Solver) or ignores_beliefs(coordination) or plans_by_steps(coordination)):
        got = f"got {type(coordination).__name__} with belief 'fused': it needs the beliefs of all agents"
        wanted = "a coordination method such as 'max-sum', or a belief that agents share"
        raise ConfigError(f"{got}; wanted {wanted}", at="$.coordination")


def _unfit(own: object, what: str, wanted: str, at: str = "$.coordination") -> ConfigError:
    return ConfigError(f"got {type(own).__name__}, which {what}; wanted {wanted}", at=at)


_MOST = 2**52  # largest order of an evaluation
Sites = Float[np.ndarray, "s d"] | None


def of_kind(kind: Any, fits: Callable[[str, Any], bool]) -> FitsWord:
    """Test of data of a kind; None is refused."""

    def is_one(agent: str, word: bytes) -> bool:
        found = read_body(word, kind)
        return found is not None and fits(agent, found)

    return is_one


def reports(log: Logbook, attached: Sequence[OwnRow], sites: Sites, known: Mapping[str, PackedOffer]) -> FitsWord:
    """Test of agents' reports in a field; offers are checked against ``sites`` and the ``known`` last offers."""
    problem, of_whom = log.problem, {own_rows.UNASKED, *log.open}

    def is_measurement(measurement: Any) -> bool:
        of, stop, has_round = measurement.of, measurement.stop, measurement.round is not None
        if isinstance(of, int):
            is_expected = 0 <= of < len(attached) and stop is not None and has_round == (attached[of].round is not None)
        else:
            is_expected = of in of_whom and not has_round
        is_finite = not has_round or np.isfinite(measurement.round)
        if not (is_expected and is_finite and 0 <= measurement.order < _MOST):
            return False
        return all(one.is_admissible(problem) for one in (*measurement.on_the_way, stop) if one is not None)

    def fits(agent: str, report: Report) -> bool:
        of, offer = [measurement.of for measurement in report.measurements], report.offer
        if len(set(of)) != len(of) or not all(map(is_measurement, report.measurements)):
            return False
        if isinstance(offer, int):
            return agent in known and offer == known[agent].check
        return _is_offer(offer, problem, sites)

    return of_kind(Report, fits)


def _is_offer(offer: PackedOffer, problem: Problem, sites: Sites) -> bool:
    try:
        places = None if offer.candidates is None else unpacked(offer.candidates, problem.box.n_dims, sites)
    except TransportError:
        return False
    if places is not None and not problem.box.is_near(places).all():
        return False
    is_known = offer.position is None or is_place(offer.position, problem)
    return is_known and 0.0 <= offer.price < np.inf


def places(problem: Problem) -> FitsWord:
    """Test of agents' destinations: a location, or None."""

    def fits(agent: str, word: bytes) -> bool:
        return word == _NOBODY or of_kind(tuple[float, ...], lambda _, place: is_place(place, problem))(agent, word)

    return fits


_NOBODY = msgspec.msgpack.encode(None)


def forbidding(graph: FactorGraph, sizes: Mapping[str, int]) -> FitsWord:
    """Test of factors' forbidden pairs, from their owners."""

    def are_pairs(f: str, told: Sequence[Packed]) -> bool:
        scope = graph.scope(f)
        return all(
            x in scope and y in scope and x != y and shape == (sizes[x], sizes[y]) and 8 * len(bits) in range(m, m + 8)
            for x, y, shape, bits in told
            for m in [shape[0] * shape[1]]
        )

    def fits(agent: str, said: dict[str, list[Packed]]) -> bool:
        return tuple(said) == graph.factors_owned_by(agent) and all(are_pairs(f, told) for f, told in said.items())

    return of_kind(dict[str, list[Packed]], fits)


def news(problem: Problem, log: Logbook, n_attached: int, tellers: Collection[str]) -> Fits:
    """Test of sums of agents' data of a function: a row for each pending query, then the attached evaluations."""
    layout, graph, k = own_rows.Layout.of(problem), problem.graph, len(problem.channels)
    owners = [graph.owner(channel) for channel in problem.channels]
    low, high = problem.domain.low, problem.domain.high
    side = high - low  # values may be so far outside the box
    waits = [np.array([c in query.waits for c in problem.channels]) for query in log.open.values()]
    is_open = np.array([*waits, *[np.ones(k, dtype=bool)] * n_attached], dtype=bool).reshape(-1, k)
    of_factors, of_variables = each_own(owners), each_own(graph.variable_owners)

    def fits(sums: Float[np.ndarray, "rows w"], agents: frozenset[str]) -> bool:
        status, place = sums[:, layout.status], sums[:, layout.place]
        own = np.isin(graph.variable_owners, list(agents))
        if not (np.isfinite(sums).all() and np.isin(status, range(int(own_rows.FAILED) + 1)).all()):
            return False
        if status[:, :k][~is_open].any() or not of_factors(status[:, :k], agents) or not of_variables(place, agents):
            return False
        if ((place < low - side) | (place > high + side))[:, own].any():
            return False
        if (problem.domain.on_grid(place) != place)[:, own].any():
            return False
        order, told = sums[:, layout.order], sums[:, layout.tellers]
        if not ((order >= 0.0) & (order < _MOST * len(agents)) & (told >= 0.0) & (told <= len(agents))).all():
            return False
        if not own_rows.shares_outcomes(problem):
            return not status[:, k].any()
        if agents.isdisjoint(tellers) and status[:, k].any():
            return False
        values, noise = sums[:, layout.values], sums[:, layout.noise]
        is_told = of_factors(values[:, :k], agents) and of_factors(noise[:, :k], agents)
        return is_told and bool((np.abs(values) <= LARGEST_OUTCOME).all() and (noise >= own_rows.NOT_KNOWN).all())

    return fits


def indices(agents: Sequence[str], sizes: Mapping[str, int], least: int) -> Fits:
    """Test of each agent's chosen index among its locations; ``least`` is 0, or -1 for none."""
    most = np.array([max(sizes.get(agent, 1) - 1, 0) for agent in agents], dtype=float)
    whose = each_own(agents, least, whole=True)
    return lambda sums, members: whose(sums, members) and bool((sums <= most).all())
