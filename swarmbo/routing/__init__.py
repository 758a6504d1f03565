"""Teams that plan routes: way-points for the rounds that are left, of which the first legs are driven."""

from swarmbo.routing.dec_mcts import DecMCTS as DecMCTS
from swarmbo.routing.routes import Planned as Planned, RoutePlanner as RoutePlanner, Routes as Routes
