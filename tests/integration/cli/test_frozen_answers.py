"""What commands answer in JSON is as it was recorded (`tests/frozen`)."""

from typing import Any

import pytest

from tests.frozen import command_json, record
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def answers(tickwheel_server: PrivateServer) -> Any:
    """What each command answers today."""
    return record.as_json(command_json.answers_of(tickwheel_server))


def test_what_commands_answer_in_json_has_the_recorded_keys(answers: Any) -> None:
    found = list(record.differences(record.recorded("cli_json"), answers))
    assert not found, "\n".join(["cli_json is not as recorded:", *found, record.REMEDY])


def test_every_command_that_answers_in_json_is_run(answers: Any) -> None:
    run = {name for name in command_json.commands_with_json() if any(_is_of(name, noted) for noted in answers)}
    assert run == command_json.commands_with_json()


def _is_of(name: str, noted: str) -> bool:
    """Whether an entry is the command's: by its name, or by its name and a note."""
    longer = [each for each in command_json.commands_with_json() if each.startswith(f"{name} ")]
    return noted == name or (noted.startswith(f"{name} ") and not any(noted.startswith(each) for each in longer))
