"""A centralised search over all factors from many starts."""

from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from swarmbo.boundary.rng import stream
from swarmbo.coordination.agreement import Agreement
from swarmbo.graph import BoxFunctions, Links, stacks_of
from swarmbo.graph.box_functions import total_value
from swarmbo.records import SolveReport
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import AtOnce, Count, Settings, within

_DIFFERENCE = 1e-6  # step of differences that replace slopes, in box widths
Point = Float[np.ndarray, " n"]


@kind("coordination", FUNCTION)
class Centralised(Settings, frozen=True, tag_field="kind", tag="centralised"):
    """Multi-start L-BFGS-B on the whole sum, in one process: the reference for agreements by messages.

    Searches start from the points that the functions suggest, and from the best of random points. The report has the
    status ``centralised`` and counts no messages, because one process has all functions. The method cannot run on
    separate agents. It is a local search, which does not prove optimality.

    If neighbouring functions exchange numbers, gradients of the sum are central differences.

    Source: Byrd, Lu, Nocedal & Zhu 1995 (L-BFGS-B), by SciPy.

    Args:
        starts: Number of searches, >= 1, including those from suggested points.
        screened: Number of random points from which the best become starts, >= 0; at least as many as needed are drawn.
        steps: Largest number of iterations of a search, >= 1.

    Example:
        >>> import swarmbo as sb
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x"]})
        >>> sb.Team(graph, {"x": (0.0, 1.0)}, coordination="centralised").coordination.starts
        20
    """

    starts: AtOnce = 20
    screened: Annotated[int, within(0, 2**20)] = 512
    steps: Count = 200

    def maximise(self, functions: BoxFunctions, links: Links = None, seed: int = 0) -> Agreement:
        """Best of all searches for the sum of functions; ``links`` are not used."""
        low, high = functions.low, functions.high
        span, n = high - low, len(low)
        given = (np.clip(functions.starts[: self.starts], low, high) - low) / np.where(span > 0.0, span, 1.0)
        drawn = stream(seed, "centralised starts").random((max(self.screened, self.starts), n))
        values = total_value(functions, low + drawn * span)
        starts = np.concatenate([given, drawn[np.argsort(-values, kind="stable")]])[: self.starts]
        allowed = values[np.isfinite(values)]  # -inf forbids a point
        unit = max(float(allowed.std()) if len(allowed) else 0.0, 1e-300)  # L-BFGS-B's tolerances are relative to 1

        def falling(share: Point) -> tuple[float, Point]:
            value, slope = _value_and_slope(functions, low, span, share)
            return -value / unit, -slope / unit

        bounds = [(0.0, 1.0)] * n
        options: Any = {"maxiter": self.steps, "ftol": 1e-12, "gtol": 1e-8}
        found = [minimize(falling, x, jac=True, bounds=bounds, method="L-BFGS-B", options=options).x for x in starts]
        points = np.clip(low + np.concatenate([np.array(found), starts]) * span, low, high)
        values = total_value(functions, points)
        winner = int(values.argmax())
        value = float(total_value(functions, points[[winner]])[0])
        return Agreement(points[winner], value, SolveReport(status="centralised", value=value))


def _value_and_slope(functions: BoxFunctions, low: Point, span: Point, share: Point) -> tuple[float, Point]:
    n = len(share)
    if functions.n_exchanges:
        shift = _DIFFERENCE * np.eye(n)
        above, below = np.minimum(share + shift, 1.0), np.maximum(share - shift, 0.0)
        values = total_value(functions, low + np.concatenate([share[None], above, below]) * span)
        return float(values[0]), (values[1 : n + 1] - values[n + 1 :]) / np.diag(above - below)
    point, value, slope = (low + share * span)[None], 0.0, np.zeros(n)
    for stack in stacks_of(functions.graph):
        own, by_own = functions.value_and_gradient(stack, stack.take(point), ())
        value += float(own.sum())
        np.add.at(slope, stack.columns, by_own[:, 0])
    return value, slope * span
