"""Settings of local beliefs that neighbours fuse."""

from typing import Annotated, Literal

import msgspec

from swarmbo.belief.gp.hyperparameters import ExactGPSettings
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Count, Settings, Share

FusionMethod = Literal["readings", "consensus", "covariance-intersection", "experts"]


@kind("belief", FIELD)
class FusedSettings(Settings, frozen=True, tag_field="kind", tag="fused"):
    """Local belief of each agent of a team in a field, from its own measurements and its neighbours' messages.

    Args:
        method: ``readings``: flooding of tagged raw measurements to an exact process. ``experts``: raw measurements, to
            a committee of one exact process per author, with less computation. For comparison: ``consensus``, robust
            push-sum, and ``covariance-intersection``, untagged estimates. docs/fusion.md has the numbers.
        n_features: Size of the basis, an even number from 2 to 2048; a message holds about half its square of numbers.
            ``readings`` and ``experts`` need none.
        steps: Synchronous steps, >= 1, in which neighbours exchange messages after each round of measurements.
        loss: Share, from 0 to below 1, of these messages that a link loses, independently in each direction. Faults of
            the team's transport are added.
        growth: Hyper-parameters are fitted and proposed when the number of measurements has grown by this factor, > 1.
            A proposal invalidates all estimates that were sent before, so it should be rare.
        prior: Kernel and priors of hyper-parameters, and the effort of a fit. ``refit_every`` is not used here.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], belief=sb.FusedSettings(steps=5))
        >>> team.tell(team.ask(), {"a": 1.0, "b": 2.0})
        >>> {name: agent.reached for name, agent in team.belief.agents.items()}  # measurements by author
        {'a': {'a': 1.0, 'b': 1.0}, 'b': {'a': 1.0, 'b': 1.0}}
    """

    method: FusionMethod = "readings"
    n_features: Annotated[int, msgspec.Meta(ge=2, le=2048, multiple_of=2, title="an even integer")] = 128
    steps: Count = 20
    loss: Share = 0.0
    growth: Annotated[float, msgspec.Meta(gt=1)] = 1.5
    prior: ExactGPSettings = ExactGPSettings()
