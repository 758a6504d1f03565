"""Table problems: a fleet chooses as `solve` does, over lossy links and with killed members."""

from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

import swarmbo as sb
from swarmbo.cli import app
from swarmbo.coordination.messages import Choice, Codec, Label
from swarmbo.coordination.tables import factor_values
from swarmbo.errors import BudgetError, ConfigError, RunFolderError, TransportError
from swarmbo.fleet import run as fleet_run, table_run
from swarmbo.fleet.plan import HUB, Plan, endpoints_of
from swarmbo.fleet.run import Network, NetworkReport, new_folder, run_fleet, run_member, running_fleet
from swarmbo.fleet.table_agent import TableAgent
from swarmbo.interchange import TableProblem
from swarmbo.interchange.solved import Solved, solve_problem
from swarmbo.runs import RunFolder, load, run
from swarmbo.runs.scenario import make_environment
from swarmbo.transport import Envelope

THOROUGH = pytest.mark.thorough
NETWORK = Network(patience_s=600.0)
METHODS = {
    "max-sum": sb.MaxSum(rounds=6, bound="mplp", bound_rounds=3),
    "dsa": sb.DSA(rounds=5),
    "mgm": sb.MGM(bound="mplp", bound_rounds=2),
    "exact": sb.Exact(),
}
BY_DEADLINE = sb.MaxSum(mode="asynchronous", deadline=16)


def parts() -> TableProblem:
    """A loop with forbidden pairs, and a separate chain. One variable has a single value, one agent no variable."""
    rng = np.random.default_rng(3)
    scopes = {"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"], "p": ["u", "v"], "q": ["v"]}
    domains = {"x": (1, 2, 3), "y": (1, 2, 3), "z": (1, 2, 3), "u": ("only",), "v": ("R", "G")}
    owners = {"f": "alice", "g": "bob", "h": "bob", "p": "carol", "q": "dora"}
    agents = {"x": "alice", "y": "bob", "z": "alice", "u": "carol", "v": "carol"}
    tables = {f: rng.normal(size=[len(domains[x]) for x in scope]) for f, scope in scopes.items()}
    tables["f"][0, :2] = -np.inf
    return TableProblem("parts", sb.FactorGraph.from_scopes(scopes, owners, agents), tables, domains)


def plan_of(problem, method, seed=1, network=NETWORK) -> Plan:
    return network.plan(problem.graph.agents, problem.name, seed, **table_run.to_plan(problem, method, seed))


def fleet_of(fleets, problem, method, wire, network=NETWORK, **more):
    fleet = fleets(plan_of(problem, method, 1, network), wire, **more)
    return fleet, fleet.begin(problem.graph.agents)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_fleet_chooses_as_one_process_does_despite_losses_and_kills(network, fleets, method):
    problem = parts()
    wire = network(loss=0.5, twice=0.2, late=0.5, seed=5)  # some agents send messages before others are asked
    fleet, hub = fleet_of(fleets, problem, method, wire, kill=0.03)
    with threadpool_limits(1, user_api="blas"):
        assert table_run.solution_by(hub, problem) == method.solve(problem.graph, problem.tables, seed=1)
    assert fleet.kills > 2


def test_each_agent_receives_its_own_tables_only(tmp_path):
    plan_of(parts(), sb.DSA()).for_agent("bob").write(tmp_path / "bob.json")
    plan = Plan.read(tmp_path / "bob.json")
    assert set(plan.tables.by_factor) == {"g", "h"}
    np.testing.assert_array_equal(plan.tables.tables_of(plan.setup.problem.graph, "bob")["g"], parts().tables["g"])
    with pytest.raises(ConfigError, match=r"without tables of 'alice'; wanted its own, alice\.json"):
        TableAgent("alice", plan)
    for name in ("dave", "world", "../bob"):
        with pytest.raises(ConfigError, match=rf"NAME: got \['{name}'\]; wanted some of \['alice', 'bob', "):
            run_member(name, tmp_path / "bob.json")
    assert [path.name for path in tmp_path.iterdir()] == ["bob.json"]
    timed, nan = plan_of(parts(), BY_DEADLINE), np.array([np.nan] + 8 * [0.0])
    huge = msgspec.msgpack.encode({"p": [("u", "v", (2**20, 2**30), b"")]})
    for right, change, says in (
        (plan, {"sizes": {"x": 3}}, "sizes or tables of another problem"),
        (plan, {"by_factor": {"g": b"short"}}, "a table of 'g' that has another size"),
        (plan, {"by_factor": {"new": b""}}, "sizes or tables of another problem"),
        (plan, {"by_factor": {"g": nan.tobytes()}}, "NaN or inf in the table of 'g'"),
        (plan, {"forbidden": {"bob": b"?"}}, "no forbidden pairs"),
        (timed, {"forbidden": {}}, "no forbidden pairs of 'alice'"),
        (timed, {"forbidden": {**timed.tables.forbidden, "carol": huge}}, "no forbidden pairs of 'carol'"),
    ):
        wrong = msgspec.structs.replace(right, tables=msgspec.structs.replace(right.tables, **change))
        with pytest.raises(ConfigError, match=f"tables: got {says}"):
            wrong.checked()
    for seed in ("x", -1, 0.5, True):
        wrong = msgspec.structs.replace(plan, settings={**plan.settings, "seed": seed})
        with pytest.raises(ConfigError, match=rf"\$\.seed: got {seed!r}; wanted an integer >= 0"):
            wrong.checked()


