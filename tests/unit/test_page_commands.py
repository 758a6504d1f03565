"""Commands on pages are accepted, and those for the rows of the README's first table run."""

import importlib.util
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from swarmbo.cli import app
from swarmbo.errors import ConfigError
from swarmbo.runs import load, plan
from swarmbo.runs.scenario_files import scenario_names
from swarmbo_envs.wlan_power import best_known, wlan_power

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(?:bash|sh|console)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
COMMENTED = re.compile(r"^# {5}(swarmbo .*)$", flags=re.MULTILINE)  # in the scripts of tutorials and the gallery
COMMAND = re.compile(r"(?:^|[\s;&])(?:\S*/)?swarmbo ([a-z][^;&|]*)")


def commands_in(text: str) -> list[list[str]]:
    """Arguments of each `swarmbo` line."""
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(found[1], comments=True) for line in lines if (found := COMMAND.search(line.split(" #")[0]))]


def commands_of(page: Path) -> list[list[str]]:
    text = page.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text) if page.suffix == ".md" else COMMENTED.findall(text)
    return [command for block in blocks for command in commands_in(block)]


SCRIPTS = [script for folder in ("tutorials", "gallery") for script in sorted((ROOT / "docs" / folder).glob("*.py"))]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *SCRIPTS]
SHIPPED = set(scenario_names(""))
COMMANDS = {
    f"{page.relative_to(ROOT)}: {shlex.join(command)}": command for page in PAGES for command in commands_of(page)
}


def parsed(command: list[str]) -> tuple[str, dict[str, object]]:
    """The name of the command that would run, and the values of its arguments and options.

    Args:
        command: Arguments after ``swarmbo``.
    """
    group, name = get_command(app), "swarmbo"
    arguments = list(command)
    while hasattr(group, "commands"):
        if name == "fleet" and arguments[0] not in group.commands:
            arguments.insert(0, "run")  # as the command line reads `swarmbo fleet SCENARIO`
        name = arguments.pop(0)
        group = group.commands[name]
    return name, group.make_context(name, arguments).params


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_on_pages_are_accepted(line):
    name, values = parsed(COMMANDS[line])
    source, overrides = values.get("source"), list(values.get("overrides") or [])
    if name not in {"run", "check", "sweep"} or source not in SHIPPED or values.get("trust"):
        return  # files and code of readers are not known here
    if name == "sweep":
        assert plan(source, values["seeds"], overrides)
    else:
        assert load(source, overrides).rounds >= 1


def test_pages_have_commands():
    assert len(COMMANDS) > 20
    assert any(line.startswith("README.md") for line in COMMANDS)
    assert any(line.startswith("docs/gallery/") for line in COMMANDS)


def test_commands_are_found_and_wrong_ones_refused():
    lines = "pip install . && .venv/bin/swarmbo run robots --seed 3 # a comment\nswarmbo run robots \\\n --set seed=2\n"
    assert commands_in(lines) == [["run", "robots", "--seed", "3"], ["run", "robots", "--set", "seed=2"]]
    with pytest.raises(Exception, match="--rounds"):
        parsed(["run", "robots", "--rounds", "5"])
    with pytest.raises(KeyError, match="walk"):
        parsed(["walk", "robots"])
    _, values = parsed(["run", "robots", "--set", "robots=3"])
    with pytest.raises(ConfigError, match=r"environment\.robots"):
        load(values["source"], values["overrides"])


# Pages of each row (door) of the README's first table. A page's Python block runs first if it writes a file.
DOORS = {
    "a CSV file or a map": ("README.md", "docs/guide/field-data.md"),
    "robots or sensors": ("docs/guide/robots.md", "docs/guide/sensors.md", "docs/tutorials/20_robots.py"),
    "a wireless network": ("docs/guide/wireless.md", "docs/guide/changing.md"),
    "an expensive function": ("docs/guide/functions.md", "docs/gallery/30_function.py"),
    "a DCOP, UAI or WCSP file": ("docs/guide/dcop.md", "docs/tutorials/50_dcop.py"),
}
QUICK = {"docs/guide/dcop.md", "docs/tutorials/50_dcop.py"}
EXTRAS = {"robots-mujoco": "mujoco", "wlan-ns3": "ns", "environment.radio=ns3": "ns", "yaml": "yaml"}
FOUND = [(page, tuple(c)) for pages in DOORS.values() for page in pages for c in commands_of(ROOT / page)]
PAGE_OF = {command: page for page, command in FOUND}  # each once
LINES = {f"{page}: {shlex.join(command)}": (page, list(command)) for command, page in PAGE_OF.items()}
FEW_ROUNDS, THOROUGH = ["--set", "rounds=2"], pytest.mark.thorough
MANY_ROUNDS = {line for line, (_, command) in LINES.items() if command[0] in {"run", "sweep"}}
RUNS = {line: page for line, (page, command) in LINES.items() if command[0] == "run"}
DRAWN = {
    next((line for line in RUNS if RUNS[line] == pages[0]), "") for pages in DOORS.values()
}  # the first run of each door


