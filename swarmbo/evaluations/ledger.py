"""Append-only log of a team's queries and outcomes, from which the team is restored after any kill.

Every ask, loss and tell is on the disk before it takes effect: before a query is sent, and before an outcome is used.
Lines of ``ledger.jsonl`` are chained by digests. The team's state is written at the start and, in place of the last
one, every 25 events. The order of events is that of arrival, on which later decisions depend.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from swarmbo import errors
from swarmbo.boundary import files, values
from swarmbo.boundary.files import append_line
from swarmbo.boundary.processes import one_blas_thread
from swarmbo.records import Query, SolveReport, Traffic

if TYPE_CHECKING:  # slow to import, and workers do not need it
    from swarmbo.team import Team

LEDGER = "ledger.jsonl"
STATES = f"ledger-{'[0-9]' * 6}.npz"
STATE_EVERY = 25  # events

_START = "swarmbo ledger 1"


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a ledger.

    Args:
        kind: ``begin`` (a process opened the ledger), ``ask``, ``lost`` (an evaluation ended without an outcome, and
            the query stays pending) or ``tell``.
        at: Time of the event, in seconds since 1970; nothing depends on it.
        query: Id of the query.
        point: Joint point of an ``ask``; in a ``tell``, the point that was evaluated instead, if any.
        mean: Expected outcome, in an ``ask``.
        std: Standard deviation of the outcome, in an ``ask``.
        report: Report of the decision, in an ``ask``.
        sharing: Traffic of sharing outcomes before the decision, in an ``ask``.
        outcome: Total or outcomes by channel, in a ``tell``; None for failed outcomes.
        failed: True if all outcomes that were not given failed.
        noise_std: Standard deviation of the noise, in a ``tell``.
        locations: Locations that agents measured, in a ``tell``, if not those of the query.
        constraints: Measured quantities with limits, in a ``tell``.
        why: Reason of a loss.
        team: Digest of the team's problem and settings, in a ``begin``.
        note: Plain data of the caller; not interpreted.
    """

    kind: Literal["begin", "ask", "lost", "tell"]
    at: float
    query: str = ""
    point: dict[str, Any] | None = None
    mean: float | None = None
    std: float | None = None
    report: SolveReport | None = None
    sharing: Traffic = Traffic()
    outcome: float | dict[str, float | None] | None = None
    failed: bool = False
    noise_std: float | dict[str, float | None] | None = None
    locations: dict[str, list[float]] | None = None
    constraints: dict[str, float | None] | None = None
    why: str = ""
    team: str = ""
    note: dict[str, Any] = {}


