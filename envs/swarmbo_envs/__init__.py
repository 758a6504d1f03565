"""Simulated worlds for teams that sense, as PettingZoo environments. Usable without the optimiser.

Importing this package registers every world, as PettingZoo's own are registered by importing PettingZoo:

Example:
    >>> import pettingzoo, swarmbo_envs
    >>> env = pettingzoo.make("parallel", "swarmbo/robot_team-v0", robots=2)
    >>> observations, infos = env.reset(seed=0)
    >>> env.agents
    ['robot_0', 'robot_1']
"""

import pettingzoo

_MODULES = ("function_v0", "robot_push_v0", "robot_team_v0", "robot_team_v1", "sensor_field_v0", "wlan_power_v0")
_ENTRY_POINTS = {f"swarmbo/{'-v'.join(name.rsplit('_v', 1))}": f"swarmbo_envs.{name}" for name in _MODULES}


def register_all() -> list[str]:
    """Register every world in PettingZoo's registry, for its parallel and its AEC interface; return the ids.

    It runs on import of the package, and from the entry point group ``swarmbo.envs``. Ids already registered are kept.
    """
    for env_id, module in _ENTRY_POINTS.items():
        if env_id not in pettingzoo.parallel_registry:
            pettingzoo.register("parallel", env_id, f"{module}:parallel_env")
        if env_id not in pettingzoo.aec_registry:
            pettingzoo.register("aec", env_id, f"{module}:env")
    return list(_ENTRY_POINTS)


register_all()
