"""The command line: errors in its own words, the layout of the help, and suggestions for unknown names."""

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.frozen.command_line import tree, walk
from tickwheel.cli.app import _OTHER_NAMES, app
from tickwheel.cli.option_names import name_options
from tickwheel.errors import InvalidArgument
from tickwheel.model import queue_config
from tickwheel.model.validation import suggest

pytestmark = pytest.mark.unit

EXPLAIN = next(command for path, command in walk(tree()) if path == ("explain",))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("pass exclusive_value, the message's 'k'", "pass --exclusive-value, the message's 'k'"),
        ("omit exclusive_value='v'", "omit --exclusive-value='v'"),
        ("queue 'exclusive_value' and `exclusive_value`", "queue 'exclusive_value' and `exclusive_value`"),
        ("my_exclusive_value, exclusive_values", "my_exclusive_value, exclusive_values"),
        ("id must be 1 to 128 bytes; data_dir is empty", "id must be 1 to 128 bytes; --data-dir is empty"),
        ("blocked; `unblock` the queue to continue", "blocked; run `tickwheel queue unblock` to continue"),
    ],
)
def test_errors_name_the_options_of_the_command_and_leave_values_as_they_are(text: str, named: str) -> None:
    assert name_options(text, EXPLAIN.params) == named


@pytest.mark.parametrize("path", [path for path, _ in walk(tree())], ids=" ".join)
def test_the_help_has_one_line_for_each_paragraph_and_no_types_of_python(path: tuple[str, ...]) -> None:
    command: Any = dict(walk(tree()))[path]
    paragraphs = [text for text in (command.help or "").split("\n\n") if "\b" not in text]
    assert [text for text in paragraphs if "\n" in text.strip()] == []
    options = [each for each in command.params if each.param_type_name == "option"]
    # The program's own options come from typer, such as --install-completion.
    assert [each.name for each in options if each.metavar is None and path] == []


def test_the_help_on_80_columns_wraps_at_the_end_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = CliRunner().invoke(app, ["worker", "--help"]).stdout
    assert "N [1<=x<=1024]" in text
    words = " ".join(re.findall(r"[^\s│╭╮╰╯─]+", text))
    assert "finish, and messages that were not started are released." in words
    lines = text.partition("Leases are renewed")[2].partition("Examples")[0].splitlines()
    # Each line but the last takes most of the width.
    assert all(len(line.rstrip()) > 60 for line in lines[1:2])


@pytest.mark.parametrize("words", [["enqueue"], ["queue", "create"], ["shards"], ["shards", "reset-epoch"]])
def test_the_help_of_a_command_names_the_options_of_every_command_in_one_line(words: list[str]) -> None:
    environment = {"COLUMNS": "150"}
    program = CliRunner().invoke(app, ["--help"], env=environment).stdout
    text = CliRunner().invoke(app, [*words, "--help"], env=environment).stdout

    assert "Server (redis://, rediss://, unix://)" in program
    assert "Server (redis://" not in text
    [line] = [line for line in text.splitlines() if "For every command" in line]
    assert line.strip() == (
        "For every command: --url, --data-dir, --namespace, --timeout, --json (see `tickwheel --help`)."
    )


@pytest.mark.parametrize("name", sorted(_OTHER_NAMES))
def test_a_command_of_another_name_is_named(name: str) -> None:
    commands = {" ".join(path) for path, _ in walk(tree())}
    assert name not in commands
    words = re.findall(r"`tickwheel ([a-z ]+?)(?: [A-Z]| --|`)", _OTHER_NAMES[name])
    assert all(command in commands for command in words)
    done = CliRunner().invoke(app, [name], env={"COLUMNS": "300"})
    assert done.exit_code == 2
    assert _OTHER_NAMES[name] in done.stderr


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("lese", " (did you mean 'lease'?)"), ("zzz", ""), ("x" * 10_000, ""), (7, "")],
)
def test_the_most_similar_name_is_suggested(name: object, suggestion: str) -> None:
    assert suggest(name, queue_config.SETTINGS) == suggestion


def test_an_unknown_setting_of_a_queue_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidArgument, match=r"no setting 'lese' \(did you mean 'lease'\?\); the settings are"):
        queue_config.parse({"lese": 1})
