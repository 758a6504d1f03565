"""Environments as teams see them: one protocol, and one parser of agents' reports."""

from swarmbo.worlds.fields import FieldWorld as FieldWorld
from swarmbo.worlds.functions import FactorGraphSpec as FactorGraphSpec, FunctionWorld as FunctionWorld
from swarmbo.worlds.one_shot import Measurement as Measurement, OneShotWorld as OneShotWorld, Scopes as Scopes
from swarmbo.worlds.protocol import Infos as Infos, Offers as Offers, Report as Report, Step as Step, World as World
