"""Agents without negotiation: independent, and sequential greedy."""

from typing import Any

from swarmbo.acquisition import Acquisition, Decision, Situation
from swarmbo.acquisition.by_view import ViewSteps, at_once, each, is_row, turns
from swarmbo.belief import view_of
from swarmbo.records import SolveReport
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Settings


@kind("coordination", FIELD)
class Independent(Settings, frozen=True, tag_field="kind", tag="independent"):
    """Each agent maximises GP-UCB (Srinivas et al. 2010) over its reachable locations, independently.

    Agents may share a belief, and yet choose neighbouring locations or the same location.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], coordination="independent")
        >>> team.tell(team.ask({"a": [[0.4]], "b": [[0.6]]}), {"a": 0.0, "b": 1.0})
        >>> points = team.ask(dict.fromkeys("ab", [[0.1], [0.5], [0.9]])).points
        >>> bool(points["a"] == points["b"])  # both choose one location
        True
    """

    def decide(self, situation: Situation, acquisition: Acquisition) -> Decision:
        """Choose locations by mean + sqrt(beta) std, or by the acquisition's own utility of a location."""
        return at_once(self.steps(situation, acquisition))

    def steps(self, situation: Situation, acquisition: Acquisition) -> ViewSteps[Decision]:
        """Steps of ``decide``, in which agents with separate beliefs send their choices."""
        choose = acquisition.alone(situation)

        def own(agent: str) -> int | None:
            chosen = choose(agent, view_of(situation.belief, agent), situation.candidates[agent])
            return None if chosen is None else int(chosen)

        def fits(agent: str, row: Any) -> bool:
            return row is None or is_row(row, len(situation.candidates[agent]))

        said = yield from each(situation, "choices", situation.movers, own, fits)
        points = {agent: situation.candidates[agent][row] for agent, row in said.items() if row is not None}
        return Decision(points, SolveReport(status="not_needed"))


@kind("coordination", FIELD)
class Greedy(Settings, frozen=True, tag_field="kind", tag="greedy"):
    """Sequential greedy batch: GP-BUCB (Desautels et al. 2014).

    Agents choose in the environment's order. Each maximises mean + sqrt(beta) std, or the acquisition's own utility of
    a location. Earlier choices reduce the variance and leave the mean unchanged; no location is chosen twice. Agents
    that share a belief know earlier choices without messages. An agent with a separate belief sends all choices so far
    to the next agent, and the last agent sends the others what they lack. Messages are relayed over links or, between
    unconnected agents, by a base station (two transmissions). The report has no value: nothing is maximised jointly.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], coordination="greedy")
        >>> team.tell(team.ask({"a": [[0.4]], "b": [[0.6]]}), {"a": 0.0, "b": 1.0})
        >>> points = team.ask(dict.fromkeys("ab", [[0.1], [0.5], [0.9]])).points
        >>> bool(points["a"] == points["b"])  # b avoids the location that a chose
        False
    """

    def decide(self, situation: Situation, acquisition: Acquisition) -> Decision:
        """Choose locations sequentially, by the acquisition's utility of single locations."""
        return at_once(self.steps(situation, acquisition))

    def steps(self, situation: Situation, acquisition: Acquisition) -> ViewSteps[Decision]:
        """Steps of ``decide``, in which agents with separate beliefs send their choices to the next agent."""
        points = yield from turns(situation, acquisition.alone(situation))
        rounds = max(len(situation.movers) - 1, 0)
        return Decision(points, SolveReport(status="sequential", rounds=rounds))
