"""Checks of numbers, names and tables from users and environments, and texts of values.

Users get a one-line error. An environment's report never raises one: an outcome that is not a number failed, and the
run continues. Tables for notebooks have all user text escaped.
"""

import math
import operator
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, cast

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError, DataWarning, ShapeError, SwarmboError

LARGEST_OUTCOME = 1e60  # beyond it, squares of standardised outcomes may overflow float64

_LONGEST_VALUE = 60
_MOST_ROWS = 20  # of a table in a notebook, after shortening
_LONGEST_REASON = 200
_CONVERSION_ERRORS = (TypeError, ValueError, RuntimeError)  # that float(…) may raise for types of other packages
_CELL = "text-align:left;padding:0.1em 1em 0.1em 0"


def outcome_from_user(value: object, what: str) -> float:
    """Check an outcome from a user; NaN for None, NaN, infinity and, with a warning, finite numbers beyond 1e60."""
    number = _as_number(value)
    if number is None:
        raise ShapeError(f"outcome of {what}: got {short(value)}; wanted a number, or None if it failed")
    if math.isnan(number) and isinstance(value, int | float | np.number) and abs(value) < math.inf:
        got = f"outcome of {what}: got {short(value)}, which counts as missing"
        warnings.warn(f"{got}; wanted less than {LARGEST_OUTCOME:g}, in a larger unit", DataWarning, stacklevel=2)
    return number


def noise_from_user(value: object, what: str) -> float:
    """Check the standard deviation of noise from a user; NaN for None and NaN, which mean unknown."""
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return np.nan
    if np.isnan(noise := reported_noise(value)):
        wanted = f"a finite number >= 0 and < {LARGEST_OUTCOME:g}, or None or NaN if it is not known"
        raise ShapeError(f"noise_std of {what}: got {short(value)}; wanted {wanted}")
    return noise


def reported_noise(value: object) -> float:
    """Standard deviation of noise from an environment; NaN, which means unknown, if invalid."""
    noise = reported_number(value)
    return noise if noise >= 0.0 else np.nan


def reported_number(value: object) -> float:
    """Outcome from an environment; NaN, which means failed, if invalid."""
    number = _as_number(value)
    return np.nan if number is None else number


def is_number(value: object) -> bool:
    """True for a value that can be an outcome: a number, including NaN and infinity, or None."""
    return _as_number(value) is not None


def reported_place(value: object) -> Float[np.ndarray, " d"] | None:
    """Coordinates from an environment; None unless they are numbers below 1e60 in size."""
    place = real_array(value)
    is_place = place is not None and place.ndim == 1 and bool((np.abs(place) < LARGEST_OUTCOME).all())
    return place if is_place else None


def real_array(value: object) -> Float[np.ndarray, "..."] | None:
    """Copy as an array of floats, masked entries as NaN; None for text, complex numbers, ragged lists."""
    try:
        given = unmasked(value)
        return np.array(given, dtype=float) if given.dtype.kind in "biufO" else None
    except (*_CONVERSION_ERRORS, OverflowError):  # overflow: an integer beyond the range of floats
        return None


def unmasked(value: object) -> np.ndarray:
    """The value as an array; masked entries are NaN, not the numbers under the mask."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        of = object if value.dtype.kind == "O" else float
        return np.ma.filled(value.astype(of), np.nan) if value.dtype.kind in "biufO" else np.ma.filled(value)
    return np.asarray(value)


def digits(value: float, std: float, least: int = 4) -> str:
    """Text of a number with at least ``least`` significant digits, and as many as a tenth of ``std`` > 0 needs."""
    if not (math.isfinite(value) and 0.0 < (finest := 0.1 * std) < math.inf):
        return f"{value:.{least}g}"
    needed = 1 + int(math.log10(max(abs(value), 1e-300)) - math.log10(finest))
    return f"{value:.{min(15, max(least, needed))}g}"


def whole_number(value: object, smallest: int, at: str, largest: int | None = None) -> int:
    """Check an integer from a user; ``at`` is its path for messages."""
    try:
        number = None if isinstance(value, bool) else operator.index(cast(Any, value))
    except TypeError:
        number = None
    if number is None or number < smallest:
        raise ConfigError(f"got {short(value)}; wanted an integer >= {smallest}", at=at)
    if largest is not None and number > largest:
        raise ConfigError(f"got {short(value)}; wanted at most {largest:,}", at=at)
    return number


def exact(value: Any) -> Any:
    """Plain data with NumPy's strings, numbers and arrays replaced by Python's own: messages and files need those."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, np.ndarray | np.generic):
        return exact(value.tolist())
    if type(value) is dict:
        return {exact(key): exact(inner) for key, inner in cast(dict[Any, Any], value).items()}
    return type(value)(map(exact, value)) if type(value) in (list, tuple) else value


