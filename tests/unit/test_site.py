"""The site: every public name and environment has a page, and docstrings and schemas become valid markup."""

import re
import sys
from collections import Counter
from pathlib import Path

import pettingzoo
import pytest
from typer.main import get_command

import swarmbo as sb
import swarmbo_envs
from swarmbo.cli import app
from swarmbo.cli.explain import glossary
from swarmbo.registry import SLOTS, kinds

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))


@pytest.fixture
def part(monkeypatch):
    """Import a module of docs/_ext."""
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    known = set(sys.modules)
    yield __import__
    for name in {path.stem for path in (DOCS / "_ext").glob("*.py")} - known:
        sys.modules.pop(name, None)


def test_every_public_name_is_on_one_page_of_the_reference():
    pages = [page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md")]
    named = Counter(re.findall(r"^\.\. auto\w+:: swarmbo\.(\w+)$", "\n".join(pages), re.MULTILINE))
    assert set(named.values()) == {1}
    assert set(named) == set(sb.homes())


def test_every_environment_has_a_page_that_names_its_class():
    for name in swarmbo_envs.register_all():
        page = (DOCS / "environments" / f"{name.removeprefix('swarmbo/').replace('-', '_')}.md").read_text("utf-8")
        world = type(pettingzoo.make("parallel", name))
        assert f"autoclass:: {world.__module__}.{world.__qualname__}\n" in page
        assert f'"{name}"' in page


def test_keys_of_every_kind_are_listed_with_their_ranges(part):
    text = "\n".join(part("fragments").scenario_keys())
    for slot in SLOTS:
        for kind, settings in kinds(slot).items():
            section = text.partition(f'### {slot}.kind = "{kind}"\n')[2].partition("\n### ")[0]
            assert section, (slot, kind)
            assert all(f"| `{key}` |" in section for key in settings.__struct_fields__)
    assert not re.findall(r"\|\s+\|$", text, re.MULTILINE)
    assert "| `loss` | number >= 0, < 1 | `0.0` | " in text
    assert '| `variant` | `"A"` or `"B"` or `"C"` | `"B"` |' in text


def test_every_command_is_shown_with_its_help(part):
    text = "\n".join(part("fragments").command_line())
    commands = [*get_command(app).commands, "fleet run", "fleet keys"]
    assert re.findall(r"^Usage: swarmbo ((?:[a-z]+ )+)", text, re.MULTILINE) == [f"{name} " for name in commands]
    assert re.findall("^## swarmbo (.+)$", text, re.MULTILINE) == commands
    assert "--elsewhere" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_the_glossary_has_every_term_and_status_of_explain(part):
    rows = dict(re.findall(r"^\| `?([^|`]+?)`? \| (.+) \|$", "\n".join(part("fragments").terms()), re.MULTILINE))
    known = {**glossary()["terms"], **glossary()["status"]}
    assert len(known) > 70
    assert {name: rows.get(name) for name in known} == known


def test_tables_in_docstrings_become_tables_and_other_bars_stay_bars(part):
    in_rest = part("docstrings").in_rest
    table = ["| key | meaning |", "|---|---|", "| ``a`` | ``x | y``, or z |"]
    assert [line for line in in_rest(table) if line] == [
        ".. list-table::",
        "   :header-rows: 1",
        "   * - key",
        "     - meaning",
        "   * - ``a``",
        "     - ``x | y``, or z",
    ]
    assert "     - x z" in in_rest(["| a | b |", "|---|---|", "| ``y`` | x", "    z |", "| c | d |"])
    assert in_rest(["|mean - level| and ``a | b``"]) == [r"\|mean - level| and ``a | b``"]
    assert in_rest(["the score |x - y| of ``|a|``"]) == [r"the score \|x - y| of ``|a|``"]


PAGE = """
.. image-sg:: /auto_tutorials/images/sphx_glr_10_field_001.png
   :alt: a map

.. rst-class:: sphx-glr-script-out

 .. code-block:: none

    error 0.25

    and nanometres

.. image-sg:: /auto_tutorials/images/sphx_glr_10_field_002.png

It is nan where nobody prints it.
"""


def test_pages_of_tutorials_with_one_figure_nan_or_a_warning_fail_the_site(part):
    faults = part("outputs").faults
    assert faults(PAGE) == []
    assert faults(PAGE.replace("image-sg", "image", 1)) == ["1 figures, wanted 2 or more"]
    assert faults(PAGE.replace("0.25", "NaN")) == ["prints 'NaN'"]
    assert faults(PAGE.replace("and nano", "a.py:3: UserWarning: too few\nnano")) == ["prints 'UserWarning: too few'"]


def test_tutorials_have_a_title_and_show_two_figures():
    assert len(TUTORIALS) == 6
    for script in TUTORIALS:
        lines = script.read_text(encoding="utf-8").splitlines()
        assert len(lines[1]) == len(lines[2]), script
        assert set(lines[2]) == {"="}
        assert lines.count("plt.show()") >= 2
