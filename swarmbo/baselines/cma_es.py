"""An evolution strategy."""

from typing import Annotated, Any

import numpy as np
from jaxtyping import Float

from swarmbo.baselines.peer_packages import peer_package
from swarmbo.baselines.seen_totals import seen_totals
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.boundary.rng import stream
from swarmbo.records import SolveReport
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Fraction, Settings, within

_SAME = 1e-9  # of a side: a coordinate that went through physical units and back


@kind("coordination", FUNCTION)
class CMAES(Settings, frozen=True, tag_field="kind", tag="cma-es"):
    """Covariance matrix adaptation, centralised, by its authors' package ``cma`` with its defaults and bounds.

    It starts from the best point of the initial design. Nothing of it is stored: whole generations are told again in
    the order of the history, so a decision is a function of history, points pending and seed. When the strategy stops
    (it has converged, or sees no differences), it starts again from a random place with twice the population.

    Source: Hansen & Ostermeier 2001; restarts: Auger & Hansen 2005 (IPOP).

    Args:
        step: Standard deviation of the first generation, as a share of the sides of the domain, in (0, 1].
        population: Points in a generation, >= 2; None: 4 + floor(3 log n).

    Example:
        >>> import swarmbo as sb
        >>> graph, bounds = sb.FactorGraph.from_scopes({"f": ["x", "y"]}), dict.fromkeys("xy", (0.0, 1.0))
        >>> team = sb.Team(graph, bounds, coordination={"kind": "cma-es", "population": 8})
        >>> team.coordination == sb.CMAES(population=8)
        True
        >>> team.ask().point == sb.Team(graph, bounds).ask().point  # the initial design is that of all methods
        True
    """

    step: Fraction = 0.25
    population: Annotated[int, within(2)] | None = None

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """The next point of the present generation, in the unit cube; the acquisition is not looked at.

        While more points are pending than the generation has, further ones come from the same distribution.

        Raises:
            ConfigError: If the package ``cma`` is not installed.
        """
        U, y = seen_totals(situation)
        n = situation.domain.n_dims
        own, attached = situation.chosen, situation.history.attached
        late = np.zeros(len(y), dtype=bool) if attached is None else attached & (np.cumsum(own) > 0)
        first = ~own & ~late & np.isfinite(y)  # the initial design, and what was known by then
        centre = U[first][int(y[first].argmax())] if first.any() else np.full(n, 0.5)
        worst = np.nanmin(y[~late]) if np.isfinite(y[~late]).any() else 0.0
        losses = -np.where(np.isfinite(y), y, worst)[own]
        U, awaited = U[own], np.flatnonzero(~situation.steps()[own])
        n_back = int(awaited[0]) if len(awaited) else len(U)  # a generation is told when all of it came back
        restarts, told = 0, 0
        strategy = self._strategy(situation.seed, restarts, centre)
        while True:
            asked = np.array(strategy.ask())
            size = len(asked)
            if told + size > n_back:
                break
            rows = U[told : told + size]
            points = np.where(np.abs(rows - asked) <= _SAME, asked, rows)
            strategy.tell(list(points), losses[told : told + size].tolist())
            told += size
            if strategy.stop():
                restarts += 1
                fresh = stream(situation.seed, "cma-es baseline", "place", restart=restarts).random(n)
                strategy = self._strategy(situation.seed, restarts, fresh, 2 * size)
        turn = len(U) - told + len(situation.pending)
        while turn >= size:
            asked, turn = np.array(strategy.ask()), turn - size
        return np.clip(asked[turn], 0.0, 1.0), SolveReport(status="not_needed")

    def _strategy(self, seed: int, restart: int, centre: Float[np.ndarray, " n"], population: int | None = None) -> Any:
        rng = stream(seed, "cma-es baseline", "generations", restart=restart)
        options: dict[str, Any] = {
            "bounds": [0.0, 1.0],
            "randn": lambda *shape: rng.standard_normal(shape),  # pyright: ignore[reportUnknownLambdaType]
            "seed": np.nan,  # leaves NumPy's global state alone
            "verbose": -9,
        }
        if (size := population or self.population) is not None:
            options["popsize"] = size
        return peer_package("cma", "cma-es").CMAEvolutionStrategy(centre, self.step, options)
