"""An agent in its own process, behind a pipe."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from swarmbo.agent.agent import Agent
from swarmbo.boundary.processes import begin_process, one_blas_thread, picklable, without_interrupts
from swarmbo.errors import TransportError
from swarmbo.problem import Problem
from swarmbo.records import Traffic

P = ParamSpec("P")
R = TypeVar("R")
_END_SECONDS = 5.0  # seconds that a process has to end
_STATUS = ("is_finished", "keeps_time", "agreement", "sent")  # attributes that each answer has


def serve(connection: "Connection[Any, Any]") -> None:
    """Run an agent that the other end of a connection controls, until the connection is closed.

    The first message is a tuple that makes the agent: ``("new", (name, problem), settings)``, or ``("again", (state,),
    {})``. Each further message has a method of ``Agent``, its arguments and its keywords. The answer has the result or
    exception, ``is_finished``, ``keeps_time``, ``agreement``, and the traffic of the agent's messages. Received data
    are unpickled: keep the other end trusted.
    """
    agent: Agent | None = None
    with one_blas_thread(), suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            name, arguments, keywords = connection.recv()
            try:
                if agent is None:
                    agent = (Agent if name == "new" else Agent.from_state_dict)(*arguments, **keywords)
                    answer = agent.name
                else:
                    answer = getattr(agent, name)(*arguments, **keywords)
            except Exception as error:  # noqa: BLE001 - it is raised in the caller
                answer = picklable(error)
            status = (True, False, -1, {}) if agent is None else tuple(getattr(agent, name) for name in _STATUS)
            connection.send((answer, *status))


def _begin(connection: "Connection[Any, Any]") -> None:
    begin_process()
    serve(connection)


def _remote(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate["RemoteAgent", P], R]:

    @wraps(method)
    def call(self: "RemoteAgent", *args: P.args, **kwargs: P.kwargs) -> R:
        return self._call(method.__name__, *args, **kwargs)  # pyright: ignore[reportPrivateUsage]

    call.__doc__ = f"See ``Agent.{method.__name__}``."
    return call


def _attribute(name: str) -> Any:

    def value_of(self: "RemoteAgent") -> Any:
        return self._call("__getattribute__", name)  # pyright: ignore[reportPrivateUsage]

    def change(self: "RemoteAgent", value: object) -> None:
        self._call("__setattr__", name, value)  # pyright: ignore[reportPrivateUsage]

    return property(value_of, change, doc=f"See ``Agent``: ``{name}``.")


class RemoteAgent:
    """An agent in its own process, with the arguments, methods and attributes of ``Agent``.

    The process starts fresh (``spawn``), so it has only the data that it is given; ``travel`` is pickled. As with any
    use of ``multiprocessing``, a script must create it under ``if __name__ == "__main__":``.

    Example:
        >>> import swarmbo as sb
        >>> problem = sb.Problem.of(sb.FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 1.0)})
        >>> with sb.RemoteAgent("x", problem, seed=1) as agent:
        ...     query_id, outbox, decision = agent.ask(), agent.tick(0.0), agent.decision()
        >>> query_id, outbox, list(decision)  # the only agent sends no messages
        ('q00001', [], ['x'])
    """

    __slots__ = ("__weakref__", "_awaited", "_connection", "_process", "name", *_STATUS)

    def __init__(self, name: str, problem: Problem, **given: Any) -> None:
        self._start(name, "new", name, problem, **given)

    @classmethod
    def from_state_dict(cls, state: Any, **own: Any) -> Self:
        """Restore the agent of a ``state_dict`` in a new process."""
        agent = cls.__new__(cls)
        agent._start("restored", "again", state, **own)
        agent.name = state["json"]["name"]
        return agent

    def _start(self, name: str, command: str, /, *arguments: Any, **keywords: Any) -> None:
        context = get_context("spawn")
        self.name, self.is_finished, self.keeps_time, self.agreement = name, True, False, -1
        self.sent: dict[str, Traffic] = {}
        self._connection, child_end = context.Pipe()
        self._awaited = 0  # answers not received yet; more than one after an interrupted call
        self._process = context.Process(target=_begin, args=(child_end,), name=f"agent {name}", daemon=True)
        with without_interrupts():
            self._process.start()
        child_end.close()
        try:
            self._call(command, *arguments, **keywords)
        except BaseException:  # also at an interrupt, as no other code can close this agent
            self.close()
            raise

    ask, tell, tick = _remote(Agent.ask), _remote(Agent.tell), _remote(Agent.tick)
    observe, attach, recommend = _remote(Agent.observe), _remote(Agent.attach), _remote(Agent.recommend)
    decision, coded_decision = _remote(Agent.decision), _remote(Agent.coded_decision)
    recommended, state_dict = _remote(Agent.recommended), _remote(Agent.state_dict)
    give_up, snapshot, restore = _remote(Agent.give_up), _remote(Agent.snapshot), _remote(Agent.restore)
    learn_row, replace_rows = _remote(Agent.learn_row), _remote(Agent.replace_rows)
    has_base, travel, problem = _attribute("has_base"), _attribute("travel"), _attribute("problem")
    level, sites, links = _attribute("level"), _attribute("sites"), _attribute("links")
    participants, report, patience = _attribute("participants"), _attribute("report"), _attribute("patience")
    refused, log, factors = _attribute("refused"), _attribute("log"), _attribute("factors")
    variables, belief = _attribute("variables"), _attribute("belief")

    @property
    def is_alive(self) -> bool:
        """True if its process runs."""
        return self._process.is_alive()

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(_END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        try:
            while self._awaited:  # the answer of an interrupted call
                self._receive()
            with without_interrupts():
                self._connection.send((name, arguments, keywords))
                self._awaited += 1
            answer, *status = self._receive()
        except (EOFError, OSError) as gone:
            got = f"the process of agent {self.name!r} has ended"
            raise TransportError(f"{got}; wanted it to answer {name!r}") from gone
        for attribute, value in zip(_STATUS, status, strict=True):
            setattr(self, attribute, value)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _receive(self) -> tuple[Any, ...]:
        self._connection.poll(None)  # an interrupt while it waits takes nothing from the pipe
        with without_interrupts():
            self._awaited -= 1  # first, as an answer that cannot be unpickled is taken from the pipe, too
            return self._connection.recv()
