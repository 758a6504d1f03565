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
from swarmbo.coordination.schema import Fits, FitsData, by_author
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


class Participants(msgspec.Struct, frozen=True, rename={"rows_of_absent": "said", "finished_queries": "over"}):
    """Participants of a decision by a deadline, unreported data of absent agents, and queries without more outcomes."""

    number: int
    members: tuple[str, ...]
    rows_of_absent: dict[str, OwnRows] = {}
    finished_queries: tuple[str, ...] = ()

    def checked(self, name: str, problem: Problem) -> "Participants":
        """Return these participants; a ConfigError if they do not fit the agent and the problem."""
        at = "$.participants"
        if not 0 < self.number < 2**31:
            raise ConfigError(f"got decision {self.number}; wanted 1 to {2**31 - 1}", at=at)
        if self.members != tuple(agent for agent in problem.agents if agent in self.members):
            raise ConfigError(f"got {list(self.members)}; wanted some of {list(problem.agents)}, in this order", at=at)
        if name not in self.members:
            raise ConfigError(f"got {list(self.members)}; wanted {name!r} among them", at=at)
        if strange := [agent for agent in self.rows_of_absent if agent in self.members or agent not in problem.agents]:
            raise ConfigError(f"got data of {strange[0]!r}; wanted data of absent agents only", at=at)
        for agent, rows in self.rows_of_absent.items():
            if not all(is_row(row, agent, problem) for row in (*rows.by_query.values(), *rows.attached)):
                raise ConfigError(f"got data that {agent!r} cannot have; wanted its own data", at=at)
        return self

    def absent(self, agents: Collection[str]) -> dict[str, OwnRows]:
        """Data of those of the ``agents`` that do not participate."""
        return {agent: self.rows_of_absent.get(agent, OwnRows()) for agent in agents if agent not in self.members}


def is_row(row: OwnRow, name: str, problem: Problem) -> bool:
    """True if an agent can have these data about an evaluation."""
    own, variables = problem.graph.factors_owned_by(name), problem.graph.variables_owned_by(name)
    total = row.total if isinstance(row.total, float) else None
    is_own = set(own).issuperset([*row.factors, *row.noise]) and 0 <= row.order < _LARGEST_ORDER
    stds = [*row.noise.values(), *([] if row.total_noise is None else [row.total_noise])]
    are_outcomes_valid = are_outcomes([*row.factors.values(), total]) and are_stds(stds)
    are_en_route_valid = all(problem.is_field and own_rows.is_admissible(stop, problem) for stop in row.on_the_way)
    is_place_valid = are_values(row.place, variables, problem)
    if problem.is_field and row.factors:
        place = [row.place.get(variable, math.nan) for variable in variables]
        is_place_valid = is_place_valid and is_place(place, problem)
    return is_own and are_outcomes_valid and is_place_valid and are_en_route_valid


def are_outcomes(outcomes: Iterable[float | None]) -> bool:
    """True if all are outcomes that may be told, or failures."""
    return all(y is None or abs(y) <= LARGEST_OUTCOME for y in outcomes)


def are_stds(stds: Iterable[float]) -> bool:
    """True if all are standard deviations that may be told."""
    return all(0.0 <= std <= LARGEST_OUTCOME for std in stds)


def are_values(values: Mapping[str, float], variables: Collection[str], problem: Problem) -> bool:
    """True if all codes are of ``variables``, and in or near their bounds."""
    if not set(variables).issuperset(values):
        return False
    if problem.is_field:
        return all(abs(x) < LARGEST_OUTCOME for x in values.values())
    if problem.is_mixed:
        return all(problem.variables[x].axis.has(code) for x, code in values.items())
    low, high = (problem.coded(end) for end in (problem.domain.low, problem.domain.high))
    return all(2 * low[x] - high[x] <= y <= 2 * high[x] - low[x] for x, y in values.items())


def reports_outcomes(setup: Setup) -> bool:
    """True if agents report outcomes to one another: totals, and in a field those of a shared belief."""
    if setup.problem.is_field:
        return not isinstance(setup.belief, FusedSettings)
    return setup.problem.shares_outcomes


def masked_rows(rows: OwnRows, setup: Setup) -> OwnRows:
    """The part of an agent's rows that others may know: private outcomes are masked."""
    if reports_outcomes(setup):
        return rows
    masked = partial(OwnRow.masked, shows_failures=not setup.problem.is_field)
    return OwnRows({name: masked(row) for name, row in rows.by_query.items()}, tuple(map(masked, rows.attached)))


