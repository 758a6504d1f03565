"""Flooding of raw readings: what every other way to fuse has to be measured against."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from swarmbo.belief.fusion.fused_view import packed_bytes, unpacked_bytes
from swarmbo.belief.fusion.gossip import Gossip
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.belief.gp.exact import ExactGP
from swarmbo.belief.gp.hyperparameters import ExactGPSettings
from swarmbo.spaces import Domain

_WITH_NOISE = b"\x01"  # at the end of an entry whose rows have a column of noise; numbers take eight bytes each


class Readings(NamedTuple):
    """Points (n, d), outcomes (n,) and noise variances (n,), physical; NaN is a noise that nobody told."""

    X: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    noise: Float[np.ndarray, " n"]

    @classmethod
    def of(cls, rows: Float[np.ndarray, "n c"]) -> "Readings":
        """Those of a log, one a row."""
        return cls(rows[:, :-2], rows[:, -2], rows[:, -1])


class ReadingFlooding(Gossip):
    """An agent that collects the readings of all agents it has heard of, and conditions an exact GP on them.

    A reading is known by its author and its number among the author's; an author's readings are passed on in order,
    only those that the neighbour lacks. A reading takes 8 (d + 1) bytes and needs no basis; the price is that all of
    them travel, and that every agent pays for a Gaussian process of all of them. Where the noise of any of those in an
    entry is known, each takes 8 more, and the entry one.

    Example:
        >>> from swarmbo.belief.fusion import exchange
        >>> from swarmbo.belief.gp.hyperparameters import Hyperparameters
        >>> from swarmbo.transport import InProcess
        >>> start = Proposal(0, "", Hyperparameters("rbf", (0.3,), 1.0, 0.1), seed=0, n_features=20)
        >>> domain = Domain(np.zeros(1), np.ones(1))
        >>> a, b = ReadingFlooding("a", domain, start, ["b"]), ReadingFlooding("b", domain, start, ["a"])
        >>> a.measure([[0.2]], [1.0])
        >>> traffic = exchange([a, b], InProcess().open(["a", "b"]), steps=10)
        >>> b.reached, b.belief.y.tolist()
        ({'a': 1.0}, [1.0])
    """

    means_by_proposal = False

    def __init__(
        self, name: str, domain: Domain, proposal: Proposal, neighbours: Iterable[str] = (), patience: int = 3
    ) -> None:
        self._logs: dict[str, Float[np.ndarray, "n c"]] = {}
        self._belief: Any = None
        super().__init__(name, domain, proposal, neighbours, patience)

    @property
    def belief(self) -> Any:
        """What it believes by what has reached it: an ``ExactGP``."""
        if self._belief is None:
            self._belief = self._made()
        return self._belief

    def _made(self) -> Any:
        h = self.proposal.hyperparameters
        return ExactGP.from_hyperparameters(ExactGPSettings(kernel=h.kernel), self.domain, h, *self.known)

    @property
    def known(self) -> Readings:
        """All readings that have reached it, its own among them."""
        rows = [self._logs[author] for author in sorted(self._logs)]  # one order everywhere
        return Readings.of(np.concatenate([np.zeros((0, self.n_columns + 2)), *rows]))

    def _has(self) -> dict[str, int]:
        return {author: len(log) for author, log in self._logs.items()}

    def _entry(self, author: str, has: int) -> bytes:
        rows = self._logs[author][has:]
        if np.isnan(rows[:, -1]).all():
            return packed_bytes(rows[:, :-1].ravel())
        return packed_bytes(rows.ravel()) + _WITH_NOISE

    def _file(self, author: str, number: int, content: bytes) -> None:
        if content.endswith(_WITH_NOISE) and len(content) % 8:
            rows = unpacked_bytes(content[:-1]).reshape(-1, self.n_columns + 2)
        else:
            rows = unpacked_bytes(content).reshape(-1, self.n_columns + 1)
            rows = np.column_stack([rows, np.full(len(rows), np.nan)])
        known, first = len(self._logs.get(author, ())), number - len(rows)
        if first <= known < number:
            self._append(author, rows[known - first :])

    def _append(self, author: str, rows: Float[np.ndarray, "n c"]) -> None:
        self._logs[author] = np.concatenate([self._logs[author], rows]) if author in self._logs else rows
        self._belief = None

    def _has_measured(self, n_new: int) -> None:
        rows = slice(self.n_readings - n_new, None)
        self._append(self.name, np.column_stack([self.X[rows], self.y[rows], self.noise[rows]]))

    def _has_adopted(self) -> None:
        for peer in self._peers.values():
            peer.asked = None
        self._belief = None

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        plain, arrays = super()._state()
        logs = {f"log/{author}": log.copy() for author, log in self._logs.items()}
        return plain | {"authors": list(self._logs)}, arrays | logs

    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        super()._restore(plain, arrays)
        self._logs = {author: arrays[f"log/{author}"] for author in plain["authors"]}
        self._belief = None
