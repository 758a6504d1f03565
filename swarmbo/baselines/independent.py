"""Every agent for itself."""

from typing import Any

from swarmbo.acquisition import Acquisition, Decision, Situation
from swarmbo.acquisition.by_view import ViewSteps, at_once, each, is_row
from swarmbo.belief import view_of
from swarmbo.records import SolveReport
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Settings


@kind("coordination", FIELD)
class Independent(Settings, frozen=True, tag_field="kind", tag="independent"):
    """Each agent maximises GP-UCB (Srinivas et al. 2010) over all that it can reach, as if it were alone.

    The belief is shared all the same; nothing is negotiated, so two agents may choose neighbouring places, or one.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], coordination="independent")
        >>> team.tell(team.ask({"a": [[0.4]], "b": [[0.6]]}), {"a": 0.0, "b": 1.0})
        >>> points = team.ask(dict.fromkeys("ab", [[0.1], [0.5], [0.9]])).points
        >>> bool(points["a"] == points["b"])  # both are drawn to one place
        True
    """

    def decide(self, situation: Situation, acquisition: Acquisition) -> Decision:
        """Choose by mean + sqrt(beta) std, or what else the acquisition says a place is worth."""
        return at_once(self.steps(situation, acquisition))

    def steps(self, situation: Situation, acquisition: Acquisition) -> ViewSteps[Decision]:
        """The same in steps: agents with beliefs of their own say where they go."""
        choose = acquisition.alone(situation)

        def own(agent: str) -> int | None:
            chosen = choose(agent, view_of(situation.belief, agent), situation.candidates[agent])
            return None if chosen is None else int(chosen)

        def fits(agent: str, row: Any) -> bool:
            return row is None or is_row(row, len(situation.candidates[agent]))

        said = yield from each(situation, "choices", situation.movers, own, fits)
        points = {agent: situation.candidates[agent][row] for agent, row in said.items() if row is not None}
        return Decision(points, SolveReport(status="not_needed"))
