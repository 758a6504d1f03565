"""Decompositions of a function, learned from data."""

from swarmbo.belief.structure.settings import (
    SampledStructure as SampledStructure,
    ScreenedScopes as ScreenedScopes,
    StructureSettings as StructureSettings,
)
