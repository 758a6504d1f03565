"""A quasi-random sequence."""

from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.baselines.seen_totals import n_asked
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.boundary.rng import sobol, stream
from swarmbo.records import SolveReport
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Settings


@kind("coordination", FUNCTION)
class Sobol(Settings, frozen=True, tag_field="kind", tag="sobol"):
    """The scrambled Sobol sequence that the initial design is the beginning of, continued: no outcome is looked at.

    Source: Owen 1998 (scrambling); Joe & Kuo 2008 (direction numbers), by SciPy.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team(sb.FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 1.0)}, coordination="sobol", initial=1)
        >>> sorted(int(8 * query.point["x"]) for query in team.ask(8))  # one in each eighth
        [0, 1, 2, 3, 4, 5, 6, 7]
    """

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """The next point of the sequence, in the unit cube; the acquisition is not looked at."""
        rng = stream(situation.seed, "initial design")
        return sobol_point(rng, situation.domain.n_dims, n_asked(situation)), SolveReport(status="not_needed")


def sobol_point(rng: np.random.Generator, n_dims: int, index: int) -> Float[np.ndarray, " n"]:
    """One point of a scrambled Sobol sequence.

    Args:
        rng: Of the scrambling.
        n_dims: Number of coordinates.
        index: Which point, >= 0.
    """
    return sobol(1, n_dims, rng, skip=index)[0]
