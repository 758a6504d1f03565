"""A picture of a function world: where each variable stands, and how good it has become."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from swarmbo_envs.functions.additive_function import AdditiveFunction


def frame(
    function: AdditiveFunction, setting: Float[np.ndarray, " n"], best: Sequence[float], max_cycles: int
) -> UInt8[np.ndarray, "height width 3"]:
    """Draw the setting of every variable beside the optimum's, and the best true value so far.

    Args:
        function: What is maximised.
        setting: The present values.
        best: Best true value after each round.
        max_cycles: Rounds of the episode.
    """
    figure = Figure(figsize=(7.0, 3.2), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    sides = function.high - function.low
    places = np.arange(function.n_variables)
    left.plot(places, (setting - function.low) / sides, "o", ms=4, color="#1f77b4", label="now")
    if function.argmax is not None:
        left.plot(places, (function.argmax - function.low) / sides, "_", ms=8, color="#d62728", label="optimum")
    left.set(xlabel="variable", ylabel="share of its range", ylim=(-0.05, 1.05))
    left.set_title(function.name, parse_math=False)  # a user's name is shown as it is
    left.legend(loc="upper right", fontsize=8)
    rounds = np.arange(1, len(best) + 1)
    if function.maximum is None:
        right.plot(rounds, best, color="#1f77b4")
        right.set(ylabel="best true value")
    else:
        regret = function.maximum - np.asarray(best, dtype=float)
        right.plot(rounds, np.maximum(regret, 1e-12), color="#1f77b4")
        right.set(ylabel="simple regret", yscale="log")
    right.set(xlabel="round", xlim=(0, max_cycles))
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3].copy()
