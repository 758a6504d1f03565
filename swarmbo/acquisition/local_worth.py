"""What one measurement is worth by itself, in the unit of the field."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Merit = Callable[[Float[np.ndarray, " k"]], Float[np.ndarray, " k"]]


def plain(mean: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """The merit of looking for a peak: the mean itself."""
    return mean


@dataclass(frozen=True)
class LocalWorth:
    """The rule by which places are ranked.

    A single place is worth merit(mean) + sqrt_beta std. In a batch the standard deviation is replaced by what the place
    tells beyond its neighbours in the chain: merit(mean) + bonus sqrt(log Psi), Psi the conditional variance of its
    residual in units of ``noise_variance``.

    Args:
        sqrt_beta: Weight of the standard deviation, >= 0.
        bonus: Weight of the root of the information, in the unit of the field.
        noise_variance: What Psi is scaled by, in the square of that unit.
        merit: What the expected value is worth.
        idle: What it is worth not to measure: a measurement is declined if it brings no more than this and its price.
        neighbours_noise: Variance of the noise with which neighbours are taken to measure, in the square of that unit;
            None takes ``noise_variance``.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> rule = sb.LocalWorth(sqrt_beta=2.0, bonus=1.0, noise_variance=0.01)
        >>> rule.single(np.array([1.0, 0.0]), np.array([0.0, 0.25])).tolist()  # what is unknown is worth as much
        [1.0, 1.0]
    """

    sqrt_beta: float
    bonus: float
    noise_variance: float
    merit: Merit = plain
    idle: float = 0.0
    neighbours_noise: float | None = None

    def single(self, mean: Float[np.ndarray, " k"], var: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """What places are worth one by one."""
        return self.merit(mean) + self.sqrt_beta * np.sqrt(var)

    def gain(self, var: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """What places tell: root and weight included, of variances given what neighbours measure."""
        return self.bonus * np.sqrt(np.log1p(np.maximum(var, 0.0) / self.noise_variance))  # below 0 is rounding

    @property
    def told_noise(self) -> float:
        """Variance of the noise in what neighbours measure."""
        return self.noise_variance if self.neighbours_noise is None else self.neighbours_noise

    def best(
        self, mean: Float[np.ndarray, " k"], var: Float[np.ndarray, " k"], price: float | None = None
    ) -> int | None:
        """The place that is worth most by itself; None where declining is worth more.

        Args:
            mean: Of at least one place.
            var: Likewise.
            price: Of a measurement, in the unit of the field; None for an agent that measures in any case.
        """
        worth = self.single(mean, var)
        chosen = int(worth.argmax())
        return None if price is not None and worth[chosen] - price <= self.idle else chosen
