"""Candidate locations of agents: drawn, packed into few bytes, and unpacked bit-identically."""

import zlib
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.deciding.offers import packed, random_candidates, unpacked
from swarmbo.errors import TransportError
from swarmbo.spaces import Domain, PlaceTable
from swarmbo_envs import robot_team_v0, sensor_field_v0

LATTICE = np.stack(np.meshgrid(np.linspace(0.0, 1.0, 30), np.linspace(-2.0, 2.0, 40)), axis=-1).reshape(-1, 2)
TABLE = PlaceTable(LATTICE)
NUMBERS = st.floats(allow_nan=False, width=64)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=20))
def test_any_locations_are_unpacked_bit_identically(places: list[tuple[float, float, float]]):
    array = np.array(places, dtype=float).reshape(-1, 3)
    for sites in (None, array[::-1] if len(array) else None, np.zeros((4, 3))):
        content = packed(array, None if sites is None else PlaceTable(sites))
        assert unpacked(content, 3, sites).tobytes() == array.tobytes()


def test_sites_are_packed_as_indices_and_other_locations_as_numbers():
    rng = np.random.default_rng(0)
    near = LATTICE[np.hypot(*(LATTICE - [0.5, 0.0]).T) < 0.4]
    assert len(packed(near, TABLE)) < near.nbytes / 20
    shuffled = rng.permutation(near)
    assert (unpacked(packed(shuffled, TABLE), 2, LATTICE) == shuffled).all()
    anywhere = rng.random((50, 2))
    assert len(packed(anywhere, TABLE)) == anywhere.nbytes + 1
    negative = np.array([[-0.0, -2.0]])
    assert np.signbit(unpacked(packed(negative, TABLE), 2, LATTICE)[0, 0])  # the site is 0.0, which differs from -0.0


@pytest.mark.parametrize(
    "content",
    [b"", b"\x09", b"\x00abc", b"\x02\xc1", b"\x03abc", b"\x02\x91\xcd\xff\xff", b"\x02\x91\xff", packed(LATTICE)[:-3]],
    ids=repr,
)
def test_content_that_is_not_locations_is_refused(content: bytes):
    with pytest.raises(TransportError, match=r"got locations that can't be read"):
        unpacked(content, 2, LATTICE)


@pytest.mark.parametrize(
    "content",
    [b"\x02" + zlib.compress(bytes(2**24)), b"\x03" + zlib.compress(msgspec.msgpack.encode([0] * 2**19))],
    ids=["numbers", "indices"],
)
def test_small_content_that_expands_to_millions_of_bytes_is_refused(content: bytes):
    assert len(content) < 2**15
    with pytest.raises(TransportError, match=r"more (than \d+ bytes|bytes than locations take)"):
        unpacked(content, 2, LATTICE)


@pytest.mark.parametrize("make", [robot_team_v0.parallel_env, sensor_field_v0.parallel_env], ids=["robots", "sensors"])
def test_reports_take_few_bytes(make: Any):
    env = make(**({"robots": 3} if make is robot_team_v0.parallel_env else {"sensors": 3}))
    team = sb.Team.for_env(env, coordination="random")
    observations, infos = env.reset(seed=0)
    places = sum(len(env.unwrapped.candidates(agent)) for agent in env.agents)
    team.act(observations, infos)
    crossings = 2  # transmissions of each agent's report, over the links of a tree of three
    numbers = 16 * places * crossings
    assert team.sent["reports"].bytes < (numbers / 10 if make is robot_team_v0.parallel_env else numbers)


BOX = Domain(np.array([0.0, 10.0]), np.array([1.0, 30.0]))
FAR = Domain(np.array([5.0, 5.0]), np.array([6.0, 6.0]))


def test_random_candidates_lie_in_the_agents_box_and_depend_on_seed_and_round():
    problem = sb.Problem.of_field(["a", "b"], BOX)
    for agent, box in {"a": BOX, "b": FAR}.items():
        places = random_candidates(agent, box, problem, seed=1, round_number=2)
        assert places.shape == (512, 2)
        assert (places >= box.low).all()
        assert (places <= box.high).all()
        assert np.array_equal(places, random_candidates(agent, box, problem, seed=1, round_number=2))
        assert not np.array_equal(places, random_candidates(agent, box, problem, seed=1, round_number=3))
