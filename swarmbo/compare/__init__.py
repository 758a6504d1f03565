"""Results of runs: comparisons paired by seed, with statistics."""

from swarmbo.compare.comparison import (
    Comparison as Comparison,
    ComparisonRow as ComparisonRow,
    ScoredRun as ScoredRun,
    compare as compare,
)
from swarmbo.compare.statistics import PairedDifference as PairedDifference, paired_difference as paired_difference
