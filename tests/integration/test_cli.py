"""The command line against a real server: what it prints, as text and as JSON, and the code it ends with."""

import json
import os
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tickwheel import Tickwheel
from tickwheel.cli.app import app
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

Run = Callable[..., Result]
ENCODE = ("--exclusive-key", "project")


@pytest.fixture
def place(tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tickwheel]:
    """A fresh namespace, which the environment names; and a client of it."""
    namespace = f"cli-{os.urandom(6).hex()}"
    monkeypatch.setenv("TICKWHEEL_URL", tickwheel_server.url)
    monkeypatch.setenv("TICKWHEEL_NAMESPACE", namespace)
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        yield tickwheel
    tickwheel_server.clear(namespace)


@pytest.fixture
def run(place: Tickwheel) -> Run:
    """Runs a command in this process; fails where the exit code is not the one expected."""

    def run_command(*args: object, code: int = 0, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)
        assert result.exit_code == code, f"{args}\n{result.stdout}\n{result.stderr}\n{result.exception!r}"
        return result

    return run_command


def documents(result: Result) -> list[Any]:
    """Each line of the output as JSON."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def document(result: Result) -> Any:
    [found] = documents(result)
    return found


def test_help_has_examples_and_exit_codes(run: Run) -> None:
    overview = run("--help").stdout
    assert "Exit codes:" in overview
    for name in (
        *("demo", "events", "queue", "enqueue", "dequeue", "complete", "fail", "extend", "cancel", "reschedule"),
        *("get", "explain", "redrive", "counts", "depth", "forecast", "doctor", "bench"),
    ):
        assert f" {name} " in overview
        if name != "queue":
            assert "Examples:" in run(name, "--help").stdout, name
    for name in ("create", "list", "show", "block", "unblock"):
        assert "Examples:" in run("queue", name, "--help").stdout, name


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").stdout.startswith("tickwheel ")


def test_a_message_goes_from_enqueue_to_complete_by_what_is_printed(run: Run, place: Tickwheel) -> None:
    run("queue", "create", "encode", *ENCODE)
    added = document(
        run("enqueue", "encode", "film", "--id", "f1", "--meta", "project=p 1", "--meta", "gpu=a100", "--json")
    )
    assert added == {"id": "f1", "state": "pending", "created": True}

    message = document(run("dequeue", "encode", "--where", "gpu=a100", "--worker", "w", "--lease", "2m", "--json"))
    assert (message["id"], message["payload"], message["metadata"]) == ("f1", "film", {"project": "p 1", "gpu": "a100"})
    assert (message["attempt"], message["exclusive_value"], message["queue"]) == (1, "p 1", "encode")
    assert datetime.fromisoformat(message["lease_until"]) > datetime.fromisoformat(message["due"]) + timedelta(
        minutes=1
    )

    owner = ("--token", message["token"], "--exclusive-value", "p 1")
    done = document(run("complete", "encode", "f1", *owner, "--json"))
    assert done == {"id": "f1", "state": "completed"}
    assert document(run("complete", "encode", "f1", *owner, "--json")) == done
    assert place.queue("encode").counts()["completed"] == 1


def test_json_lines_of_dequeue_are_what_complete_reads(run: Run, place: Tickwheel) -> None:
    place.create_queue("encode", exclusive_key="project")
    for n in range(3):
        place.queue("encode").enqueue(b"\xff%d" % n, id=f"f{n}", metadata={"project": f"p{n}"})
    printed = run("dequeue", "encode", "--limit", 10, "--json").stdout
    assert [message["payload_base64"] for message in map(json.loads, printed.splitlines())] == ["/zA=", "/zE=", "/zI="]
    done = documents(run("complete", "encode", "-", "--json", stdin=printed))
    assert [each["id"] for each in done] == ["f0", "f1", "f2"]
    assert place.queue("encode").counts()["completed"] == 3


def test_text_shows_what_complete_needs(run: Run) -> None:
    run("enqueue", "jobs", "hello", "--id", "j1")
    shown = run("dequeue", "jobs").stdout
    assert shown.splitlines()[0] == "j1"
    token = next(line.split()[1] for line in shown.splitlines() if line.split()[0] == "token")
    assert run("complete", "jobs", "j1", "--token", token).stdout == "j1 completed\n"


def test_raw_output_is_the_payload_and_nothing_else(run: Run, place: Tickwheel) -> None:
    run("enqueue", "jobs", "two\nlines")
    assert run("dequeue", "jobs", "--raw", "--complete").stdout_bytes == b"two\nlines\n"
    assert place.queue("jobs").counts()["completed"] == 1


def test_control_characters_never_reach_a_terminal(run: Run) -> None:
    run("enqueue", "jobs", "\x1b[31mred", "--id", "\x1bid", "--meta", "k=\x07")
    for shown in (run("get", "jobs", "\x1bid").stdout, run("dequeue", "jobs").stdout):
        assert "\x1b" not in shown
        assert "\\x1b[31mred" in shown


def test_nothing_to_deliver_is_code_4(run: Run) -> None:
    run("queue", "create", "jobs")
    result = run("dequeue", "jobs", code=4)
    assert (result.stdout, result.stderr) == ("", "tickwheel: queue 'jobs' has nothing to deliver\n")


def test_what_is_not_there_is_code_4(run: Run) -> None:
    run("queue", "create", "jobs")
    for command in (("get", "jobs", "x"), ("explain", "jobs", "x"), ("cancel", "jobs", "x"), ("counts", "none"),
                    ("queue", "show", "none"), ("queue", "block", "none"), ("depth", "none")):  # fmt: skip
        result = run(*command, code=4)
        assert result.stderr.count("\n") == 1, command


def test_a_server_that_does_not_answer_is_code_3(run: Run) -> None:
    result = run("--url", "redis://127.0.0.1:1", "--timeout", "100ms", "counts", code=3)
    assert result.stdout == ""
    assert result.stderr.startswith("tickwheel: no answer from redis://127.0.0.1:1")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("enqueue", "jobs", "x", "--delay", "15"), "a duration is written like"),
        (("enqueue", "jobs", "x", "--due", "later"), "a time is written like"),
        (("enqueue", "jobs", "x", "--meta", "novalue"), "a pair is written key=value"),
        (("enqueue", "jobs", "x", "--delay", "1s", "--due", "2030-01-01T00:00:00Z"), "a delay or a due time, not both"),
        (("enqueue", "jobs", "x", "--max-attempts", "0"), "max_attempts must be a whole number"),
        (("enqueue", "jobs", "x", "--from", "file"), "with --from, payload and fields are those of the lines"),
        (("enqueue", "jobs", "--from", "/nowhere/file"), "cannot read /nowhere/file"),
        (("enqueue", "no/slashes", "x"), "a queue's name must be"),
        (("dequeue", "jobs", "--limit", "0"), "limit must be a whole number"),
        (("dequeue", "jobs", "--raw"), "--raw does not print tokens"),
        (("complete", "jobs", "x"), "--token is missing"),
        (("complete", "jobs", "x", "--token", "nothex"), "a token is 32 hexadecimal digits"),
        (("redrive", "jobs"), "give the id of a message, or --all"),
        (("reschedule", "jobs", "x"), "give a new delay"),
        (("queue", "create", "jobs", "--lease", "1ms"), "lease must be from"),
        (("--timeout", "soon", "counts"), "a duration is written like"),
        (("demo", "--file", "/nowhere/day.csv"), "cannot read /nowhere/day.csv"),
        (("nosuch",), "No such command"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_code_2_and_says_what_is_allowed(run: Run, command: tuple[str, ...], said: str) -> None:
    result = run(*command, code=2)
    assert result.stdout == ""
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_what_is_refused_is_code_1_with_one_line(run: Run) -> None:
    run("queue", "create", "jobs")
    run("queue", "block", "jobs", "--enqueue")
    result = run("enqueue", "jobs", "x", code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("tickwheel: queue 'jobs'")
    assert result.stderr.count("\n") == 1


def test_a_lost_lease_is_code_1(run: Run) -> None:
    run("enqueue", "jobs", "x", "--id", "j")
    token = document(run("dequeue", "jobs", "--json"))["token"]
    run("fail", "jobs", "j", "--token", token, "--retry-in", "0s")
    assert "its lease ended" in run("complete", "jobs", "j", "--token", token, code=1).stderr


def test_fail_gives_back_and_redrive_tries_again(run: Run, place: Tickwheel) -> None:
    for n in range(3):
        run("enqueue", "jobs", f"x{n}", "--id", f"j{n}", "--max-attempts", 1)
    for message in documents(run("dequeue", "jobs", "--limit", 3, "--json")):
        failed = document(
            run("fail", "jobs", message["id"], "--token", message["token"], "--error", "no card", "--json")
        )
        assert failed == {"id": message["id"], "state": "errored"}
    assert "no card" in run("explain", "jobs", "j0").stdout
    assert document(run("get", "jobs", "j0", "--json"))["error"] == "no card"
    assert document(run("redrive", "jobs", "j0", "--json"))["state"] == "pending"
    assert run("redrive", "jobs", "--all").stdout == "2 redriven\n"
    assert place.queue("jobs").counts()["pending"] == 3


def test_extend_holds_a_lease_longer(run: Run) -> None:
    run("enqueue", "jobs", "x", "--id", "j")
    message = document(run("dequeue", "jobs", "--json"))
    until = document(run("extend", "jobs", "j", "10m", "--token", message["token"], "--json"))["lease_until"]
    longer = datetime.fromisoformat(until) - datetime.fromisoformat(message["lease_until"])
    assert longer > timedelta(minutes=9)


def test_cancel_tries_every_id_and_tells_the_first_refusal(run: Run) -> None:
    run("enqueue", "jobs", "x", "--id", "a", "--delay", "1h")
    run("enqueue", "jobs", "x", "--id", "b", "--delay", "1h")
    result = run("cancel", "jobs", "a", "missing", "b", "--json", code=4)
    assert [(each["id"], each["state"], each["changed"]) for each in documents(result)] == [
        ("a", "cancelled", True),
        ("b", "cancelled", True),
    ]
    assert "'missing'" in result.stderr
    assert run("cancel", "jobs", "a").stdout == "a cancelled, as before\n"


def test_reschedule_moves_a_message(run: Run) -> None:
    run("enqueue", "jobs", "x", "--id", "a", "--delay", "1h")
    moved = document(run("reschedule", "jobs", "a", "--due", "2030-01-01T00:00:00Z", "--json"))
    assert (moved["state"], moved["at"]) == ("invisible", "2030-01-01T00:00:00.000+00:00")
    assert document(run("reschedule", "jobs", "a", "--delay", "0s", "--json"))["state"] == "pending"


def test_deadline_decides_who_is_first(run: Run) -> None:
    for id, deadline in (("late", "2h"), ("soon", "1m"), ("past", "1999-01-01T00:00:00Z")):
        run("enqueue", "jobs", "x", "--id", id, "--deadline", deadline)
    order = [message["id"] for message in documents(run("dequeue", "jobs", "--limit", 3, "--json"))]
    assert order == ["past", "soon", "late"]


def test_a_payload_comes_from_standard_input_byte_for_byte(run: Run, place: Tickwheel) -> None:
    run("enqueue", "jobs", "-", stdin=b"\x00\xff\n")
    [message] = place.queue("jobs").dequeue()
    assert message.payload == b"\x00\xff\n"


def test_a_queue_is_created_listed_shown_blocked_and_unblocked(run: Run) -> None:
    shown = document(
        run("queue", "create", "encode", *ENCODE, "--lease", "2m", "--indexed", "gpu", "--max-attempts", 3, "--json")
    )
    assert (shown["exclusive_key"], shown["lease_ms"], shown["indexed"]) == ("project", 120_000, ["gpu"])
    run("queue", "create", "encode", *ENCODE, "--lease", "2m", "--indexed", "gpu", "--max-attempts", 3)
    assert "another configuration" in run("queue", "create", "encode", *ENCODE, code=1).stderr
    assert (
        document(run("queue", "create", "encode", *ENCODE, "--indexed", "gpu", "--update", "--json"))["lease_ms"]
        == 120_000
    )
    run("queue", "create", "once", "--max-attempts", 1, "--forecast")
    run("queue", "create", "once", "--max-attempts", 1, "--lease", "1m", "--update")
    assert "max attempts       1\n" in run("queue", "show", "once").stdout
    assert document(run("queue", "block", "encode", "--dequeue", "--json"))["dequeue_blocked"] is True
    [listed, _] = document(run("queue", "list", "--json"))
    assert (listed["queue"], listed["blocked"]) == ("encode", ["dequeue"])
    unblocked = document(run("queue", "unblock", "encode", "--json"))
    assert (unblocked["enqueue_blocked"], unblocked["dequeue_blocked"]) == (False, False)
    assert "exclusive key" in run("queue", "show", "encode").stdout


def test_counts_depth_and_forecast(run: Run) -> None:
    run("queue", "create", "jobs", "--forecast")
    for region in ("eu", "eu", "us"):
        run("enqueue", "jobs", "x", "--meta", f"region={region}")
    run("enqueue", "jobs", "x", "--delay", "90s")
    counted = document(run("counts", "jobs", "--json"))
    assert (counted["pending"], counted["invisible"], counted["deadlines"]["given"]) == (3, 1, 0)
    assert [each["queue"] for each in document(run("counts", "--json"))] == ["jobs"]
    assert run("depth", "jobs", "--where", "region=eu").stdout == "2\n"
    assert document(run("depth", "jobs", "--json"))["pending"] == 3
    coming = document(run("forecast", "jobs", "--minutes", 5, "--json"))
    assert sum(minute["due"] for minute in coming) == 1
    assert "▇" in run("forecast", "jobs").stdout


def test_options_may_stand_before_the_command_and_win_over_the_environment(run: Run, place: Tickwheel) -> None:
    run("enqueue", "jobs", "x")
    assert document(run("--json", "queue", "list"))[0]["queue"] == "jobs"
    assert document(run("--namespace", "cli-other", "queue", "list", "--json")) == []
    assert document(run("--namespace", "cli-other", "queue", "list", "--namespace", place._core.namespace, "--json"))


def lines_file(folder: Path, *lines: str) -> Path:
    path = folder / "messages.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_json_lines_are_enqueued_from_a_file_and_from_a_pipe(run: Run, place: Tickwheel, tmp_path: Path) -> None:
    file = lines_file(tmp_path, *(json.dumps({"id": f"m{n}", "payload": "x", "delay": "1h"}) for n in range(2_500)))
    assert run("enqueue", "jobs", "--from", file).stdout == "2,500 added\n"
    assert run("enqueue", "jobs", "--from", "-", stdin=file.read_bytes()).stdout == "0 added, 2,500 were there before\n"
    results = documents(run("enqueue", "jobs", "--from", file, "--json"))
    assert len(results) == 2_500
    assert results[7] == {"id": "m7", "state": "invisible", "created": False}
    assert place.queue("jobs").counts()["invisible"] == 2_500


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ('{"paylod": "x"}', "a message has no setting 'paylod'"),
        ('{"metadata": {"other": "1"}}', "is exclusive by 'project'"),
        ('{"metadata": {"project": "1"}, "id": ""}', "id must be 1 to 128 bytes"),
    ],
)
def test_a_bad_line_is_named_and_exactly_what_stands_before_it_is_in(
    run: Run, place: Tickwheel, tmp_path: Path, bad: str, said: str
) -> None:
    place.create_queue("encode", exclusive_key="project")
    good = [json.dumps({"payload": "x" * 20_000, "metadata": {"project": str(n)}}) for n in range(150)]
    file = lines_file(tmp_path, *good[:120], bad, *good[120:])
    result = run("enqueue", "encode", "--from", file, code=1)
    assert result.stderr.startswith("tickwheel: line 121: ")
    assert said in result.stderr
    assert place.queue("encode").counts()["pending"] == 120


def test_a_line_whose_id_is_taken_is_told_after_all_others_are_in(run: Run, place: Tickwheel, tmp_path: Path) -> None:
    place.queue("jobs").enqueue(b"first", id="m1")
    file = lines_file(tmp_path, *(json.dumps({"id": f"m{n}", "payload": "second"}) for n in range(3)))
    result = run("enqueue", "jobs", "--from", file, code=1)
    assert result.stdout == "2 added\n"
    assert "line 2: queue 'jobs' has a message 'm1' with other content" in result.stderr
    assert place.queue("jobs").counts()["pending"] == 3


def test_a_line_that_is_due_too_far_ahead_is_told_after_all_others_are_in(
    run: Run, place: Tickwheel, tmp_path: Path
) -> None:
    file = lines_file(
        tmp_path, *(json.dumps({"id": f"m{n}", "due": f"{y}-01-01T00:00Z"}) for n, y in enumerate((2020, 9000, 2021)))
    )
    result = run("enqueue", "jobs", "--from", file, code=1)
    assert result.stdout == "2 added\n"
    assert "line 2: due of message 'm1' must be within 1825 days" in result.stderr
    assert place.queue("jobs").counts()["pending"] == 2


def test_doctor_finds_a_healthy_namespace_healthy(run: Run) -> None:
    run("enqueue", "jobs", "x")
    found = document(run("doctor", "--json"))
    assert {finding["verdict"] for finding in found} <= {"ok", "warning"}
    assert {"server", "memory", "durability", "clock", "driver", "inbox", "outbox", "queues", "records"} <= {
        finding["check"] for finding in found
    }


def test_doctor_finds_a_wrong_record_and_ends_with_code_1(
    run: Run, place: Tickwheel, tickwheel_server: PrivateServer
) -> None:
    run("enqueue", "jobs", "x")
    with tickwheel_server.client() as client:
        client.hset(f"{place._core.namespace}:{{0}}:q:jobs:counts", "2", 7)
    found = document(run("doctor", "--json", code=1))
    assert [finding["check"] for finding in found if finding["verdict"] == "bad"] == ["records"]
    assert "BAD" in run("doctor", code=1).stdout


def test_doctor_does_not_create_what_it_looks_for(run: Run, tickwheel_server: PrivateServer) -> None:
    result = run("doctor", "--namespace", "cli-nowhere", code=4)
    assert "there is no namespace 'cli-nowhere'" in result.stderr
    with tickwheel_server.client() as client:
        assert list(client.scan_iter(match="cli-nowhere*")) == []


def test_a_timeout_of_nothing_is_refused(run: Run) -> None:
    assert "timeout must be from 0:00:00.001000 to 0:00:30" in run("counts", "--timeout", "0s", code=2).stderr
    assert "timeout must be from" in run("doctor", "--timeout", "0s", code=2).stderr


def test_a_data_directory_without_a_name_is_refused(run: Run) -> None:
    assert "the name of a directory is empty" in run("counts", "--data-dir", "", code=2).stderr


@pytest.mark.parametrize("token", ["abcd", "x" * 32, "00" * 17, ""])
def test_a_token_that_is_none_is_shown_as_it_was_written(run: Run, place: Tickwheel, token: str) -> None:
    place.queue("jobs").enqueue(id="m")
    stderr = run("complete", "jobs", "m", "--token", token, code=2).stderr
    assert f"a token is 32 hexadecimal digits, as dequeue prints it, not '{token}'" in stderr


def test_a_forecast_that_is_not_kept_names_the_option_that_keeps_it(run: Run, place: Tickwheel) -> None:
    place.create_queue("jobs")
    assert "create it with `tickwheel queue create --forecast`" in run("forecast", "jobs", code=2).stderr


def test_doctor_says_that_nobody_drives(run: Run, place: Tickwheel, tickwheel_server: PrivateServer) -> None:
    run("enqueue", "jobs", "x", "--delay", "1h")
    with tickwheel_server.client() as client:
        inbox = f"{place._core.namespace}:{{0}}:inbox"
        [(_, fields)] = client.xrange(inbox)
        client.delete(inbox)
        # As if it had been there for ten seconds.
        seconds, _ = client.time()
        client.xadd(inbox, fields, id=f"{(seconds - 10) * 1000}-1")
    found = document(run("doctor", "--quick", "--json", code=1))
    [driver] = [finding for finding in found if finding["check"] == "driver"]
    assert "no event process drives it; run `tickwheel events`" in driver["text"]


def test_bench_measures_and_leaves_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, tickwheel_server: PrivateServer
) -> None:
    monkeypatch.delenv("TICKWHEEL_NAMESPACE")
    measured = document(run("bench", "--messages", 1_000, "--json"))
    assert set(measured["per_second"]) == {"enqueue", "dequeue", "complete"}
    assert all(rate > 0 for each in measured["per_second"].values() for rate in each.values())
    with tickwheel_server.client() as client:
        assert list(client.scan_iter(match="bench-*")) == []
