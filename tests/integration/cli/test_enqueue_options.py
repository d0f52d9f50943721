"""`tickwheel enqueue`: priorities and JSON payloads, of one message and of a file."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.integration.cli.command_runner import Run
from tickwheel import Tickwheel

pytestmark = pytest.mark.integration

YEAR = timedelta(days=365)


def test_a_priority_sets_the_deadline(run: Run, cli_client: Tickwheel) -> None:
    run("enqueue", "jobs", "x", "--id", "a", "--delay", "1h", "--priority", 9)
    view = cli_client.queue("jobs").get("a")
    assert view.due - view.deadline == 9 * YEAR
    refused = run("enqueue", "jobs", "x", "--priority", 10, code=2)
    assert "priority must be a whole number from 0 to 9, not 10" in refused.stderr
    refused = run("enqueue", "jobs", "x", "--priority", 1, "--deadline", "1h", code=2)
    assert "give a deadline or a priority, not both" in refused.stderr


def test_a_json_payload_is_checked_and_stored_in_compact_form(run: Run, cli_client: Tickwheel) -> None:
    run("enqueue", "jobs", '{ "order": 17 }', "--payload-json", "--id", "a")
    run("enqueue", "jobs", "-", "--payload-json", "--id", "b", stdin=b"null\n")
    queue = cli_client.queue("jobs")
    assert [queue.get(id).payload for id in "ab"] == [b'{"order":17}', b"null"]
    refused = run("enqueue", "jobs", "{order}", "--payload-json", code=2)
    assert "with --payload-json, the payload must be JSON, not b'{order}'" in refused.stderr


def test_a_line_of_a_file_has_json_and_a_priority(run: Run, cli_client: Tickwheel, tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"id": "a", "json": {"order": 17}, "priority": 5}\n')
    run("enqueue", "jobs", "--from", str(file))
    view = cli_client.queue("jobs").get("a")
    assert view.json() == {"order": 17}
    assert view.due - view.deadline == 5 * YEAR
