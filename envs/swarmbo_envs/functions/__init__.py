"""Test functions as worlds: a library of sums with known maxima, and users' own functions."""

from swarmbo_envs.functions.additive_function import AdditiveFunction as AdditiveFunction
from swarmbo_envs.functions.function_world import FunctionWorld as FunctionWorld
from swarmbo_envs.functions.library import FUNCTIONS as FUNCTIONS, get as get
