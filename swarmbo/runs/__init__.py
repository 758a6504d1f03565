"""Runs: scenarios, crash-safe runs, and sweeps."""

from swarmbo.runs.callbacks import Callback as Callback
from swarmbo.runs.folder import RunFolder as RunFolder
from swarmbo.runs.reading import Run as Run, load_run as load_run
from swarmbo.runs.report import Summary as Summary
from swarmbo.runs.runner import check as check, resume as resume, run as run
from swarmbo.runs.scenario import Scenario as Scenario
from swarmbo.runs.scenario_files import dump as dump, load as load
from swarmbo.runs.sweep import plan as plan, sweep as sweep
