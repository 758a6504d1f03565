"""Fields over a map, in space and in time, for robots and sensors."""

from swarmbo_envs.fields.field import Field as Field, FieldInTime as FieldInTime, lattice as lattice, summit as summit
from swarmbo_envs.fields.landscape import build_field as build_field, build_field_in_time as build_field_in_time
