"""A transport that hands over odd messages of one agent."""

from collections.abc import Callable
from typing import Any

import numpy as np

from swarmbo.transport import Envelope

from .carried import Recording


class Odd(Recording):
    """Hands over odd messages of one agent, beside the real ones or in their place.

    Args:
        routes: As of a transport.
        of: Whose.
        make: An odd one of a real one.
        most: How many, before it hands over real ones alone.
        share: Of the agent's messages, that are followed or preceded by odd ones.
        instead: Whether they take the place of real ones.
    """

    def __init__(
        self,
        routes: Any,
        of: str,
        make: Callable[[bytes], bytes],
        most: int = 10**6,
        share: float = 1.0,
        *,
        instead: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(routes)
        self.of, self.make, self.most, self.share, self.instead = of, make, most, share, instead
        self.rng, self.n_odd = np.random.default_rng(seed), 0

    def deliver(self) -> dict[str, list[Envelope]]:
        return {name: self._with_odd(inbox) for name, inbox in super().deliver().items()}

    def _with_odd(self, inbox: list[Envelope]) -> list[Envelope]:
        out: list[Envelope] = []
        for letter in inbox:
            if letter.sender != self.of or self.n_odd >= self.most or self.rng.random() > self.share:
                out.append(letter)
                continue
            self.n_odd += 1
            odd = letter._replace(payload=self.make(letter.payload))
            pair = [odd] if self.instead else [odd, letter] if self.rng.random() < 0.5 else [letter, odd]
            out += pair
        return out
