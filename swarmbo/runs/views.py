"""What each agent of a run believed: rebuilt from the last checkpoint, which holds the team's whole state."""

from swarmbo.belief.fusion import FusedBelief
from swarmbo.errors import ConfigError, RunFolderError, StateVersionError
from swarmbo.plotting import AgentViews
from swarmbo.runs.checkpoint import read_checkpoint
from swarmbo.runs.folder import RunFolder
from swarmbo.team import Team


def views_of(folder: RunFolder) -> AgentViews | None:
    """The view of every agent after the last round of which there is a checkpoint, to the bit as it was in the run.

    Args:
        folder: Of a run, complete or not, whose agents each have a belief of their own.

    Returns:
        The views and their round; None where there is no checkpoint that can be read, as before the first round, and
        in worlds that cannot write down their state.
    """
    try:
        checkpoint = read_checkpoint(folder)
        if checkpoint is None or checkpoint.round >= len(folder.lines()):
            return None
        # no part but the belief matters here, and none of a user's own is loaded for a figure
        team = Team.from_state_dict(checkpoint.team, acquisition="db-gp-ucb", coordination="exact")
    except (ConfigError, RunFolderError, StateVersionError):  # a figure can do without it, and says so
        return None
    belief = team.belief if team.problem.is_field else None
    return AgentViews(checkpoint.round, belief.views) if isinstance(belief, FusedBelief) else None
