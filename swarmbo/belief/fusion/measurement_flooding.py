"""Flooding of raw measurements, the standard for all other fusion methods."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.fusion.fused_view import packed_bytes, unpacked_bytes
from swarmbo.belief.fusion.gossip import Gossip
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.belief.gp.exact import ExactGP
from swarmbo.belief.gp.hyperparameters import ExactGPSettings
from swarmbo.boundary.values import LARGEST_OUTCOME
from swarmbo.spaces import Domain

_WITH_NOISE = b"\x01"  # at the end of an entry whose rows have a column of noise; numbers take eight bytes each


class Measurements(NamedTuple):
    """Points (n, d), outcomes (n,) and noise variances (n,), physical; NaN is an unknown noise."""

    X: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    noise: Float[np.ndarray, " n"]

    @classmethod
    def of(cls, rows: Float[np.ndarray, "n c"]) -> "Measurements":
        """Measurements of a log, one per row."""
        return cls(rows[:, :-2], rows[:, -2], rows[:, -1])


class _Log:
    """Immutable measurements of one author, one per row; agents of one process with equal data share one log."""

    def __init__(self, rows: Float[np.ndarray, "n c"]) -> None:
        self.rows = rows
        self._entries: dict[int, bytes] = {}
        self._longer: WeakValueDictionary[tuple[int, bytes], _Log] = WeakValueDictionary()

    def __deepcopy__(self, memo: object) -> "_Log":
        return self

    def __reduce__(self) -> tuple[type["_Log"], tuple[Float[np.ndarray, "n c"]]]:
        return _Log, (self.rows,)  # caches of a process are not pickled, and weak references cannot be

    def __len__(self) -> int:
        return len(self.rows)

    def entry(self, has: int) -> bytes:
        """Entry for a recipient with the first ``has`` measurements."""
        if has not in self._entries:
            self._entries[has] = _packed(self.rows[has:])
        return self._entries[has]

    def after(self, number: int, content: bytes) -> "_Log":
        """Log with an entry, which then has ``number`` measurements; itself if the entry leaves a gap."""
        longer = self._longer.get((number, content))
        if longer is None:
            rows = _unpacked(content, self.rows.shape[1])
            first = number - len(rows)
            if not first <= len(self) < number:
                return self
            longer = self._longer[number, content] = _Log(np.concatenate([self.rows, rows[len(self) - first :]]))
        return longer


def _packed(rows: Float[np.ndarray, "n c"]) -> bytes:
    if np.isnan(rows[:, -1]).all():
        return packed_bytes(rows[:, :-1].ravel())
    return packed_bytes(rows.ravel()) + _WITH_NOISE


def _unpacked(content: bytes, n_columns: int) -> Float[np.ndarray, "n c"]:
    if content.endswith(_WITH_NOISE) and len(content) % 8:
        return unpacked_bytes(content[:-1]).reshape(-1, n_columns)
    rows = unpacked_bytes(content).reshape(-1, n_columns - 1)
    return np.column_stack([rows, np.full(len(rows), np.nan)])


@cache
def _empty(n_columns: int) -> _Log:
    """Log of an unknown author."""
    return _Log(np.zeros((0, n_columns)))


class MeasurementFlooding(Gossip):
    """An agent that collects the measurements of all agents, and conditions an exact GP on them.

    A measurement is identified by its author and number; an author's measurements are forwarded in order, only those
    that the neighbour lacks. A measurement takes 8 (d + 1) bytes and needs no basis. The price is that all of them are
    sent, and that every agent computes a Gaussian process of all. If the noise of a measurement in an entry is known,
    each takes 8 bytes more, and the entry one.

    Example:
        >>> from swarmbo.belief.fusion import exchange
        >>> from swarmbo.belief.gp.hyperparameters import Hyperparameters
        >>> from swarmbo.transport import InProcess
        >>> start = Proposal(0, "", Hyperparameters("rbf", (0.3,), 1.0, 0.1), seed=0, n_features=20)
        >>> domain = Domain(np.zeros(1), np.ones(1))
        >>> a, b = MeasurementFlooding("a", domain, start, ["b"]), MeasurementFlooding("b", domain, start, ["a"])
        >>> a.measure([[0.2]], [1.0])
        >>> traffic = exchange([a, b], InProcess().open(["a", "b"]), steps=10)
        >>> b.reached, b.belief.y.tolist()
        ({'a': 1.0}, [1.0])
    """

    means_by_proposal = False

    def __init__(
        self, name: str, domain: Domain, proposal: Proposal, neighbours: Iterable[str] = (), patience: int = 3
    ) -> None:
        self._logs: dict[str, _Log] = {}
        self._belief: Any = None
        super().__init__(name, domain, proposal, neighbours, patience)

    @property
    def belief(self) -> Any:
        """Belief from its own and received measurements: an ``ExactGP``."""
        if self._belief is None:
            self._belief = self._made()
        return self._belief

    def _made(self) -> Any:
        h = self.proposal.hyperparameters
        return ExactGP.from_hyperparameters(ExactGPSettings(kernel=h.kernel), self.domain, h, *self.known)

    @property
    def known(self) -> Measurements:
        """All measurements that it has, its own among them."""
        rows = [self._logs[author].rows for author in sorted(self._logs)]  # the same order in every agent
        return Measurements.of(np.concatenate([np.zeros((0, self.n_columns + 2)), *rows]))

    def _entry(self, author: str, has: int) -> bytes:
        return self._logs[author].entry(has)

    def _is_entry(self, number: int, content: bytes) -> bool:
        has_noise, n_columns = content.endswith(_WITH_NOISE) and len(content) % 8 == 1, self.n_columns + 2
        if (len(content) - has_noise) % (8 * (n_columns - 1 + has_noise)):
            return False
        rows = _unpacked(content, n_columns)
        X, y, noise = Measurements.of(rows)
        is_near = self.domain.is_near(X[:, : self.domain.n_dims]).all() and np.isfinite(X).all()
        is_noise = np.isnan(noise) | ((noise >= 0.0) & (noise <= LARGEST_OUTCOME**2))
        return 0 < len(rows) <= number and bool(is_near and (np.abs(y) <= LARGEST_OUTCOME).all() and is_noise.all())

    def _file(self, author: str, number: int, content: bytes) -> None:
        before = self._logs.get(author) or _empty(self.n_columns + 2)
        log = before.after(number, content)
        if log is not before:
            self._logs[author], self._belief = log, None
            self._holds(author, number)

    def _has_measured(self, n_new: int) -> None:
        new = slice(self.n_measurements - n_new, None)
        self._file(
            self.name, self.n_measurements, _packed(np.column_stack([self.X[new], self.y[new], self.noise[new]]))
        )

    def _has_adopted(self) -> None:
        for peer in self._peers.values():
            peer.asked = None
        self._belief = None

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        plain, arrays = super()._state()
        rows = [self._logs[author].rows for author in sorted(self._has)]
        return plain, arrays | {"readings": np.concatenate([np.zeros((0, self.n_columns + 2)), *rows])}

    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        super()._restore(plain, arrays)
        counts = sorted(self._has.items())  # sorted here, as plain data may be sorted where they are kept
        rows = np.split(arrays["readings"], np.cumsum([count for _, count in counts])[:-1])
        nothing = _empty(self.n_columns + 2)
        told = zip(counts, rows, strict=False)  # without authors there is one part, without rows
        self._logs = {author: nothing.after(count, _packed(log)) for (author, count), log in told}
        self._belief = None


class FailureFlooding(MeasurementFlooding):
    """An agent that collects locations of failed measurements, its own and received ones, as measurements of 0.

    While it knows of none it sends nothing, so that a team without failures has no cost.
    """

    @property
    def is_finished(self) -> bool:
        """True if it knows of no failure, or its neighbours know all of them."""
        return not self._has or super().is_finished

    def _bodies(self) -> Iterable[tuple[str, msgspec.Struct]]:
        return super()._bodies() if self._has else ()
