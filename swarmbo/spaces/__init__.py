"""Boxes of queries and their unit cubes, types of variables, and sets of places."""

from swarmbo.spaces.box import (
    Domain as Domain,
    PlaceTable as PlaceTable,
    place_keys as place_keys,
    unique_places as unique_places,
)
