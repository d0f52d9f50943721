"""Prose keeps to plain words: docstrings, comments, log lines, error texts, scripts, protos, pages and other files.

`DIALECT` is the word list: words with which the code once described itself and that a stranger must decode. Text
in backticks and code blocks is code, not prose. `ALLOWED` has the lines that need such a word all the same, with the
reason.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.frozen import record

pytestmark = pytest.mark.unit

ROOT: Final = Path(__file__).parents[2]
ALLOWED_MAX: Final = 30
FOLDERS: Final = ("scheduler", "wheel", "bench", "services", "examples", "tests", ".ci")
# The other files with prose, and a pattern for their comments and texts.
HASH: Final = re.compile(r"""(?<!\S)#.*|"[^"]*"|'[^']*'""")
SLASHES: Final = re.compile(r"(?<!\S)//.*")
OTHER_FILES: Final = {
    ".ci/run": HASH,
    ".gitignore": HASH,
    ".pre-commit-config.yaml": HASH,
    "Makefile": HASH,
    "bench/peers/*.mjs": SLASHES,
    "deploy/**/*": HASH,
    "proto/buf.yaml": HASH,
    "proto/**/*.proto": SLASHES,
    "pyproject.toml": HASH,
    "scheduler/tickwheel/load/report/*.jinja": re.compile(r"(?:^|(?<=[}>]))[^<>{}]+(?=$|[<{])"),
    "scheduler/tickwheel/load/scenarios/*.toml": HASH,
    "services/pom.xml": re.compile(r"(?:<!--|^[^<]+).*?(?:-->|$)"),
}
# The word list itself, and a test whose data are old names.
LEFT_OUT: Final = {"test_prose.py", "test_vocabulary.py"}
DIALECT: Final = {
    "told, tell": r"told|tells?|telling",
    "say": r"says?|saying|said",
    "shown": r"shown",
    # Allowed: "figure", for one measured number.
    "figures (metrics, measurements)": r"figures",
    "away (unreachable)": r"away",
    # Allowed: "a name is looked up", for a lookup in a table.
    "look (check, scan)": r"(?:looks?|looking|looked)(?! up)",
    "see to (handle)": r"sees? to|seen to|saw to",
    "put off (throttle, postpone)": r"puts? off|putting off",
    "let go (release, close)": r"lets? go|letting go",
    "give back (release)": r"gives? back|given back|giving back|gave back",
    "take up (reload)": r"takes? up|taken up",
    "trouble (error, problem)": r"troubles?",
    "mistake (bug)": r"mistakes?",
    "in company, beside (concurrently)": r"in company|beside",
    # Allowed: "together = 10", a key of a load scenario.
    "together (in one call, in total, at once)": r"together(?! =)",
    # Allowed: processes that stand by, a clock that stands still, and a sign that stands for something. "To stand for
    # election" is not allowed: a process is a candidate.
    "stands (is confirmed, is in)": r"stands?(?! by\b| still\b| in for\b| for\b(?! election))|stood",
    "by itself (separately)": r"by (?:itself|themselves)",
    "by lot (weighted random)": r"by lot",
    "under way (in flight)": r"under way",
    "leave a trace (be recorded)": r"leaves? (?:a|no) trace|leaving (?:a|no) trace",
    "home (metadata shard)": r"home",
    "of before (older)": r"of before",
    "anew (again)": r"anew",
    # Allowed: "way", as in "in the same way".
    "ways (backends)": r"ways",
    "begin again (restart)": r"begins? again|beginning again|began again",
    "for ever (indefinitely)": r"for ever",
    # Allowed: superlatives, as in "the most urgent message".
    "the least, the most (minimum, maximum)": r"the (?:least|most)(?! (?:urgent|expensive|frequent)\b)",
    "whoever (the noun)": r"whoever",
    "so long, so many, so often": r"so (?:long|many|often)",
    # Allowed: "where" for a place, as in "the queue where messages wait".
    "where there is (if)": r"where (?:there (?:is|are)|no|none|nobody|nothing)",
}
PATTERN: Final = re.compile(
    "|".join(rf"(?P<w{n}>\b(?:{word})\b)" for n, word in enumerate(DIALECT.values())), re.IGNORECASE
)
# The line, or a part of it that occurs once, and why it stays.
ALLOWED: Final[dict[str, str]] = {}

Line = tuple[str, int, str]


def without_code(text: str) -> str:
    """The text without code spans, option names and the targets of links."""
    return re.sub(r"``[^`]+``|`[^`]+`|\"--?[a-z-]+\"|\]\([^)]*\)", "`…`", text)


def python_prose(path: Path) -> Iterator[Line]:
    """Comments, docstrings, and every literal of several words: errors, log lines and help texts."""
    source, name = path.read_text(), str(path.relative_to(ROOT))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield name, token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            for number, line in enumerate(node.value.splitlines()):
                yield name, node.lineno + number, line


def lua_prose(path: Path) -> Iterator[Line]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if "--" in line:
            yield str(path.relative_to(ROOT)), number, line[line.index("--") :]
        for literal in re.findall(r"'([^']* [^']* [^']*)'", line):
            yield str(path.relative_to(ROOT)), number, literal


def other_prose(path: Path, pattern: re.Pattern[str]) -> Iterator[Line]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for prose in pattern.findall(line):
            if " " in prose:
                yield str(path.relative_to(ROOT)), number, prose


def page_prose(path: Path) -> Iterator[Line]:
    """A page without its code blocks."""
    in_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield str(path.relative_to(ROOT)), number, line


@cache
def every_line() -> tuple[Line, ...]:
    """All prose. The cache serves the tests of one process."""
    return tuple(_read_lines())


def _read_lines() -> Iterator[Line]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.parent.name != "v1" and path.name not in LEFT_OUT:
                yield from python_prose(path)
    for path in sorted((ROOT / "lua").glob("*.lua")):
        yield from lua_prose(path)
    for glob, pattern in OTHER_FILES.items():
        for path in filter(Path.is_file, sorted(ROOT.glob(glob))):
            # Tests import the programs of deploy/.
            if path.suffix != ".pyc":
                yield from other_prose(path, pattern)
    for folder in (*FOLDERS, "docs"):
        for path in sorted((ROOT / folder).rglob("*.md")):
            yield from page_prose(path)
    for path in sorted(ROOT.glob("*.md")):
        yield from page_prose(path)


def dialect() -> list[str]:
    """One entry for each line with a word of the list."""
    events = set(record.recorded("log_events"))
    entries = []
    for name, number, line in every_line():
        match = None if line in events else PATTERN.search(without_code(line))
        if match and not any(allowed in line for allowed in ALLOWED):
            entries.append(f"{name}:{number}: {match[0]!r} in: {line.strip()}")
    return entries


def test_prose_keeps_to_plain_words() -> None:
    lines = dialect()
    assert not lines, "\n".join([*lines, f"{len(lines)} lines"])


def test_few_lines_may_break_the_rule_and_each_exists_once() -> None:
    assert len(ALLOWED) <= ALLOWED_MAX
    lines = [line for _, _, line in every_line()]
    assert {part: sum(part in line for line in lines) for part in ALLOWED} == dict.fromkeys(ALLOWED, 1)


@pytest.mark.parametrize(
    "line", ["# Who is told of it", "It looks for ever", "a server of before", "where there is none", "it stands there"]
)
def test_dialect_is_noticed(line: str) -> None:
    assert PATTERN.search(line)


@pytest.mark.parametrize("line", ["# `told` is a field", "Return the figure", "the queue where messages wait"])
def test_plain_words_pass(line: str) -> None:
    assert not PATTERN.search(without_code(line))
