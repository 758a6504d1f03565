"""Settings of fields, and tasks for which a field is measured."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from swarmbo.boundary.csv_measurements import CsvColumns
from swarmbo.boundary.values import short
from swarmbo.errors import ConfigError
from swarmbo.kernels import KernelName, KernelSettings
from swarmbo.settings import Settings, Whole, convert, require, within
from swarmbo_envs.shared import Pair, kind_of
from swarmbo_envs.simulated_world import WorldSettings

Task = Literal["peak", "map", "level"]
Window = tuple[int, int, int, int]
CellSide = Annotated[float, within(1e-6, 1e9, "a length", "m")]


class ElevationSettings(Settings, frozen=True):
    """A window of an elevation model shipped with matplotlib.

    Args:
        elevation: ``jacksboro`` (Tennessee, 344 x 403 cells of about 74 m x 93 m) or ``topobathy`` (Vancouver Island
            with the sea floor, 91 x 120 cells of about 2.4 km).
        window: First row, first column, rows and columns in the model's own array. Default: for ``jacksboro`` [200,
            128, 128, 128], which has the model's summit and several lesser peaks; for ``topobathy`` all of it.
    """

    elevation: Literal["jacksboro", "topobathy"]
    window: Window | None = None


class MeasuredSettings(Settings, frozen=True):
    """Measured points in a CSV file with a header line.

    Args:
        csv: Path of the file; relative to the current directory.
        x: Column of the coordinate to the east, m (or a longitude in degrees), above -1e12 and below 1e12. Default: the
            only column with a name such as ``lon``, ``x_m`` or ``easting``.
        y: Column of the coordinate to the north, in the unit of ``x`` (or a latitude). Default: by name, like ``x``.
        value: Column of the measured value, in its own unit.
        unit: Unit of the measured value, for labels.
        sites: ``only``: robots sample the measured sites themselves, each site once. ``interpolated``: they sample a
            smooth interpolant (ordinary kriging) anywhere in the sites' bounding box.
        time: Column of the time of measurement; None for a static field. Every site then has its own series, linear
            between its times and constant before the first and after the last.
        time_step: Time of a round in the unit of ``time``, 1e-9 to 1e12. Default: the median distance between
            neighbouring times.
        coordinates: ``metres``, or ``degrees``: longitudes and latitudes (WGS 84), converted to metres by a local
            transverse Mercator projection. Default: by the names of the columns (``lon``, ``latitude``, ``x_deg`` and
            the like), else metres.
        missing: Numbers that mark missing values, at most 16; their rows are left out, as are those with empty cells.
            Default: -9999 and similar ones, if they are outliers; [] for none.
    """

    csv: str
    value: str
    x: str | None = None
    y: str | None = None
    unit: str = ""
    sites: Literal["only", "interpolated"] = "only"
    time: str | None = None
    time_step: float | None = None
    coordinates: Literal["metres", "degrees"] | None = None
    missing: list[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_few(self)
        is_step = self.time_step is None or (self.time is not None and 1e-9 <= self.time_step <= 1e12)
        require(self, "time_step", lambda _: is_step, "a time from 1e-9 to 1e12, beside the column `time`")

    @property
    def columns(self) -> CsvColumns:
        """File and columns, for its reader."""
        return CsvColumns(**{name: getattr(self, name) for name in CsvColumns.__dataclass_fields__})


class RasterFieldSettings(Settings, frozen=True):
    """A raster of values, in a GeoTIFF (extra ``geo``) or a ``.npy`` array, its first row in the north.

    The coordinate reference system of a GeoTIFF defines its coordinates. Metres (or feet) are taken as they are, from
    the raster's south-west corner. Longitudes and latitudes are converted to metres by a local transverse Mercator
    projection, and the map is the largest rectangle in metres that all rows and columns cover.

    Cells have no value if the file marks them, if they are NaN, or if they are ``missing``. The field is then unknown
    within the cell, and between its centre and those of its neighbours: robots avoid this area like a no-go region.

    Args:
        raster: Path of the file; relative to the current directory.
        band: Number of the band of a GeoTIFF, from 1.
        cell_m: Width of the cells of an array, or width and height, m, each 1e-6 to 1e9.
        missing: Numbers that mark missing values, at most 16. Default: -9999 and similar ones, if they are outliers; []
            for none but those that the file names.
        value: Name of the quantity, for labels.
        unit: Unit of ``value``, for labels; with ``m`` and ``elevation`` the field is a terrain in true heights.
    """

    raster: str
    band: Annotated[int, within(1, 10_000)] = 1
    cell_m: CellSide | list[CellSide] | None = None  # with a tuple of them msgspec 0.22 crashes
    missing: list[float] | None = None
    value: str = "elevation"
    unit: str = "m"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_few(self)
        is_pair = not isinstance(self.cell_m, list) or len(self.cell_m) == 2
        require(self, "cell_m", lambda _: is_pair, "a width in m, or [width, height]")


def _require_few(settings: MeasuredSettings | RasterFieldSettings) -> None:
    require(settings, "missing", lambda value: value is None or len(value) <= 16, "at most 16 numbers")


class SurveySettings(Settings, frozen=True):
    """A survey shipped with swarmbo.

    Args:
        survey: ``oxford-ph``: acidity of the topsoil at 126 sites, 100 m apart.
        sites: ``only`` or ``interpolated``, as for a CSV file.
    """

    survey: Literal["oxford-ph"]
    sites: Literal["only", "interpolated"] = "only"


class ChangeSettings(KernelSettings, frozen=True):
    """Change of a draw with time: the kernel over rounds that multiplies the kernel over locations.

    Args:
        lengthscale_rounds: Lengthscale over rounds, 1e-3 to 1e9.
        kernel: Name of the covariance function.
    """

    lengthscale_rounds: Annotated[float, within(1e-3, 1e9, "a time", "rounds")] = 10.0
    kernel: KernelName = "matern52"


def _require_region(settings: "DrawSettings | PlumeSettings") -> None:
    sides, wanted = settings.size_m, "width and height from 1e-6 to 1e12 m, neither a million times the other"
    is_region = all(1e-6 <= side <= 1e12 for side in sides) and max(sides) < 1e6 * min(sides)
    require(settings, "size_m", lambda _: is_region, wanted)


class DrawSettings(KernelSettings, frozen=True):
    """A draw from a Gaussian process prior.

    Args:
        kernel: Name of the covariance function.
        lengthscale_m: Lengthscale, 1e-6 to 1e12 m, from a millionth of the longer side to a million times it.
        std: Prior standard deviation, 1e-12 to 1e12.
        mean: Prior mean, -1e12 to 1e12.
        seed: Number of the draw; the field is the same after every reset.
        size_m: Width and height of the region, each 1e-6 to 1e12 m, neither a million times the other.
        time: Change of the draw with time; None for a static field.
    """

    kernel: KernelName = "matern52"
    lengthscale_m: Annotated[float, within(1e-6, 1e12, "a length", "m")] = 500.0
    std: Annotated[float, within(1e-12, 1e12)] = 1.0
    mean: Annotated[float, within(-1e12, 1e12)] = 0.0
    seed: Whole = 0
    size_m: Pair = (3000.0, 3000.0)
    time: ChangeSettings | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_region(self)
        side = max(self.size_m)
        shortest, longest = 1e-6 * side, 1e6 * side
        wanted = f"a length from {shortest:g} to {longest:g} m, in a region of {side:g} m"
        require(self, "lengthscale_m", lambda value: shortest <= value <= longest, wanted)


class DrawFieldSettings(Settings, frozen=True):
    """Field table of a draw: ``{gp = {...}}``."""

    gp: DrawSettings


class PlumeSettings(Settings, frozen=True):
    """Puffs emitted by sources, carried off by the wind while they spread and decay.

    Args:
        size_m: Width and height of the region, each 1e-6 to 1e12 m, neither a million times the other.
        sources: 1 to 16 locations [x, y] in the region, m. Default: one, a tenth of the width from the western edge,
            half-way up.
        peak: Concentration at a source in the mean wind, 1e-12 to 1e12. Some way downwind it is higher (with the
            defaults 1.4 times), and higher still while gusts oppose the wind, or if plumes meet.
        unit: Unit of the concentration, for labels.
        wind_m_per_round: Mean wind, to the east, 0 to 8 ``radius_m`` (else puffs would not overlap), at most 1e12.
        gusts: Share of the wind that fluctuates, in all directions, 0 to 2.
        radius_m: Standard deviation of a new puff, > 0, at most 1e12. Default: a twentieth of the longer side.
        spread_m2_per_round: Growth of a puff's variance, >= 0. Default: ``radius_m`` squared over 4.
        decay_rounds: Time in which a puff falls to 1/e of its content, 0.1 to 1000 rounds.
        seed: Seed of the gusts.
    """

    size_m: Pair = (1200.0, 800.0)
    sources: list[Pair] | None = None
    peak: Annotated[float, within(1e-12, 1e12)] = 100.0
    unit: str = ""
    wind_m_per_round: Annotated[float, within(0, 1e12)] = 60.0
    gusts: Annotated[float, within(0, 2)] = 0.6
    radius_m: Annotated[float, within(1e-9, 1e12)] | None = None
    spread_m2_per_round: Annotated[float, within(0, 1e12)] | None = None
    decay_rounds: Annotated[float, within(0.1, 1000, "a time", "rounds")] = 12.0
    seed: Whole = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_region(self)
        most, (width, height) = 8.0 * (self.radius_m or 0.05 * max(self.size_m)), self.size_m
        require(self, "wind_m_per_round", lambda w: w <= most, f"at most 8 `radius_m`, {most:g}: puffs must overlap")
        if self.sources is not None:
            are_within = all(0 <= x <= width and 0 <= y <= height for x, y in self.sources)
            are_few = 1 <= len(self.sources) <= 16
            require(self, "sources", lambda _: are_few and are_within, "1 to 16 places [x, y] in the region")


class PlumeFieldSettings(Settings, frozen=True):
    """Field table of a plume: ``{plume = {...}}``."""

    plume: PlumeSettings


FieldSettings = (
    ElevationSettings | MeasuredSettings | RasterFieldSettings | DrawFieldSettings | SurveySettings | PlumeFieldSettings
)
_KINDS_IN_TIME: dict[str, type[FieldSettings]] = {
    "elevation": ElevationSettings,
    "csv": MeasuredSettings,
    "raster": RasterFieldSettings,
    "gp": DrawFieldSettings,
    "survey": SurveySettings,
    "plume": PlumeFieldSettings,
}
_STATIC_KINDS = {key: kind for key, kind in _KINDS_IN_TIME.items() if key != "plume"}
StaticField = Annotated[dict[str, Any], Meta(extra={"kinds": _STATIC_KINDS})]  # for `swarmbo explain`


class FieldWorldSettings(WorldSettings, frozen=True):
    """Settings that every world over a field has."""

    field: Annotated[dict[str, Any], Meta(extra={"kinds": _KINDS_IN_TIME})] | None = None
    task: Task = "peak"
    level: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task == "level":
            require(self, "level", lambda it: it is not None, "the level that is watched, for the task 'level'")
        else:
            require(self, "level", lambda it: it is None, "no level, or the task 'level'")


def require_table(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a world over a field; refuse a ``field`` that is a string instead of a table."""
    if isinstance(field := arguments.get("field"), str):
        ending = field.rpartition(".")[2].lower()
        key = "csv" if ending in ("csv", "txt") else "raster" if ending in ("tif", "tiff", "npy") else None
        if key is None:
            key = "elevation" if field in ("jacksboro", "topobathy") else "survey" if field == "oxford-ph" else "csv"
        more = ', value = "COLUMN"' if key == "csv" else ""
        fix = f"--set environment.field.{key}={field} where the table has that key already"
        got = f'got {short(field)}; wanted a table: field={{{key} = "{field}"{more}}}'
        raise ConfigError(f"{got}, or {fix}", at="$.field")
    return arguments


def field_settings(table: dict[str, Any] | None, *, moving: bool) -> FieldSettings:
    """Settings of a field table, by its key; None is the elevation model. ``moving`` permits changes in time."""
    if table is None:
        return ElevationSettings(elevation="jacksboro")
    by_key, at = _KINDS_IN_TIME if moving else _STATIC_KINDS, "$.field"
    settings = convert(table, by_key[kind_of(table, by_key, at)], at=at)
    path = ".time" if isinstance(settings, MeasuredSettings) and settings.time is not None else ""
    path = ".gp.time" if isinstance(settings, DrawFieldSettings) and settings.gp.time is not None else path
    if path and not moving:
        raise ConfigError("got a field that changes; wanted a static one, or swarmbo/sensor_field-v0", at=at + path)
    return settings
