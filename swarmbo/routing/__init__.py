"""Teams that plan routes of way-points for the remaining rounds, and drive the first legs."""

from swarmbo.routing.routes import Planned as Planned, Routes as Routes