@pytest.fixture
def own_files(tmp_path, monkeypatch):
    """Files that readers have: a survey, a floor plan, problems in pyDCOP's, UAI's and WCSP's formats."""
    rows = (f"{x},{y},{5.0 + 0.001 * x * y}" for x in range(0, 100, 20) for y in range(0, 100, 20))
    (tmp_path / "soil.csv").write_text("\n".join(["x_m,y_m,ph", *rows]))
    plan = BLOCKS_OF_CSV.search((ROOT / "docs/guide/wireless.md").read_text(encoding="utf-8"))
    assert plan is not None
    (tmp_path / "office.csv").write_text(plan[1])
    channels = (ROOT / "scenarios" / "channels.yaml").read_text(encoding="utf-8")
    (tmp_path / "problem.yaml").write_text(channels)
    (tmp_path / "network.uai").write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1.0 2.0 3.0 0.5\n")
    (tmp_path / "network.wcsp").write_text("two 2 2 1 9\n2 2\n2 0 1 0 2\n0 0 3\n1 1 9\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


BLOCKS_OF_CSV = re.compile(r"```text\n(kind,.*?)```", flags=re.DOTALL)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=pytest.mark.fleet if command[0] == "fleet" else [] if page in QUICK else THOROUGH)
        for line, (page, command) in LINES.items()
        if not {"robots-mujoco", "swarm"} & {*command}  # these are slow
    ],
)
@pytest.mark.filterwarnings("default::swarmbo.errors.DataWarning")
def test_commands_of_the_doors_run(own_files, monkeypatch, blank, line):
    """Runs have two rounds, in this process; the ``slow`` tests below have all rounds, figures, and a process each."""
    monkeypatch.setattr(wlan_power, "best_known", partial(best_known, starts=2))  # the optimum is not used
    page, command = LINES[line]
    seeds = ["--seeds", "1"] if command[0] == "sweep" else []
    few = [*seeds, *FEW_ROUNDS] if line in MANY_ROUNDS else []
    few += ["--no-figures"] if line in RUNS and line not in DRAWN else []
    run_after_its_input(in_this_process, own_files, page, [*command, *few])


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted(MANY_ROUNDS))
def test_commands_of_the_doors_run_unchanged(own_files, line):
    run_after_its_input(as_a_shell, own_files, *LINES[line])


def run_after_its_input(swarmbo, folder, page, command):
    """Run a command of a page after the block or command that makes its file."""
    line = shlex.join(command)
    if missing := [extra for name, extra in EXTRAS.items() if name in line and not importlib.util.find_spec(extra)]:
        pytest.skip(f"{missing[0]} is not installed")
    if "survey.csv" in line:
        block = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
        subprocess.run([sys.executable, "-c", block[1]], cwd=folder, check=True, capture_output=True)
    if command[0] == "compare":  # compares runs of the command before it, here with one seed
        sweep = next(command for command in commands_of(ROOT / page) if command[0] == "sweep")
        swarmbo([*sweep, "--seeds", "1", *FEW_ROUNDS])
    swarmbo(command)


def in_this_process(command: list[str]) -> None:
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert result.stdout.strip()


def as_a_shell(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "swarmbo", *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.strip()


def test_every_row_of_the_readme_has_commands_that_run():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    doors = re.findall(r"^\| (an? [^|]+?|robots[^|]+?) \|", text, re.MULTILINE)
    assert set(doors) - set(DOORS) == {"a policy to train"}  # its page is Python, which test_page_code.py runs
    assert all(any(commands_of(ROOT / page) for page in pages) for pages in DOORS.values())
