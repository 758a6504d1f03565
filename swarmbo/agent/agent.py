"""An agent with its own data, fit and decisions; it uses others' data only as received by message."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack, overload

from numpy.typing import ArrayLike

from swarmbo.agent.state import RestorableAgent
from swarmbo.belief import ExactGP
from swarmbo.belief.fusion import FusedBelief
from swarmbo.boundary.values import check_links, query_name, whole_number
from swarmbo.deciding import own_rows, tables, told
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.logbook import MOST_QUERIES
from swarmbo.deciding.offers import Offer
from swarmbo.errors import ConfigError, UnknownQueryError
from swarmbo.records import Recommendation


class _Given(TypedDict, total=False):
    """Keyword arguments of ``Agent.ask``."""

    candidates: ArrayLike | None
    price: float
    position: ArrayLike | None
    takes_part: bool


class Agent(RestorableAgent):
    """One agent: it owns some factors and variables of a function, or its measurement location in a field.

    It uses its own data, common knowledge (the problem, the settings, the seed, the links), and received messages. All
    agents of a problem decide in step, and their decisions are bit-identical to those of a ``Team`` with the same
    settings.

    With a function and outcomes per factor, an agent gets the outcomes of its factors, keeps them, and fits its
    factors. With totals, the first agent gets each total. Before a decision, agents report finished evaluations and the
    actual values of variables. They report totals, but not outcomes per factor.

    In a field, an agent gets its own measurements. Before a decision, agents report measurements and reachable
    locations. From these reports, each agent computes the common belief, the sequential choices of all agents, and its
    own table. With ``belief="fused"`` it keeps its measurements and has a local belief. It sends its neighbours the
    messages of the fusion method, and all agents its sequential choice and shortlist.

    With a deadline, no agent waits during the agreement. Agents still wait for the messages before and after it. While
    ``keeps_time`` is True, call ``tick`` once for each tick of your clock. In a field, ``decision`` has the agent's
    location at the deadline, whatever other agents do.

    Agents decide as a ``Team`` does, bit-identically, if all agents of a query get its outcomes before those of the
    next query. If outcomes of several queries alternate, agents use the mean of their orders, so they may differ from a
    team. Among queries with different participants and equal orders, the one asked first comes first. Agents fuse
    beliefs over the links of their next decision; a team without an environment, over those of its last decision.

    A decision with a deadline may leave out some agents: set ``participants`` before it, equal on all participants.
    ``give_up`` takes back a decision that an agent left midway. A returning agent restores another's ``snapshot``.

    Call ``tick`` with arrivals until ``is_finished``; ``run`` does so for agents that share a process, and ``serve``
    puts an agent into its own process.

    Args:
        name: Name of the agent in the problem.
        problem: Common problem of all agents.
        links: Radio graph of the agents; None: every agent reaches every other. You may replace it before a decision,
            on all agents alike.
        patience: Longest time without an arrival while it waits for messages, on the clock of ``tick``.
        level: In a field, the level of interest if the problem has none; the same for all agents.
        sites: In a field, all measurable locations (k, d), equal for all agents; None: the whole box. Recommendations
            are chosen from them, and a few acquisitions use them.
        has_base: True if your transport relays messages by a base station where no path of links exists, as for a
            ``Team``. Otherwise links must connect all agents.
        travel: In a field with ``coordination="routes"``, travel times of the agent's paths in rounds: an object with
            the methods of ``Travel``, called with this agent's name only. Either all agents have such an object or
            none; without it, they choose one step ahead. A saved state does not hold it.
        **settings: ``belief``, ``acquisition``, ``coordination``, ``seed``, ``rounds``, ``initial``, ``start``,
            ``step_limit`` and ``safe``, as for a ``Team``, the same for all agents.

    Attributes:
        participants: Participants of decisions; None: all agents.
        sent: Traffic of its messages in the present or last decision, by purpose.
        report: Report of the last agreement; it names senders of dropped messages.
        refused: Number of messages dropped for inadmissible content, by sender.

    Raises:
        ConfigError: If a setting is refused or needs more than one agent's knowledge, or the agent owns nothing.

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
        ...     point = {x: value for agent in agents.values() for x, value in agent.decision().items()}
        ...     outcomes = {"f": -((point["x"] - point["y"]) ** 2), "g": -((point["y"] - point["z"]) ** 2)}
        ...     for name, agent in agents.items():
        ...         agent.tell(query_id, {f: outcomes[f] for f in graph.factors_owned_by(name)})
        >>> query_id, sorted(point), traffic == transport.traffic
        ('q00004', ['x', 'y', 'z'], False)
    """

    @property
    def belief(self) -> ExactGP | FusedBelief:
        """Belief about the field at the last decision; the agent's local one if beliefs are fused."""
        if isinstance(self._learner, FieldLearner):
            return self._learner.team_belief.belief
        raise AttributeError("an agent fits its factors of a function when it decides, and keeps no belief")

    @overload
    def ask(self, count: None = None, **given: Unpack[_Given]) -> str: ...

    @overload
    def ask(self, count: int, **given: Unpack[_Given]) -> list[str]: ...

    def ask(
        self,
        count: int | None = None,
        *,
        candidates: ArrayLike | None = None,
        price: float = 0.0,
        position: ArrayLike | None = None,
        takes_part: bool = True,
    ) -> str | list[str]:
        """Begin to decide the next evaluation, or a batch of points sequentially.

        Args:
            count: Number of points, 1 to 10,000; None: one, whose id is returned without a list.
            candidates: In a field, the locations (k, d) that it could measure, k >= 0; without any it skips the round.
                By default 512 random locations in the box.
            price: In a field, the cost of its measurement, in the unit of the outcome, >= 0. It abstains if the utility
                is less; at a price of 0, or before the outcomes it knows differ, it always measures.
            position: In a field, its present position (d,), if not that of its last measurement.
            takes_part: In a field, False if it is absent. It then chooses nothing, but still reports its data.

        Returns:
            Id of the query, or the list of ids.

        Raises:
            ConfigError: If the agent is deciding, or an argument of fields is given for a function. Also if the count
                is not from 1 to 10,000, or the price is not a finite number >= 0.
            ShapeError: If locations are not finite numbers of the box's dimensions.
        """
        self._require_idle("asked again")
        n_queries = 1 if count is None else whole_number(count, 1, "$.count", MOST_QUERIES)
        offer = self._inputs.checked_offer(candidates, price, position, takes_part=takes_part)
        check_links(self.links, self.problem.agents)
        self._require_participants(n_queries)
        query_ids = self._log.next_ids(n_queries)
        self._decisions = dict.fromkeys(query_ids)
        self._begin(n_queries, offer)
        return query_ids[0] if count is None else query_ids

    def decision(self, query: object = None) -> dict[str, Any] | None:
        """Decided values of the agent's variables; None before the decision.

        In a field: coordinates of the agent's measurement, or nothing if it skips the round or abstains.

        Args:
            query: Id of a query of the last ``ask``; by default the last of them.

        Raises:
            UnknownQueryError: If the query is not of the last ``ask``.
        """
        coded = self.coded_decision(query)
        return None if coded is None else self.problem.valued(coded)

    def coded_decision(self, query: object = None) -> dict[str, float] | None:
        """``decision`` in the problem's codes, as in messages."""
        name = query_name(query) if query is not None else next(reversed(self._decisions), "")
        if name not in self._decisions:
            raise UnknownQueryError(f"got query {name!r}; wanted one of the last ask: {list(self._decisions)}")
        return self._decisions[name]

    def recommend(self) -> None:
        """Begin to find the best point in expectation; ``recommended`` has it once ``is_finished``.

        Call it on all agents in step, as ``ask``. With a function, no later decision depends on it; in a field the
        belief is fitted if a fit is due.

        Raises:
            ConfigError: If it is deciding.
        """
        self._require_idle("asked for a recommendation")
        self._recommended = None
        self._begin(0, Offer())

    def recommended(self) -> Recommendation | None:
        """Last recommendation, equal to that of a ``Team``. None before the first one, or without data.

        The point is bit-identical to the team's. With outcomes per factor, mean and standard deviation are sums over
        the owners of factors, so last digits may differ.
        """
        return self._recommended

    def tell(
        self,
        query: object,
        outcome: float | Mapping[str, float | None] | None = None,
        *,
        failed: bool = False,
        point: Mapping[str, Any] | None = None,
        location: ArrayLike | None = None,
        noise_std: told.Noise = None,
    ) -> None:
        """Learn the outcomes of a query for its own factors, all at once or in parts.

        Args:
            query: Id of the query; in a field None for an unrequested measurement, such as at the start.
            outcome: Outcomes of the agent's factors by name, or a number if it owns one; with totals the first agent
                gets the total. In a field, its measurement. None, NaN, infinite or beyond 1e60 means failed.
            failed: True if all outcomes that are not given failed.
            point: For a function: actual values of the agent's variables, if not as decided.
            location: In a field: actual location (d,) of the measurement in the box's unit, if not as decided.
            noise_std: Standard deviation of the noise of these outcomes, >= 0: a number, or numbers per factor; None if
                unknown.

        Raises:
            UnknownQueryError: If there is no such query, or it was given up.
            ConflictError: If another outcome was recorded before; the same one again changes nothing.
            ConfigError: If a factor or a variable is not its own, a total is given to an agent other than the first, or
                a value is not in bounds.
            ShapeError: If an outcome is not a number, or a location is over 100 of the box's longest sides away.
        """
        order, locations = self._own_rows.next_order, None if location is None else {self.name: location}
        told_outcome = told.ToldOutcome(outcome, point, locations, noise_std, failed)
        query_id = own_rows.UNREQUESTED if query is None and self.problem.is_field else query_name(query)
        earlier_row = self._unlogged_rows.by_query.get(query_id, own_rows.OwnRow(0))
        if query_id == own_rows.UNREQUESTED and point is None:
            row = self._inputs.checked_unrequested(earlier_row, told_outcome, order)
        else:
            reporter = None if self.participants is None else self.participants.members[0]
            row = self._inputs.checked_outcome(self._log, query_id, earlier_row, told_outcome, order, reporter)
        if row is not None:
            self._own_rows = self._own_rows.with_row(query_id, row)

    def observe(self, query: object, info: Mapping[str, Any], *, is_all: bool = True) -> None:
        """Learn from its own info of a round in a field, as ``Team.observe`` does for all agents.

        The info has the agent's measurement, at the decided location or another, and measurements en route. An info
        without a measurement is not a failure. Beliefs are also fused in a round without measurements.

        Args:
            query: Id of the query; None for an unrequested measurement, such as at the start.
            info: Its own info from ``env.step``: ``location``, ``measurement``, ``noise_std``, ``sampled`` and
                ``on_the_way``. Values that are not numbers, or far from the field, count as failed.
            is_all: True if no agent will add outcomes to the query. All agents must give the same value.

        Raises:
            UnknownQueryError: If no such query is pending, or it got its outcome before.
            ConfigError: If the problem is a function.
        """
        if not self.problem.is_field:
            raise ConfigError("got an info; wanted the outcome of a query, as this is a function", at="$.info")
        query_id = own_rows.UNREQUESTED if query is None else query_name(query)
        if self.is_finished and query_id not in self._log.open and self._decisions.get(query_id) is not None:
            query_id = own_rows.UNREQUESTED  # a query without participants is not pending
        rows = self._own_rows if query_id == own_rows.UNREQUESTED else self._unlogged_rows
        if (before := rows.by_query.get(query_id)) is not None and before.has_news:
            raise UnknownQueryError(f"query {query_id!r}: got {self.name!r} again; its outcome is already known")
        has_ended = is_all and (query_id != own_rows.UNREQUESTED or self._log.n_asked > 0)  # the start is not a round
        order = self._own_rows.next_order
        row = self._inputs.checked_info(self._log, query_id, info, order=order, is_all=has_ended)
        self._own_rows = self._own_rows.with_row(query_id, row)

    def attach(
        self,
        points: ArrayLike | Sequence[Sequence[object]],
        outcomes: ArrayLike,
        *,
        rounds: ArrayLike | float | None = None,
        agents: str | Sequence[str] | None = None,
        noise_std: ArrayLike | float | None = None,
    ) -> None:
        """Learn unrequested evaluations. Call it on all agents with the same arguments; each reads its own part.

        Args:
            points: Joint points (t, n), physical; an agent reads its own variables only. In a field, locations (t, d),
                or (t, d + 1) with the round last if the belief has a time axis; an agent reads its own rows only.
            outcomes: Outcomes of the agent's factors (t, k), in the order of ``factors``, or totals (t,) for the first
                agent. In a field, measurements (t,). Entries that are not finite, or beyond 1e60, count as failed.
            rounds: If the belief has a time axis: round of each (t,), or one for all; by default the present round.
            agents: In a field, the agent that measured: one for all, or for each (t,); by default the first. It reports
                to other agents.
            noise_std: Standard deviation of the noise: one for all, one for each point (t,), or an array like
                ``outcomes``; NaN if unknown.

        Raises:
            ShapeError: If shapes do not fit, or there are rounds without a time axis.
            ConfigError: If a point is not in bounds, or the agent is deciding.
        """
        self._require_idle("given unrequested evaluations")
        present, order = self._log.round - 1, self._own_rows.attach_order
        told_rows, takes_rounds = tables.Rows(points, outcomes, agents, rounds, noise_std), self._learner.takes_rounds
        if isinstance(self._learner, FieldLearner):
            data = tables.attached(told_rows, self.problem, takes_rounds=takes_rounds)
            self._own_rows = self._own_rows.with_data(self.problem, self.name, data, present, fades=takes_rounds)
            return
        rows = self._inputs.checked_attached(told_rows, present, order, takes_rounds=takes_rounds)
        self._own_rows = self._own_rows.with_attached(rows)

    def _require_idle(self, request: str) -> None:
        if self._steps is not None:
            raise ConfigError(f"{self.name!r} is deciding; wanted it finished before it is {request}")
