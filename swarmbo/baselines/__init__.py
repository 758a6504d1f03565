"""What a user would do instead of coordinating: the same interface, none of the bargaining."""

from swarmbo.baselines.greedy import Greedy as Greedy
from swarmbo.baselines.independent import Independent as Independent
from swarmbo.baselines.lawn_mower import LawnMower as LawnMower
from swarmbo.baselines.random import Random as Random
