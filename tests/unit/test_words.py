"""All texts for users have standard terms and short sentences.

``python tests/unit/test_words.py PAGE…`` lists the faults, each with a replacement.
"""

import ast
import inspect
import re
import sys
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import swarmbo as sb
from swarmbo.cli import app
from swarmbo.cli.explain import glossary
from swarmbo.registry import SLOTS, kinds
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.world import environment_maker, plug_in_ids

ROOT = Path(__file__).parents[2]
LIST = tomllib.loads((ROOT / "docs" / "words.toml").read_text(encoding="utf-8"))
SHOWN = "cli", "compare", "plotting", "runs"  # packages that print and draw; files of environments that draw are below
DRAWN = "rendering.py", "picture.py", "landscape.py"
PAGES = [
    "README.md",
    "CHANGELOG.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
]
MOST_WORDS = 28
INVERTED = re.compile(r"[*_(]*(Of|Who|Whoever|Nor|Not so)\b")


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a page's prose, without code, tables, headings and comments."""
    is_code, lines = False, list[str]()
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        if stripped.startswith("```"):
            is_code = not is_code
        is_item = bool(re.match(r"([-*:>]|\d+\.) ", stripped))
        if is_code or not stripped or is_item or stripped.startswith(("```", "|", "#", "<", ":::", "(", "![")):
            if lines:
                yield " ".join(lines)
            lines = [re.sub(r"^([-*:>]|\d+\.) +", "", stripped)] if is_item and not is_code else []
        elif not line.startswith("    ") or lines:
            lines.append(stripped)