def require_agent_settings(setup: Setup) -> None:
    """Refuse settings that need more than one agent's knowledge."""
    coordination, belief = setup.coordination, setup.belief
    if not isinstance(setup.transport, InProcess):
        got = f"got {type(setup.transport).__name__}, which simulates links"
        raise ConfigError(f"{got}; wanted 'in-process', as agents use real links", at="$.transport.kind")
    if setup.problem.is_field:
        if isinstance(belief, FusedSettings):
            _require_local_settings(setup)
        if isinstance(coordination, Solver) and not isinstance(coordination, TableMethod):
            raise _unfit(coordination, "decides centrally", "'max-sum'")
        setup.rule().check_world(setup.problem.level)
        return
    if setup.problem.ranges:
        got = "got limits on measured quantities, which an agent does not learn"
        raise ConfigError(f"{got}; wanted a Team", at="$.limits")
    everything = setup.problem.shares_outcomes
    if not isinstance(coordination, Maximiser):
        if not everything and not isinstance(coordination, Sobol | Random):
            wanted = "a coordination method such as 'admm', or outcomes = 'total'"
            raise _unfit(coordination, "needs all outcomes", wanted)
    elif not isinstance(coordination, BoxMethod):
        raise _unfit(coordination, "decides centrally", "'admm'")
    if not everything and not isinstance(belief, AdditiveGPSettings | EnsembleSettings):
        wanted = "'additive', 'ensemble' or outcomes = 'total'"
        raise _unfit(belief, "needs all outcomes", wanted, "$.belief")


def _require_local_settings(setup: Setup) -> None:
    """Refuse settings that need all agents' beliefs, if each has a local belief."""
    acquisition, coordination = setup.rule(), setup.coordination
    if isinstance(coordination, Solver) and not acquisition.splits:
        why = "its local_problem(situation) needs the beliefs of all agents"
        wanted = "a ChainAcquisition with utility(situation, n_agents), or a shared belief"
        got = f"got {type(acquisition).__name__} with belief 'fused': {why}"
        raise ConfigError(f"{got}; wanted {wanted}", at="$.acquisition")
    if not (isinstance(coordination, Solver) or ignores_beliefs(coordination) or plans_by_steps(coordination)):
        got = f"got {type(coordination).__name__} with belief 'fused': it needs the beliefs of all agents"
        wanted = "a coordination method such as 'max-sum', or a belief that agents share"
        raise ConfigError(f"{got}; wanted {wanted}", at="$.coordination")


def _unfit(own: object, what: str, wanted: str, at: str = "$.coordination") -> ConfigError:
    return ConfigError(f"got {type(own).__name__}, which {what}; wanted {wanted}", at=at)


_LARGEST_ORDER = 2**52  # bound on the order of an evaluation
_NO_PLACE = msgspec.msgpack.encode(None)
Sites = Float[np.ndarray, "s d"] | None


def of_type(kind: Any, fits: Callable[[str, Any], bool]) -> FitsData:
    """Test of encoded data of a type, with a test of the decoded data; None is refused."""
    return lambda agent, data: (found := read_body(data, kind)) is not None and fits(agent, found)


def reports(
    log: Logbook, attached: Sequence[OwnRow], sites: Sites, known_offers: Mapping[str, PackedOffer]
) -> FitsData:
    """Test of agents' reports in a field; offers are checked against ``sites`` and the last ``known_offers``."""
    problem, known_queries = log.problem, {own_rows.UNREQUESTED, *log.open}

    def is_admissible(row: Any) -> bool:
        key, measurement, has_round = row.of, row.measurement, row.round is not None
        if isinstance(key, int):
            is_expected = (
                0 <= key < len(attached) and measurement is not None and has_round == (attached[key].round is not None)
            )
        else:
            is_expected = key in known_queries and not has_round
        is_finite = not has_round or np.isfinite(row.round)
        if not (is_expected and is_finite and 0 <= row.order < _LARGEST_ORDER):
            return False
        measured = [*row.on_the_way, *([] if measurement is None else [measurement])]
        return all(own_rows.is_admissible(one, problem) for one in measured)

    def fits(agent: str, report: Report) -> bool:
        of, offer = [row.of for row in report.rows], report.offer
        if len(set(of)) != len(of) or not all(map(is_admissible, report.rows)):
            return False
        if isinstance(offer, int):
            return agent in known_offers and offer == known_offers[agent].checksum
        try:
            places = None if offer.candidates is None else unpacked(offer.candidates, problem.box.n_dims, sites)
        except TransportError:
            return False
        are_near = places is None or bool(problem.box.is_near(places).all())
        is_known = offer.position is None or is_place(offer.position, problem)
        return are_near and is_known and 0.0 <= offer.price < np.inf

    return of_type(Report, fits)


