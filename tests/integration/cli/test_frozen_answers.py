"""The JSON output of commands is as recorded in `tests/frozen`."""

from typing import Any

import pytest

from tests.frozen import command_json, record
from tickwheel.testing import PrivateServer

# The test runs all commands once; some take seconds.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def answers(tickwheel_server: PrivateServer) -> Any:
    """Return the current answers of the commands."""
    return record.as_json(command_json.answers_of(tickwheel_server))


def test_the_json_answers_of_commands_have_the_recorded_keys(answers: Any) -> None:
    differences = list(record.differences(record.recorded("cli_json"), answers, "cli_json"))
    assert not differences, "\n".join(["cli_json is not as recorded:", *differences, record.REMEDY])


def test_every_command_with_json_answers_is_run(answers: Any) -> None:
    # The subject of an entry follows the comma.
    assert {entry.partition(",")[0] for entry in answers} == command_json.commands_with_json()
