"""Steps: a generator that yields requests for what it lacks, is sent their answers, and returns its result."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

Out = TypeVar("Out")
Steps = Generator[Any, Any, Out]  # requests are of coordination, of acquisitions, or of a decision; see their drivers


def run_steps(steps: Steps[Out], answer: Callable[[Any], Any]) -> Out:
    """Run steps, answering each request at once."""
    reply: Any = None
    while True:
        try:
            request = steps.send(reply)
        except StopIteration as finished:
            return finished.value
        reply = answer(request)


def answer_requests(steps: Steps[Out], answer: Callable[[Any], Steps[Any]]) -> Steps[Out]:
    """Run steps; each request is answered by steps, whose own requests are passed on."""
    reply: Any = None
    while True:
        try:
            request = steps.send(reply)
        except StopIteration as finished:
            return finished.value
        reply = yield from answer(request)