class Ledger:
    """A team whose asks and tells are logged. Several threads may call it; calls run one at a time.

    Calls use one thread for linear algebra, so that a replay decides the same whatever the number of cores. Once
    another program writes to the ledger, this one refuses further calls. In threads, evaluations must not change the
    number of threads for linear algebra.

    Attributes:
        team: The team; only the ledger may ask and tell it.
        events: All events, in order.
        watchers: Functions that are called with each event once it is on the disk.

    Example:
        >>> import tempfile, pathlib
        >>> import swarmbo as sb
        >>> make = lambda: sb.Team(None, {"x": (0.0, 1.0)}, seed=1)
        >>> with tempfile.TemporaryDirectory() as name:
        ...     ledger = Ledger.create(pathlib.Path(name), make())
        ...     query, other = ledger.ask(), ledger.ask()
        ...     losses = ledger.lost(query.id, "its process was killed")
        ...     told = ledger.tell(other.id, 2.0)
        ...     again = Ledger.open(pathlib.Path(name), make)
        >>> list(again.pending), again.losses(query.id), again.team.n_data
        (['q00001'], 1, 1)
    """

    def __init__(self, folder: Path, team: "Team", choose: "Callable[[Team], Query] | None" = None) -> None:
        self.team, self.events = team, list[Event]()
        self.watchers = list[Callable[[Event], None]]()
        self._folder, self._choose = folder, choose or methodcaller("ask")
        self._lock, self._digest, self._length, self._broken = threading.RLock(), _START, 0, ""
        self._is_logging = False
        self._asked, self._losses = dict[str, Event](), Counter[str]()

    @classmethod
    def create(cls, folder: Path, team: "Team", choose: "Callable[[Team], Query] | None" = None) -> Self:
        """Begin a ledger with a team in its present state.

        Args:
            folder: Existing folder.
            team: The team, with or without data.
            choose: Function that asks the team for its next query; by default ``team.ask()``.

        Raises:
            RunFolderError: If the folder has a ledger, or nothing can be written.
        """
        ledger = cls(folder, team, choose)
        if (folder / LEDGER).exists():
            raise errors.RunFolderError(f"{folder / LEDGER}: is there already; open it, or choose another folder")
        with ledger._writing():
            # the state comes first, since the team may have data that are in no event
            ledger._write_state(1)
            ledger._append(Event("begin", time.time(), team=_digest_of(team)))
        return ledger

    @staticmethod
    def is_in(folder: Path) -> bool:
        """True if a folder has a ledger."""
        return (folder / LEDGER).is_file()

    @classmethod
    def open(
        cls,
        folder: Path,
        make_team: "Callable[[], Team]",
        choose: "Callable[[Team], Query] | None" = None,
        replayed: Callable[[Self, Event], None] | None = None,
        known: int | None = None,
    ) -> Self:
        """Open a ledger and restore its team bit-identically, from the last saved state and later events.

        An incomplete last line, as a kill leaves it, is dropped, because it had no effect yet.

        Args:
            folder: Folder of the ledger.
            make_team: Function that makes a team with the same problem and settings.
            choose: As in ``create``.
            replayed: Function that is called with the ledger after each replayed event.
            known: Number of told queries that the caller knows. Later tells are replayed, also those in a saved state.

        Raises:
            RunFolderError: If there is no ledger, it is damaged or of another team, or a replay differs from the log.
        """
        path = folder / LEDGER
        with files.naming(path, "cannot be read"):
            text = files.read_regular(path)
        log = files.logged_lines(text, _START, path, Event, lambda event, at: at > 0 or event.kind == "begin", "event")
        if log.damage is not None:
            raise errors.RunFolderError(log.damage)
        events: list[Event] = log.records
        ledger = cls(folder, make_team(), choose)
        team_digest = _digest_of(ledger.team)
        if events and events[0].team != team_digest:
            raise errors.RunFolderError(f"{path}: is of another team: its problem or settings changed; put them back")
        ledger._digest, ledger._length = log.digest, log.length
        with ledger._writing():
            if path.stat().st_size != len(text):
                raise errors.RunFolderError(f"{path}: another program writes to it; end that one")
            os.truncate(path, log.length)
        with one_blas_thread():  # as in the logged calls
            ledger._replay(events, replayed, known)
        with ledger._writing():
            ledger._log(Event("begin", time.time(), team=team_digest))
        return ledger

    @property
    def pending(self) -> dict[str, Query]:
        """Queries that wait for outcomes, by id, in the order of asks."""
        with self._lock:
            return {query_id: self.query(query_id) for query_id in self.team.pending}

    def query(self, query_id: str) -> Query:
        """Query with an id, pending or told.

        Raises:
            UnknownQueryError: If it was never asked.
        """
        event, problem = self.asked(query_id), self.team.problem
        point, names = event.point or {}, problem.graph.variables
        joint = problem.placed(point) if problem.is_mixed else np.array([point.get(v, np.nan) for v in names])
        return Query(query_id, dict(point), problem.by_agent(joint), event.mean, event.std)

    def asked(self, query_id: str) -> Event:
        """Event of the ask of a query.

        Raises:
            UnknownQueryError: If it was never asked.
        """
        if query_id not in self._asked:
            waiting = list(self.team.pending)
            raise errors.UnknownQueryError(f"query {query_id!r} was never asked; waiting for outcomes: {waiting}")
        return self._asked[query_id]

    def losses(self, query_id: str) -> int:
        """Number of times that an evaluation of a query was lost."""
        return self._losses[query_id]

    @property
    def n_asked(self) -> int:
        """Number of queries."""
        return len(self._asked)

    @property
    def n_told(self) -> int:
        """Number of queries with all their outcomes."""
        with self._lock:
            return len(self._asked) - len(self.team.pending)

    def ask(self, note: Mapping[str, Any] | None = None) -> Query:
        """Ask for the next query, which is on the disk on return.

        Args:
            note: Plain data to log with it.

        Raises:
            ConfigError: If the note is not plain; then nothing is asked.
        """
        logged_note = _as_logged(Event("ask", time.time(), note=dict(note or {}))).note
        with self._transaction():
            query = self._choose(self.team)
            decided = (dict(query.point), query.mean, query.std, self.team.last_report, self.team.last_sharing)
            self._log(Event("ask", time.time(), query.id, *decided, note=logged_note))
            return query

    def lost(self, query_id: str, why: str, note: Mapping[str, Any] | None = None) -> int:
        """Log that an evaluation of a pending query ended without an outcome, and return the query's number of losses.

        Raises:
            UnknownQueryError: If the query is not pending.
        """
        loss = _as_logged(Event("lost", time.time(), query_id, why=why, note=dict(note or {})))
        with self._transaction():
            if query_id not in self.team.pending:
                self.asked(query_id)
                waiting = list(self.team.pending)
                raise errors.UnknownQueryError(f"query {query_id!r} has its outcome; pending: {waiting}")
            self._log(loss)
            return self.losses(query_id)

    def tell(
        self,
        query_id: str,
        outcome: float | Mapping[str, float | None] | None = None,
        *,
        failed: bool = False,
        point: Mapping[str, Any] | None = None,
        noise_std: float | Mapping[str, float] | None = None,
        locations: Mapping[str, ArrayLike] | None = None,
        constraints: Mapping[str, float | None] | None = None,
        note: Mapping[str, Any] | None = None,
    ) -> bool:
        """Learn an outcome, which is on the disk on return.

        Args:
            query_id: Id of the query.
            outcome: Total, or outcomes by channel; None means failed.
            failed: True if all outcomes that are not given failed.
            point: Point that was evaluated, if not that of the query.
            noise_std: Standard deviation of the noise, or a table like that of outcomes.
            locations: In a field, locations that agents measured, if not those of the query.
            constraints: Measured quantities that have ``limits``, by name.
            note: Plain data to log with it.

        Returns:
            True if the outcome or a quantity is new; False if all was recorded before, so that nothing changed.

        Raises:
            UnknownQueryError: If the query was never asked.
            ConfigError: As in ``Team.tell``; nothing is logged then.
        """
        where: Any = None if locations is None else dict(locations)
        quantities = self.team.problem.quantities(constraints)
        event = Event(
            "tell",
            time.time(),
            query_id,
            None if point is None else _plain_point(values.table(point, "{variable: value}", "$.point")),
            outcome=_checked_by_channel(outcome, values.outcome_from_user, "the evaluation"),
            failed=failed,
            noise_std=_checked_by_channel(noise_std, values.noise_from_user, "the evaluation"),
            locations=where,
            constraints=_checked_by_channel(quantities, values.outcome_from_user, "", "the quantity ") or None,
            note=dict(note or {}),
        )
        event = _as_logged(event)  # the team learns the logged form, so that a replay teaches it the same
        with self._transaction():
            if query_id not in self.team.pending:
                self.asked(query_id)  # raises if it was never asked
            history, pending = self.team.history, self.team.pending
            self._tell_team(event)  # a conflict raises
            is_new = self.team.history is not history or self.team.pending != pending
            if is_new:
                self._log(event)
            return is_new

    def require_whole(self) -> None:
        """Raise a RunFolderError if an event could not be logged, or a watcher failed: only the files are certain."""
        if self._broken:
            path = self._folder / LEDGER
            raise errors.RunFolderError(f"{path}: refuses calls since one failed: {self._broken}; open it again")

    def _tell_team(self, event: Event) -> None:
        names = ("failed", "point", "noise_std", "locations", "constraints")
        self.team.tell(event.query, event.outcome, **{name: getattr(event, name) for name in names})

    def _replay(self, events: list[Event], replayed: Callable[[Self, Event], None] | None, known: int | None) -> None:
        last_tells = {event.query: number for number, event in enumerate(events) if event.kind == "tell"}
        tells = sorted(last_tells.values())
        # after a kill before the first line was complete, only the state exists with which the ledger began
        n_done = self._load_state(max(len(events), 1) if known is None or known >= len(tells) else tells[known])
        for number, event in enumerate(events):
            got = ""
            if number >= n_done and event.kind == "ask":
                query = self._choose(self.team)
                if (query.id, query.point) != (event.query, event.point):
                    got = f"query {event.query} was replayed as {query.id} at {query.point}, not at {event.point}"
            elif number >= n_done and event.kind == "tell":
                try:
                    self._tell_team(event)
                except errors.SwarmboError as error:  # an earlier version accepted it
                    got = str(error)
            if got:
                at = f"{self._folder / LEDGER}: line {number + 1}"
                raise errors.RunFolderError(f"{at}: {got}; wanted the machine, code and versions that wrote it")
            self._index(event)
            if number >= n_done and replayed is not None:
                replayed(self, event)

    def _load_state(self, n_events: int) -> int:
        """Load the team's last state with at most ``n_events`` events; return the number of its events."""
        states = {int(path.stem.removeprefix("ledger-")): path for path in self._folder.glob(STATES)}
        for number in [number for number in states if number > n_events]:
            states.pop(number).unlink()  # it is written again in time
        if not states:
            return 0
        from swarmbo.deciding.team_state import read_state  # late, as above

        path = states[number := max(states)]
        try:
            self.team.load_state_dict(read_state(path))
        except (OSError, errors.ConfigError) as error:
            fix = "delete it, and all events are replayed from the start"
            raise errors.RunFolderError(f"{path}: is damaged ({error}); {fix}") from error
        return number

    def _index(self, event: Event) -> None:
        self.events.append(event)
        if event.kind == "ask":
            self._asked[event.query] = event
        elif event.kind == "lost":
            self._losses[event.query] += 1

    def _log(self, event: Event) -> None:
        self._is_logging = True
        self._append(event)
        if len(self.events) % STATE_EVERY == 0:
            self._write_state(len(self.events))
        for watcher in self.watchers:
            watcher(event)
        self._is_logging = False

    def _append(self, event: Event) -> None:
        path, line = self._folder / LEDGER, files.seal(msgspec.json.encode(event), self._digest)
        if self._length and path.stat().st_size != self._length:
            raise errors.RunFolderError(f"{path}: another program writes to it; end one of them")
        append_line(path, line)
        self._length += len(line) + 1
        sealed = files.read_seal(line, self._digest)
        assert sealed is not None
        self._digest = sealed.digest
        self._index(event)

    def _write_state(self, number: int) -> None:
        path = self._folder / f"ledger-{number:06d}.npz"
        self.team.save(path)
        for old in self._folder.glob(STATES):
            # the first one stays, as the data with which the team began are in no event
            if old.name not in (path.name, "ledger-000001.npz"):
                old.unlink()

    @contextmanager
    def _transaction(self) -> Generator[None]:
        """Block that asks or tells the team, then logs it. After a failure between, the ledger refuses further calls.

        The team may then be ahead of the log, or the log ahead of watchers. Opening the ledger again mends this.
        """
        with self._lock, one_blas_thread():
            self.require_whole()
            earlier_state, self._is_logging = (self.team.round, self.team.pending), False
            try:
                with self._writing():
                    yield
            except BaseException as error:
                is_ahead = self._is_logging or (self.team.round, self.team.pending) != earlier_state
                if is_ahead or isinstance(error, OSError):
                    self._broken = " ".join(f"{type(error).__name__}: {error}".split())
                raise

    def _writing(self) -> AbstractContextManager[None]:
        fix = "; what was logged is safe: resume the run, or open the ledger again"
        return files.naming(self._folder / LEDGER, "cannot be written", fix, errors.UnwritableError)


