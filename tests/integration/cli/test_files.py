"""Messages as JSON lines, from files and pipes."""

import json
from pathlib import Path

import pytest

from tests.integration.cli.command_runner import Run, documents, lines_file
from tickwheel import Tickwheel

pytestmark = pytest.mark.integration


def test_a_refused_command_exits_with_code_1_and_one_line(run: Run) -> None:
    run("queue", "create", "jobs")
    run("queue", "block", "jobs", "--enqueue")
    result = run("enqueue", "jobs", "x", code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("tickwheel: queue 'jobs'")
    assert result.stderr.count("\n") == 1


def test_the_deadline_decides_the_order(run: Run) -> None:
    for id, deadline in (("late", "2h"), ("soon", "1m"), ("past", "1999-01-01T00:00:00Z")):
        run("enqueue", "jobs", "x", "--id", id, "--deadline", deadline)
    order = [message["id"] for message in documents(run("dequeue", "jobs", "--limit", 3, "--json"))]
    assert order == ["past", "soon", "late"]


def test_json_lines_are_enqueued_from_a_file_and_from_a_pipe(run: Run, cli_client: Tickwheel, tmp_path: Path) -> None:
    file = lines_file(tmp_path, *(json.dumps({"id": f"m{n}", "payload": "x", "delay": "1h"}) for n in range(2_500)))
    assert run("enqueue", "jobs", "--from", file).stdout == "2,500 added\n"
    assert run("enqueue", "jobs", "--from", "-", stdin=file.read_bytes()).stdout == "0 added, 2,500 existed before\n"
    results = documents(run("enqueue", "jobs", "--from", file, "--json"))
    assert len(results) == 2_500
    assert results[7] == {"id": "m7", "state": "invisible", "created": False}
    assert cli_client.queue("jobs").counts()["invisible"] == 2_500


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ('{"paylod": "x"}', "a message has no setting 'paylod'"),
        ('{"metadata": {"other": "1"}}', "is exclusive by 'project'"),
        ('{"metadata": {"project": "1"}, "id": ""}', "id must be 1 to 128 bytes"),
    ],
)
def test_a_bad_line_is_named_and_exactly_the_lines_before_it_are_enqueued(
    run: Run, cli_client: Tickwheel, tmp_path: Path, bad: str, text: str
) -> None:
    cli_client.create_queue("encode", exclusive_key="project")
    good = [json.dumps({"payload": "x" * 20_000, "metadata": {"project": str(n)}}) for n in range(150)]
    file = lines_file(tmp_path, *good[:120], bad, *good[120:])
    result = run("enqueue", "encode", "--from", file, code=1)
    assert result.stderr.startswith("tickwheel: line 121: ")
    assert text in result.stderr
    assert result.stderr.endswith(
        "; 120 messages of the earlier lines are enqueued: fix the line, and enqueue the file from this line on\n"
    )
    assert cli_client.queue("encode").counts()["pending"] == 120


def test_the_lines_before_a_bad_one_are_enqueued_in_a_new_queue(
    run: Run, cli_client: Tickwheel, tmp_path: Path
) -> None:
    file = lines_file(tmp_path, *[json.dumps({"payload": "x"})] * 20, '{"id": ""}')
    assert run("enqueue", "new", "--from", file, code=1).stderr.startswith("tickwheel: line 21: ")
    assert cli_client.queue("new").counts()["pending"] == 20


def test_a_bad_line_is_reported_with_the_added_and_the_rejected_lines(
    run: Run, cli_client: Tickwheel, tmp_path: Path
) -> None:
    ids = [json.dumps({"id": f"m{n}", "payload": "x"}) for n in range(4)]
    run("enqueue", "jobs", "--from", lines_file(tmp_path, *ids[:2]))
    taken = json.dumps({"id": "m1", "payload": "other"})
    result = run("enqueue", "jobs", "--from", lines_file(tmp_path, ids[0], taken, *ids[2:], "no"), code=1)
    assert "line 5: not JSON" in result.stderr
    assert (
        "; 3 messages of the earlier lines are enqueued, 1 rejected (line 2: queue 'jobs' has a message 'm1' with"
        in result.stderr
    )


def test_a_bad_first_line_means_that_nothing_was_enqueued(run: Run, cli_client: Tickwheel, tmp_path: Path) -> None:
    result = run("enqueue", "jobs", "--from", lines_file(tmp_path, "no", "{}"), code=1)
    assert result.stderr.startswith("tickwheel: line 1: not JSON")
    assert result.stderr.endswith("; nothing is enqueued: fix the line, and enqueue the file from this line on\n")


def test_repeated_lines_are_counted_apart_from_added_lines(run: Run, cli_client: Tickwheel, tmp_path: Path) -> None:
    ids = [json.dumps({"id": f"m{n}", "payload": "x"}) for n in range(3)]
    run("enqueue", "jobs", "--from", lines_file(tmp_path, *ids[:2]))
    taken = json.dumps({"id": "m1", "payload": "other"})
    result = run("enqueue", "jobs", "--from", lines_file(tmp_path, *ids, taken), code=1)
    assert result.stdout == "1 added, 2 existed before\n"
    assert result.stderr == (
        "tickwheel: line 4: queue 'jobs' has a message 'm1' with other content; an id identifies one message until the"
        " retention of the message is over\n"
    )


def test_a_line_with_a_taken_id_is_reported_after_all_other_lines_were_enqueued(
    run: Run, cli_client: Tickwheel, tmp_path: Path
) -> None:
    cli_client.queue("jobs").enqueue(b"first", id="m1")
    file = lines_file(tmp_path, *(json.dumps({"id": f"m{n}", "payload": "second"}) for n in range(3)))
    result = run("enqueue", "jobs", "--from", file, code=1)
    assert result.stdout == "2 added\n"
    assert "line 2: queue 'jobs' has a message 'm1' with other content" in result.stderr
    assert cli_client.queue("jobs").counts()["pending"] == 3


def test_a_line_due_too_far_ahead_is_reported_after_all_other_lines_were_enqueued(
    run: Run, cli_client: Tickwheel, tmp_path: Path
) -> None:
    file = lines_file(
        tmp_path, *(json.dumps({"id": f"m{n}", "due": f"{y}-01-01T00:00Z"}) for n, y in enumerate((2020, 9000, 2021)))
    )
    result = run("enqueue", "jobs", "--from", file, code=1)
    assert result.stdout == "2 added\n"
    assert "line 2: due of message 'm1' must be within 1825 days" in result.stderr
    assert cli_client.queue("jobs").counts()["pending"] == 2
