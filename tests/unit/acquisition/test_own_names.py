"""Earlier names of what users subclass still work."""

import numpy as np

import swarmbo as sb


class ByItsEarlierName(sb.ChainAcquisition, frozen=True):
    def worth(self, situation, n_agents=None):
        return sb.LocalWorth(sqrt_beta=0.0, bonus=0.0, noise_variance=situation.belief.noise_variance)


def test_a_utility_by_its_earlier_name_is_used() -> None:
    line = np.linspace(0.0, 1.0, 21)[:, None]
    team = sb.Team.for_field(["a"], low=[0.0], high=[1.0], acquisition=ByItsEarlierName())
    team.attach(line, -((line[:, 0] - 0.2) ** 2))
    assert team.ask({"a": line}).points["a"] == np.array([0.2])
