"""The README's Python runs, in the order in which it stands there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_python_of_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert names["team"].belief.n_data == 2