def plain(value: Any) -> Any:
    """Convert NumPy numbers and arrays to Python's own, at any depth; tuples become lists."""
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in cast(Mapping[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in cast(list[Any], value)]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist()) if value.dtype.hasobject else value.tolist()
    return value


def storable(value: Any) -> Any:
    """Data as JSON keeps it: plain, numbers that are not finite as None, and other objects as their short text."""
    value = plain(value)
    if isinstance(value, dict):
        return {str(key): storable(part) for key, part in cast(dict[Any, Any], value).items()}
    if isinstance(value, list):
        return [storable(part) for part in cast(list[Any], value)]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else short(value)


def distinct_names(given: object, what: str, at: str) -> tuple[str, ...]:
    """Check names from a user, at least one, none twice; ``what`` describes one for messages."""
    names = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else None
    if not names:
        raise ConfigError(f"got {short(given)}; wanted a list of names, at least one {what}", at=at)
    if strange := [name for name in names if not isinstance(name, str)]:
        raise ConfigError(f"got the name {short(strange[0])}; wanted a string, for example {str(strange[0])!r}", at=at)
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ConfigError(f"got the {what} {twice[0]!r} more than once; wanted no name twice", at=at)
    return exact(tuple(names))


def unused_prefix(prefix: str, names: Collection[str]) -> str:
    """The prefix, after as many underscores as it takes until no name of a user begins with it."""
    while any(name.startswith(prefix) for name in names):
        prefix = f"_{prefix}"
    return prefix


def table(given: object, wanted: str, at: str) -> dict[str, Any]:
    """Copy a table from a user; ``wanted`` describes it for messages: ``{variable: (low, high)}``."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"got {short(given)}; wanted a table {wanted}", at=at)
    entries = cast(Mapping[Any, Any], given)
    if strange := [key for key in entries if not isinstance(key, str)]:
        raise ConfigError(f"got the name {short(strange[0])}; wanted a table {wanted}, names as strings", at=at)
    return {exact(key): value for key, value in entries.items()}


def flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Values of nested tables by path: ``coordination.kind``."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) and value else {f"{above}{key}": value}
    return found


def query_name(query: object) -> str:
    """Id of a query, from the query or the id itself."""
    name = getattr(query, "id", query)
    if not isinstance(name, str):
        raise ConfigError(f"got {short(query)}; wanted a query, or its id", at="$.query")
    return exact(name)


def known_names(given: object, known: Iterable[str], at: str) -> list[str]:
    """Names from a user, in the order of ``known``; refuse unknown names."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"got {short(given)}; wanted a list of names", at=at)
    names, listed = list(cast(Iterable[Any], given)), dict.fromkeys(known)
    if strangers := [name for name in names if not isinstance(name, str) or name not in listed]:
        raise ConfigError(f"got {short(strangers)}; wanted some of {short(list(listed))}", at=at)
    wanted = set(names)
    return [name for name in listed if name in wanted]


