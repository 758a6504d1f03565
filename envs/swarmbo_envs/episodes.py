"""Which episode a reset begins."""

import secrets
from typing import Protocol


class Numbered(Protocol):
    """An episode: the seed of its randomness, and its number among those of this seed."""

    seed: int
    number: int


def seed_and_number(seed: int | None, last: Numbered | None) -> tuple[int, int]:
    """The seed of the episode that begins, and its number among those of this seed.

    Args:
        seed: As given to ``reset``. None goes on to the next episode of the last seed.
        last: The episode before; None: there was none, and without a seed the first one is random.
    """
    if seed is not None:
        return int(seed), 0
    if last is not None:
        return last.seed, last.number + 1
    return secrets.randbits(62), 0
