"""Modules that need an extra are left out of the doctests where it is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("optuna") else ["swarmbo/integrations/optuna.py"]
