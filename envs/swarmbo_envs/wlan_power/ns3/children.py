"""Simulators in child processes: started once, sent one configuration after another, replaced when they fail."""

import contextlib
import functools
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any

_START_S = 60.0
_LONGEST = 1 << 26  # bytes of an answer

Answer = dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """Reason of a missing answer.

    Args:
        reason: One reproducible line, so that it can be compared with a log.
        output: Last output of the simulator.
    """

    reason: str
    output: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.output}" if self.output else self.reason


_INVALID_ANSWER = Failure("the simulator answered with what is no answer")


class Children:
    """Simulators that answer questions, several at the same time.

    A child prints ``{"ready": true}`` and then answers each line of JSON with a line that has the ``id`` of the
    question. A child that ends, does not answer in time or gives an invalid answer is ended, and the answer is a
    ``Failure``: a value, not an exception, since simulators fail and a run continues. A child that ended between two
    questions is replaced silently. A copy, also a deep or pickled one, starts its own children.

    ``processes`` is the largest number of children, each started on first use; ``timeout_s`` the wall-clock limit of an
    answer. After ``most_uses`` questions a child is replaced, since simulators leak memory. ``is_answer`` is a
    module-level function, so that it can be copied.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        processes: int = 1,
        timeout_s: float = 120.0,
        most_uses: int = 1000,
        is_answer: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] | None = None,
    ) -> None:
        self._command, self._environment = tuple(command), environment
        self._timeout_s, self._most_uses, self._is_answer = timeout_s, most_uses, is_answer
        self._n_processes = processes
        self._pool: queue.SimpleQueue[_Child | None] = queue.SimpleQueue()  # a child, or room for a new one
        for _ in range(processes):
            self._pool.put(None)
        self._n_questions = 0

    def __reduce__(self) -> tuple[Any, ...]:
        own = {"environment": self._environment, "processes": self._n_processes, "timeout_s": self._timeout_s}
        more = {"most_uses": self._most_uses, "is_answer": self._is_answer}
        return functools.partial(Children, self._command, **own, **more), ()

    def start(self) -> Failure | None:
        """Start one child now, as a check."""
        child = self._pool.get() or self._start_child()
        failure = child if isinstance(child, Failure) else None
        self._pool.put(None if isinstance(child, Failure) else child)
        return failure

    def ask(self, questions: Sequence[Mapping[str, Any]]) -> list[Answer | Failure]:
        """Answers to JSON questions, in their order; an ``id`` is added to each."""
        numbered = [{**question, "id": self._n_questions + number} for number, question in enumerate(questions)]
        self._n_questions += len(numbered)
        if len(numbered) <= 1 or self._n_processes == 1:
            return [self._answer(question) for question in numbered]
        with ThreadPoolExecutor(self._n_processes) as threads:
            return list(threads.map(self._answer, numbered))

    def close(self) -> None:
        """End all children. The next question starts new children."""
        for _ in range(self._n_processes):
            if (child := self._pool.get()) is not None:
                child.end()
            self._pool.put(None)

    def _answer(self, question: Mapping[str, Any]) -> Answer | Failure:
        child = self._pool.get()
        if child is not None and (child.n_questions >= self._most_uses or not child.is_running):
            child.end()
            child = None
        answer: Answer | Failure = Failure("")
        try:
            if child is None:
                started = self._start_child()
                if isinstance(started, Failure):
                    return started
                child = started
            child.n_questions += 1
            answer = child.exchange(json.dumps(question).encode() + b"\n", self._timeout_s)
            if not isinstance(answer, Failure):
                is_fit = self._is_answer is None or self._is_answer(question, answer)
                answer = answer if is_fit and answer.get("id") == question["id"] else _INVALID_ANSWER
            return answer
        finally:
            if child is not None and isinstance(answer, Failure):
                child.end()
                child = None
            self._pool.put(child)

    def _start_child(self) -> "_Child | Failure":
        try:
            child = _Child(self._command, self._environment)
        except OSError as error:
            return Failure(f"the simulator cannot be started: {error.strerror or error}")
        greeting = child.exchange(b"", _START_S)
        if not isinstance(greeting, Failure) and greeting.get("ready") is True:
            return child
        child.end()
        return greeting if isinstance(greeting, Failure) else Failure("the simulator did not say that it is ready")


class _Child:
    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed when the child is ended
        pipe = subprocess.PIPE
        try:
            # a session of its own: a keyboard interrupt is for the parent, which ends the child
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=self._stderr, env=environment, start_new_session=True
            )
        except OSError:
            self._stderr.close()
            raise
        self.n_questions = 0
        self._finalizer = weakref.finalize(self, _end, self._process, self._stderr)

    @property
    def is_running(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def end(self) -> None:
        self._finalizer()

    def exchange(self, text: bytes, timeout_s: float) -> Answer | Failure:
        """Write a question, or nothing, and read a line; the process is killed if it takes longer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        is_late = threading.Event()

        def kill_late() -> None:
            is_late.set()
            _kill(self._process)  # which wakes the waiting reader

        timer = threading.Timer(timeout_s, kill_late)
        timer.daemon = True
        timer.start()
        try:
            self._process.stdin.write(text)
            self._process.stdin.flush()
            line = self._process.stdout.readline(_LONGEST)
        except OSError:  # the reader has closed the pipe
            line = b""
        finally:
            timer.cancel()
            timer.join()
        if not line.endswith(b"\n"):
            late = f"the simulator did not answer within {timeout_s:g} s"
            return Failure(late if is_late.is_set() else self._exit_reason(), self._last_output())
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        return answer if isinstance(answer, dict) else _INVALID_ANSWER

    def _exit_reason(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        code = self._process.returncode
        if code is None:
            return "the simulator closed its output"
        if code < 0 and -code in {known.value for known in signal.Signals}:
            return f"the simulator was killed by {signal.Signals(-code).name}"
        return f"the simulator ended with code {code}"

    def _last_output(self) -> str:
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 4096))
        lines = self._stderr.read().decode(errors="replace").split("\n")
        written = [" ".join(line.split()) for line in lines if line.strip()]
        return written[-1][:200] if written else ""


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg") and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _end(process: "subprocess.Popen[bytes]", stderr: IO[bytes]) -> None:
    _kill(process)
    process.wait()
    for stream in (process.stdin, process.stdout, stderr):
        if stream is not None:
            with contextlib.suppress(OSError):  # buffered data of a process that is gone
                stream.close()
