"""All figures of one run."""

from collections.abc import Sequence
from pathlib import Path

from swarmbo.belief import ExactGPSettings
from swarmbo.plotting import style
from swarmbo.plotting.animation import write_animation
from swarmbo.plotting.belief_map import belief_map_figure
from swarmbo.plotting.history import World
from swarmbo.plotting.regret import regret_figure
from swarmbo.plotting.traffic import traffic_figure
from swarmbo.records import RoundRecord


def write_figures(records: Sequence[RoundRecord], world: World, settings: ExactGPSettings, folder: Path) -> list[Path]:
    """Write the figures of a run: ``belief.png``, ``regret.png``, ``traffic.png`` and ``run.gif``.

    Args:
        records: The rounds of the run, from the first on; it need not be complete.
        world: Its world; maps and the animation are drawn where locations have two axes.
        settings: The belief's settings of the run.
        folder: Where to; it is made.

    Returns:
        The files written; none if there are no rounds.
    """
    if not records:
        return []
    has_map = world.domain.n_dims == 2
    written = [style.save(belief_map_figure(records, world, settings), folder / "belief.png")] if has_map else []
    written.append(style.save(regret_figure(records, world), folder / "regret.png"))
    written.append(style.save(traffic_figure(records), folder / "traffic.png"))
    if has_map:
        written.append(write_animation(records, world, settings, folder / "run.gif"))
    return written
