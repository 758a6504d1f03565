"""Checks of what users and worlds give where a number, a name or a table is wanted.

Users are told in one line what is wrong. What a world reports is an outcome whatever it is: there, what is no number
has failed, and the run goes on.
"""

import operator
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError, ShapeError

LARGEST_OUTCOME = 1e60  # beyond it squares of standardised outcomes may leave float64

_LONGEST_VALUE = 60
_LONGEST_REASON = 200
_NO_NUMBER = (TypeError, ValueError, RuntimeError)  # that float(…) of others' types may raise


def told_number(value: object, what: str) -> float:
    """An outcome that somebody tells; NaN where it failed.

    Args:
        value: A number, or None where there is none.
        what: What it is the outcome of, for messages.

    Returns:
        The number; NaN for None, NaN, and what is infinite or beyond 1e60.

    Raises:
        ShapeError: If it is no number: text, a list, complex.

    Example:
        >>> told_number(1.5, "query 'q00001'"), told_number(1e61, "query 'q00001'")
        (1.5, nan)
    """
    number = _as_number(value)
    if number is None:
        raise ShapeError(f"outcome of {what}: got {short(value)}; wanted a number, or None where it failed")
    return number


def told_noise(value: object, what: str) -> float:
    """The standard deviation of an outcome's noise that somebody tells; NaN for None, which is not known.

    Raises:
        ShapeError: If it is anything but a finite number >= 0, or None.

    Example:
        >>> told_noise(0.5, "'a'"), told_noise(None, "'a'")
        (0.5, nan)
    """
    if value is None:
        return np.nan
    if np.isnan(noise := reported_noise(value)):
        raise ShapeError(
            f"noise_std of {what}: got {short(value)}; wanted a finite number >= 0, or None where it is not known"
        )
    return noise


def reported_noise(value: object) -> float:
    """The same of what a world reports: what is no such number is not known."""
    noise = reported_number(value)
    return noise if noise >= 0.0 else np.nan


def reported_number(value: object) -> float:
    """The same of what a world reports: what is no number failed too."""
    number = _as_number(value)
    return np.nan if number is None else number


def reported_place(value: object) -> Float[np.ndarray, " d"] | None:
    """Coordinates that a world reports; None where these are no numbers within reason.

    Example:
        >>> reported_place([0.5, 1]), reported_place("here"), reported_place([1e300, 0.0])
        (array([0.5, 1. ]), None, None)
    """
    place = real_array(value)
    is_place = place is not None and place.ndim == 1 and bool((np.abs(place) < LARGEST_OUTCOME).all())
    return place if is_place else None


def real_array(value: object) -> Float[np.ndarray, "..."] | None:
    """A copy as an array of floats; None where it is none: text, complex numbers, ragged lists."""
    try:
        given = np.asarray(value)
        return np.array(given, dtype=float) if given.dtype.kind in "biufO" else None
    except _NO_NUMBER:
        return None


def whole_number(value: object, smallest: int, at: str, largest: int | None = None) -> int:
    """An integer from a user.

    Args:
        value: What was given.
        smallest: The least that will do.
        at: Path for messages.
        largest: The most that will do; None: any.

    Raises:
        ConfigError: If it is no integer, too small or too large.

    Example:
        >>> whole_number(np.int64(3), 0, "$.seed")
        3
    """
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
    """Plain data whose texts are ``str``, not of a class such as NumPy's, which no message and no file takes.

    Args:
        value: Text, or lists, tuples and tables of it; all else is left as it is.

    Example:
        >>> exact({np.str_("a"): [np.str_("b"), 1]})
        {'a': ['b', 1]}
    """
    if isinstance(value, str):
        return str.__str__(value)
    if type(value) is dict:
        return {exact(key): exact(inner) for key, inner in cast(dict[Any, Any], value).items()}
    return type(value)(map(exact, value)) if type(value) in (list, tuple) else value


def distinct_names(given: object, what: str, at: str) -> tuple[str, ...]:
    """Names from a user, at least one, none twice.

    Args:
        given: What was given.
        what: What one names, for messages.
        at: Path for messages.

    Raises:
        ConfigError: If there are none, or they are no such names.
    """
    names = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else None
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ConfigError(f"got {short(given)}; wanted at least one {what}, no name twice", at=at)
    return exact(tuple(names))


def table(given: object, wanted: str, at: str) -> dict[str, Any]:
    """A copy of a table from a user.

    Args:
        given: What was given.
        wanted: What the table is to be, for messages: ``{variable: (low, high)}``.
        at: Path for messages.

    Raises:
        ConfigError: If it is none, or a key of it is no text.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"got {short(given)}; wanted a table {wanted}", at=at)
    entries = cast(Mapping[Any, Any], given)
    if strange := [key for key in entries if not isinstance(key, str)]:
        raise ConfigError(f"got the name {short(strange[0])}; wanted a table {wanted}, its names text", at=at)
    return {exact(key): value for key, value in entries.items()}


def query_name(query: object) -> str:
    """The id of a query, from the query or the id itself.

    Raises:
        ConfigError: If it is neither.
    """
    name = getattr(query, "id", query)
    if not isinstance(name, str):
        raise ConfigError(f"got {short(query)}; wanted a query, or its id", at="$.query")
    return exact(name)


def check_links(links: object) -> None:
    """Refuse what does not say who hears whom.

    Raises:
        ConfigError: If it is neither None nor an undirected graph.
    """
    if links is None:
        return
    import networkx as nx  # late: takes a tenth of a second to import

    if isinstance(links, nx.Graph) and not links.is_directed():
        return
    got = "a directed graph" if isinstance(links, nx.Graph) else short(links)
    raise ConfigError(f"got {got}; wanted a networkx.Graph of links that work both ways, or None", at="$.links")


def _as_number(value: object) -> float | None:
    """A float, NaN for what is missing or absurd; None for what is no number."""
    if value is None:
        return np.nan
    try:
        given = np.asarray(value)
        if given.dtype.kind not in "biufO" or isinstance(value, list | tuple):
            return None
        number = float(given.item())
    except OverflowError:
        return np.nan
    except _NO_NUMBER:
        return None
    return number if abs(number) < LARGEST_OUTCOME else np.nan


def is_plain(number: str) -> bool:
    """Test that a number is written in ASCII's digits: Python reads others too, and ``_`` between digits."""
    return number.isascii() and "_" not in number


def short(value: object) -> str:
    """Text of a value for a message, on one line and cut off where it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def error_text(error: BaseException) -> str:
    """Text of an exception and where it was raised, in one line that is not long."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename.replace(chr(92), '/').rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return (text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 1] + "…") + where
