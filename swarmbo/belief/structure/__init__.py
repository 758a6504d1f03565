"""Decompositions of a function, learned from data."""

from swarmbo.belief.structure.partitions import (
    Partition as Partition,
    Proposal as Proposal,
    Scopes as Scopes,
    all_partitions as all_partitions,
    averaged as averaged,
    canonical as canonical,
    log_acceptance as log_acceptance,
    log_probability as log_probability,
    propose as propose,
    random_blocks as random_blocks,
    sample_partitions as sample_partitions,
)
from swarmbo.belief.structure.settings import (
    SampledStructure as SampledStructure,
    ScreenedScopes as ScreenedScopes,
    StructureSettings as StructureSettings,
)
