"""A network in one process that loses, repeats and delays, for members and the hub of a fleet."""

import random
from collections import defaultdict

import pytest

from swarmbo.fleet.link import Parcel


class Wire:
    """What all carriers share: a clock that only they move, and what is under way.

    Args:
        loss: Share of parcels that are lost.
        twice: Share of parcels that come twice.
        late: Most seconds that a parcel takes.
        seed: Of all that.
    """

    def __init__(self, loss: float = 0.0, twice: float = 0.0, late: float = 0.0, seed: int = 0) -> None:
        self.now, self.sent = 0.0, 0
        self._faults = loss, twice, late
        self._rng = random.Random(seed)
        self._under_way: defaultdict[str, list[tuple[float, Parcel]]] = defaultdict(list)

    def clock(self) -> float:
        return self.now

    def carrier(self, name: str) -> "Carrier":
        return Carrier(self, name)

    def send(self, sender: str, recipient: str, content: bytes) -> None:
        loss, twice, late = self._faults
        self.sent += 1
        for _ in range(2 if self._rng.random() < twice else 1):
            if self._rng.random() >= loss:
                when = self.now + late * self._rng.random()
                self._under_way[recipient].append((when, Parcel(sender, content)))

    def take(self, name: str) -> Parcel | None:
        due = [entry for entry in self._under_way[name] if entry[0] <= self.now]
        if not due:
            return None
        first = min(due, key=lambda entry: entry[0])
        self._under_way[name].remove(first)
        return first[1]


class Carrier:
    """A member's end of it."""

    def __init__(self, wire: Wire, name: str) -> None:
        self._wire, self._name = wire, name

    def send(self, recipient: str, content: bytes) -> None:
        self._wire.send(self._name, recipient, content)

    def wait(self, seconds: float) -> Parcel | None:
        if (parcel := self._wire.take(self._name)) is None:
            self._wire.now += max(seconds, 1e-3)
        return parcel


@pytest.fixture(scope="session")
def network() -> type[Wire]:
    return Wire
