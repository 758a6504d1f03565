"""Flooding of where measurements failed, beside whatever way agents fuse what came of the others."""

from collections.abc import Iterable

import msgspec

from swarmbo.belief.fusion.reading_flooding import ReadingFlooding


class FailureFlooding(ReadingFlooding):
    """An agent that collects the places of failed measurements, its own and those it hears of, as readings of 0.

    While it knows of none it says nothing, so that a team in which nothing fails pays nothing.

    Example:
        >>> import numpy as np
        >>> from swarmbo.belief.fusion import Proposal, exchange
        >>> from swarmbo.belief.gp.hyperparameters import Hyperparameters
        >>> from swarmbo.spaces import Domain
        >>> from swarmbo.transport import InProcess
        >>> start = Proposal(0, "", Hyperparameters("rbf", (0.3,), 1.0, 0.1), seed=0, n_features=20)
        >>> domain = Domain(np.zeros(1), np.ones(1))
        >>> a, b = FailureFlooding("a", domain, start, ["b"]), FailureFlooding("b", domain, start, ["a"])
        >>> exchange([a, b], InProcess().open(["a", "b"]), steps=10).messages
        0
        >>> a.measure([[0.2]], [0.0])
        >>> exchange([a, b], InProcess().open(["a", "b"]), steps=10).messages, b.known.X.tolist()
        (2, [[0.2]])
    """

    @property
    def is_finished(self) -> bool:
        """Whether it knows of no failure, or its neighbours know of all that it knows of."""
        return not self._has or super().is_finished

    def _bodies(self) -> Iterable[tuple[str, msgspec.Struct]]:
        return super()._bodies() if self._has else ()
