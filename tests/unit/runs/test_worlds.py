from importlib.metadata import EntryPoint

import pettingzoo
import pytest

from swarmbo.errors import ConfigError
from swarmbo.runs import check, load_run, run, world
from swarmbo.runs.report import report_rows
from swarmbo.runs.scenario import make_environment, scenario_of
from swarmbo.runs.world import load_plug_ins, plug_in_ids


def make(**environment):
    return make_environment(scenario_of({"name": "n", "environment": environment, "rounds": 7}))


@pytest.fixture
def plug_ins(monkeypatch):
    """A function that sets the installed plug-ins, as names and the loaded objects of their entry points."""

    def install(**loaded):
        points = [EntryPoint(name, "nowhere:nothing", world.ENTRY_POINT_GROUP) for name in loaded]
        monkeypatch.setattr(EntryPoint, "load", lambda point: loaded[point.name])
        monkeypatch.setattr(world, "entry_points", lambda group: points)
        load_plug_ins.cache_clear()

    yield install
    load_plug_ins.cache_clear()
    monkeypatch.undo()


def test_rounds_set_max_cycles_and_other_settings_go_to_the_environment():
    env = make(id="swarmbo/robot_team-v0", robots=3)
    assert (env.max_cycles, len(env.possible_agents)) == (7, 3)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("swarmbo/robot_tem-v0", "perhaps 'swarmbo/robot_team-v0'"),
        ("nope", "; wanted an environment of `swarmbo list`"),
        *((name, "") for name in ("", "a b c!", "x" * 1000, "swarmbo/robot_team-v99")),
    ],
)
def test_the_error_of_an_unknown_id_suggests_a_fitting_environment_and_never_a_game(name, words):
    with pytest.raises(ConfigError) as caught:
        make(id=name)
    assert caught.value.at == "$.environment.id"
    assert words in caught.value.message
    assert "perhaps 'atari" not in caught.value.message


def test_errors_of_an_environment_have_their_path_in_the_scenario():
    with pytest.raises(ConfigError, match=r"^\$\.environment\.robots: "):
        make(id="swarmbo/robot_team-v0", robots=0)


def test_a_plug_in_registers_its_environments_even_if_another_one_fails(plug_ins):
    def register():
        pettingzoo.register("parallel", "plugged/in-v3", lambda max_cycles: make(id="swarmbo/robot_team-v0"))

    def break_down():
        raise ImportError("no such simulator")

    plug_ins(broken=break_down, good=register)
    try:
        assert "plugged/in-v3" in plug_in_ids()
        assert load_plug_ins() == {"broken": "ImportError: no such simulator"}
        assert make(id="plugged/in-v3").possible_agents
        with pytest.raises(ConfigError, match="plug-in 'broken' failed: ImportError: no such simulator"):
            make(id="simulator/sea-v0")
    finally:
        del pettingzoo.parallel_registry["plugged/in-v3"]


def test_environments_of_plug_ins_are_distinguished_from_games():
    ids = plug_in_ids()
    assert "swarmbo/robot_team-v0" in ids
    assert not any(identifier.startswith(("atari/", "classic/", "sisl/", "butterfly/")) for identifier in ids)


@pytest.mark.parametrize("tells_truth", [True, False])
def test_scores_use_the_task_that_an_environment_states(tmp_path, bump_scenario, mischief, monkeypatch, tells_truth):
    scenario = bump_scenario(rounds=1, environment={"tells_truth": tells_truth}, coordination="exact")
    check(scenario)
    own = type(mischief.made[0])
    monkeypatch.setattr(own, "task", "level", raising=False)
    monkeypatch.setattr(own, "level", 0.5, raising=False)
    summary = run(scenario, tmp_path / "run")
    kept = load_run(tmp_path / "run").world
    assert (kept.goal, kept.level) == ("level", 0.5)
    if tells_truth:
        rows = dict(report_rows(summary))
        assert "F1 of the area above the level" in rows
        assert "simple regret" not in rows


MAKERS = """
from __future__ import annotations
from typing import TYPE_CHECKING, Optional
from swarmbo_envs.functions.function_world import FunctionWorld
if TYPE_CHECKING:
    import nowhere
def plain(**settings) -> FunctionWorld: return FunctionWorld(function="camel")
def typed(*, start: nowhere.Start | None = None, **settings) -> FunctionWorld: return plain()
def optional(**settings) -> Optional[FunctionWorld]: return plain()
def union(**settings) -> FunctionWorld | None: return plain()
def bare(**settings): return plain()
"""


def test_only_the_return_annotation_of_a_users_function_states_its_kind_of_team(tmp_path, monkeypatch):
    (tmp_path / "makers_of_functions.py").write_text(MAKERS)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("plain", "typed", "optional", "union"):
        assert world.team_kind({"id": f"makers_of_functions:{name}"}, trust=True) == "function"
    mine = {"name": "mine", "rounds": 2, "environment": {"id": "makers_of_functions:bare"}}
    with pytest.raises(ConfigError, match="state one, or annotate makers_of_functions:bare with the class"):
        check(scenario_of(mine, trust=True), trust=True)
    robots = {"name": "mine", "rounds": 2, "environment": {"id": "swarmbo/robot_team-v0"}, "belief": "additive"}
    with pytest.raises(ConfigError, match="which is not for agents that each") as refused:
        check(scenario_of(robots))
    assert "annotate" not in refused.value.message
