"""Ground on which robots drive: no-go regions, lines of sight, and quickest paths."""

from swarmbo_envs.ground.grid import Ground as Ground
from swarmbo_envs.ground.regions import Region as Region, read_regions as read_regions
from swarmbo_envs.ground.ways import Ways as Ways
