"""History of a run as figures need it, from its records: paths, measurements, failures, and the belief of a round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief import ExactGP, ExactGPSettings, Hyperparameters
from swarmbo.boundary.coordinates import Coordinates
from swarmbo.errors import ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.records import TRUE_MAXIMUM, Evaluation, Goal, RoundRecord
from swarmbo.spaces import Domain
from swarmbo.spaces.variables import Variable

Records = Sequence[RoundRecord]


@dataclass(frozen=True)
class World:
    """World of a run as figures see it, without its live environment.

    The truth is ``values`` (m,) at ``points`` (m, d) and, for a field that changes, ``frames`` (rounds + 1, m), NaN
    where it is unknown. All are None without a truth. ``variables`` are empty if every agent measures its own location.
    ``types`` are given if not all variables are real numbers on linear axes. ``graph_in_use`` has the factors that
    agents had learned or drawn at the end. ``no_go`` has the rings (k, 2) of each region. ``method`` is acquisition,
    coordination and seed, for titles. ``coordinates`` are those of the input. ``agents`` are in the order of colours.
    """

    domain: Domain
    name: str = ""
    unit: str = ""
    axis_unit: str = ""
    points: Float[np.ndarray, "m d"] | None = None
    values: Float[np.ndarray, " m"] | None = None
    maximum: float | None = None
    argmax: Float[np.ndarray, " d"] | None = None
    variables: tuple[str, ...] = ()
    types: tuple[Variable, ...] = ()
    graph: FactorGraph | None = None
    graph_in_use: FactorGraph | None = None
    standpoints: Mapping[str, Float[np.ndarray, " d"]] = field(default_factory=dict[str, np.ndarray])
    goal: Goal = "peak"
    level: float | None = None
    frames: Float[np.ndarray, "rounds m"] | None = None
    maxima: Float[np.ndarray, " rounds"] | None = None
    argmaxes: Float[np.ndarray, "rounds d"] | None = None
    maximum_is: str = TRUE_MAXIMUM
    no_go: Sequence[Sequence[Float[np.ndarray, "k 2"]]] = ()
    bases: Mapping[str, Float[np.ndarray, " d"]] = field(default_factory=dict[str, np.ndarray])
    method: str = ""
    coordinates: Coordinates | None = None
    agents: tuple[str, ...] = ()

    def at(self, round_number: int) -> "World":
        """World in a round; this world if nothing changes."""
        if self.frames is None or self.maxima is None or self.argmaxes is None:
            return self
        maximum, argmax = float(self.maxima[round_number]), self.argmaxes[round_number]
        return replace(self, values=self.frames[round_number], maximum=maximum, argmax=argmax)

    @property
    def has_truth(self) -> bool:
        """True if the truth is known at some points."""
        return self.values is not None and bool(np.isfinite(self.values).any())

    @property
    def has_map(self) -> bool:
        """True if agents move in a plane."""
        return self.domain.n_dims == 2 and not self.variables

    def require_plane(self) -> None:
        """Refuse a world whose locations do not have two axes."""
        if self.domain.n_dims != 2:
            got = f"a map needs locations with 2 axes, got {self.domain.n_dims}"
            raise ShapeError(f"{got}; plot regret or traffic instead")


def agents_of(records: Records, world: World | None = None) -> list[str]:
    """Names of the agents in the order of colours: those of the world, then others in order of first appearance."""
    known = () if world is None else world.agents
    return list(dict.fromkeys([*known, *(sample.agent for record in records for sample in record.samples)]))


def path_of(records: Records, agent: str) -> Float[np.ndarray, "n d"]:
    """Path of an agent: as driven if the world reports it, else straight lines between its locations."""
    samples = [sample for record in records for sample in record.samples if sample.agent == agent]
    legs = [[*(s.path if isinstance(s.path, list) else ()), s.location] for s in samples if not s.declined]
    return np.asarray([place for leg in legs for place in leg], dtype=float)


def measured_places(records: Records, agent: str) -> Float[np.ndarray, "n d"]:
    """Places where an agent measured, or tried to, at the ends of its moves and en route."""
    taken = [s for record in records for s in record.samples if s.agent == agent and not s.declined]
    places = [place for s in taken for place in (*(stop.location for stop in s.en_route), s.location)]
    return np.asarray(places, dtype=float)


def succeeded(records: Records) -> list[Evaluation]:
    """All measurements that did not fail, in the order of the records."""
    return [taken for record in records for taken in record.evaluations if taken.measurement is not None]


def measurements(records: Records) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, " n"]]:
    """Locations (n, d) and outcomes (n,) of all measurements that did not fail, in the order of the records."""
    taken = succeeded(records)
    if not taken:
        return np.empty((0, 2)), np.empty(0)
    places, outcomes = [each.location for each in taken], [each.measurement for each in taken]
    return np.array(places, dtype=float), np.array(outcomes, dtype=float)


def failures(records: Records) -> Float[np.ndarray, "n d"]:
    """Locations (n, d) of the measurements that failed."""
    places = [taken.location for record in records for taken in record.evaluations if taken.measurement is None]
    return np.asarray(places, dtype=float) if places else np.empty((0, 2))


def belief_after(records: Records, settings: ExactGPSettings, domain: Domain) -> ExactGP | None:
    """The team's belief after the last of these records, rebuilt without a fit; None before the first measurement."""
    X, y = measurements(records)
    if not len(y) or records[-1].hyperparameters is None:
        return None
    hyperparameters = msgspec.convert(records[-1].hyperparameters, Hyperparameters)
    if hyperparameters.time is not None:
        X = np.column_stack([X, np.concatenate([[r.round] * len(succeeded([r])) for r in records])])
    noise_variances = np.array([evaluation.known_noise for evaluation in succeeded(records)]) ** 2
    return ExactGP.from_hyperparameters(settings, domain, hyperparameters, X, y, noise_variances).at(records[-1].round)
