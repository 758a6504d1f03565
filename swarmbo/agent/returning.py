"""An agent that goes on without others, and one that comes back: it takes over what was decided without it."""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from swarmbo.agent.saved import Saved
from swarmbo.agent.told import Owned
from swarmbo.belief.fusion import FusedBelief
from swarmbo.coordination.by_deadline import has_deadline
from swarmbo.coordination.participant import Participant
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.own_rows import UNHEARD, OwnRow, OwnRows, shares_outcomes
from swarmbo.errors import ConfigError

_MOST = 2**28  # bytes of what is lent, once it is unpacked


class _Array(msgspec.Struct, frozen=True, array_like=True):
    """An array of numbers: what they are, how many, and their bytes."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes


class _State(msgspec.Struct, frozen=True, array_like=True):
    json: dict[str, Any]
    arrays: dict[str, _Array]


class Returning(Saved):
    """Base of agents of which some may be absent for a while."""

    def give_up(self, last: int) -> None:
        """Take back what was begun or decided after a decision, as if it had never been asked for.

        Nothing may have been told of it. Its number is not used again, so messages of it that are still under way are
        not taken for others; messages of decisions that are yet to come are kept.

        Args:
            last: Number of the last decision that holds.
        """
        if self._participant.decision <= last or self._before is None:
            return
        begun = self._before
        self._log, self._learner, self._own = begun.log, begun.learner, begun.deciding.said.then(self._own)
        self._words = {}
        self._stop()

    def lend(self) -> bytes:
        """What everybody knows, for one who comes back: the log, and where all learn alike what was learned.

        Outcomes of factors that are its own it keeps to itself, where agents do.

        Raises:
            ConfigError: If it is deciding, or agents have beliefs of their own.
        """
        if self._steps is not None:
            raise ConfigError(f"{self.name!r} is deciding; wanted it finished before it lends")
        self._require_shared()
        plain, arrays = self._lent_log().to_state()
        learned: dict[str, Any] = {}
        if self._learns_alike:
            learned, more = self._learner.to_state()
            arrays = arrays | more
        packed = {
            name: _Array(array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes())
            for name, array in arrays.items()
        }
        return zlib.compress(msgspec.msgpack.encode(_State({"log": plain, **learned}, packed)))

    def adopt(self, lent: bytes, own: Mapping[str, OwnRow], last: int) -> None:
        """Take over what another one lent; what this one did not know that was decided is given up.

        Args:
            lent: What it was.
            own: By query, what came of own factors, where that is nobody else's to tell.
            last: Number of the last decision that holds.

        Raises:
            ConfigError: If it is nothing that an agent of the same problem lends.
        """
        self._require_shared()
        try:
            state = msgspec.msgpack.decode(_inflated(lent), type=_State)
            arrays = {name: _array(array) for name, array in state.arrays.items()}
            log = self._log.from_state(state.json["log"], arrays)
            shapes = log.history.X.shape[1:], log.history.factors.shape[1:]
            if shapes != (self._log.history.X.shape[1:], self._log.history.factors.shape[1:]):
                raise ValueError(f"got rows of {shapes}")
            learner = self._learner.from_state(state.json, arrays) if self._learns_alike else self._learner
        except (msgspec.MsgspecError, zlib.error, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"{type(error).__name__}: {error}; wanted what an agent of this team lends") from error
        self._log, self._learner = self._filled(log, own), learner
        self._own, self._words, self._recommended = OwnRows(), {}, None
        self._participant = Participant[Any](self.name, max(last, self._participant.decision))
        self._stop()

    def told_again(self, rows: OwnRows) -> None:
        """What it was told since the last decision that holds, and has yet to say; all of it, and nothing else.

        Raises:
            ConfigError: If it is deciding.
        """
        if self._steps is not None:
            raise ConfigError(f"{self.name!r} is deciding; wanted it finished before it is told again")
        self._own = rows

    @property
    def _learns_alike(self) -> bool:
        return self.problem.is_field or shares_outcomes(self.problem)

    @property
    def _teller(self) -> Owned:
        """Its own, with who is told totals in this company."""
        return self._owned if self.company is None else replace(self._owned, teller=self.company.members[0])

    def _stop(self) -> None:
        """Wait for nothing any more."""
        self._steps = self._begun = self._before = self._clocked = None
        number = self._participant.decision
        self._participant = Participant[Any](self.name, number)
        self._n_agreed = max(self._n_agreed, 2 * number + 2)

    def _require_company(self, count: int) -> None:
        """Refuse a decision in a company that cannot make it."""
        if (company := self.company) is None:
            return
        company.checked(self.name, self.problem)
        self._require_shared()
        if count != 1:
            raise ConfigError(f"got {count}; wanted one decision at a time, in a company", at="$.count")
        if not has_deadline(self._setup.coordination):
            raise ConfigError("got a company; wanted mode = 'asynchronous': others wait for all", at="$.company")
        if company.number <= self._participant.decision:
            raise ConfigError(f"got decision {company.number}; wanted later than {self._participant.decision}")

    def _require_shared(self) -> None:
        belief = getattr(self._learner, "belief", None)
        if isinstance(belief, FusedBelief):
            raise ConfigError("got beliefs of agents' own; wanted one that all share, where some are absent")

    def _lent_log(self) -> Logbook:
        """The log without outcomes that are only this agent's."""
        if self._learns_alike:
            return self._log
        history, own = self._log.history, [self.problem.channels.index(factor) for factor in self.factors]
        factors, noise = history.factors.copy(), history.known_noise
        factors[:, own] = np.where(np.isnan(factors[:, own]), np.nan, UNHEARD)
        noise[:, [0, *(1 + column for column in own)]] = np.nan
        history = replace(history, factors=factors, noise_std=noise, totals=np.full(len(history), np.nan))
        return replace(self._log, history=history)

    def _filled(self, log: Logbook, own: Mapping[str, OwnRow]) -> Logbook:
        """A log that was lent, with what came of own factors; what nobody knows any more was not heard of."""
        if self._learns_alike:
            return log
        history = log.history
        factors, noise, taken = history.factors.copy(), history.known_noise, history.taken
        assert history.rounds is not None
        assert taken is not None
        taken = taken.copy()
        by_round = {round_of(name): row for name, row in own.items()}
        for i, asked in enumerate(history.rounds.tolist()):
            row = by_round.get(int(asked))
            for factor in self.factors:
                column = self.problem.channels.index(factor)
                if np.isnan(factors[i, column]):
                    continue
                y = None if row is None else row.factors.get(factor)
                factors[i, column] = np.nan if y is None else y
                taken[i, column] &= y is not None
                noise[i, 1 + column] = np.nan if row is None else row.noise.get(factor, np.nan)
        return replace(log, history=replace(history, factors=factors, noise_std=noise, taken=taken).with_sums())


def round_of(query_id: str) -> int:
    """The round of a function that a query is: they are numbered from 1.

    Example:
        >>> round_of("q00012")
        12
    """
    return int(query_id[1:])


def _inflated(lent: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(lent, _MOST)
    if not unpacking.eof:
        raise ValueError(f"got more than {_MOST} bytes, or not all of them")
    return content


def _array(packed: _Array) -> np.ndarray:
    dtype = np.dtype(packed.dtype)
    if dtype.kind not in "fiub":
        raise ValueError(f"got an array of {packed.dtype}; wanted numbers")
    return np.frombuffer(packed.content, dtype).reshape(packed.shape).copy()
