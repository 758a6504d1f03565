"""Admissible senders and contents of messages by kind. Each wait names both (:class:`Wanted`); other messages are
dropped, as if they were lost. :class:`Schema` derives senders and contents from common knowledge.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.messages import Key
from swarmbo.coordination.part import Part

Fits = Callable[[Float[np.ndarray, "k m"], "frozenset[str]"], bool]  # sums, and the agents that contributed
FitsData = Callable[[str, bytes], bool]  # an agent, and its data

_LARGEST_FLAGGED = 1e12  # largest number behind a flag
# largest number that agents exchange on a box, so that squares stay finite
LARGEST = 1e150


class Wanted(NamedTuple):
    """An expected message: its only sender, and a test of its content."""

    sender: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True, eq=False)
class Schema:
    """Admissible messages between owners of factors and variables; ``joined`` as in ``Plan``."""

    part: Part
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    joined: Mapping[str, Sequence[str]] = field(default_factory=dict[str, tuple[str, ...]])

    def wanted(self, key: Key, agent: str, size: int = 1, below: float | None = None) -> Wanted:
        """Expected sender and content of a message to an agent: on a box, ``size`` numbers in [0, ``below``)."""
        graph, (kind, *about) = self.part.graph, map(str, key)
        of_factor = kind not in ("choice", "gain", "eliminated", "decided")
        of_variable = kind not in ("table", "published")
        factor, variable = about[0] if of_factor else "", about[of_factor] if of_variable else ""
        owner = graph.owner(factor) if of_factor else ""
        actor = graph.variable_owner(variable) if of_variable else ""
        n, most = self.sizes.get(variable), self.sizes.get(variable, math.inf)
        match kind:
            case "variable":
                return Wanted(actor, lambda message: are_below(message.entries, n) and 0 <= message.choice < most)
            case "factor" | "given":
                return Wanted(owner, lambda message: are_below(message.entries, n))
            case "line":
                return Wanted(owner, lambda message: are_below(message.entries, n) and 0.0 < message.weight < math.inf)
            case "choice":
                return Wanted(actor, lambda message: 0 <= message.index < most)
            case "gain":
                return Wanted(actor, lambda message: math.isfinite(message.utility))
            case "table":
                return Wanted(owner, lambda message: self._is_table(message, graph.scope(factor)))
            case "eliminated":
                return Wanted(actor, lambda message: self._is_table(message, self.joined[variable]))
            case "decided":
                joined = self.joined[variable]
                sender = graph.variable_owner(joined[0])
                return Wanted(sender, lambda message: self._are_values(message.indices, joined))
            case "consensus":  # to a factor's owner, or from it
                sender = owner if actor == agent else actor
                return Wanted(sender, lambda message: are_finite(message.entries, size, below))
            case _:  # published numbers, copies and slopes
                return Wanted(owner, lambda message: are_numbers(message.entries, size))

    def _is_table(self, message: Any, scope: Sequence[str]) -> bool:
        shape = tuple(self.sizes[x] for x in scope)
        return message.shape == shape and are_below(message.entries, math.prod(shape))

    def _are_values(self, indices: Sequence[int], scope: Sequence[str]) -> bool:
        sizes = [self.sizes[x] for x in scope]
        return len(indices) == len(sizes) and all(0 <= i < n for i, n in zip(indices, sizes, strict=True))


def are_numbers(entries: Float[np.ndarray, "..."], size: int, limit: float = LARGEST) -> bool:
    """True if there are ``size`` entries, none of them NaN, and finite entries are at most ``limit`` in size."""
    return entries.size == size and bool(((np.abs(entries) <= limit) | np.isinf(entries)).all())  # false for NaN


def are_below(entries: Float[np.ndarray, "..."], size: int | None) -> bool:
    """True if the number of entries is right (``size`` None: unknown) and all are below +inf; -inf forbids a value."""
    return (size is None or entries.size == size) and bool((entries < np.inf).all())  # false for NaN


def are_finite(entries: Float[np.ndarray, "..."], size: int, below: float | None = None) -> bool:
    """True if the number of entries is right, and all are finite and, unless ``below`` is None, in [0, ``below``)."""
    if entries.size != size or not (np.abs(entries) <= LARGEST).all():
        return False
    return below is None or bool(((entries >= 0.0) & (entries < below)).all())


def are_not_negative(sums: Float[np.ndarray, "k m"], agents: frozenset[str]) -> bool:
    """True for sums of squares or of counts."""
    return bool((sums >= 0.0).all())


def is_finite(sums: Float[np.ndarray, "k m"], agents: frozenset[str]) -> bool:
    """True if all sums are finite."""
    return bool(np.isfinite(sums).all())


def by_author(owners: Sequence[str], low: float = -math.inf, high: float = math.inf, *, whole: bool = False) -> Fits:
    """Test of sums with one author each: (whole) numbers in [low, high], 0 if the author did not contribute."""

    def fits(sums: Float[np.ndarray, "k m"], agents: frozenset[str]) -> bool:
        own = np.array([owner in agents for owner in owners], dtype=bool)
        if sums[..., ~own].any():
            return False
        own_sums = sums[..., own]
        if whole and (own_sums % 1.0).any():
            return False
        return bool(((own_sums >= low) & (own_sums <= high) & (own_sums < np.inf)).all())

    return fits


def flagged(author: str) -> Fits:
    """Test of rows of one agent's numbers behind a flag 0 or 1; all are 0 if that agent did not contribute."""

    def fits(sums: Float[np.ndarray, "k m"], agents: frozenset[str]) -> bool:
        if author not in agents:
            return not sums.any()
        return bool(np.isin(sums[:, 0], (0.0, 1.0)).all() and (np.abs(sums) <= _LARGEST_FLAGGED).all())

    return fits


def accept_all(*_: Any) -> bool:
    """Accept any data and any sums, of which drivers check only the number."""
    return True


def refusals_text(refused: Mapping[str, int]) -> str:
    """End of an error's text if messages were dropped: their senders and numbers."""
    who = ", ".join(f"{sender!r} ({count})" for sender, count in refused.items() if count)
    if not who:
        return ""
    why = "were all agents told the same evaluations, and asked equally often?"
    return f"; dropped messages with inadmissible content, from {who}: {why}"
