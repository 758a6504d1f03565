"""What every world knows of an episode, and which one a reset begins."""

import secrets
from dataclasses import dataclass

from swarmbo.boundary.values import whole_number


@dataclass
class WorldEpisode:
    """What the episodes of all worlds have in common; each adds what changes from round to round in it.

    Args:
        seed: Of all randomness since the last reset that gave one.
        number: Episodes since that reset; each has its own randomness.
        round: Rounds that are over.
        running: Whether the episode goes on.
    """

    seed: int
    number: int
    round: int
    running: bool

    def share_left(self, max_cycles: int) -> float:
        """Share of the rounds that are still to come, >= 0."""
        return max(0.0, 1.0 - self.round / max_cycles)


def seed_and_number(seed: int | None, last: WorldEpisode | None) -> tuple[int, int]:
    """The seed of the episode that begins, and its number among those of this seed.

    Args:
        seed: As given to ``reset``. None goes on to the next episode of the last seed.
        last: The episode before; None: there was none, and without a seed the first one is random.

    Raises:
        ConfigError: If the seed is no integer >= 0.
    """
    if seed is not None:
        return whole_number(seed, 0, "$.seed"), 0
    if last is not None:
        return last.seed, last.number + 1
    return secrets.randbits(62), 0
