"""Topology of a WLAN: locations of access points and users, and losses between them."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial.distance import cdist

from swarmbo.boundary.files import finite, read_table
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError
from swarmbo_envs.shared import Pair, Place, Places, digest
from swarmbo_envs.wlan_power.settings import GeneratedSettings, StatedSettings, WlanPowerSettings, topology_settings

LOSS_AT_ONE_METRE_DB = 46.6777
LOSS_PER_DECADE_DB = 30.0
_NEAREST_M = 1.0  # the far-field law would amplify at smaller distances
_RESTARTS = 200
# draws of one access point's location before a restart
_TRIES = 512
_LARGEST_M = 1e6


def path_loss_db(distance_m: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Path loss, 46.6777 + 30 log10(d / 1 m) dB, at distances d >= 0 m; below a metre, the loss at a metre.

    Source: the default of ns-3's LogDistancePropagationLossModel (exponent 3, reference at 1 m, 5.15 GHz).
    """
    return LOSS_AT_ONE_METRE_DB + LOSS_PER_DECADE_DB * np.log10(np.maximum(distance_m, _NEAREST_M))


def noise_dbm(bandwidth_mhz: float, noise_figure_db: float) -> float:
    """Thermal noise at a receiver: -174 dBm/Hz + 10 log10(bandwidth in Hz) + its noise figure."""
    return float(-174.0 + 10.0 * np.log10(1e6 * bandwidth_mhz) + noise_figure_db)


def distances(A: Places, B: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, "k m"]:
    """Distances from every location of one list to every location of another, m."""
    return np.hypot(*np.moveaxis(A[:, None] - B[None], -1, 0))


def shadowing_to_users(seed: int, std_db: float, n_points: int, n_users: int) -> Float[np.ndarray, "k m"]:
    """Loss by obstacles from access points to users; a link keeps it while its user walks."""
    return std_db * stream(seed, "shadowing", "users").standard_normal((n_points, n_users))


@dataclass(frozen=True, eq=False)
class Topology:
    """Locations, m, of access points and of users at the start, and the shadowing between them.

    ``serving`` has each user's access point; None: that of least path loss. Users stay between ``low`` and ``high``.
    """

    access_points: Places
    users: Float[np.ndarray, "m 2"]
    serving: Int[np.ndarray, " m"] | None
    between_db: Float[np.ndarray, "k k"]
    to_users_db: Float[np.ndarray, "k m"]
    low: Place
    high: Place

    @property
    def digest(self) -> str:
        """Hash of the topology's content."""
        serving = np.full(len(self.users), -1) if self.serving is None else self.serving
        places = self.access_points, self.users, self.between_db, self.to_users_db, self.low, self.high
        return digest(*places, serving, np.array([len(self.access_points), len(self.users)]))

    def hears(self, power_dbm: float, audible_dbm: float) -> Bool[np.ndarray, "k k"]:
        """Pairs of access points in range of each other at the largest power; symmetric, like the loss."""
        loss = path_loss_db(distances(self.access_points, self.access_points)) + self.between_db
        in_range = power_dbm - loss >= audible_dbm
        np.fill_diagonal(in_range, False)
        return in_range

    def loss_db(self, users: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, "k m"]:
        """Path loss with shadowing from every access point to every user at locations (m, 2)."""
        return path_loss_db(distances(self.access_points, users)) + self.to_users_db


def topology_of(settings: WlanPowerSettings) -> Topology:
    """Topology of a WLAN: drawn, stated or read."""
    table = topology_settings(settings.topology)
    if isinstance(table, GeneratedSettings):
        return _generated(table, settings)
    return _stated(table if isinstance(table, StatedSettings) else _read(table.csv), settings)


