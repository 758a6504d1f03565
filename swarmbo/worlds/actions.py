"""Forms of actions: how an agent's action encodes the variables that the agent sets."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from jaxtyping import Float

from swarmbo.boundary.values import reported_place, short
from swarmbo.errors import ConfigError
from swarmbo.spaces.variables import Axis, Categorical, Integer, Real, Variable

_AT = "$.environment"
_WANTED = "wanted a finite Box with one axis, Discrete, MultiDiscrete, or a Dict of these"


class _Leaf(NamedTuple):
    """Space within a ``Dict``, at ``keys``, or an agent's whole space; it contributes ``size`` numbers to an action."""

    keys: tuple[str, ...]
    space: Any

    @property
    def size(self) -> int:
        return 1 if isinstance(self.space, Discrete) else int(np.prod(self.space.shape))

    @property
    def has_integers(self) -> bool:
        """True for a box whose entries cannot be real numbers."""
        return isinstance(self.space, Box) and not np.issubdtype(self.space.dtype, np.floating)

    @property
    def starts(self) -> Float[np.ndarray, " m"] | None:
        """Smallest number of each entry; None for a box, whose numbers are codes."""
        return None if isinstance(self.space, Box) else np.asarray(self.space.start, dtype=float).reshape(-1)

    def types(self) -> list[Variable]:
        """Type of each entry: real numbers or integers in a box, choices among integers in other spaces."""
        space = self.space
        if isinstance(space, Box):
            low, high = (1 * end.reshape(-1) for end in (space.low, space.high))  # numbers, also of booleans
            ranges = zip(low.tolist(), high.tolist(), strict=True)
            variable_type = Integer if self.has_integers else Real
            return [variable_type(low, high) for low, high in ranges]
        counts = np.asarray(space.n if isinstance(space, Discrete) else space.nvec).reshape(-1)
        starts = np.asarray(space.start).reshape(-1)
        return [Categorical(range(start, start + n)) for start, n in zip(starts.tolist(), counts.tolist(), strict=True)]

    def fits(self, axes: Sequence[Axis]) -> bool:
        """True if the entries have the ranges of these axes (in a box), or as many values (in other spaces)."""
        if isinstance(self.space, Box):
            ends = np.array([(axis.low, axis.high) for axis in axes]).reshape(-1, 2).T
            difference = np.abs(np.array([self.space.low.reshape(-1), self.space.high.reshape(-1)]) - ends)
            tolerance = 1e-6 * np.ptp(ends, axis=0) + 1e-7 * np.abs(ends).max(axis=0)  # rounding to float32
            has_values = not self.has_integers or all(axis.step and axis.step % 1 == 0 for axis in axes)
            return has_values and bool((difference <= tolerance).all())
        counts = np.asarray(self.space.n if isinstance(self.space, Discrete) else self.space.nvec).reshape(-1)
        return all(axis.step and n == axis.count for axis, n in zip(axes, counts.tolist(), strict=True))


