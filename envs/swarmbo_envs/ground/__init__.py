"""Ground on which robots drive: no-go regions, lines of sight, and quickest paths."""

from swarmbo_envs.ground.grid import Ground as Ground
from swarmbo_envs.ground.path_planner import PathPlanner as PathPlanner
from swarmbo_envs.ground.regions import Region as Region, read_regions as read_regions
