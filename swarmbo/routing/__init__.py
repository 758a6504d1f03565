"""Teams that plan routes of way-points for the remaining rounds, and drive the first legs."""

from swarmbo.routing.dec_mcts import DecMCTS as DecMCTS
from swarmbo.routing.routes import Planned as Planned, RoutePlanner as RoutePlanner, Routes as Routes
