"""Experiments: scenarios, runs that survive a crash, sweeps and comparisons."""

from swarmbo.experiment.compare import Comparison as Comparison, ComparisonRow as ComparisonRow, compare as compare
from swarmbo.experiment.folder import RunFolder as RunFolder
from swarmbo.experiment.report import read_report as read_report
from swarmbo.experiment.runner import check as check, resume as resume, run as run
from swarmbo.experiment.scenario import Scenario as Scenario, dump as dump, load as load
from swarmbo.experiment.summary import Summary as Summary
from swarmbo.experiment.sweep import plan as plan, sweep as sweep
