import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from swarmbo.plotting import style
from swarmbo.plotting.history import path_of
from swarmbo.plotting.moving_map import MovingMap
from swarmbo.plotting.surface import lattice_over


def test_artists_follow_the_records(run):
    made = run(failing=0.3)
    lattice = lattice_over(made.world, 20)
    agents = [f"robot_{i}" for i in range(4)]
    moving = MovingMap.on(Figure().subplots(), lattice, agents, style.MEAN_COLOURS, Normalize(0, 1), "white")
    past = made.records[:4]
    picture = lattice.image(np.arange(lattice.shown.size, dtype=float))
    moving.show(past, [("robot_0", "robot_3")], picture)
    for agent in agents:
        path = path_of(past, agent)
        np.testing.assert_array_equal(moving.trails[agent].get_xydata(), path)
        np.testing.assert_array_equal(moving.heads[agent].get_xydata(), path[-1:])
        assert moving.numbers[agent].get_position() == tuple(path[-1])
    ends = [past[-1].samples[0].location, past[-1].samples[3].location]
    np.testing.assert_array_equal(moving.links.get_segments(), [ends])
    failed = [s.location for r in past for s in r.samples if s.measurement is None]
    np.testing.assert_array_equal(moving.failed.get_xydata(), np.reshape(failed, (-1, 2)))
    np.testing.assert_array_equal(moving.best.get_xydata(), [past[-1].best.location])
    np.testing.assert_array_equal(moving.image.get_array(), picture)


def test_robots_in_one_place_are_drawn_side_by_side(run):
    made = run()
    lattice = lattice_over(made.world, 20)
    agents = [f"robot_{i}" for i in range(4)]
    moving = MovingMap.on(Figure().subplots(), lattice, agents, style.MEAN_COLOURS, Normalize(0, 1), "white")
    west, east, south, north = lattice.extent
    middle, corner = np.array([west + east, south + north]) / 2, np.array([west, south])
    moving._placed(np.array([middle, corner, middle, middle * 1.001]))
    heads = np.concatenate([moving.heads[agent].get_xydata() for agent in agents])
    assert heads[1].tolist() == corner.tolist()
    pixels = moving.ax.transData.transform(heads)
    disc = moving.heads["robot_0"].get_markersize() * moving.ax.figure.dpi / 72
    gaps = np.abs(pixels[:, None] - pixels).max(axis=2)
    assert (gaps[~np.eye(4, dtype=bool)] > disc).all()
    assert [moving.numbers[agent].get_position() for agent in agents] == list(map(tuple, heads))