def test_an_invalid_message_before_the_request_is_dropped_without_other_effects():
    problem, method = parts(), METHODS["max-sum"]
    plan = plan_of(problem, method)
    agents = {name: TableAgent(name, plan.for_agent(name)) for name in ("alice", "carol", "dora", "bob")}
    invalid = Envelope("alice", "bob", Codec.encode(Choice("x", 0), Label(7, 0)))
    in_transit = agents["bob"].tick(0.0, [invalid])
    for agent in agents.values():  # the last agent gets messages before it is asked
        agent.ask()
        in_transit += agent.tick(0.0)
        while in_transit:
            envelope = in_transit.pop(0)
            in_transit += agents[envelope.recipient].tick(0.0, [envelope])
    chosen = {x: index for agent in agents.values() for x, index in agent.coded_decision().items()}
    assert chosen == method.solve(problem.graph, problem.tables, seed=1).assignment
    assert agents["bob"].refused == {"alice": 1}


@pytest.mark.parametrize("kill", [0.0, 0.02])
def test_by_a_deadline_all_agents_choose_with_the_messages_so_far(network, fleets, kill):
    problem = parts()
    wire = network(loss=0.2, late=0.05)
    fleet, hub = fleet_of(fleets, problem, BY_DEADLINE, wire, kill=kill)
    solution = table_run.solution_by(hub, problem)
    assert solution.report.status == "deadline"
    assert solution.value == pytest.approx(factor_values(problem.graph, problem.tables, solution.assignment).sum())
    assert np.isfinite(solution.value)
    assert solution.report.traffic.messages > 0
    assert "lost" not in Solved(problem, BY_DEADLINE, 1, solution).summary()["links"]  # a fleet cannot know it
    assert bool(fleet.kills) == bool(kill)


def test_clocks_of_a_deadline_begin_when_all_members_are_present(network, fleets):
    problem, asked = parts(), []
    fleet, hub = fleet_of(fleets, problem, BY_DEADLINE, network())
    fleet.leave("bob")
    fleet.schedule = [(40, lambda: asked.extend(m._sequence for m in fleet.members.values())), (41, fleet.come, "bob")]
    assert set(table_run.solution_by(hub, problem).assignment) == set(problem.graph.variables)
    assert asked == [0, 0, 0]


def test_by_a_deadline_violated_constraints_are_counted(network, fleets):
    """No value of y is allowed, for any value of x."""
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"]}, {"f": "alice"}, {"x": "alice", "y": "bob"})
    problem = TableProblem("never", graph, {"f": np.full((2, 2), -np.inf)}, {"x": (0, 1), "y": (0, 1)}, "max")
    _, hub = fleet_of(fleets, problem, BY_DEADLINE, network())
    solution, alone = table_run.solution_by(hub, problem), BY_DEADLINE.solve(graph, problem.tables)
    assert set(solution.assignment) == {"x", "y"}
    links = solution.report.links
    assert (links.without, links.clashes) == (alone.report.links.without, alone.report.links.clashes) == ((), 1)


def test_by_a_deadline_the_fleet_continues_without_an_agent_that_left(network, fleets):
    problem = parts()
    fleet, hub = fleet_of(fleets, problem, BY_DEADLINE, network(), Network(patience_s=3.0))
    fleet.schedule = [(6, fleet.leave, "bob")]
    solution = table_run.solution_by(hub, problem)
    assert set(problem.graph.variables) - set(solution.assignment) == {"y"}
    assert (solution.value, solution.report.value) == (-np.inf, None)
    assert hub.absent == solution.report.links.silent == ("bob",)
    assert not any(to == "bob" for member in fleet.members.values() for to, _ in member._mailbox.unacknowledged)


