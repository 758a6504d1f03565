"""Polygons of GeoJSON files."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.path import Path as Outline

from swarmbo.errors import ConfigError

Rings = list[Float[np.ndarray, "k 2"]]  # outlines; a hole is a ring within another


def read_polygons(path: str, at: str) -> list[Rings]:
    """Rings of every polygon of a GeoJSON file, in its own coordinates; ``at`` names the setting, for messages."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"got {path!r}, which cannot be read ({error}); wanted GeoJSON", at=at) from None
    polygons: list[Rings] = []
    for polygon in _polygons(data, at):
        try:
            rings = [np.array([corner[:2] for corner in ring], dtype=float).reshape(-1, 2) for ring in polygon]
        except (TypeError, ValueError, IndexError):
            rings = [np.empty((0, 2))]
        if not rings or any(len(ring) < 3 or not np.isfinite(ring).all() for ring in rings):
            raise ConfigError(f"got {path!r} with a polygon that has no rings of 3 or more numbers", at=at)
        polygons.append(rings)
    if not polygons:
        raise ConfigError(f"got {path!r} without polygons; wanted at least one", at=at)
    return polygons


def holds(rings: Sequence[Float[np.ndarray, "k 2"]], places: Float[np.ndarray, "k 2"]) -> Bool[np.ndarray, " k"]:
    """Mask of places within an odd number of rings; on a border either result is possible."""
    within = np.zeros(len(places), dtype=bool)
    for ring in rings:
        within ^= Outline(ring).contains_points(places)
    return within


def _polygons(data: Any, at: str) -> Iterator[Any]:
    kind = data.get("type") if isinstance(data, dict) else None
    if kind == "FeatureCollection":
        for feature in data.get("features", ()):
            yield from _polygons(feature, at)
    elif kind == "Feature":
        if data.get("geometry") is not None:
            yield from _polygons(data["geometry"], at)
    elif kind == "GeometryCollection":
        for geometry in data.get("geometries", ()):
            yield from _polygons(geometry, at)
    elif kind == "Polygon":
        yield data.get("coordinates", ())
    elif kind == "MultiPolygon":
        yield from data.get("coordinates", ())
    elif kind not in ("Point", "MultiPoint", "LineString", "MultiLineString"):
        raise ConfigError(f"got a GeoJSON object of type {kind!r}; wanted polygons, features or collections", at=at)