def check_links(links: Any, agents: Collection[str] | None = None) -> None:
    """Refuse links other than None and undirected graphs with one of the ``agents`` (if given); other nodes relay."""
    if links is None:
        return
    import networkx as nx  # late: takes a tenth of a second to import

    if not isinstance(links, nx.Graph) or links.is_directed():
        got = "a directed graph" if isinstance(links, nx.Graph) else short(links)
    elif agents is not None and len(links) and not any(agent in links for agent in agents):
        got = f"a graph of {short(list(links))}, none of them an agent"
    else:
        return
    ends = "agents" if agents is None else short(list(agents))
    wanted = f"an undirected networkx.Graph of links between {ends}, or None"
    raise ConfigError(f"got {got}; wanted {wanted}", at="$.links")


def linked(agents: Iterable[Any], edges: Iterable[Sequence[Any]] | None) -> Any:
    """Graph of links between agents, also from JSON; None if ``edges`` is None: every agent reaches every other."""
    import networkx as nx  # late, as above

    def node(stored: Any) -> Any:  # a relay may be a tuple, which is a list in JSON
        return tuple(map(node, stored)) if isinstance(stored, list) else stored

    links = None if edges is None else nx.empty_graph(map(node, agents))
    if links is not None:
        links.add_edges_from(map(node, edges or ()))
    return links


def _as_number(value: object) -> float | None:
    """A float, NaN if missing, infinite or beyond 1e60; None if the value is not a number."""
    if value is None:
        return np.nan
    try:
        given = unmasked(value)
        if given.dtype.kind not in "biufO" or isinstance(value, list | tuple):
            return None
        number = float(given.item())
    except OverflowError:
        return np.nan
    except _CONVERSION_ERRORS:
        return None
    return number if abs(number) < LARGEST_OUTCOME else np.nan


def is_plain(number: str) -> bool:
    """True if a number is written in ASCII digits without ``_``; ``float`` accepts other digits and ``_``, too."""
    return number.isascii() and "_" not in number


def short(value: object) -> str:
    """Text of a value for a message, on one line and shortened."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def counted(number: int, noun: str) -> str:
    """``1 robot``, ``2 robots``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def error_text(error: BaseException) -> str:
    """Text of an exception, in one short line, with its location, unless a message of swarmbo says all."""
    frames = [] if isinstance(error, SwarmboError) else traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.replace(chr(92), '/').rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return (text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 1] + "…") + where


@contextmanager
def intact(wanted: str, at: str = "$") -> Generator[None]:
    """Turn an error of the block at data that lack a part, or have one of another kind, into a ConfigError."""
    try:
        yield
    except SwarmboError:
        raise
    except (*_CONVERSION_ERRORS, LookupError, AttributeError, msgspec.MsgspecError, zlib.error) as error:
        raise ConfigError(f"got damaged or incomplete data ({error_text(error)}); wanted {wanted}", at=at) from error


@contextmanager
def located(at: object) -> Generator[None]:
    """Put a location, such as a file, before that of a ConfigError of the block."""
    try:
        yield
    except ConfigError as error:
        raise type(error)(error.message, at=str(at) if error.at == "$" else f"{at}: {error.at}") from error.__cause__


def html_table(title: str, rows: Sequence[Sequence[object]], header: Sequence[str] = (), more: str = "") -> str:
    """HTML table; without a header, the first cell of a row is its label. ``more`` names rows that may be cut off."""
    if more and len(rows) > _MOST_ROWS:
        rows = [*rows[: _MOST_ROWS - 1], ("…", f"{len(rows) - _MOST_ROWS + 1} more {more}", *[""] * (len(rows[0]) - 2))]
    head, tag = "".join(_cell(name, 'th scope="col"') for name in header), "td" if header else 'th scope="row"'
    lines = [f"<tr>{_cell(first, tag)}{''.join(map(_cell, others))}</tr>" for first, *others in rows]
    top = f"<thead><tr>{head}</tr></thead>" if header else ""
    caption = f'<caption style="text-align:left;font-weight:bold">{escape(title)}</caption>'
    return f"<table>{caption}{top}<tbody>{''.join(lines)}</tbody></table>"


def _cell(value: object, tag: str = "td") -> str:
    return f'<{tag} style="{_CELL}">{escape(str(value))}</{tag[:2]}>'