class ActionForm(NamedTuple):
    """Form of an agent's actions. An entry of a ``Box`` is a variable's code: a number, or the position of a choice. An
    entry of a ``Discrete`` or ``MultiDiscrete`` is the position of the value plus the start of the space. A ``Dict``
    has a space for each variable, by its name, or further spaces in the order of the variables.
    """

    leaves: Sequence[tuple[_Leaf, Sequence[str]]]
    axes: Mapping[str, Axis]

    @classmethod
    def of(cls, space: "Space[Any]", own: Mapping[str, Variable], agent: str) -> "ActionForm":
        """Form for an agent's own variables; raises a ConfigError if the space does not fit them."""
        leaves, axes = list(_leaves(space, agent)), {name: variable.axis for name, variable in own.items()}
        names, keys = list(own), set(space.spaces) if isinstance(space, Dict) else set[str]()
        if keys and keys == set(own):
            names = [leaf.keys[0] for leaf in leaves]
        ends = np.cumsum([0, *(leaf.size for leaf in leaves)]).tolist()
        named_leaves = [(leaf, names[ends[i] : ends[i + 1]]) for i, leaf in enumerate(leaves)]
        fits_all = ends[-1] == len(own) and (keys == set(own) or keys.isdisjoint(own))
        if not fits_all or not all(leaf.fits([axes[name] for name in part]) for leaf, part in named_leaves):
            ranges = ", ".join(f"{name} ({variable.in_words})" for name, variable in own.items())
            has_integers = any(leaf.has_integers for leaf in leaves)
            fix = "; a Box of integers sets integers and choices only" if has_integers else ""
            raise ConfigError(f"got action space {space} of {agent!r}; wanted the values of {ranges}{fix}", at=_AT)
        return cls(named_leaves, axes)

    def action(self, codes: Mapping[str, float]) -> Any:
        """Action that sets codes, inside the space and in its number type."""
        action: dict[str, Any] = {}
        for leaf, names in self.leaves:
            numbers, space = np.array([codes[name] for name in names]), leaf.space
            if (starts := leaf.starts) is None:
                whole = np.rint(numbers) if leaf.has_integers else numbers
                part: Any = np.clip(whole.astype(space.dtype), space.low.reshape(-1), space.high.reshape(-1))
                part = part.reshape(space.shape)
            else:
                low, step = self._grids(names)
                places = np.rint((numbers - low) / step + starts)
                part = int(places[0]) if isinstance(space, Discrete) else places.astype(space.dtype)
            if not leaf.keys:
                return part
            inner = action
            for key in leaf.keys[:-1]:
                inner = inner.setdefault(key, {})
            inner[leaf.keys[-1]] = part
        return action

    def codes(self, action: object) -> dict[str, float] | None:
        """Codes in an action, which may be out of range; None if the action has another form."""
        codes: dict[str, float] = {}
        for leaf, names in self.leaves:
            value: Any = action
            for key in leaf.keys:
                value = cast(Mapping[str, Any], value).get(key) if isinstance(value, Mapping) else None
            is_number = isinstance(value, float | int | np.number) or getattr(value, "shape", None) == ()
            numbers = reported_place([value] if is_number else value)
            if numbers is None or len(numbers) != len(names):
                return None
            if (starts := leaf.starts) is not None:
                low, step = self._grids(names)
                numbers = low + step * (numbers - starts)
            codes |= dict(zip(names, numbers.tolist(), strict=True))
        return codes

    def _grids(self, names: Sequence[str]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        axes = [self.axes[name] for name in names]
        return np.array([axis.low for axis in axes]), np.array([axis.step for axis in axes])


def variables_of(space: "Space[Any]", agent: str) -> dict[str, Variable]:
    """Variables of an agent ``a``: ``a[0]``, ``a[1]``, …, or ``a[key]`` in a ``Dict``. A ConfigError unless the space
    is a finite box with one axis, a ``Discrete`` or ``MultiDiscrete`` of at least two choices, or a ``Dict`` of these.
    """
    variables = dict[str, Variable]()
    for leaf in _leaves(space, agent):
        name = agent + "".join(f"[{key}]" for key in leaf.keys)
        is_single = bool(leaf.keys) and leaf.space.shape == ()
        names = [name] if is_single else [f"{name}[{entry}]" for entry in range(leaf.size)]
        try:
            variables |= dict(zip(names, leaf.types(), strict=True))
        except ValueError as error:
            raise ConfigError(f"action space of {agent!r}: got {short(leaf.space)} ({error}); {_WANTED}", _AT) from None
    if not variables:
        raise ConfigError(f"action space of {agent!r}: got {short(space)}; {_WANTED}", at=_AT)
    return variables


def _leaves(space: Any, agent: str, keys: tuple[str, ...] = ()) -> Iterator[_Leaf]:
    if isinstance(space, Dict):
        for key, inner in space.spaces.items():
            yield from _leaves(inner, agent, (*keys, key))
        return
    # a Box without axes, for a single number, is allowed only within a Dict
    axes = (0, 1) if keys else (1,)
    if not isinstance(space, Discrete) and not (isinstance(space, Box | MultiDiscrete) and len(space.shape) in axes):
        raise ConfigError(f"action space of {agent!r}: got {short(space)}; {_WANTED}", at=_AT)
    yield _Leaf(keys, space)
