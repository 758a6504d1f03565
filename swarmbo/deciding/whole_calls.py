"""Thread-safe methods: one call at a time, each completed or without effect."""

import copy
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="OneAtATime")


class OneAtATime:
    """Base of objects whose attributes are replaced, never changed in place: a failed call restores only references.

    A copy, by ``copy.deepcopy`` or a pickle, has its own lock, and is made between two calls, since a reading method
    may compute and cache something.
    """

    shared: ClassVar[tuple[str, ...]] = ()
    """Attributes that other objects hold and change, too; a failed call does not restore them. A pickle does not copy
    them first, so objects that are pickled together still share them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """State to pickle: a copy, as pickling continues after the lock is released. Shared ones stay the same."""
        with self.lock:
            state = self._all_but_lock()
            shared = {id(state[name]): state[name] for name in self.shared if name in state}
            return copy.deepcopy(state, shared)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        with self.lock:
            memo[id(self)] = twin = type(self).__new__(type(self))
            twin.__setstate__(copy.deepcopy(self._all_but_lock(), memo))
            return twin

    def _all_but_lock(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "lock": threading.RLock()}


def whole_or_not_at_all(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Run a method alone, and restore all attributes if it ends in an exception.

    This includes ``KeyboardInterrupt``: attributes are restored in one assignment, which cannot be interrupted.
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
