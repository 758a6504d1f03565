"""Results of runs: comparisons paired by seed, with statistics, and the closing table of one."""

from swarmbo.compare.comparison import Comparison as Comparison, ComparisonRow as ComparisonRow, compare as compare
from swarmbo.compare.statistics import PairedDifference as PairedDifference, paired_difference as paired_difference
from swarmbo.runs.reading import read_report as read_report
