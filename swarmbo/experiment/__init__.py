"""Experiments: scenarios, runs that survive a crash, sweeps and comparisons."""

from swarmbo.experiment.compare import Comparison as Comparison
from swarmbo.experiment.compare import ComparisonRow as ComparisonRow
from swarmbo.experiment.compare import compare as compare
from swarmbo.experiment.folder import RunFolder as RunFolder
from swarmbo.experiment.report import read_report as read_report
from swarmbo.experiment.runner import check as check
from swarmbo.experiment.runner import resume as resume
from swarmbo.experiment.runner import run as run
from swarmbo.experiment.scenario import Scenario as Scenario
from swarmbo.experiment.scenario import dump as dump
from swarmbo.experiment.scenario import load as load
from swarmbo.experiment.summary import Summary as Summary
from swarmbo.experiment.sweep import plan as plan
from swarmbo.experiment.sweep import sweep as sweep
