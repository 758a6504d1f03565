"""Modules that need an extra are left out of the doctests where it is not installed."""

from importlib.util import find_spec

NEEDS = {
    "swarmbo/integrations/optuna.py": ["optuna"],
    "swarmbo/baselines/peers.py": ["ax", "botorch", "cma", "optuna"],
    "swarmbo/baselines/turbo.py": ["gpytorch"],
}
collect_ignore = [path for path, packages in NEEDS.items() if not all(map(find_spec, packages))]
