"""State of an agent: saved and restored, reset to before a decision, and given to a returning agent."""

import math
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import msgspec
import numpy as np

from swarmbo.acquisition import Travel
from swarmbo.agent.deciding_agent import Checkpoint, DecidingAgent, DecisionInputs
from swarmbo.agent.schema import Participants, reports_outcomes
from swarmbo.boundary.values import intact, linked, short, storable, whole_number
from swarmbo.coordination.participant import Participant
from swarmbo.coordination.plan import has_deadline
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.function import FunctionLearner
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.offers import Offer, PackedOffer, inflated
from swarmbo.deciding.own_rows import PRIVATE_OUTCOME, UNREQUESTED, OwnRow, OwnRows, measurements_by_round
from swarmbo.deciding.setup import settings_again
from swarmbo.errors import ConfigError, StateVersionError
from swarmbo.problem import Problem
from swarmbo.records import Recommendation
from swarmbo.transport import Envelope

STATE_VERSION = 8  # 8: models of similar evidence by name
_CHECKPOINT_PREFIX = "before/"  # prefix of the arrays in the state before the last decision
_LARGEST_SNAPSHOT = 2**28  # bytes of an unpacked snapshot
_PackedArray = tuple[str, tuple[int, ...], bytes]  # type, shape and bytes of an array


