"""An agent: its own data, its own fit, its own decision; of all others it uses what has arrived by message."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, overload

import networkx as nx
from numpy.typing import ArrayLike

from swarmbo.acquisition import Travel
from swarmbo.agent.returning import Returning
from swarmbo.belief import ExactGP
from swarmbo.belief.fusion import FusedBelief
from swarmbo.boundary.values import check_links, query_name, whole_number
from swarmbo.deciding.choice import MOST_QUERIES
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.offers import Offer
from swarmbo.deciding.own_rows import UNASKED
from swarmbo.deciding.setup import Setup
from swarmbo.deciding.told import Noise
from swarmbo.errors import ConfigError, UnknownQueryError
from swarmbo.problem import Problem
from swarmbo.records import Recommendation


class Agent(Returning):
    """One agent: of a function it owns some factors and variables, in a field the place where it measures.

    What it uses is what it alone was told, what everybody knows beforehand (the problem, the settings, the seed, the
    links), and what has arrived by message. All agents of a problem decide in step, and come to the decisions of a
    ``Team`` with the same settings, to the bit.

    Of a function with outcomes by factor it is told those of its own factors and tells them to nobody; it fits its
    factors by itself. With totals the first agent is told each total. Before a decision agents tell one another what
    came, and where variables stood; totals are told then, outcomes by factor are not.

    In a field it is told what it measured itself. Before a decision agents tell one another what they measured and
    where they can go; from that each works out by itself what all believe and would choose in turn, and makes the one
    table that is its own. With ``belief="fused"`` it keeps what it measured, and has a belief of its own: agents tell
    those that they hear what their way to fuse has them say, and all others what they would choose in turn, and their
    shortlists.

    With a deadline agents still tell one another before and after the agreement what it takes and what it comes to, and
    wait for that; in between nobody waits. While an agent ``keeps_time``, tick it once for each tick of your clock; in
    a field ``word`` says at the deadline where it goes, whoever has fallen silent.

    With a deadline a decision may also be made without some agents: set ``company`` before it, alike for all who take
    part. ``give_up`` takes a decision back that somebody left in its middle; an agent that comes back takes over with
    ``adopt`` what another one has to ``lend``.

    ``tick`` it with what arrives until ``is_finished``; ``run`` does so for agents that share a process, and ``serve``
    puts one into a process of its own.

    Args:
        name: As in the problem.
        problem: What all work on.
        links: Who hears whom; None means everyone. It may be set anew before a decision, alike for all agents.
        patience: For how long, on the clock of ``tick``, it waits for messages while none arrives.
        level: In a field, the level that it is watched for, where the problem has none; alike for all.
        sites: In a field, every place (k, d) that can be measured at all, alike for all agents; None: anything in the
            box. Recommendations are some of them, and a few acquisitions look at them.
        has_base: Whether a base station hands on what agents tell all others, where no path of links does, as a team
            has one; whatever carries the messages has to have it. Without, links must join all agents.
        travel: In a field, how many rounds its own ways take, for ``coordination="routes"``: an object with the methods
            of ``Travel``, asked by its own name only. All agents have one or none has, and then they choose one step
            ahead. A state does not hold it.
        **settings: ``belief``, ``acquisition``, ``coordination``, ``seed``, ``rounds`` and ``initial``, as of a
            ``Team``, the same for all agents.

    Attributes:
        company: Who takes part in decisions; None: all.
        sent: What its messages of the present decision took, or of the last: by purpose.
        report: How the last agreement ended; it names senders whose messages were dropped.
        refused: How many messages it has dropped, as if they had been lost, for they held what they may not: by sender.

    Raises:
        ConfigError: If a setting is refused, needs more than one agent knows, or the agent owns nothing.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo.agent import Agent, run
        >>> from swarmbo.transport import InProcess
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> problem = sb.Problem.of(graph, dict.fromkeys("xyz", (0.0, 1.0)), outcomes="per-factor")
        >>> agents = {name: Agent(name, problem, seed=1, initial=2) for name in problem.agents}
        >>> transport = InProcess().open(problem.agents)
        >>> for _ in range(4):
        ...     query_id = [agent.ask() for agent in agents.values()][0]
        ...     traffic = run(agents, transport)
        ...     point = {x: value for agent in agents.values() for x, value in agent.word().items()}
        ...     outcomes = {"f": -((point["x"] - point["y"]) ** 2), "g": -((point["y"] - point["z"]) ** 2)}
        ...     for name, agent in agents.items():
        ...         agent.tell(query_id, {f: outcomes[f] for f in graph.factors_owned_by(name)})
        >>> query_id, sorted(point), traffic == transport.traffic
        ('q00004', ['x', 'y', 'z'], False)
    """

    def __init__(
        self,
        name: str,
        problem: Problem,
        *,
        links: "nx.Graph[str] | None" = None,
        patience: float = math.inf,
        level: float | None = None,
        sites: ArrayLike | None = None,
        has_base: bool = False,
        travel: Travel | None = None,
        **settings: Any,
    ) -> None:
        watched = problem.watching(level)
        super().__init__(name, watched, Setup.of(watched, **settings), links, patience, sites, has_base, travel)

    @property
    def belief(self) -> ExactGP | FusedBelief:
        """What it believed of a field when it last decided: as a team's, of fused ones its own only."""
        if isinstance(self._learner, FieldLearner):
            return self._learner.believed.seen
        raise AttributeError("an agent fits its factors of a function when it decides, and keeps no belief")

    @overload
    def ask(
        self,
        count: None = None,
        *,
        candidates: ArrayLike | None = None,
        price: float = 0.0,
        position: ArrayLike | None = None,
        takes_part: bool = True,
    ) -> str: ...

    @overload
    def ask(
        self,
        count: int,
        *,
        candidates: ArrayLike | None = None,
        price: float = 0.0,
        position: ArrayLike | None = None,
        takes_part: bool = True,
    ) -> list[str]: ...

    def ask(
        self,
        count: int | None = None,
        *,
        candidates: ArrayLike | None = None,
        price: float = 0.0,
        position: ArrayLike | None = None,
        takes_part: bool = True,
    ) -> str | list[str]:
        """Begin to decide what to evaluate next, or a batch of points one after the other.

        Args:
            count: How many, 1 to 10,000; None for one that is not in a list.
            candidates: In a field, the places (k, d) that it could measure itself, k >= 0; with none it sits the round
                out. By default 512 random ones in the box.
            price: In a field, what a measurement costs it, in the unit of the outcome, >= 0: one that is not worth it
                is declined. Who pays nothing measures in any case.
            position: In a field, where it stands (d,), if not where it measured last.
            takes_part: In a field, whether it is there at all. One that is gone chooses nothing, but still says what it
                knows.

        Returns:
            The query's id.

        Raises:
            ConfigError: If it is deciding, the count is not from 1 to 10,000, the price is no finite number >= 0, or
                what only a field has is given for a function.
            ShapeError: If places are no finite numbers of the box's dimensions.
        """
        self._require_idle("asked again")
        number = 1 if count is None else whole_number(count, 1, "$.count", MOST_QUERIES)
        offer = self._owned.offer(candidates, price, position, takes_part=takes_part)
        check_links(self.links)
        self._require_participants(number)
        names = self._log.next_ids(number)
        self._words = dict.fromkeys(names)
        self._begin(number, offer)
        return names[0] if count is None else names

    def word(self, query: object = None) -> dict[str, float] | None:
        """The values of its own variables, as decided; None while that is not decided.

        In a field these are the coordinates of where it measures; there are none where it sits the round out or
        declines.

        Args:
            query: Of what was asked last, its id; by default the last of them.

        Raises:
            UnknownQueryError: If it was not asked last.
        """
        name = query_name(query) if query is not None else next(reversed(self._words), "")
        if name not in self._words:
            raise UnknownQueryError(f"query {name!r} is not of what was asked last: {list(self._words)}")
        return self._words[name]

    def recommend(self) -> None:
        """Begin to find out what is worth most in expectation; ``recommended`` says it when that is finished.

        All agents are asked for it in step, as for decisions. Of a function no later decision depends on it; in a field
        the belief is fitted where that is due.

        Raises:
            ConfigError: If it is deciding.
        """
        self._require_idle("asked for a recommendation")
        self._recommended = None
        self._begin(0, Offer())

    def recommended(self) -> Recommendation | None:
        """What was recommended last, as a ``Team`` recommends it; None while nothing was, or there is no data.

        The point is the team's to the bit. Of a function with outcomes by factor, mean and standard deviation are sums
        of what the owners of factors say, so last digits may differ.
        """
        return self._recommended

    def tell(
        self,
        query: object,
        outcome: float | Mapping[str, float | None] | None = None,
        *,
        failed: bool = False,
        point: Mapping[str, float] | None = None,
        location: ArrayLike | None = None,
        noise_std: Noise = None,
    ) -> None:
        """Learn what came of a query, of its own factors, all at once or some now and others later.

        Args:
            query: Its id; in a field None for what it measured unasked, such as where it starts.
            outcome: A table of its own factors' outcomes, or a number if it owns one; with totals the first agent is
                told the total. In a field what it measured. None, NaN, infinite or beyond 1e60 means failed.
            failed: Whether what is not told failed.
            point: Of a function: where its own variables really stood, if not as decided.
            location: In a field: where it really measured (d,), if not as decided.
            noise_std: Standard deviation of the noise of what is told, >= 0: a number, or a table of factors; None
                where it is not known.

        Raises:
            UnknownQueryError: If no such query is pending, or it does not wait for a factor.
            ConfigError: If a factor or a variable is not its own, a total is told to another than the first agent, or a
                value is not in bounds.
            ShapeError: If an outcome is no number, or a location is no place in or near the box.
        """
        own = self._own
        if self.problem.is_field:
            if point is not None:
                raise ConfigError("got a point; wanted location = …, as this is a field", at="$.point")
            query_id = UNASKED if query is None else query_name(query)
            before = own.told.get(query_id)
            row = self._owned.measured(
                self._log, query_id, before, outcome, location, noise_std, failed=failed, order=own.count
            )
        else:
            if location is not None:
                raise ConfigError(
                    "got a location; wanted point = {variable: value}, as this is a function", at="$.location"
                )
            query_id = query_name(query)
            before = own.told.get(query_id)
            row = self._teller.told(
                self._log, query_id, before, outcome, point, noise_std, failed=failed, order=own.count
            )
        self._own = own.with_told(query_id, row)

    def observe(self, query: object, info: Mapping[str, Any], *, is_all: bool = True) -> None:
        """Learn what its own world says of a round in a field, as ``Team.observe`` learns it of all agents.

        That is what it measured, there or where it was not sent, and what it measured on the way; or that it measured
        nothing, which is no failure. A round in which nobody measures is an occasion to talk of beliefs, too.

        Args:
            query: Its id; None for what it measured unasked, such as where it starts.
            info: Its own of what ``env.step`` returned: ``location``, ``measurement``, ``noise_std``, ``sampled`` and
                ``on_the_way``. What is no number, or nowhere near the field, has failed.
            is_all: Whether nothing more will come of the query, from anybody. All agents say so alike.

        Raises:
            UnknownQueryError: If no such query is pending, or it was told of it before.
            ConfigError: If the problem is a function.
        """
        if not self.problem.is_field:
            raise ConfigError("got an info; wanted the outcome of a query, as this is a function", at="$.info")
        query_id = UNASKED if query is None else query_name(query)
        if self.is_finished and query_id not in self._log.open and self._words.get(query_id) is not None:
            query_id = UNASKED  # nobody takes part in it, so it is not pending
        if (before := self._own.told.get(query_id)) is not None and before.has_come:
            raise UnknownQueryError(f"query {query_id!r}: got {self.name!r} again; its outcome is already known")
        has_ended = is_all and (query_id != UNASKED or self._log.asked > 0)  # where it starts is no round
        row = self._owned.observed(self._log, query_id, info, order=self._own.count, is_all=has_ended)
        self._own = self._own.with_told(query_id, row)

    def attach(
        self,
        points: ArrayLike,
        outcomes: ArrayLike,
        *,
        rounds: ArrayLike | float | None = None,
        agents: str | Sequence[str] | None = None,
        noise_std: ArrayLike | float | None = None,
    ) -> None:
        """Learn evaluations that were never asked for. All agents are told of the same ones, each what it knows.

        Args:
            points: Joint points (t, n), physical; of an agent's own variables only they are looked at. In a field
                places (t, d), or (t, d + 1) with the round last; an agent looks at those only that are its own.
            outcomes: Of its own factors (t, k), in the order of ``factors``; or totals (t,), of which the first agent's
                count; in a field measurements (t,). Entries that are not finite, or beyond 1e60, count as failed.
            rounds: The round of each (t,), or one for all; by default the present one.
            agents: In a field who made all of them, or each (t,); by default the first agent. They tell the others.
            noise_std: Standard deviation of the noise: one for all, one for each point (t,), or of the shape of
                outcomes; NaN where it is not known.

        Raises:
            ShapeError: If shapes do not fit.
            ConfigError: If a point is not in bounds, or the agent is deciding.
        """
        self._require_idle("told of what nobody asked for")
        present, order = self._log.round - 1, self._own.count
        if isinstance(self._learner, FieldLearner):
            fades = self._learner.believed.seen.has_time
            told = self._owned.surveyed(points, outcomes, rounds, agents, noise_std, present, self._own, fades=fades)
            self._own = told
            return
        if agents is not None:
            raise ConfigError("got agents; wanted none: of a function all of them set one joint point", at="$.agents")
        rows = self._owned.attached(points, outcomes, rounds, noise_std, present=present, order=order)
        self._own = self._own.with_attached(rows)

    def _require_idle(self, what: str) -> None:
        if self._steps is not None:
            raise ConfigError(f"{self.name!r} is deciding; wanted it finished before it is {what}")