def destinations(problem: Problem) -> FitsData:
    """Test of agents' destinations: a location, or None."""
    fits = of_type(tuple[float, ...], lambda _, place: is_place(place, problem))
    return lambda agent, data: data == _NO_PLACE or fits(agent, data)


def forbidden_pairs(graph: FactorGraph, sizes: Mapping[str, int]) -> FitsData:
    """Test of factors' forbidden pairs, from their owners."""

    def are_pairs(f: str, pairs: Sequence[Packed]) -> bool:
        scope = graph.scope(f)
        return all(
            x in scope and y in scope and x != y and shape == (sizes[x], sizes[y]) and 8 * len(bits) in range(m, m + 8)
            for x, y, shape, bits in pairs
            for m in [shape[0] * shape[1]]
        )

    def fits(agent: str, pairs_by_factor: dict[str, list[Packed]]) -> bool:
        is_own = tuple(pairs_by_factor) == graph.factors_owned_by(agent)
        return is_own and all(are_pairs(f, packed) for f, packed in pairs_by_factor.items())

    return of_type(dict[str, list[Packed]], fits)


def outcome_sums(problem: Problem, log: Logbook, n_attached: int, reporters: Collection[str]) -> Fits:
    """Test of sums of agents' data of a function: a row for each pending query, then the attached evaluations."""
    layout, graph, k = own_rows.Layout.of(problem), problem.graph, len(problem.channels)
    owners = [graph.owner(channel) for channel in problem.channels]
    low, high = problem.domain.low, problem.domain.high
    side = high - low  # values may be at most this far outside the box
    awaited = [np.array([c in query.awaited for c in problem.channels]) for query in log.open.values()]
    is_open = np.array([*awaited, *[np.ones(k, dtype=bool)] * n_attached], dtype=bool).reshape(-1, k)
    of_factors, of_variables = by_author(owners), by_author(graph.variable_owners)

    def fits(sums: Float[np.ndarray, "rows w"], agents: frozenset[str]) -> bool:
        status, place = sums[:, layout.status], sums[:, layout.place]
        is_own = np.isin(graph.variable_owners, list(agents))
        if not (np.isfinite(sums).all() and np.isin(status, range(int(own_rows.FAILED) + 1)).all()):
            return False
        if status[:, :k][~is_open].any() or not of_factors(status[:, :k], agents) or not of_variables(place, agents):
            return False
        if ((place < low - side) | (place > high + side))[:, is_own].any():
            return False
        if (problem.domain.on_grid(place) != place)[:, is_own].any():
            return False
        order, n_reporters = sums[:, layout.order], sums[:, layout.n_reporters]
        is_order = (order >= 0.0) & (order < _LARGEST_ORDER * len(agents))
        if not (is_order & (n_reporters >= 0.0) & (n_reporters <= len(agents))).all():
            return False
        if not problem.shares_outcomes:
            return not status[:, k].any()
        if agents.isdisjoint(reporters) and status[:, k].any():
            return False
        values, noise = sums[:, layout.values], sums[:, layout.noise]
        if not (of_factors(values[:, :k], agents) and of_factors(noise[:, :k], agents)):
            return False
        return bool((np.abs(values) <= LARGEST_OUTCOME).all() and (noise >= own_rows.UNKNOWN_NOISE).all())

    return fits


def indices(agents: Sequence[str], sizes: Mapping[str, int], least: int) -> Fits:
    """Test of each agent's chosen index among its locations; ``least`` is 0, or -1 for none."""
    most = np.array([max(sizes.get(agent, 1) - 1, 0) for agent in agents], dtype=float)
    is_authored = by_author(agents, least, whole=True)
    return lambda sums, members: is_authored(sums, members) and bool((sums <= most).all())