class RestorableAgent(DecidingAgent):
    """Base of agents that can be saved, also while they are deciding, and that may be absent for a while."""

    def state_dict(self) -> dict[str, Any]:
        """State of the agent as ``{"json": plain data, "arrays": {name: array}}``, also while it is deciding."""
        in_progress, links = self._in_progress, self.links
        log, learner = (self._log, self._learner) if in_progress is None else (in_progress.log, in_progress.learner)
        learned, arrays = _states_of(log, learner)
        checkpoint = None
        if in_progress is None and self._checkpoint is not None:
            checkpoint, checkpoint_arrays = _states_of(self._checkpoint.log, self._checkpoint.learner)
            checkpoint["said"] = msgspec.to_builtins(self._checkpoint.inputs.own_rows)
            arrays |= {_CHECKPOINT_PREFIX + name: array for name, array in checkpoint_arrays.items()}
        early_messages = [early.envelope for early in self._early_messages]
        plain = {
            "version": STATE_VERSION,
            "name": self.name,
            "links": None if links is None else {"agents": storable(list(links)), "edges": storable(list(links.edges))},
            "patience": None if math.isinf(self.patience) else self.patience,
            "level": self.level,
            "sites": None if self.sites is None else self.sites.tolist(),
            "has_base": self.has_base,
            "travels": self.travel is not None,
            "problem": self.problem.to_plain(),
            "settings": self._setup.to_plain(),
            "own": msgspec.to_builtins(self._own_rows),
            "offered": msgspec.to_builtins(self._last_offers),
            "words": self._decisions,
            "recommended": msgspec.to_builtins(self._recommended),
            "turn": self._participant.decision,
            "company": msgspec.to_builtins(self.participants),
            "early": [[early.sender, msgspec.to_builtins(early.payload)] for early in early_messages],
            "begun": None if in_progress is None else msgspec.to_builtins(in_progress.inputs),
            "before": checkpoint,
            **learned,
        }
        return {"json": plain, "arrays": arrays}

    @classmethod
    @intact("what `state_dict` of an agent returned", "$.state")
    def from_state_dict(
        cls,
        state: Mapping[str, Any],
        *,
        belief: object = None,
        acquisition: object = None,
        coordination: object = None,
        travel: Travel | None = None,
    ) -> Self:
        """Restore the agent of a ``state_dict``; it continues bit-identically, and does not send messages again.

        Args:
            state: Saved state.
            belief: Your own belief, if the agent had one: a state has only its name.
            acquisition: As ``belief``.
            coordination: As ``belief``.
            travel: Travel times, if the agent had any.

        Raises:
            StateVersionError: If another version of swarmbo wrote it.
            ConfigError: If it is damaged or incomplete, or your own part, or travel times, are missing.
        """
        plain = state["json"]
        if plain["version"] != STATE_VERSION:
            raise StateVersionError(f"got a state with version {plain['version']}; wanted an agent's, {STATE_VERSION}")
        if plain["travels"] is not (travel is not None):
            wanted = f"{'travel times' if plain['travels'] else 'no travel times'}, as when the state was written"
            raise ConfigError(f"got {type(travel).__name__}; wanted {wanted}", at="$.travel")
        own_parts = {"belief": belief, "acquisition": acquisition, "coordination": coordination}
        links: dict[str, Any] = plain["links"] or {"agents": (), "edges": None}
        agent = cls(  # an ``Agent``, which makes its own setup
            plain["name"],
            Problem.from_plain(plain["problem"]).watching(plain["level"]),
            links=linked(**links),
            patience=math.inf if plain["patience"] is None else plain["patience"],
            sites=plain["sites"],
            has_base=plain["has_base"],
            travel=travel,
            **settings_again(plain["settings"], own_parts),
        )
        agent._resume(plain, state["arrays"])
        return agent

    def _resume(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the log and the learner; repeat the decisions in progress, or restore the last decisions."""
        self._log = self._log.from_state(plain["log"], arrays)
        self._learner = self._learner.from_state(plain, arrays)
        self._recommended = msgspec.convert(plain["recommended"], Recommendation | None)
        self.participants = msgspec.convert(plain["company"], Participants | None)
        self._last_offers = msgspec.convert(plain["offered"], dict[str, PackedOffer])
        if (inputs := msgspec.convert(plain["begun"], DecisionInputs | None)) is not None:
            self._repeat(inputs, plain["words"])
        else:
            early = msgspec.convert(plain["early"], tuple[tuple[str, bytes], ...])
            self._decisions = dict(plain["words"])
            self._participant = Participant[Any](self.name, plain["turn"])
            self._store_arrivals([Envelope(sender, self.name, payload) for sender, payload in early])
            if (before := plain.get("before")) is not None:
                arrays = {name.removeprefix(_CHECKPOINT_PREFIX): array for name, array in arrays.items()}
                inputs = DecisionInputs(0, msgspec.convert(before["said"], OwnRows), Offer(), 0)
                log, learner = self._log.from_state(before["log"], arrays), self._learner.from_state(before, arrays)
                self._checkpoint = Checkpoint(inputs, log, learner, {})
        # told while it was deciding, so not part of the decision that was just repeated
        self._own_rows = msgspec.convert(plain["own"], OwnRows)

    def _repeat(self, inputs: DecisionInputs, decisions: Mapping[str, Any]) -> None:
        self._own_rows, self._last_offers = inputs.own_rows, dict(inputs.known_offers)
        self._participant = Participant[Any](self.name, inputs.previous_number)
        self._decisions = dict.fromkeys(decisions) if inputs.count else dict(decisions)
        before, *ticks = inputs.by_tick(self.name)
        if not inputs.is_under_way:
            self._store_arrivals(before)
        self._begin(inputs.count, inputs.offer)
        for inbox in (before, *ticks) if inputs.is_under_way else ():
            self.tick(0.0, inbox)
        self._participant.waiting_since = None  # the clock differs

    def give_up(self, last: int) -> None:
        """Take back the last request's decisions after number ``last``, finished or not, as if not requested.

        Call it on all agents with the same number, from 0; recommendations are numbered, too. Numbers are not used
        again, so late messages are recognised; messages of future decisions are kept.

        Raises:
            ConfigError: If ``last`` is not a whole number, or an outcome of these decisions was told.
        """
        whole_number(last, 0, "$.last")
        if self._participant.decision <= last or (checkpoint := self._checkpoint) is None:
            return
        if query_ids := sorted(self._own_rows.by_query.keys() - checkpoint.log.open.keys() - {UNREQUESTED}):
            raise ConfigError(f"got decisions of {query_ids}, which have outcomes; wanted decisions without outcomes")
        self._roll_back(checkpoint, max(self._participant.decision, checkpoint.inputs.last_number))
        self._decisions, self._last_offers = {}, {}

    def snapshot(self) -> bytes:
        """Common knowledge for a returning agent, without private outcomes: the log and a learner that all share."""
        if self._steps is not None:
            raise ConfigError(f"{self.name!r} is deciding; wanted the decision finished before `snapshot`")
        plain, arrays = self._shareable_log().to_state()
        learned: dict[str, Any] = {}
        if reports_outcomes(self._setup):
            learned, more = self._learner.to_state()
            arrays = arrays | more
        elif isinstance(self._learner, FieldLearner):
            learned = self._learner.whereabouts()
        packed = {name: (a.dtype.str, a.shape, np.ascontiguousarray(a).tobytes()) for name, a in arrays.items()}
        return zlib.compress(msgspec.msgpack.encode(({"log": plain, **learned}, packed)))

    def restore(self, snapshot: bytes, own: Mapping[str, OwnRow], last: int, since: int = 0) -> None:
        """Take over another agent's snapshot; its own decisions after number ``since`` are given up.

        A local belief continues from the agent's last decision, and learns its own measurements since then; others'
        arrive with the next fusion. ``own`` has outcomes of own factors by query, if no other agent may know them;
        ``last`` is the number of the last valid decision.

        Raises:
            ConfigError: If the data are not a snapshot of the same problem.
        """
        self.give_up(since)
        with intact("a `snapshot` of an agent of this team"):
            kind = tuple[dict[str, Any], dict[str, _PackedArray]]
            state, packed = msgspec.msgpack.decode(inflated(snapshot, _LARGEST_SNAPSHOT), type=kind)
            arrays = {name: _unpacked_array(*array) for name, array in packed.items()}
            # everything is tried before anything is replaced: a bad snapshot leaves the agent as it was
            log = self._log.from_state(state["log"], arrays)
            learner = self._learner
            if reports_outcomes(self._setup):
                learner = learner.from_state(state, arrays)
            elif isinstance(learner, FieldLearner):
                learner = learner.returned(state, own)
            log = self._with_own_outcomes(log, own)
        self._log, self._learner = log, learner
        self._own_rows, self._decisions, self._recommended, self._last_offers = OwnRows(), {}, None, {}
        self._stop(max(last, self._participant.decision))

    def learn_row(self, query: str, row: OwnRow) -> None:
        """Learn a checked outcome of a query (or ``UNREQUESTED``) from a fleet's coordinator; its order is set here."""
        self._own_rows = self._own_rows.with_row(query, msgspec.structs.replace(row, order=self._own_rows.next_order))

    def replace_rows(self, rows: OwnRows) -> None:
        """Replace the agent's data since the last valid decision, which are not reported yet."""
        if self._steps is not None:
            raise ConfigError(f"{self.name!r} is deciding; wanted the decision finished before the next outcome")
        self._own_rows = rows

    def _require_participants(self, count: int) -> None:
        if (participants := self.participants) is None:
            return
        if not isinstance(participants, Participants):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"got {short(participants)}; wanted Participants, or None", at="$.participants")
        participants.checked(self.name, self.problem)
        if count != 1:
            raise ConfigError(f"got {count}; wanted one decision at a time, with its participants", at="$.count")
        if not has_deadline(self._setup.coordination):
            wanted = "mode = 'asynchronous', as other modes wait for all agents"
            raise ConfigError(f"got participants; wanted {wanted}", at="$.participants")
        if participants.number <= self._participant.decision:
            raise ConfigError(f"got decision {participants.number}; wanted more than {self._participant.decision}")

    def _shareable_log(self) -> Logbook:
        """The log without this agent's private outcomes."""
        if reports_outcomes(self._setup):
            return self._log
        history, own = self._log.history, [self.problem.graph.place_of[factor] for factor in self.factors]
        factors, noise = history.factors.copy(), history.known_noise
        is_known = ~np.isnan(factors[:, own])
        if self.problem.is_field:  # others know of a measurement, not of its failure
            is_known |= history.failed[:, own]
        # a returning agent may know that outcomes arrived, but not their values
        factors[:, own] = np.where(is_known, PRIVATE_OUTCOME, np.nan)
        noise[:, [0, *(1 + column for column in own)]] = np.nan
        history = replace(history, factors=factors, noise_std=noise, totals=np.full(len(history), np.nan))
        return replace(self._log, history=history)

    def _with_own_outcomes(self, log: Logbook, own: Mapping[str, OwnRow]) -> Logbook:
        """Fill a received log with outcomes of own factors; outcomes that no agent knows any more count as missing."""
        if reports_outcomes(self._setup):
            return log
        history = log.history
        factors, noise, was_requested = history.factors.copy(), history.known_noise, history.taken.copy()
        if isinstance(self._learner, FieldLearner):
            rows = np.flatnonzero(~np.isnan(factors[:, column := self.problem.graph.place_of[self.name]]))
            measurements = [stop for _, stops in measurements_by_round(own, self.variables) for stop in stops]
            for i, stop in zip(rows, measurements, strict=True):
                factors[i, column], noise[i, 1 + column] = stop.numbers
            return replace(log, history=replace(history, factors=factors, noise_std=noise))
        assert history.rounds is not None
        by_round = {int(name[1:]): row for name, row in own.items()}
        for i, query_round in enumerate(history.rounds.tolist()):
            row = by_round.get(int(query_round))
            for factor in self.factors:
                column = self.problem.graph.place_of[factor]
                if np.isnan(factors[i, column]):
                    continue
                y = None if row is None else row.factors.get(factor)
                factors[i, column] = np.nan if y is None else y
                was_requested[i, column] &= y is not None
                noise[i, 1 + column] = np.nan if row is None else row.noise.get(factor, np.nan)
        return replace(log, history=replace(history, factors=factors, noise_std=noise, taken=was_requested).with_sums())


def _states_of(log: Logbook, learner: FieldLearner | FunctionLearner) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    (plain, arrays), (learned, more) = log.to_state(), learner.to_state()
    return {"log": plain, **learned}, arrays | more


def _unpacked_array(dtype: str, shape: tuple[int, ...], content: bytes) -> np.ndarray:
    if np.dtype(dtype).kind not in "fiub":
        raise ValueError(f"got an array of {dtype}; wanted numbers")
    return np.frombuffer(content, dtype).reshape(shape).copy()
