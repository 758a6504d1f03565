"""The figure of a comparison: this reads, ``swarmbo.plotting`` draws."""

import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from swarmbo import plotting
from swarmbo.compare.comparison import Comparison, ComparisonRow, ScoreTrace
from swarmbo.errors import RunFolderError
from swarmbo.metrics.by_goal import MORE_IS_BETTER, SCORE_TEXT, SHORT_TEXT
from swarmbo.plotting import Difference, RegretCurves


def draw_comparison(comparison: Comparison, path: Path, dpi: int = 150) -> Path:
    """Draw a comparison: of all methods, round by round, what the goal is scored by, and the paired differences.

    Where the goal is a peak, those of cumulative regret as well.

    Args:
        comparison: What ``compare`` returned.
        path: Where to; its ending names the format.
        dpi: Dots per inch.

    Raises:
        RunFolderError: If a run is damaged, or the figure cannot be written.
    """
    curves = [_curves(key, list(traces)) for key, traces in itertools.groupby(comparison.traces, _curve_of)]
    differences = _differences(row for row in comparison.rows if row.decides)
    cumulated = _differences(row for row in comparison.rows if row.metric == "mean_regret")
    try:
        return plotting.write_comparison_figure(curves, differences, comparison.reference, path, cumulated, dpi)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be written: {error.strerror}") from error
    except ValueError as error:
        if "is not supported" not in str(error):
            raise
        raise RunFolderError(f"{path}: {error}") from error


def _differences(rows: Iterable[ComparisonRow]) -> list[Difference]:
    return [
        Difference(
            row.problem,
            row.method,
            row.difference.mean,
            row.difference.low,
            row.difference.high,
            row.unit,
            SHORT_TEXT[row.metric],
            row.metric in MORE_IS_BETTER,
        )
        for row in rows
        if row.difference is not None
    ]


def _curve_of(trace: ScoreTrace) -> tuple[str, str]:
    return trace.problem, trace.method


def _curves(key: tuple[str, str], traces: list[ScoreTrace]) -> RegretCurves:
    n_rounds = min(len(trace.values) for trace in traces)  # a world may end an episode early
    return RegretCurves(
        problem=key[0],
        method=key[1],
        measurements=np.mean([trace.measurements[:n_rounds] for trace in traces], axis=0),  # who declines makes fewer
        regrets=np.array([trace.values[:n_rounds] for trace in traces]),
        unit=traces[0].unit,
        quantity=SCORE_TEXT[traces[0].scored],
        more_is_better=traces[0].scored in MORE_IS_BETTER,
    )
