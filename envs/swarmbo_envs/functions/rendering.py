"""Pictures of a function world: the setting of each variable, and the best value so far."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from swarmbo.boundary import look
from swarmbo_envs.functions.additive_function import AdditiveFunction


def frame(
    function: AdditiveFunction, setting: Float[np.ndarray, " n"], best: Sequence[float], max_cycles: int
) -> UInt8[np.ndarray, "height width 3"]:
    """Draw the setting of every variable next to the optimum's, and the best true value so far."""
    with look.applied():
        figure = Figure(figsize=(7.4, 3.4), dpi=100, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        figure.suptitle(f"{function.name} · round {len(best)} of {max_cycles}", x=0.01, ha="left", fontsize=10.5)
        sides = function.high - function.low
        places = np.arange(function.n_variables)
        left.plot(places, (setting - function.low) / sides, "o", markersize=4, color=look.BLUE, label="now")
        if function.argmax is not None:
            optimum = (function.argmax - function.low) / sides
            left.plot(places, optimum, "_", markersize=8, color=look.VERMILLION, label="optimum")
        left.set(xlabel="variable", ylabel="share of its range", ylim=(-0.05, 1.05))
        left.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        left.legend(loc="lower left", bbox_to_anchor=(-0.03, 1.0), ncols=2, borderaxespad=0.2)
        rounds = np.arange(1, len(best) + 1)
        if function.maximum is None:
            right.plot(rounds, best, color=look.BLUE, drawstyle="steps-post")
            right.set_title("Best true value")
        else:
            regret = function.maximum - np.asarray(best, dtype=float)
            right.plot(rounds, np.maximum(regret, 1e-12), color=look.BLUE, drawstyle="steps-post")
            right.set_title("Simple regret")
            look.set_log(right)
        right.set(xlabel="round", xlim=(0, max_cycles))
        canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3].copy()
