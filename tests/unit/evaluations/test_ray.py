"""Ray: tasks of a killed node are tried again, and other failures affect their own task only."""

import sys
import time
from pathlib import Path

import pytest

import swarmbo as sb
from swarmbo.evaluations import Driver, Ledger, RayExecutor

sys.path.append(str(Path(__file__).parent))

from tasks import Doing, Valley

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def cluster(monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{':'.join(path for path in sys.path if path)}")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 80_000_000})
    yield made
    ray.shutdown()
    made.shutdown()


def test_the_tasks_of_a_killed_node_are_tried_again(cluster, tmp_path):
    second = cluster.add_node(num_cpus=2, object_store_memory=80_000_000)
    ray.init(address=cluster.address, log_to_driver=False)
    executor = RayExecutor(Valley(2.0), 4, 60.0)
    ledger = Ledger.create(tmp_path, sb.Team(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, initial=12))
    began, is_killed = time.monotonic(), []

    def tell(query_id, end):
        assert end.status == "done", end
        ledger.tell(query_id, end.value)
        if not is_killed:  # the first tasks have ended, so all four workers are busy
            cluster.remove_node(second, allow_graceful=False)
            is_killed.append(True)

    Driver(ledger, executor, 4, 16, tell).run()
    executor.close()
    lost = [event for event in ledger.events if event.kind == "lost"]
    told = [event.query for event in ledger.events if event.kind == "tell"]
    sys.stdout.write(f"\n{len(told)} told, {len(lost)} lost, {time.monotonic() - began:.0f} s\n")
    assert sorted(told) == [f"q{number:05d}" for number in range(1, 17)]
    assert 1 <= len(lost) <= 8
    for event in ledger.events:
        if event.kind == "tell":
            assert event.outcome == Valley().evaluate(event.query, ledger.query(event.query).point)


def test_crashes_hangs_and_exceptions_on_ray_affect_their_own_tasks_only(cluster, tmp_path):
    ray.init(address=cluster.address, log_to_driver=False)
    executor, ends = RayExecutor(Doing(tmp_path), 2, 5.0), {}
    points = {"fine": [], "killed": [("kill", 9)], "hung": [("hang", 9)], "raised": [("raise", 3)], "after": []}
    for task, point in points.items():
        executor.submit(task, point)
    deadline = time.monotonic() + 180.0
    while len(ends) < 5:
        assert time.monotonic() < deadline, ends
        ends |= {end.task: end.status for end in executor.poll(1.0)}
    assert ends == {"fine": "done", "killed": "lost", "hung": "hung", "raised": "error", "after": "done"}
    executor.close()
