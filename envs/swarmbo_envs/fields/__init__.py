"""Fields over a map, in space and in time, for robots and sensors."""

from swarmbo_envs.fields.field import Field as Field, lattice as lattice, summit as summit
from swarmbo_envs.fields.landscape import build_field as build_field
