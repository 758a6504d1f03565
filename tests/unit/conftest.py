"""A small environment for tests of runs and comparisons: agents measure a bump on a square, with faults on request."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pettingzoo
import pytest
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv

from swarmbo.boundary.rng import stream
from swarmbo.records import GroundTruth

WORLD_ID = "tests/bump-v0"
STUDIES = Path(__file__).parents[2] / "studies"


@pytest.fixture(scope="module")
def script():
    """Import a script of the studies, as `python studies/NAME.py` does."""
    known = set(sys.modules)
    sys.path.insert(0, str(STUDIES))
    try:
        yield importlib.import_module
    finally:
        sys.path.remove(str(STUDIES))
        for name in {path.stem for path in STUDIES.glob("*.py")} - known:
            sys.modules.pop(name, None)


class Counted(str):
    """A name that counts how often names are hashed or compared."""

    steps = 0

    def __hash__(self):
        Counted.steps += 1
        return super().__hash__()

    def __eq__(self, other):
        Counted.steps += 1
        return super().__eq__(other)


@pytest.fixture
def steps_of_names():
    """Number of times that ``work`` with n names hashes or compares a name."""

    def make(work, n):
        before = Counted.steps
        work([Counted(f"f{i}") for i in range(n)])
        return Counted.steps - before

    return make


@dataclass
class Mischief:
    """Faults of the environments that are created from now on.

    Args:
        crash_at: Round in which ``step`` raises.
        raises: Exception that ``step`` raises in the middle of a round, or None.
        outcome: Measurement that replaces the true ones of a round, or None.
        fails: Whether an agent's measurement in a round is NaN.
        silent: Whether an agent is missing from the infos of a round.
        told: Entries that an agent adds to its info, or replaces there.
        shift: Number added to the field.
    """

    crash_at: int | None = None
    raises: Callable[[int], BaseException | None] = lambda number: None
    outcome: Callable[[int], Any] = lambda number: None
    fails: Callable[[str, int], bool] = lambda agent, number: False
    silent: Callable[[str, int], bool] = lambda agent, number: False
    told: Callable[[str], dict[str, Any]] = lambda agent: {}
    shift: float = 0.0
    made: list[Any] = field(default_factory=list)
    steps: int = 0  # number of steps so far


MISCHIEF = Mischief()


def bump(points):
    return np.exp(-4.0 * ((points - 0.7) ** 2).sum(axis=1)) + MISCHIEF.shift


class Bump(ParallelEnv):
    metadata = {"name": "bump_v0"}  # noqa: RUF012
    render_mode = None

    def __init__(self, max_cycles=25, agents=2, ends_at=None, keeps_state=True, tells_truth=True):
        self.possible_agents = [f"agent_{i}" for i in range(agents)]
        self.max_cycles, self.ends_at = max_cycles, ends_at or max_cycles
        self.box = Box(0.0, 1.0, (2,), dtype=np.float64)
        if keeps_state:
            self.get_state, self.set_state = self._get_state, self._set_state
        if tells_truth:
            self.ground_truth = self._truth
        MISCHIEF.made.append(self)

    def action_space(self, agent):
        return self.box

    def observation_space(self, agent):
        return self.box

    def reset(self, seed=None, options=None):
        self.seed, self.round, self.agents = seed, 0, list(self.possible_agents)
        places = stream(seed, "bump", "starts").random((len(self.agents), 2))
        return dict.fromkeys(self.agents), self._measure(dict(zip(self.agents, places, strict=True)))

    def step(self, actions):
        self.round += 1
        if self.round == MISCHIEF.crash_at:
            raise RuntimeError("the sea floor\nopened")
        MISCHIEF.steps += 1
        if (error := MISCHIEF.raises(MISCHIEF.steps)) is not None:
            raise error
        infos = self._measure(actions)
        over = self.round >= self.ends_at
        flags = dict.fromkeys(self.agents, over)
        observations = dict.fromkeys(self.agents)
        if over:
            self.agents = []
        return observations, dict.fromkeys(flags, 0.0), dict.fromkeys(flags, False), flags, infos

    def _measure(self, places):
        infos = {}
        for agent, place in places.items():
            if MISCHIEF.silent(agent, self.round):
                continue
            noise = 0.01 * stream(self.seed, "bump", "noise", agent=agent, round=self.round).normal()
            value = np.nan if MISCHIEF.fails(agent, self.round) else float(bump(place[None])[0] + noise)
            value = value if (other := MISCHIEF.outcome(self.round)) is None else other
            infos[agent] = {"measurement": value, "location": np.array(place), "distance": 1.5, "cost": 0.25}
            infos[agent] |= MISCHIEF.told(agent)
        return infos

    def _truth(self):
        points = np.stack(np.meshgrid(*[np.linspace(0, 1, 7)] * 2), axis=-1).reshape(-1, 2)
        name, maximum = f"bump of seed {self.seed}", 1.0 + MISCHIEF.shift  # before the reset, the seed is missing
        return GroundTruth(points, bump(points), maximum, np.array([0.7, 0.7]), "u", "km", name, bump)

    def _get_state(self):
        return {"json": {"seed": self.seed, "round": self.round, "agents": self.agents}, "arrays": {}}

    def _set_state(self, state):
        self.seed, self.round, self.agents = (state["json"][key] for key in ("seed", "round", "agents"))


@pytest.fixture(scope="session")
def _world_is_registered():
    pettingzoo.register("parallel", WORLD_ID, Bump)
    yield
    del pettingzoo.parallel_registry[WORLD_ID]


@pytest.fixture
def mischief(_world_is_registered):
    vars(MISCHIEF).update(vars(Mischief()))
    yield MISCHIEF
    vars(MISCHIEF).update(vars(Mischief()))


@pytest.fixture
def interrupted():
    """Run a scenario until it is interrupted after a round: ``interrupted(scenario, out, 2)``."""

    from swarmbo.runs import run  # here, as most tests do not need it

    def make(scenario, out, after, **trust):
        def stop(record, was_logged):
            if record.round == after:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(scenario, out, on_round=stop, **trust)

    return make


@pytest.fixture
def blank(monkeypatch):
    """Leave the files of figures and films empty, because rendering takes most of the time of a run."""

    def save(*given):
        path = next(one for one in given if isinstance(one, Path))
        path.parent.mkdir(exist_ok=True)
        path.touch()
        return path

    for name in ("write_animation", "style.save"):
        monkeypatch.setattr(f"swarmbo.plotting.run_figures.{name}", save)


@pytest.fixture
def bump_scenario(mischief):
    """Make scenarios of it: ``bump_scenario(rounds=4, seed=1, environment={...}, coordination=...)``."""

    from swarmbo.runs.scenario import scenario_of  # here, as most tests do not need it

    def make(environment=None, coordination="random", **settings):
        data = {"name": "bump", "rounds": 4, "belief": {"restarts": 0}, **settings}
        data["environment"] = {"id": WORLD_ID, **(environment or {})}
        return scenario_of({**data, "coordination": {"kind": coordination}})

    return make