def test_without_a_deadline_an_agent_that_left_ends_the_run(network, fleets):
    problem = parts()
    fleet, hub = fleet_of(fleets, problem, sb.MGM(), network(), Network(patience_s=3.0))
    fleet.schedule = [(6, fleet.leave, "bob")]
    with pytest.raises(TransportError, match="received nothing"):
        table_run.solution_by(hub, problem)


def test_problems_that_a_fleet_cannot_solve_are_refused_before_processes_start():
    with pytest.raises(BudgetError, match="exact needs a table"):
        plan_of(parts(), sb.Exact(table_budget=2))
    wide = {x: tuple(range(90)) for x in "xyz"}
    for owner in ("x", "far"):  # the agent that joins the tables owns this one, or not
        graph = sb.FactorGraph.from_scopes({"f": list(wide)}, {"f": owner}, {x: x for x in wide})
        problem = TableProblem("wide", graph, {"f": np.zeros([90] * 3)}, wide)
        if owner == "x":
            plan_of(problem, sb.Exact())
            plan_of(problem, sb.MGM())
        else:
            with pytest.raises(BudgetError, match="send a table of 729,000 entries; a message holds 523,776"):
                plan_of(problem, sb.Exact())
    graph = sb.FactorGraph.from_scopes({"f": ["x"]}, {"f": "far"}, {"x": "near"})
    long = TableProblem("long", graph, {"f": np.zeros(2**19)}, {"x": range(2**19)})
    for method in (sb.MaxSum(), BY_DEADLINE):
        with pytest.raises(BudgetError, match="send a table of 524,288 entries"):
            plan_of(long, method)
    with pytest.raises(ConfigError, match="'bob'"):
        Network(elsewhere=("eve",)).local(["bob"])


def test_a_folder_with_a_run_is_not_changed(tmp_path):
    run(load("camel", ["rounds=1", "initial=1"]), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.name != ".lock"}
    with pytest.raises(RunFolderError, match="holds a run; choose another --out, or `swarmbo resume"):
        table_run.solve_by_fleet(parts(), BY_DEADLINE, 1, tmp_path, NETWORK)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.name != ".lock"} == before


def left_by_a_kill(tmp_path):
    """A folder of a fleet that was killed before its first logged round."""
    (tmp_path / "fleet").mkdir(parents=True)
    for name in ("fleet.json", "alice.json", "x.json", "alice.log"):
        (tmp_path / "fleet" / name).write_text("{}")
    return tmp_path


@pytest.fixture
def camel():
    return load("camel", ["rounds=1", "initial=1"])


def test_a_folder_of_a_fleet_that_never_started_is_reused(tmp_path, camel):
    def starts(out, scenario):
        with new_folder(out, scenario):
            return [path.name for path in out.iterdir()]

    for place, scenario in (("run", camel), ("tables", None)):
        out = left_by_a_kill(tmp_path / place)
        (out / "solution.json.partial").write_text("{")
        assert "scenario.toml" not in starts(out, scenario)
        (out / "solution.json.partial").unlink()
        (out / "other").write_text("mine")
        with pytest.raises(RunFolderError, match="is not empty"):
            starts(out, scenario)
    out = left_by_a_kill(tmp_path / "killed-later")
    RunFolder.create(out, camel)
    (out / "rounds.jsonl").write_bytes(b"")
    assert "scenario.toml" not in starts(out, camel)  # cleared, so a kill now leaves a folder like those above
    assert "scenario.toml" not in starts(out, camel)


@pytest.mark.parametrize(
    "name", ["ledger.jsonl", "checkpoint.json", "checkpoint-000001.npz", "elsewhere.json", "rounds.jsonl", "another"]
)
def test_a_folder_of_a_fleet_that_may_have_measured_is_refused_and_not_changed(tmp_path, camel, name):
    out = left_by_a_kill(tmp_path / "run")
    RunFolder.create(out, load("camel", ["rounds=2"]) if name == "another" else camel)
    (out / name).write_text("{")
    before = {path.name: path.read_bytes() for path in out.glob("*.*") if path.is_file()}
    how = "serve … --out" if name == "ledger.jsonl" else "resume"
    what = "another" if name == "another" else "a"
    with pytest.raises(RunFolderError, match=f"holds {what} run; choose another --out, or `swarmbo {how}"):
        run_fleet(camel, out, NETWORK)
    assert {path.name: path.read_bytes() for path in out.glob("*.*") if path.name in before} == before