def _digest_of(team: "Team") -> str:
    return files.digest_of_table({"problem": team.problem.to_plain(), "settings": team.setup.to_plain()})


def _as_logged(event: Event) -> Event:
    try:
        encoder = msgspec.json.Encoder(enc_hook=methodcaller("tolist"), decimal_format="number")
        return msgspec.json.decode(encoder.encode(event), type=Event)
    except (AttributeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        wanted = "numbers, texts, and tables and lists of these"
        raise errors.ConfigError(f"got data that cannot be logged ({error}); wanted {wanted}") from error


def _plain_point(point: Mapping[str, Any]) -> dict[str, Any]:
    """Values of variables as JSON keeps them: choices as they are, numbers of other types as floats."""
    plain = values.exact(values.plain(point))
    for variable, value in plain.items():
        if values.is_number(value) and not isinstance(value, bool | int | str | float):
            plain[variable] = values.reported_number(value)
    return plain


def _checked_by_channel(given: Any, check: Callable[[object, str], float], what: str, noun: str = "") -> Any:
    """Checked number, or table of numbers by channel, None for NaN; ``noun`` stands before a channel's name."""
    if isinstance(given, Mapping):
        return {channel: _checked_by_channel(value, check, f"{noun}{channel!r}") for channel, value in given.items()}
    return None if np.isnan(number := check(given, what)) else number
