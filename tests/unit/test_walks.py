"""`docs/contributing/architecture.md` names the files through which a measurement, an outcome and a message go."""

import re
import sys
from collections import Counter
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

import swarmbo as sb
from swarmbo.agent import Agent
from swarmbo_envs import robot_team_v0

PACKAGE = Path(sb.__file__).parent
PAGE = PACKAGE.parent / "docs" / "contributing" / "architecture.md"
BOUNDS = dict.fromkeys("xyz", (0.0, 1.0))
GRAPH = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})


def files_called(call: Callable[..., Any], *arguments: Any) -> set[str]:
    """Files of swarmbo with a function that ``call`` runs."""
    seen = set[str]()

    def note(frame, event, argument):
        if event == "call":
            seen.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call(*arguments)
    finally:
        sys.setprofile(before)
    return {str(Path(file).relative_to(PACKAGE)) for file in seen if Path(file).is_relative_to(PACKAGE)}


def a_measurement_in_a_field() -> set[str]:
    """Files from the environment's report to the belief."""
    env = robot_team_v0.parallel_env(robots=2)
    team = sb.Team.for_env(env, seed=0)
    observations, infos = env.reset(seed=0)
    for _ in range(3):
        step = env.step(team.act(observations, infos))
        walk = files_called(team.observe, *step)
        observations, infos = step[0], step[-1]
    return walk


def an_outcome_of_a_sum() -> set[str]:
    """Files from a user's ``tell`` to the rows from which models are made."""
    team = sb.Team(GRAPH, BOUNDS, outcomes="per-factor", seed=0)
    for _ in range(3):
        query = team.ask()
        walk = files_called(team.tell, query, {"f": 1.0, "g": 2.0})
    return walk


def a_message() -> set[str]:
    """Files from an agent's inbox to its outbox during an agreement: the most frequent set."""
    problem = sb.Problem.of(GRAPH, BOUNDS, outcomes="per-factor")
    agents = {name: Agent(name, problem, seed=1, initial=2) for name in problem.agents}
    walks = Counter[frozenset[str]]()
    for number in range(3):
        (query,) = {agent.ask() for agent in agents.values()}
        inboxes: dict[str, list[Any]] = {name: [] for name in agents}
        while not all(agent.is_finished for agent in agents.values()):
            for name, agent in agents.items():
                inbox, inboxes[name] = inboxes[name], []
                sent = list[Any]()
                walk = files_called(lambda: sent.extend(agent.tick(0.0, inbox)))  # noqa: B023  it is called at once
                if number == 2 and inbox and sent and not agent.is_finished:
                    walks[frozenset(walk)] += 1
                for envelope in sent:
                    inboxes[envelope.recipient].append(envelope)
        for name, agent in agents.items():
            agent.tell(query, dict.fromkeys(GRAPH.factors_owned_by(name), 1.0))
    return set(walks.most_common(1)[0][0])


def named(walk: str) -> set[str]:
    """Files that the page names for a walk."""
    lines = iter(PAGE.read_text(encoding="utf-8").splitlines())
    first = next(line for line in lines if line.startswith(f"- **{walk}**"))
    return set(re.findall(r"`([\w/]+\.py)`", "".join([first, *takewhile(lambda line: line.startswith("  "), lines)])))


@pytest.mark.parametrize("walk", [a_measurement_in_a_field, an_outcome_of_a_sum, a_message])
def test_a_walk_calls_exactly_the_files_on_the_page_and_at_most_25(walk):
    opened = walk()
    assert opened == named(walk.__name__.replace("_", " ").capitalize())
    assert len(opened) <= 25