@pytest.mark.parametrize("is_tables", [False, True])
def test_each_process_of_a_fleet_gets_the_plan_of_its_own_run(tmp_path, monkeypatch, camel, is_tables):
    """Even beside plans of a fleet that never started."""
    commands = []
    monkeypatch.setattr(fleet_run, "Link", lambda name, plan: Mock())
    monkeypatch.setattr(fleet_run, "Hub", lambda *arguments, **more: Mock())
    monkeypatch.setattr(fleet_run.subprocess, "Popen", lambda command, **more: commands.append(command) or Mock())
    out, plan = left_by_a_kill(tmp_path / "run"), plan_of(parts(), sb.MGM())
    if not is_tables:
        team = sb.Team.for_env(make_environment(camel, False), **camel.team_settings)
        more = {"problem": team.problem.to_plain(), "settings": team.setup.to_plain()}
        plan = NETWORK.plan(team.agents, "camel", 1, **more)
    agent = next(iter(plan.endpoints.keys() - {HUB}))
    used = f"{agent}.json" if is_tables else "fleet.json"
    (out / "fleet" / f"{agent}.json").write_text("{}")
    with running_fleet(plan, out / "fleet" / "fleet.json", [agent]):
        pass
    (command,) = commands
    assert command[command.index("--fleet") + 1] == str(out / "fleet" / used)


def test_a_fleet_prints_notes_and_the_plan_for_other_machines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def chosen(problem, method, seed, out, network, on_begin):
        on_begin(network.elsewhere, out / "fleet" / "NAME.json")
        return solve_problem(problem, {"kind": "exact"}), NetworkReport()

    monkeypatch.setattr(table_run, "solve_by_fleet", chosen)
    (tmp_path / "p.wcsp").write_text("p 1 2 2 3 2 1 0 2 0 1 0 2 0")
    ended = CliRunner().invoke(app, ["fleet", "p.wcsp", "--elsewhere", "x0"], catch_exceptions=False)
    assert "waiting for x0: start each with `swarmbo agent NAME --fleet runs/p-0-fleet/fleet/NAME.json`" in ended.stderr
    assert "swarmbo: the cost reaches the file's upper bound, 3" in ended.stderr
    assert "no: cost too high" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "channels", "--set", "transport.loss=.3"], "a fleet uses real links"),
        (["run", "channels", "--format", "svg"], "`swarmbo solve --figure` draws"),
        (["run", "channels", "--measures", "ap1"], "tables are known"),
        (["run", "channels", "--elsewhere", "eve"], "got 'eve'; wanted one of ['ap0'"),
        (["run", "channels", "--algo", "mgm", "--set", "coordination=dsa"], "got 'dsa', and 'mgm' as an option"),
        (
            ["run", "channels", "--set", "coordination=dsa", "--set", "probability=7"],
            "$.coordination.probability: got 7",
        ),
        (["run", "channels", "--seed", "-1"], "$.seed: got -1"),
        (["run", "channels", "--algo", "mgm2"], "did you mean 'mgm'"),
        (["run", "channels", "--set", "keep_best=false"], "unknown key 'keep_best'"),
        (["keys", "channels", "keys", "--host", "eve=here"], "wanted one of ['world', 'ap0'"),
        (["keys", "channels", "keys", "--host", "ap0=192.168.0.2:7448"], "for 'ap0'; wanted a host name or an IP"),
        (
            ["run", "channels", "--protocol", "tcp", "--host", "ap0=not a host"],
            "got 'not a host' for 'ap0'; wanted a host name",
        ),
    ],
)
def test_invalid_options_are_refused_in_one_line(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["fleet", *arguments], catch_exceptions=False)
    assert ended.exit_code == 2
    assert message in ended.stderr.splitlines()[-1]
    assert ended.stdout == ""
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    ("host", "endpoint"),
    [("::1", "[::1]"), ("[fe80::2]", "[fe80::2]"), ("10.0.0.3", "10.0.0.3"), ("pi-3.lan", "pi-3.lan")],
)
def test_a_host_is_a_name_or_an_ipv4_or_ipv6_address(host, endpoint):
    assert endpoints_of(["a"], "tcp", 7447, {"a": host}) == {"world": "tcp/127.0.0.1:7447", "a": f"tcp/{endpoint}:7448"}
