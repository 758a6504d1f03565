"""What several threads may call: one call at a time, and each does all it says or nothing."""

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="OneAtATime")


class OneAtATime:
    """Base of objects whose state is in attributes that are replaced, never changed in place.

    A copy, by ``copy.deepcopy`` or a pickle, has a lock of its own, and is made between two calls.

    Example:
        >>> class Counter(OneAtATime):
        ...     count = 0
        ...     @whole_or_not_at_all
        ...     def add(self, number):
        ...         self.count += 1
        ...         self.count += number - 1
        >>> counter = Counter()
        >>> try:
        ...     counter.add("two")
        ... except TypeError:
        ...     counter.add(2)
        >>> counter.count
        2
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            return {name: value for name, value in vars(self).items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "lock": threading.RLock()}


def whole_or_not_at_all(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method during which no other runs, and which leaves everything as it was if it ends in an exception.

    Also ``KeyboardInterrupt``: attributes are put back in one assignment, which nothing interrupts.
    """

    @wraps(method)
    def called(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.lock:
            before = self.__dict__.copy()
            try:
                return method(self, *args, **kwargs)
            except BaseException:
                self.__dict__ = before
                raise

    return called
