"""Episodes of worlds and their saved states: plain JSON and arrays, validated when read."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from swarmbo.errors import StateVersionError

_Count = Annotated[int, msgspec.Meta(ge=0)]


@dataclass
class WorldEpisode:
    """State that the episodes of all worlds share; ``number`` counts the episodes of a seed."""

    seed: int
    number: int
    round: int
    running: bool

    def share_left(self, max_cycles: int) -> float:
        """Share of the rounds that remain, >= 0."""
        return max(0.0, 1.0 - self.round / max_cycles)


EpisodeKind = TypeVar("EpisodeKind", bound=WorldEpisode)


class Plain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Plain part of a state; ``version`` is the version of its format, ``world`` the identity of its world."""

    version: int
    world: dict[str, Any]
    seed: _Count
    number: _Count
    round: _Count
    running: bool


class SavedState:
    """A state that is being read."""

    def __init__(self, state: Any, what: str, version: int, world: dict[str, Any]) -> None:
        self._what = what
        plain, self._arrays = self._part(state, "json"), self._part(state, "arrays")
        if plain.get("version") != version:
            raise StateVersionError(f"got a {what} state of version {plain.get('version')!r}; wanted {version}")
        try:
            self.plain = msgspec.convert(plain, Plain)
        except msgspec.ValidationError as error:
            raise StateVersionError(f"got a {what} state that is not valid: its 'json': {error}") from None
        if differing := "; ".join(_differences(self.plain.world, world)):
            raise StateVersionError(f"got a state of another environment ({differing}); use the same arguments")

    def restore(self, episode: EpisodeKind, names: Iterable[str]) -> EpisodeKind:
        """Set a new episode's round and arrays to the saved values; their kinds and shapes must be the same."""
        episode.round, episode.running = self.plain.round, self.plain.running
        for name in names:
            initial = getattr(episode, name)
            if isinstance(initial, list):
                value: Any = self.array(name, "f", (self.rows_of(name),)).tolist()
            else:
                array = self.array(name, np.asarray(initial).dtype.kind, np.shape(initial))
                value = array if isinstance(initial, np.ndarray) else array.item()
            setattr(episode, name, value)
        return episode

    def require(self, is_valid: bool, wanted: str) -> None:
        """Refuse the state unless it is valid."""
        if not is_valid:
            got = f"got a {self._what} state that is not valid"
            raise StateVersionError(f"{got}; wanted {wanted}, as get_state() wrote it")

    def require_belief(self, score: float, mean: NDArray[Any], covariance: NDArray[Any]) -> None:
        """Refuse a score and a belief at knots unless they are finite, and the belief has a valid covariance."""
        is_finite = all(np.isfinite(part).all() for part in (score, mean, covariance))
        slack = 1e-9 * float(np.abs(covariance).max(initial=0.0))  # rounding
        is_symmetric = is_finite and np.allclose(covariance, covariance.T, 0.0, slack)
        is_covariance = is_symmetric and bool((np.linalg.eigvalsh(covariance) >= -slack).all())
        self.require(is_covariance, "a finite score, and a belief at knots that is a mean and a covariance")

    def array(self, name: str, kind: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Copy of one array, with its dtype kind and shape checked."""
        try:
            array = np.array(self._arrays.get(name))
        except ValueError:  # rows of different lengths
            array = np.array(None)
        wanted, got = (shape, kind), (array.shape, array.dtype.kind)
        kinds = "an array {!r} of shape {} and numpy's kind {!r}, not {} and {!r}"
        self.require(wanted == got, kinds.format(name, *wanted, *got))
        return array

    def rows_of(self, name: str) -> int:
        """Number of rows of an array of any length."""
        return len(np.atleast_1d(np.asarray(self._arrays.get(name), dtype=object)))

    def _part(self, state: Any, name: str) -> Mapping[str, Any]:
        part = state.get(name) if isinstance(state, Mapping) else None
        if not isinstance(part, Mapping):
            wanted = "wanted {'json': {...}, 'arrays': {...}} of get_state()"
            raise StateVersionError(f"got no {self._what} state; {wanted}")
        return part


def _differences(saved: object, present: object, path: str = "$") -> Iterator[str]:
    if isinstance(saved, dict) and isinstance(present, dict):
        for key in dict.fromkeys([*saved, *present]):
            yield from _differences(saved.get(key), present.get(key), f"{path}.{key}")
    elif saved != present:
        yield f"{path}: {saved!r:.60}, here {present!r:.60}"
