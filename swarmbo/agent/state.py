"""State of an agent: saved and restored, taken back, and handed to an agent that returns."""

import math
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import msgspec
import numpy as np

from swarmbo.acquisition import Travel
from swarmbo.agent.schema import Participants, learns_alike
from swarmbo.agent.talking import Begun, Deciding, Talking
from swarmbo.boundary.values import linked, whole_number
from swarmbo.coordination.participant import Participant
from swarmbo.coordination.plan import has_deadline
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.function import FunctionLearner
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.offers import Offer, PackedOffer, inflated
from swarmbo.deciding.own_rows import UNASKED, UNHEARD, OwnRow, OwnRows, stops_by_round
from swarmbo.deciding.setup import settings_again
from swarmbo.errors import ConfigError, StateVersionError
from swarmbo.problem import Problem
from swarmbo.records import Recommendation
from swarmbo.transport import Envelope

STATE_VERSION = 6  # 6: expected sums at many points
_BEFORE = "before/"  # of arrays of the state before the last decision
_MOST = 2**28  # bytes of an unpacked snapshot
_Packed = tuple[str, tuple[int, ...], bytes]  # type, shape and bytes of an array


class Returning(Talking):
    """Base of agents that can be saved, also while they are deciding, and that may be absent for a while."""

    def state_dict(self) -> dict[str, Any]:
        """State of the agent as ``{"json": plain data, "arrays": {name: array}}``, also while it is deciding."""
        begun, links = self._begun, self.links
        log, learner = (self._log, self._learner) if begun is None else (begun.log, begun.learner)
        known, arrays = _state(log, learner)
        before = None
        if begun is None and self._before is not None:
            before, more = _state(self._before.log, self._before.learner)
            before["said"] = msgspec.to_builtins(self._before.deciding.said)
            arrays |= {_BEFORE + name: array for name, array in more.items()}
        plain = {
            "version": STATE_VERSION,
            "name": self.name,
            "links": None if links is None else {"agents": list(links.nodes), "edges": [list(e) for e in links.edges]},
            "patience": None if math.isinf(self.patience) else self.patience,
            "level": self.level,
            "sites": None if self.sites is None else self.sites.tolist(),
            "has_base": self.has_base,
            "travels": self.travel is not None,
            "problem": self.problem.to_plain(),
            "settings": self._setup.to_plain(),
            "own": msgspec.to_builtins(self._own),
            "offered": msgspec.to_builtins(self._offered),
            "words": self._words,
            "recommended": msgspec.to_builtins(self._recommended),
            "turn": self._participant.decision,
            "company": msgspec.to_builtins(self.participants),
            "early": [[early.sender, msgspec.to_builtins(early.payload)] for *_, early in self._early],
            "begun": None if begun is None else msgspec.to_builtins(begun.deciding),
            "before": before,
            **known,
        }
        return {"json": plain, "arrays": arrays}

    @classmethod
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
            ConfigError: If your own part, or travel times, are missing.
        """
        plain = state["json"]
        if plain.get("version") != STATE_VERSION:
            raise StateVersionError(f"got agent state version {plain.get('version')}; wanted {STATE_VERSION}")
        if plain["travels"] is not (travel is not None):
            had = "one when the state was written" if plain["travels"] else "none when the state was written"
            raise ConfigError(f"got {type(travel).__name__}; wanted what it had: {had}", at="$.travel")
        own = {"belief": belief, "acquisition": acquisition, "coordination": coordination}
        links: dict[str, Any] = plain["links"] or {"agents": (), "edges": None}
        made = cls(  # an ``Agent``, which makes its own setup
            plain["name"],
            Problem.from_plain(plain["problem"]).watching(plain["level"]),
            links=linked(**links),
            patience=math.inf if plain["patience"] is None else plain["patience"],
            sites=plain["sites"],
            has_base=plain["has_base"],
            travel=travel,
            **settings_again(plain["settings"], own),
        )
        made._log = made._log.from_state(plain["log"], state["arrays"])
        made._learner = made._learner.from_state(plain, state["arrays"])
        made._recommended = msgspec.convert(plain["recommended"], Recommendation | None)
        made.participants = msgspec.convert(plain["company"], Participants | None)
        later, begun = msgspec.convert(plain["own"], OwnRows), msgspec.convert(plain["begun"], Deciding | None)
        made._offered = msgspec.convert(plain["offered"], dict[str, PackedOffer])
        if begun is not None:
            made._own, made._offered = begun.said, dict(begun.known)
            made._participant = Participant[Any](made.name, begun.turn)
            made._words = dict.fromkeys(plain["words"]) if begun.count else dict(plain["words"])
            before, *ticks = begun.by_tick(made.name)
            if not begun.is_under_way:
                made._put_aside(before)
            made._begin(begun.count, begun.offer)
            for inbox in (before, *ticks) if begun.is_under_way else ():
                made.tick(0.0, inbox)
            made._participant.since = None  # the clock differs
        else:
            early = msgspec.convert(plain["early"], tuple[tuple[str, bytes], ...])
            made._words = dict(plain["words"])
            made._participant = Participant[Any](made.name, plain["turn"])
            made._put_aside([Envelope(sender, made.name, payload) for sender, payload in early])
            if (before := plain.get("before")) is not None:
                arrays = {name.removeprefix(_BEFORE): array for name, array in state["arrays"].items()}
                said = Deciding(0, msgspec.convert(before["said"], OwnRows), Offer(), 0)
                log, learner = made._log.from_state(before["log"], arrays), made._learner.from_state(before, arrays)
                made._before = Begun(said, log, learner, {})
        # told while it was deciding, so not part of the decision that was just repeated
        made._own = later
        return made

    def give_up(self, last: int) -> None:
        """Take back the decisions of the last request after number ``last``, also unfinished ones, as if not requested.

        Call it on all agents with the same number, from 0; recommendations are numbered, too. Numbers are not used
        again, so late messages are recognised; messages of future decisions are kept.

        Raises:
            ConfigError: If it is no number, or an outcome of these decisions was told.
        """
        whole_number(last, 0, "$.last")
        if self._participant.decision <= last or (before := self._before) is None:
            return
        if told := sorted(self._own.told.keys() - before.log.open.keys() - {UNASKED}):
            raise ConfigError(f"got decisions of {told}, which have outcomes; wanted them taken back before any")
        self._take_back(before, max(self._participant.decision, before.deciding.last))
        self._words, self._offered = {}, {}

    def snapshot(self) -> bytes:
        """Common knowledge for a returning agent, without private outcomes: the log and a learner that all share."""
        if self._steps is not None:
            raise ConfigError(f"{self.name!r} is deciding; wanted the decision finished before `snapshot`")
        plain, arrays = self._lent_log().to_state()
        learned: dict[str, Any] = {}
        if learns_alike(self._setup):
            learned, more = self._learner.to_state()
            arrays = arrays | more
        elif isinstance(self._learner, FieldLearner):
            learned = self._learner.whereabouts()
        packed = {name: (a.dtype.str, a.shape, np.ascontiguousarray(a).tobytes()) for name, a in arrays.items()}
        return zlib.compress(msgspec.msgpack.encode(({"log": plain, **learned}, packed)))

    def restore(self, lent: bytes, own: Mapping[str, OwnRow], last: int, since: int = 0) -> None:
        """Take over another agent's snapshot; its own decisions after number ``since`` are given up.

        A local belief continues from the agent's last decision, and learns its own measurements since then; others'
        arrive with the next fusion. ``own`` has outcomes of own factors by query, if no other agent may know them;
        ``last`` is the number of the last valid decision.

        Raises:
            ConfigError: If the data are not a snapshot of the same problem.
        """
        self.give_up(since)
        try:
            kind = tuple[dict[str, Any], dict[str, _Packed]]
            known, packed = msgspec.msgpack.decode(inflated(lent, _MOST), type=kind)
            arrays = {name: _array(*array) for name, array in packed.items()}
            # everything is tried before anything is replaced: a bad snapshot leaves the agent as it was
            log = self._log.from_state(known["log"], arrays)
            learner = self._learner
            if learns_alike(self._setup):
                learner = learner.from_state(known, arrays)
            elif isinstance(learner, FieldLearner):
                learner = learner.returned(known, own)
            log = self._filled(log, own)
        except (msgspec.MsgspecError, zlib.error, KeyError, TypeError, ValueError, AttributeError) as error:
            got = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{got}; wanted a `snapshot` of an agent of this team") from error
        self._log, self._learner = log, learner
        self._own, self._words, self._recommended, self._offered = OwnRows(), {}, None, {}
        self._stop(max(last, self._participant.decision))

    def note(self, query: str, row: OwnRow) -> None:
        """Learn the checked outcome of a query (or ``UNASKED``) from a fleet's coordinator; its order is set here."""
        self._own = self._own.with_told(query, msgspec.structs.replace(row, order=self._own.next_order))

    def told_again(self, rows: OwnRows) -> None:
        """Replace the agent's data since the last valid decision, which are not reported yet."""
        if self._steps is not None:
            raise ConfigError(f"{self.name!r} is deciding; wanted the decision finished before the next outcome")
        self._own = rows

    def _require_participants(self, count: int) -> None:
        """Refuse a decision that its participants cannot make."""
        if (participants := self.participants) is None:
            return
        participants.checked(self.name, self.problem)
        if count != 1:
            raise ConfigError(f"got {count}; wanted one decision at a time, with its participants", at="$.count")
        if not has_deadline(self._setup.coordination):
            wanted = "mode = 'asynchronous', as other modes wait for all agents"
            raise ConfigError(f"got participants; wanted {wanted}", at="$.participants")
        if participants.number <= self._participant.decision:
            raise ConfigError(f"got decision {participants.number}; wanted later than {self._participant.decision}")

    def _lent_log(self) -> Logbook:
        """The log without private outcomes of this agent."""
        if learns_alike(self._setup):
            return self._log
        history, own = self._log.history, [self.problem.graph.place_of[factor] for factor in self.factors]
        factors, noise = history.factors.copy(), history.known_noise
        came = ~np.isnan(factors[:, own])
        if self.problem.is_field:  # others know of a measurement, not of its failure
            came |= history.failed[:, own]
        # a returning agent may know that outcomes came, and no values
        factors[:, own] = np.where(came, UNHEARD, np.nan)
        noise[:, [0, *(1 + column for column in own)]] = np.nan
        history = replace(history, factors=factors, noise_std=noise, totals=np.full(len(history), np.nan))
        return replace(self._log, history=history)

    def _filled(self, log: Logbook, own: Mapping[str, OwnRow]) -> Logbook:
        """Fill a received log with outcomes of own factors; outcomes that no agent knows any more count as unheard."""
        if learns_alike(self._setup):
            return log
        history = log.history
        factors, noise, taken = history.factors.copy(), history.known_noise, history.taken
        if isinstance(self._learner, FieldLearner):
            rows = np.flatnonzero(~np.isnan(factors[:, column := self.problem.graph.place_of[self.name]]))
            came = [stop for _, stops in stops_by_round(own, self.variables) for stop in stops]
            for i, stop in zip(rows, came, strict=True):
                measurement = stop.measurement(self.name)
                factors[i, column], noise[i, 1 + column] = measurement.outcome, measurement.noise_std
            return replace(log, history=replace(history, factors=factors, noise_std=noise))
        assert history.rounds is not None
        assert taken is not None
        taken = taken.copy()
        by_round = {int(name[1:]): row for name, row in own.items()}
        for i, asked in enumerate(history.rounds.tolist()):
            row = by_round.get(int(asked))
            for factor in self.factors:
                column = self.problem.graph.place_of[factor]
                if np.isnan(factors[i, column]):
                    continue
                y = None if row is None else row.factors.get(factor)
                factors[i, column] = np.nan if y is None else y
                taken[i, column] &= y is not None
                noise[i, 1 + column] = np.nan if row is None else row.noise.get(factor, np.nan)
        return replace(log, history=replace(history, factors=factors, noise_std=noise, taken=taken).with_sums())


def _state(log: Logbook, learner: FieldLearner | FunctionLearner) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    (plain, arrays), (learned, more) = log.to_state(), learner.to_state()
    return {"log": plain, **learned}, arrays | more


def _array(dtype: str, shape: tuple[int, ...], content: bytes) -> np.ndarray:
    if np.dtype(dtype).kind not in "fiub":
        raise ValueError(f"got an array of {dtype}; wanted numbers")
    return np.frombuffer(content, dtype).reshape(shape).copy()