def prose(paragraph: str) -> str:
    """A paragraph with the texts of its links; code, or a list of code, counts as one word."""
    plain = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", paragraph)
    return re.sub(r"CODE(, CODE)+", "CODE", re.sub(r"``?[^`]+``?", "CODE", plain))


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph."""
    return re.split(r"(?<=[.!?])[*_)”\"]*\s+", paragraph)


def text_of(page: str) -> str:
    """Text of a page, or all program texts of one kind as paragraphs."""
    return "\n\n".join(PROGRAM[page]()) if page in PROGRAM else (ROOT / page).read_text(encoding="utf-8")


def documented() -> Iterator[Any]:
    """Public names, and objects that `swarmbo explain` describes: kinds, environments, errors, keys."""
    yield from (getattr(sb, name) for name in sb.homes())
    yield from (settings for slot in SLOTS for settings in kinds(slot).values())
    yield from map(environment_maker, plug_in_ids())
    yield from (value for value in vars(sb.errors).values() if inspect.isclass(value))
    yield Scenario


def docstrings() -> Iterator[str]:
    """Docstrings of documented objects and their public methods: paragraphs, and the text of each argument."""
    for thing in documented():
        mro = inspect.getmro(thing) if inspect.isclass(thing) else ()
        bases = [base for base in mro if "swarmbo" in base.__module__]
        methods = {name: value for base in reversed(bases) for name, value in vars(base).items()}.items()
        for part in (thing, *(value for key, value in methods if not key.startswith("_"))):
            text = inspect.cleandoc(getattr(part, "__doc__", "") or "") if not isinstance(part, str | int) else ""
            head, *sections = re.split(r"\n(?=(?:Args|Returns|Raises|Example|Warns):\n)", f"\n{text}")
            yield from head.strip().split("\n\n")
            listed = "".join(f"\n{part}" for part in sections if not part.startswith("Example"))
            yield from re.findall(r"^    \w+: (.*(?:\n {5,}.*)*)", listed, flags=re.MULTILINE)


def help_texts() -> Iterator[str]:
    """Help texts of all commands and options."""
    commands: Any = get_command(app)
    for command in commands.commands.values():
        yield command.help or ""
        yield from (getattr(option, "help", None) or "" for option in command.params)


def nodes(is_read: Callable[[Path], bool] = bool) -> Iterator[ast.AST]:
    """Nodes of the syntax trees of modules."""
    for path in sorted([*(ROOT / "swarmbo").rglob("*.py"), *(ROOT / "envs").rglob("*.py")]):
        if is_read(path):
            yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def code_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and text of the comments, docstrings and messages of a module."""
    text = path.read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(StringIO(text).readline)
    found = [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    # the tree has the texts of f-strings in every version of Python; tokens have them only before 3.12
    constants = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    found += [(node.lineno, node.value) for node in constants if isinstance(node.value, str)]
    for line, string in found:
        yield from enumerate(string.splitlines(), start=line)


def error_messages() -> Iterator[str]:
    """Texts of exceptions and warnings, with CODE in place of inserted values."""
    for node in nodes():
        if isinstance(node, ast.Call) and re.search(r"(Error|Warning|warn)$", ast.unparse(node.func)):
            yield from filter(None, map(_literal, node.args))


def shown_texts() -> Iterator[str]:
    """Texts that are printed or drawn: closing tables, lists, checks, titles, axes."""
    folders = [ROOT / "swarmbo" / each for each in SHOWN]
    for node in nodes(lambda path: path.name in DRAWN or not set(folders).isdisjoint(path.parents)):
        is_name = (
            isinstance(node, ast.Call) and ast.unparse(node.func) == "stream"
        )  # the purpose of a stream of random numbers
        if not is_name and not isinstance(node, ast.Expr | ast.JoinedStr | ast.FormattedValue):
            yield from (text for text in map(_literal, ast.iter_child_nodes(node)) if " " in text.strip())


def comments_of_scenarios() -> Iterator[str]:
    """Comments of shipped scenarios, without settings that are commented out."""
    for path in sorted(path for path in (ROOT / "scenarios").rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8")
        yield re.sub(r"\n# ", " ", re.match(r"# ((?:.*\n# )*.*)", text)[1])
        yield from (found for found in re.findall(r"[^\n]+?\s# (.*)", text))


def _literal(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(value) if isinstance(value, ast.Constant) else "`x`" for value in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def prose_of_scripts() -> Iterator[str]:
    """Prose of tutorials and of the gallery."""
    for script in sorted((ROOT / "docs").glob("[tg]*/*.py")):
        text = script.read_text(encoding="utf-8").replace("``", "`")
        blocks = re.findall(r"^# %%\n((?:#.*\n)+)", text, flags=re.MULTILINE)
        own = "\n\n".join([text.split('"""')[1], *(re.sub(r"^# ?", "", block, flags=re.MULTILINE) for block in blocks)])
        yield re.sub(r"^(=+|-+)$", "", own, flags=re.MULTILINE)


PROGRAM = {
    "tutorials and gallery": prose_of_scripts,
    "docstrings": docstrings,
    "help of commands": help_texts,
    "error messages": error_messages,
    "texts in tables and figures": shown_texts,
    "comments of scenarios": comments_of_scenarios,
    "glossary": lambda: (text for texts in glossary().values() for text in texts.values()),
}


def found(page: str) -> list[str]:
    """Faults of a page, each with a replacement."""
    faults = list[str]()
    for paragraph in paragraphs(text_of(page)):
        text = prose(paragraph)
        for word in LIST["words"]:
            if page not in word.get("allowed", []):
                faults += [
                    f"'{match[0]}' in '…{text[max(match.start() - 30, 0) : match.end() + 20]}…': {word['better']}"
                    for match in re.finditer(word["pattern"], text, flags=re.IGNORECASE)
                ]
        for sentence in sentences(text):
            words = [word for word in sentence.split() if any(map(str.isalnum, word))]
            if len(words) > MOST_WORDS:
                faults.append(f"{len(words)} words: {sentence}")
            if INVERTED.match(sentence):
                faults.append(f"inverted: {sentence}")
    return faults


@pytest.mark.parametrize("page", [*PAGES, *PROGRAM])
def test_texts_have_no_listed_words_and_no_long_sentences(page):
    assert not (faults := found(page)), "\n".join(faults)


def code_faults(path: Path) -> list[str]:
    """Unclear phrases in a module, each with a replacement."""
    return [
        f"{path}:{number}: '{match[0]}': {phrase['better']}"
        for number, text in code_texts(path)
        for phrase in LIST["phrases"]
        if (match := re.search(phrase["pattern"], text, flags=re.IGNORECASE))
    ]


def test_comments_and_docstrings_have_no_unclear_phrases():
    paths = sorted([*(ROOT / "swarmbo").rglob("*.py"), *(ROOT / "envs").rglob("*.py")])
    assert not (faults := [fault for path in paths for fault in code_faults(path)]), "\n".join(faults)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("# derivatives by log lengthscales", "derivatives by"),
        ('"""Gradient of the mean by the coordinates."""', "Gradient of the mean by"),
        ("steps = 20  # one try in so many", "so many"),
        ("# so many factors that rounds are shortened", ""),
        ("# from order 8 on no table is large enough", "from order 8 on"),
        ("# from now on, and from 1 to 8 on a grid", ""),
        ('"""The level; None without one."""', "None without one"),
        ("# least distance, in sides of the box", "in sides"),
        ("so_many = derivatives_by", ""),
        ('text = f"{n} try in so many"', "so many"),
    ],
)
def test_unclear_phrases_are_found_in_comments_and_docstrings_only(line, shown, tmp_path):
    (tmp_path / "module.py").write_text(f"{line}\n")
    assert [fault.split("'")[1] for fault in code_faults(tmp_path / "module.py")] == [shown] * bool(shown)


def test_pages_where_a_word_is_allowed_exist():
    assert not {page for word in LIST["words"] for page in word.get("allowed", [])} - {*PAGES, *PROGRAM}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A robot goes home.", []),
        ("Of a function nothing is fused.", ["inverted"]),
        ("It is done. Nor is this. (Not so!)", ["inverted", "inverted"]),
        ("They agree by turns.", ["'by turns'"]),
        ("`by turns` is a name, and so is\n```sh\nby turns\n```\n", []),
        ("| by turns | a table |\n", []),
        ("- one " + "word " * 28, ["29 words"]),
        ("- " + "word " * 20 + "\n- " + "word " * 20, []),
        ("word " * 15 + "end. Then " + "word " * 15, []),
        ("[read this](it-took/used-to.md) first", []),
    ],
)
def test_faults_are_found_in_prose_only(text, shown, tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text(text)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    faults = found("page.md")
    assert [fault.split(":")[0].split(" in ")[0] for fault in faults] == shown


def words_of(page: str) -> int:
    """The number of words of a page, code and tables included."""
    return sum(any(map(str.isalnum, word)) for word in (ROOT / page).read_text(encoding="utf-8").split())


def test_pages_are_short():
    assert words_of("README.md") <= 800
    assert sum(words_of(page) for page in PAGES if not page.startswith(("docs/reference/", "CHANGELOG"))) <= 30_000


if __name__ == "__main__":
    for name in sys.argv[1:] or [*PAGES, *PROGRAM]:
        for fault in found(name):
            print(f"{name}: {fault}")  # noqa: T201
