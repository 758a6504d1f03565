"""Static sensors in a field that may change."""

from swarmbo_envs.sensor_field.sensor_field import SensorField as SensorField