def _generated(table: GeneratedSettings, settings: WlanPowerSettings) -> Topology:
    """Draw access points one after another, each in range of at least two earlier ones, so that none is isolated."""
    # a location that does not fit is drawn again with its shadowing
    k, area, std = table.access_points, np.array(table.area_m), settings.shadowing_db
    rng = stream(settings.topology_seed, "topology", "access points")
    obstacles = stream(settings.topology_seed, "topology", "shadowing")
    reach_db = settings.power_dbm[1] - settings.audible_dbm
    for _ in range(_RESTARTS):
        places, n_near, between = np.empty((k, 2)), np.zeros(k, dtype=int), np.zeros((k, k))
        for n in range(k):
            tried = rng.random((_TRIES, 2)) * area
            # hypot, which the radio uses, takes ten times as long
            gaps_m = cdist(tried, places[:n])
            shadow = std * obstacles.standard_normal((_TRIES, n))
            hears = path_loss_db(gaps_m) + shadow <= reach_db
            degrees = hears.sum(axis=1)
            full = n_near[:n] >= table.most_heard
            fits = (degrees >= min(2, n)) & (degrees <= table.most_heard) & ~hears[:, full].any(axis=1)
            fits &= (gaps_m >= table.separation_m).all(axis=1)
            if not fits.any():
                break
            first = int(fits.argmax())
            places[n] = tried[first]
            n_near[n], n_near[:n] = degrees[first], n_near[:n] + hears[first]
            between[n, :n] = between[:n, n] = shadow[first]
        else:
            # users evenly in discs around one access point after another; those outside the area move to its edge
            m, drawn = table.users, stream(settings.topology_seed, "topology", "users")
            away, angle = table.user_radius_m * np.sqrt(drawn.random(m)), 2.0 * np.pi * drawn.random(m)
            offsets = away[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
            users = np.clip(places[np.arange(m) % len(places)] + offsets, 0.0, area)
            to_users = shadowing_to_users(settings.topology_seed, std, k, m)
            return Topology(places, users, None, between, to_users, np.zeros(2), area)
    got = f"got {k} access points in {area[0]:g} m x {area[1]:g} m, and no draw with 2 to {table.most_heard} others"
    wanted = "Wanted another area_m, separation_m, most_heard, or audible_dbm"
    got += f" in range of each at {settings.audible_dbm:g} dBm"
    raise ConfigError(f"{got}. {wanted}", at="$.topology.generated")


def _stated(stated: StatedSettings, settings: WlanPowerSettings) -> Topology:
    points = np.array(stated.access_points, dtype=float).reshape(-1, 2)
    users = np.array(stated.users, dtype=float).reshape(-1, 2)
    if not len(points):
        raise ConfigError("got no access point; wanted one or more", at="$.topology.access_points")
    for name, places in (("access_points", points), ("users", users)):
        if not (np.abs(places) <= _LARGEST_M).all():
            raise ConfigError("got a location that is not finite or beyond 1e6 m", at=f"$.topology.{name}")
    if len(np.unique(points, axis=0)) < len(points):
        raise ConfigError("got two access points at one location", at="$.topology.access_points")
    serving = None if stated.serving is None else np.array(stated.serving, dtype=int)
    if serving is not None and (len(serving) != len(users) or not ((serving >= 0) & (serving < len(points))).all()):
        wanted = f"wanted one index from 0 to {len(points) - 1} for each of {len(users)} users"
        raise ConfigError(f"got {stated.serving!r:.60}; {wanted}", at="$.topology.serving")
    # shadowing between access points, independent for each pair
    rng, k = stream(settings.topology_seed, "shadowing", "access points"), len(points)
    upper = np.triu(settings.shadowing_db * rng.standard_normal((k, k)), 1)
    to_users = shadowing_to_users(settings.topology_seed, settings.shadowing_db, len(points), len(users))
    everything = np.vstack([points, users])
    return Topology(points, users, serving, upper + upper.T, to_users, everything.min(axis=0), everything.max(axis=0))


def _read(path: str) -> StatedSettings:
    at, places, serving = "$.topology.csv", {"access_point": list[Pair](), "user": list[Pair]()}, list[int | None]()
    header, rows = read_table(path, at)
    if missing := {"kind", "x_m", "y_m"} - set(header):
        raise ConfigError(f"got no column {', '.join(sorted(missing))} in {path!r}", at=at)
    for line, row in rows:
        cells, where = dict(zip(header, row, strict=False)), f"{path}: line {line}"
        kind, place = cells.get("kind"), (_number(cells, "x_m", where), _number(cells, "y_m", where))
        if kind not in places:
            raise ConfigError(f"{where}: got {kind!r}; wanted 'access_point' or 'user'", at=at)
        places[kind].append(place)
        if kind == "user":
            serving.append(_index(cells, where))
    chosen = [index for index in serving if index is not None]
    if chosen and len(chosen) < len(serving):
        raise ConfigError(f"{path}: got an access_point for some users only; wanted it for all, or none", at=at)
    return StatedSettings(access_points=places["access_point"], users=places["user"], serving=chosen or None)


def _number(cells: dict[str, str], column: str, where: str) -> float:
    if math.isnan(number := finite(got := cells.get(column, ""))):
        raise ConfigError(f"{where}, column {column!r}: got {got!r}; wanted a finite number", at="$.topology.csv")
    return number


def _index(cells: dict[str, str], where: str) -> int | None:
    text = cells.get("access_point", "")
    if text and not (text.isdecimal() and text.isascii() and len(text) < 10):
        got = f"{where}, column 'access_point': got {text!r}"
        raise ConfigError(f"{got}; wanted an index from 0", at="$.topology.csv")
    return int(text) if text else None
