"""The page draws outcomes of any size. Its script runs in Node, with elements that record their attributes."""

import json
import re
import shutil
import subprocess
from importlib.resources import files

import pytest

OUTCOMES = [[1e-12, 5e-12], [-2e-300, -1e-300], [3.0, 4.0], [1e20, 1e20], [0.0], [1e59, 0.0]]
BEFORE = """
const noted = [], elements = {};
const node = tag => ({ tag, clientWidth: 640, setAttribute(key, value) { noted.push([tag, key, String(value)]); },
  append() {}, replaceChildren() {}, addEventListener() {}, focus() {} });
const document = { getElementById: id => elements[id] ??= node(id), createElementNS: (_, tag) => node(tag),
  createElement: node, addEventListener() {} };
const sessionStorage = { getItem: () => "" };
"""
AFTER = """
console.log(JSON.stringify(JSON.parse(process.argv[1]).map(outcomes => {
  const rises = [];
  outcomes.forEach((y, i) => { if (!rises.length || y > rises.at(-1)[1]) rises.push([i + 1, y]); });
  noted.length = 0;
  curve({ rounds: 10, first: 0, maximum: null, outcomes, curve: rises });
  return [...noted];
})));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_different_outcomes_of_any_size_are_drawn_at_different_heights():
    page = files("swarmbo.serve").joinpath("page.html").read_text("utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    command = ["node", "-e", f"{BEFORE}{script}{AFTER}", json.dumps(OUTCOMES)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    for outcomes, noted in zip(OUTCOMES, json.loads(ended.stdout), strict=True):
        assert not [value for _, _, value in noted if "NaN" in value or "Infinity" in value]
        heights = [y for tag, key, y in noted if (tag, key) == ("circle", "cy")]
        assert len(heights) == len(outcomes)
        assert len(set(heights)) == len(set(outcomes))
