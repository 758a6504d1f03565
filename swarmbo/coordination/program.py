"""What an agent does while agreeing, written as one sequential program that waits for messages."""

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from swarmbo.coordination.messages import Key, Message
from swarmbo.coordination.tables import Table
from swarmbo.records import Status

Post = Callable[[str, Message], None]


class Outcome(NamedTuple):
    """What an agent comes out with: the index of each variable that it owns, and how that was reached."""

    assignment: dict[str, int]
    status: Status
    rounds: int


# Yields the keys that it waits for, and is sent the messages.
Program = Generator[tuple[Key, ...], dict[Key, Message], Outcome]


@runtime_checkable
class Plan(Protocol):
    """What every agent knows beforehand: scopes, owners, numbers of values, who relays to whom. No table."""

    def programs(self, agent: str, tables: Mapping[str, Table], post: Post) -> Iterable[Program]:
        """What one agent does, one program for each part of the graph that it takes part in.

        Args:
            agent: Its name.
            tables: Of the factors that it owns, and no others.
            post: Posts a message to an agent, itself included.
        """
        ...


class Heard:
    """Messages received so far, by key, for programs that use one more than once."""

    def __init__(self) -> None:
        self._messages: dict[Key, Any] = {}

    def __getitem__(self, key: Key) -> Any:
        return self._messages[key]

    def wait(self, keys: Iterable[Key]) -> Generator[tuple[Key, ...], dict[Key, Message], None]:
        """Wait for those that have not arrived yet."""
        missing = tuple(key for key in keys if key not in self._messages)
        if missing:
            self._messages.update((yield missing))
