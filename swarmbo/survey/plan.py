"""Map of samples with its uncertainty, and the next places to sample, chosen jointly."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import linear_sum_assignment
from scipy.spatial import Delaunay, cKDTree, distance
from scipy.special import ndtr

from swarmbo.belief.gp.exact import ExactGP
from swarmbo.boundary.values import digits, real_array, short, whole_number
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.records import Goal, Neglected
from swarmbo.survey.samples import Region, Samples
from swarmbo.team import Team

_CELLS = 120  # number of cells along the longer side of the map
_CANDIDATES = 2048  # approximate largest number of places from which the next places are chosen
_MARGIN = 0.03  # margin around the samples, as a share of the longer side
_NEAR, _LEAST_NEAR = 1.5, 0.75  # distance of the map's border, in usual distances between samples; least, in cells
_CLEAR = 0.25  # smallest distance between a sample and a next place, in cells
_FEWEST = 3  # smallest number of sampled locations
_MOST_CHECKED = 3000  # largest number of samples for the leave-one-out error, which costs their number cubed
_Places = Float[np.ndarray, "agents 2"]


@dataclass(frozen=True, eq=False)
class SurveyMap:
    """Map on a grid that is regular in the coordinates of the file: rows from the south, NaN outside the area."""

    x: Float[np.ndarray, " nx"]
    y: Float[np.ndarray, " ny"]
    mean: Float[np.ndarray, "ny nx"]
    std: Float[np.ndarray, "ny nx"]


@dataclass(frozen=True)
class NextPlace:
    """Next place of one agent in the coordinates of the file, with its expected value and the reason."""

    agent: str
    place: tuple[float, float]
    lon_lat: tuple[float, float] | None
    mean: float
    std: float
    why: str
    distance_m: float | None = None


@dataclass(frozen=True, eq=False)
class SurveyPlan:
    """Map of samples, and the next places.

    ``left_out_rmse`` is the root mean square error if each sample is predicted from those at other locations; None for
    more than 3,000. ``spread`` is the standard deviation of the values: the error of a constant map. ``neglected`` is
    the effect of samples that the map leaves out, if there are more than 2,000.
    """

    samples: Samples
    map: SurveyMap
    places: tuple[NextPlace, ...]
    aim: Goal
    level: float | None
    left_out_rmse: float | None
    spread: float
    neglected: Neglected | None = None

    @property
    def decimals(self) -> int:
        """Number of decimals of coordinates, in the unit of the file; the last is at most a hundredth of a cell."""
        return 2 - int(np.floor(np.log10(min(self.map.x[1] - self.map.x[0], self.map.y[1] - self.map.y[0]))))


def plan_next(
    samples: Samples,
    agents: int | Sequence[str] | None = None,
    *,
    aim: Goal = "map",
    level: float | None = None,
    avoid: Region | None = None,
    area: Region | None = None,
    positions: _Places | None = None,
    seed: int = 0,
) -> SurveyPlan:
    """Fit a Gaussian process to samples, and choose the next places jointly.

    The agents agree on the places like a team in a field (``Team.for_field``); the acquisition follows the aim. With
    positions, places are assigned to agents such that the sum of distances is least (Hungarian method).

    Args:
        samples: The samples, at 3 locations at least.
        agents: Number or names of agents, one place for each; default: one agent.
        aim: ``map``: places that reduce the uncertainty of the map most; ``peak``: places that promise a larger value
            than all samples; ``level``: places that tell where the ``level`` is exceeded.
        level: Level in the unit of the values; with the aim ``level`` only.
        avoid: Region without next places; the map leaves it out.
        area: Region of interest. Default: the convex hull of the samples, and places near a sample. If all samples lie
            along one line, also places near that line. Near means within 1.5 usual distances between samples.
        positions: Present positions (agents, 2), m on the map.
        seed: Seed of the fit's random starts.

    Raises:
        ConfigError: If samples are too few, the aim lacks its level, or too few places are left.
        ShapeError: If there is not one position per agent, or a position or value is not finite.

    Example:
        >>> import numpy as np
        >>> from swarmbo.survey import Coordinates, Samples, plan_next
        >>> places = np.stack(np.meshgrid(np.arange(5.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
        >>> samples = Samples(places, np.sin(places[:, 0]), None, Coordinates(("x", "y")), "depth")
        >>> plan = plan_next(samples, agents=2, aim="peak")
        >>> len(plan.places), plan.map.mean.shape[1], plan.places[0].agent
        (2, 120, 'agent_1')
    """
    names = () if agents is None or isinstance(agents, int) else tuple(agents)
    if not names:
        number = whole_number(1 if agents is None else agents, 1, "--agents", 64)
        names = tuple(f"agent_{i + 1}" for i in range(number))
    if (distinct := len(np.unique(samples.places, axis=0))) < _FEWEST:
        raise ConfigError(f"got samples at {distinct} locations; wanted at least {_FEWEST}", at="$.csv")
    stated = (("values", samples.values, (len(samples.places),)), ("positions", positions, (len(names), 2)))
    for what, given, shape in stated:
        numbers = real_array(given)
        if given is not None and (numbers is None or numbers.shape != shape or not np.isfinite(numbers).all()):
            raise ShapeError(f"{what}: got {short(given)}; wanted finite numbers, of shape {shape}")
    if (aim == "level") != (level is not None):
        wanted = "wanted a number for 'level', and none for others"
        raise ConfigError(f"got {level} for the aim {aim!r}; {wanted}", at="--level")
    x, y = _axes(samples, area)
    cells = samples.coordinates.metres(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))
    is_inside = _is_near_samples(samples.places, cells) if area is None else area.holds(cells)
    is_inside &= True if avoid is None else ~avoid.holds(cells)
    free = _candidates(samples, cells, is_inside, (len(y), len(x)))
    if len(free) < len(names):
        wanted = "an area" if area is None and avoid is None else "a larger area, smaller regions to avoid"
        raise ConfigError(f"got {len(free)} locations for {len(names)} agents; wanted {wanted}, or fewer agents")
    low = np.minimum(cells.min(axis=0), samples.places.min(axis=0))
    high = np.maximum(cells.max(axis=0), samples.places.max(axis=0))
    settings: dict[str, Any] = {"kind": "exact", "equal_in": "physical"}
    team = Team.for_field(names, low, high, aim=aim, level=level, belief=settings, seed=seed)
    team.attach(samples.places, samples.values, noise_std=samples.noise_std)
    team.refit()
    query = team.ask(dict.fromkeys(names, free))
    belief = team.belief
    assert isinstance(belief, ExactGP)
    locations = np.array([query.points[name] for name in names])
    if positions is not None:
        locations = locations[linear_sum_assignment(distance.cdist(positions, locations))[1]]
    mean, variance = np.full((2, len(cells)), np.nan)
    mean[is_inside], variance[is_inside] = belief.posterior(cells[is_inside])
    survey_map = SurveyMap(x, y, mean.reshape(len(y), len(x)), np.sqrt(variance).reshape(len(y), len(x)))
    error, spread = left_out_rmse(belief), float(np.std(samples.values))
    plan = SurveyPlan(samples, survey_map, (), aim, level, error, spread, belief.neglected())
    return replace(plan, places=_next_places(plan, names, locations, belief, positions))


def left_out_rmse(belief: ExactGP) -> float | None:
    """RMSE at each location, predicted from all others (Rasmussen & Williams 2006, eq. (5.12), with blocks of rows)."""
    data, hyper = belief.observations, belief.channels
    if len(data) > _MOST_CHECKED:
        return None
    K = belief.hyperparameters.prior.matrix(data.U, data.U) + np.diag(data.noise_variances(hyper))
    precision, residuals = np.linalg.inv(K), data.residuals(hyper)
    location = np.unique(data.U, axis=0, return_inverse=True)[1].ravel()
    groups = [np.flatnonzero(location == i) for i in range(location.max() + 1)]
    errors = [np.linalg.solve(precision[np.ix_(rows, rows)], precision[rows] @ residuals) for rows in groups]
    return float(hyper.scales[0] * np.sqrt(np.mean(np.concatenate(errors) ** 2)))


def _axes(samples: Samples, area: Region | None) -> tuple[Float[np.ndarray, " nx"], Float[np.ndarray, " ny"]]:
    """Columns and rows of the map in the coordinates of the file, with cells about as wide as high."""
    corners = samples.places if area is None else area.corners
    low, high = corners.min(axis=0), corners.max(axis=0)
    if area is None:
        margin = _MARGIN * (high - low).max()
        low, high = low - margin, high + margin
        corners = np.stack(np.meshgrid(*np.linspace(low, high, 65).T), axis=-1).reshape(-1, 2)  # edges bend in degrees
    own = samples.coordinates.own(corners)
    west, south = own.min(axis=0)
    east, north = own.max(axis=0)
    n = np.maximum(2, np.round(_CELLS * (high - low) / (high - low).max())).astype(int)
    half_x, half_y = (east - west) / n[0] / 2.0, (north - south) / n[1] / 2.0
    return np.linspace(west + half_x, east - half_x, n[0]), np.linspace(south + half_y, north - half_y, n[1])


def _is_near_samples(places: Float[np.ndarray, "n 2"], cells: Float[np.ndarray, "m 2"]) -> Bool[np.ndarray, " m"]:
    """Mask of cells in the hull of the samples, or near a sample or transect."""
    distinct = np.unique(places, axis=0)
    tree = cKDTree(distinct)
    spacing = float(np.median(np.asarray(tree.query(distinct, k=2)[0])[:, 1]))
    reach = max(_NEAR * spacing, _LEAST_NEAR * float(np.ptp(cells, axis=0).max()) / _CELLS)
    near = np.asarray(tree.query(cells)[0]) <= reach
    first = distinct[((distinct - distinct[0]) ** 2).sum(axis=1).argmax()]
    along = distinct[((distinct - first) ** 2).sum(axis=1).argmax()] - first
    from_first = np.concatenate([distinct, cells]) - first
    share = np.clip(from_first @ along / (along @ along), 0.0, 1.0)
    is_along = ((from_first - share[:, None] * along) ** 2).sum(axis=1) <= reach**2
    if is_along[: len(distinct)].all():  # a transect, whose hull may be thinner than a cell
        return near | is_along[len(distinct) :]
    return near | (Delaunay(distinct - distinct[0]).find_simplex(cells - distinct[0]) >= 0)


def _candidates(
    samples: Samples, cells: Float[np.ndarray, "m 2"], inside: Bool[np.ndarray, " m"], shape: tuple[int, int]
) -> Float[np.ndarray, "k 2"]:
    """Candidates: cells of the map that are inside and away from samples, evenly thinned out."""
    step = max(1, int(np.ceil(np.sqrt(inside.sum() / _CANDIDATES))))
    rows, columns = np.divmod(np.arange(len(cells)), shape[1])
    coarse = inside & (rows % step == step // 2) & (columns % step == step // 2)
    coarse = coarse if coarse.any() else inside
    side = float(np.ptp(cells, axis=0).max()) / max(shape)
    far, _ = cKDTree(samples.places).query(cells)
    return cells[coarse & (far > _CLEAR * side)]


def _next_places(
    plan: SurveyPlan, names: Sequence[str], chosen: _Places, belief: ExactGP, positions: _Places | None
) -> tuple[NextPlace, ...]:
    mean, variance = belief.posterior(chosen)
    std, coordinates, level = np.sqrt(variance), plan.samples.coordinates, plan.level
    xy, degrees, median_std = coordinates.own(chosen), coordinates.lon_lat(chosen), float(np.nanmedian(plan.map.std))
    threshold = float(plan.samples.values.max()) if level is None else level
    relation = "to exceed the largest sample," if level is None else "to be above"
    out = list[NextPlace]()
    for i, name in enumerate(names):
        m, s = float(mean[i]), float(std[i])
        why = f"a chance of {ndtr((m - threshold) / max(s, 1e-300)):.0%} {relation} {digits(threshold, s)}"
        if plan.aim == "map":
            why = f"the map is uncertain by {s:.3g} here, by {median_std:.3g} in the median"
        distance_m = None if positions is None else float(np.sqrt(((chosen[i] - positions[i]) ** 2).sum()))
        lon_lat = None if degrees is None else (float(degrees[i, 0]), float(degrees[i, 1]))
        out.append(NextPlace(name, (float(xy[i, 0]), float(xy[i, 1])), lon_lat, m, s, why, distance_m))
    return tuple(out)
