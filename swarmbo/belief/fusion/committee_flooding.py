"""Flooding of raw readings to agents that make a committee of experts of them instead of one large process."""

import numpy as np

from swarmbo.belief.fusion.committee import CommitteeGP
from swarmbo.belief.fusion.reading_flooding import ReadingFlooding, Readings
from swarmbo.belief.gp.exact import ExactGP
from swarmbo.belief.gp.hyperparameters import ExactGPSettings


class CommitteeFlooding(ReadingFlooding):
    """An agent that collects readings as its base does, and has an expert of its own for each author of them.

    The messages are those of ``ReadingFlooding``; what it saves is computation. Experts that tell one another
    predictions, and no readings, are ``PredictionFlooding``.

    Example:
        >>> from swarmbo.belief.fusion import Proposal, exchange
        >>> from swarmbo.belief.gp.hyperparameters import Hyperparameters
        >>> from swarmbo.spaces import Domain
        >>> from swarmbo.transport import InProcess
        >>> start = Proposal(0, "", Hyperparameters("rbf", (0.3,), 1.0, 0.1), seed=0, n_features=20)
        >>> domain = Domain(np.zeros(1), np.ones(1))
        >>> a, b = CommitteeFlooding("a", domain, start, ["b"]), CommitteeFlooding("b", domain, start, ["a"])
        >>> a.measure([[0.2]], [1.0])
        >>> traffic = exchange([a, b], InProcess().open(["a", "b"]), steps=10)
        >>> b.belief.n_data, [expert.n_data for expert in b.belief.experts]
        (1, [1])
    """

    @property
    def knowledge(self) -> None:
        """None: of two agents with the same readings each takes the correlations of its own expert."""
        return None

    def _made(self) -> CommitteeGP:
        experts = {author: self._exact(Readings.of(log.rows)) for author, log in sorted(self._logs.items())}
        own = experts.get(self.name, self._exact(Readings.of(np.zeros((0, self.n_columns + 2)))))
        return CommitteeGP(
            domain=self.domain,
            hyperparameters=self.proposal.hyperparameters,
            experts=tuple(experts.values()),
            own=own,
            foreseen=own,
        )

    def _exact(self, readings: Readings) -> ExactGP:
        h = self.proposal.hyperparameters
        return ExactGP.from_hyperparameters(ExactGPSettings(kernel=h.kernel), self.domain, h, *readings)
