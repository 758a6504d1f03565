"""A correct user's environment passes the check. For each possible fault, the check refuses it with a message."""

from collections import UserDict
from typing import ClassVar

import networkx as nx
import numpy as np
import pytest
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv

import swarmbo as sb
from swarmbo.records import GroundTruth

BOXES = {name: Box(0.0, 10.0, (1,), np.float64) for name in ("probe_0", "probe_1")}
ENDLESS = Box(-np.inf, np.inf, (1,), np.float64)
SEEN = Box(0.0, 10.0, (1,), np.float64)


class Wire(ParallelEnv):
    """Two probes on a wire. Every third measurement fails."""

    metadata: ClassVar = {"name": "wire"}
    possible_agents: ClassVar = list(BOXES)

    def action_space(self, agent):
        return BOXES[agent]

    def observation_space(self, agent):
        return SEEN

    def reset(self, seed=None, options=None):
        self.agents, self.time = list(self.possible_agents), 0
        self.rng = np.random.default_rng(seed)
        return {agent: np.zeros(1) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        self.time += 1
        seen = {agent: np.asarray(actions[agent], dtype=float) for agent in self.agents}
        measured = {a: float(self.rng.normal() - x[0]) if self.time % 3 else np.nan for a, x in seen.items()}
        rewards = {agent: 0.0 if np.isnan(outcome) else outcome for agent, outcome in measured.items()}
        outcomes = {a: {} if np.isnan(outcome) else {"measurement": outcome} for a, outcome in measured.items()}
        infos = {agent: outcomes[agent] | {"location": seen[agent]} for agent in self.agents}
        ended, cut = dict.fromkeys(seen, False), dict.fromkeys(seen, self.time == 8)
        self.agents = [] if self.time == 8 else self.agents
        return seen, rewards, ended, cut, infos

    def interaction_graph(self):
        return nx.complete_graph(self.possible_agents)

    def candidates(self, agent):
        return np.array([[1.0], [5.0]])

    def get_state(self):
        plain = {"agents": self.agents, "time": self.time, "rng": self.rng.bit_generator.state}
        return {"json": plain, "arrays": {}}

    def set_state(self, state):
        self.reset()
        plain = state["json"]
        self.agents, self.time = list(plain["agents"]), plain["time"]
        self.rng.bit_generator.state = plain["rng"]


def stepping(change):
    """A wire with other results of steps: ``change`` gets the five tables, and edits or replaces them."""

    def step(self, actions):
        result = Wire.step(self, actions)
        changed = change(self, *result)
        return result if changed is None else changed

    return {"step": step}


def editing(table, agent, **entries):
    """A change of one agent's entry in one of the five tables."""

    def change(self, *result):
        place = ("observations", "rewards", "terminations", "truncations", "infos").index(table)
        if agent in result[place]:
            result[place][agent] = entries["to"](result[place][agent])

    return stepping(change)


def removed(name):
    return editing("infos", "probe_1", to=lambda info: {key: info[key] for key in info if key != name})


def added(**entries):
    return editing("infos", "probe_1", to=lambda info: info | entries)


def one_leaves_early(self, seen, rewards, ended, cut, infos):
    if self.time == 2:
        ended["probe_0"] = True
        self.agents = ["probe_1"]


def shallow_copy(self, memo):
    copied = type(self)()
    copied.__dict__ |= self.__dict__
    return copied


def with_shared_trace(self):
    state = Wire.get_state(self)
    state["json"]["trace"] = self.__dict__.setdefault("trace", [])
    return state


def truth(**wrong):
    """The correct ground truth of the wire with changes."""
    right = {"points": np.array([[0.0], [5.0]]), "values": np.array([0.0, -5.0]), "maximum": 0.0, "argmax": np.zeros(1)}
    texts = dict.fromkeys(("unit", "axis_unit", "name"), "")
    return {"ground_truth": lambda self: GroundTruth(**right | texts | {"value": lambda X: -X[:, 0]} | wrong)}


BROKEN = {
    "infinite": ({"action_space": lambda self, agent: ENDLESS}, "action space of 'probe_0': got .*; wanted a finite"),
    "a new space every time": (
        {"observation_space": lambda self, agent: Box(0.0, 10.0, (1,), np.float64)},
        r"observation_space\('probe_0'\) asked twice: got two objects; wanted the same one",
    ),
    "agents without infos": (
        {"reset": lambda self, seed=None, options=None: (Wire.reset(self, seed)[0], {})},
        r"agents in the infos of reset\(\): got \[\]; wanted \['probe_0', 'probe_1'\]",
    ),
    "gym's old step": (
        stepping(lambda self, seen, rewards, ended, cut, infos: (seen, rewards, ended, infos)),
        r"step\(\): got .*; wanted a tuple of observations, rewards, terminations, truncations, infos",
    ),
    "an agent without reward": (
        stepping(lambda self, seen, rewards, ended, cut, infos: rewards.pop("probe_1") * 0 or None),
        r"agents in the rewards of step\(\): got \['probe_0'\]; wanted \['probe_0', 'probe_1'\]",
    ),
    "observation outside its space": (
        editing("observations", "probe_0", to=lambda seen: seen - 99.0),
        r"an observation of 'probe_0': got array.*; wanted one in its space, Box",
    ),
    "state outside its space": (
        {"state_space": SEEN, "state": lambda self: np.full(1, 11.0)},
        r"state\(\): got array\(\[11.\]\); wanted one in its space, Box",
    ),
    "infinite reward": (
        editing("rewards", "probe_0", to=lambda reward: -np.inf),
        "the reward of 'probe_0': got -inf; wanted a finite number",
    ),
    "flags of numpy": (
        editing("truncations", "probe_0", to=np.bool_),
        "termination and truncation of 'probe_0': got .*; wanted bools",
    ),
    "no outcomes": (
        removed("measurement"),
        r"infos of \['probe_1'\]: got no outcome in any round; wanted 'measurement', or 'factors'",
    ),
    "NaN": (added(measurement=np.nan), "'measurement' in infos of 'probe_1': got nan; .* left out"),
    "array": (added(measurement=np.zeros(1)), "'measurement' in infos of 'probe_1': got .* a finite number"),
    "None": (added(factors={"f": None}), "'f' in infos of 'probe_1': got None; wanted a finite number"),
    "no table": (editing("infos", "probe_1", to=lambda info: 3.0), "infos of 'probe_1': got 3.0; wanted a table"),
    "stops that are no list": (
        added(on_the_way=3),
        r"'on_the_way' in infos of 'probe_1': got 3; wanted a list of tables",
    ),
    "no location of a stop": (
        added(on_the_way=[{"measurement": 3.0}]),
        r"'on_the_way'\[0\] of 'probe_1': got {'measurement': 3.0}; wanted a table with 'location'",
    ),
    "an unknown task": ({"task": "mpa"}, r"making a team for the environment: got \$\.environment\.task: got 'mpa'"),
    "location outside": (
        added(location=np.array([11.0])),
        r"'location' in infos of 'probe_1': got array\(\[11.\]\); wanted one in its action space",
    ),
    "location of a stop outside": (
        added(on_the_way=[{"location": [5.0]}, {"location": [11.0]}]),
        r"'location' in 'on_the_way'\[1\] of 'probe_1': got \[11.0\]; wanted one in its action space",
    ),
    "failed stop as NaN": (
        added(on_the_way=[{"location": [5.0], "measurement": np.nan}]),
        r"'measurement' in 'on_the_way'\[0\] of 'probe_1': got nan; wanted a finite number",
    ),
    "noise without an outcome": (
        added(on_the_way=[{"location": [5.0], "noise_std": 0.1}]),
        r"'noise_std' of 'measurement' in 'on_the_way'\[0\] of 'probe_1': got 0.1; wanted none without that outcome",
    ),
    "one leaves early": (stepping(one_leaves_early), r"agents that ended: got \['probe_0'\]; wanted none, or all at"),
    "continues after the end": (
        stepping(lambda self, *result: setattr(self, "agents", list(BOXES))),
        r"agents after the end of an episode: got \['probe_0', 'probe_1'\]; wanted \[\]",
    ),
    "an API test that fails": (
        {"reset": lambda self, seed=None, options=None: tuple(map(UserDict, Wire.reset(self, seed)))},
        "PettingZoo's parallel_api_test: got .*isinstance.*dict.*; wanted a world that passes it",
    ),
    "unseeded": (
        {"reset": lambda self, seed=None, options=None: Wire.reset(self)},
        "an episode after the same seed and actions: got .*; wanted a bit-identical one",
    ),
    "a copy that shares its noise": (
        {"__deepcopy__": shallow_copy},
        "steps of a deep copy in mid-episode: got .*; wanted those of the original",
    ),
    "a state without json and arrays": (
        {"get_state": lambda self: Wire.get_state(self)["json"]},
        r"get_state\(\): got \['agents', 'rng', 'time'\]; wanted 'json' and 'arrays'",
    ),
    "a state without the random generator": (
        {
            "set_state": lambda self, state: (
                Wire.set_state(self, state) or setattr(self, "rng", np.random.default_rng(7))
            )
        },
        "steps of a world from a saved state: got .*; wanted those of the saved world",
    ),
    "a state that changes later": (
        {"get_state": with_shared_trace}
        | stepping(lambda self, *result: self.__dict__.setdefault("trace", []).append(0)),
        "a saved state after its world continued: got .*; wanted the same",
    ),
    "directed links": (
        {"interaction_graph": lambda self: nx.DiGraph([tuple(BOXES)])},
        r"interaction_graph\(\): got DiGraph .*; wanted an undirected networkx graph of at least",
    ),
    "links without all agents": (
        {"interaction_graph": lambda self: nx.Graph()},
        r"interaction_graph\(\): got Graph with 0 nodes",
    ),
    "a ground truth of the wrong type": (
        {"ground_truth": lambda self: 3.0},
        r"ground_truth\(\): got 3.0; wanted a GroundTruth, or",
    ),
    "a ground truth of another function": (
        truth(value=lambda X: -2.0 * X[:, 0]),
        r"values of ground_truth\(\): got a difference of 5; wanted value\(\) at its points",
    ),
    "a ground truth with a wrong argmax": (
        truth(argmax=np.ones(1)),
        r"ground_truth\(\) at its argmax: got a difference of 1; wanted its maximum",
    ),
    "a ground truth without a maximum": (
        truth(maximum=np.nan, argmax=np.full(1, np.nan)),
        r"maximum of ground_truth\(\): got nan; wanted a finite number",
    ),
    "a ground truth with too low a maximum": (
        truth(argmax=np.ones(1), maximum=-1.0),
        r"largest value of ground_truth\(\): got a difference of 1; wanted its maximum",
    ),
    "flat candidates": (
        {"candidates": lambda self, agent: np.array([1.0, 5.0])},
        r"shape of candidates\('probe_0'\): got \(2,\); wanted \(k, 1\)",
    ),
    "fractions of rounds": (
        {"travel_rounds": lambda self, agent, origins, places: np.full((len(origins), len(places)), 0.5)},
        r"travel_rounds\('probe_0', origins, places\): got .*; wanted one whole number >= 0",
    ),
    "staying takes a round": (
        {"travel_rounds": lambda self, agent, origins, places: np.ones((len(origins), len(places)), dtype=int)},
        r"travel_rounds\('probe_0', origins, places\) from a place to itself: got .*; wanted 0",
    ),
    "candidates outside": (
        {"candidates": lambda self, agent: np.array([[-1.0]])},
        r"candidates\('probe_0'\): got .*; wanted places from \[0.0\] to \[10.0\]",
    ),
    "factors that do not fit": (
        {"factor_graph": lambda self: {"bounds": {"x": (0.0, 1.0)}, "variable_owners": {"x": "probe_0"}}},
        r"making a team for the environment: got .*action space .* of 'probe_0'; wanted .*; wanted no error",
    ),
}


def whole_rounds(self, agent, origins, places):
    return np.ceil(np.abs(origins - places.T)).astype(np.uint32)


def test_a_correct_environment_passes():
    sb.testing.check_environment(Wire)
    sb.testing.check_environment(type("Known", (Wire,), truth()))
    sb.testing.check_environment(type("Whole", (Wire,), truth(values=np.array([0, -5]))))
    partly = truth(values=np.array([0.0, np.nan]), value=lambda X: np.where(X[:, 0] > 4.0, np.nan, -X[:, 0]))
    sb.testing.check_environment(type("PartlyKnown", (Wire,), partly))
    timed = {"travel_rounds": whole_rounds, "rounds_left": lambda self, agent: np.int64(3)}
    sb.testing.check_environment(type("Timed", (Wire,), timed))


def test_agents_with_equal_spaces_get_different_actions():
    """Otherwise probes that must not be at the same place would never measure."""

    def apart(self, actions):
        result = Wire.step(self, actions)
        if abs(actions["probe_0"][0] - actions["probe_1"][0]) < 1e-6:
            for info in result[-1].values():
                info.pop("measurement", None)
        return result

    boxes = {agent: Box(0.0, 10.0, (1,), np.float64) for agent in Wire.possible_agents}
    sb.testing.check_environment(type("Apart", (Wire,), {"action_space": lambda self, a: boxes[a], "step": apart}))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", [np.float64, np.float32, list], ids=str)
def test_a_location_may_have_another_number_type_than_the_action_space(form):
    box = Box(0.0, 10.0, (1,), np.float32)
    typed = {"action_space": lambda self, agent: box}
    changed = editing("infos", "probe_1", to=lambda info: info | {"location": form(info["location"] / 3.0)})
    sb.testing.check_environment(type("Typed", (Wire,), typed | changed))


def test_infos_may_lack_a_location():
    sb.testing.check_environment(type("Nowhere", (Wire,), removed("location")))
    asleep = stepping(lambda self, *result: result[-1].update(probe_1={"sampled": False}))
    sb.testing.check_environment(type("Asleep", (Wire,), asleep))


@pytest.mark.parametrize("name", ["environment", "belief", "coordinator", "transport"])
def test_an_object_in_place_of_its_maker_is_refused(name):
    with pytest.raises(AssertionError, match=f"make: got .*Wire.*; wanted a function that makes a new {name}"):
        getattr(sb.testing, f"check_{name}")(Wire())


@pytest.mark.parametrize(("changes", "words"), BROKEN.values(), ids=BROKEN)
def test_a_faulty_environment_is_refused_with_what_was_got_and_what_is_wanted(changes, words):
    with pytest.raises(AssertionError, match=words):
        sb.testing.check_environment(type("Broken", (Wire,), changes))
