"""Teams that plan routes: way-points for the rounds that are left, of which the first legs are driven."""

from swarmbo.routing.routes import Planned as Planned, Routes as Routes
