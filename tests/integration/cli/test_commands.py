"""The effects of commands and their output as text and as JSON."""

import json
from datetime import datetime, timedelta

import pytest

from tests.integration.cli.command_runner import ENCODE, Run, document, documents
from tickwheel import Tickwheel

pytestmark = pytest.mark.integration


def test_help_has_examples_and_exit_codes(run: Run) -> None:
    overview = run("--help").stdout
    assert "Exit codes:" in overview
    for name in (
        *("demo", "events", "queue", "enqueue", "dequeue", "complete", "fail", "release", "extend", "cancel"),
        *("reschedule", "get", "messages", "explain", "redrive", "counts", "depth", "forecast", "doctor", "bench"),
    ):
        assert f" {name} " in overview
        if name != "queue":
            assert "Examples:" in run(name, "--help").stdout, name
    for name in ("create", "list", "show", "block", "unblock", "purge", "delete"):
        assert "Examples:" in run("queue", name, "--help").stdout, name
    for group, names in {
        "namespace": "delete",
        "setting": "list get set unset",
        "route": "list set unset",
        "import": "celery",
    }.items():
        for name in names.split():
            assert "Examples:" in run(group, name, "--help").stdout, (group, name)


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").stdout.startswith("tickwheel ")


def test_the_output_of_each_command_leads_a_message_from_enqueue_to_complete(run: Run, cli_client: Tickwheel) -> None:
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
    assert cli_client.queue("encode").counts()["completed"] == 1


def test_complete_reads_the_json_lines_of_dequeue(run: Run, cli_client: Tickwheel) -> None:
    cli_client.create_queue("encode", exclusive_key="project")
    for n in range(3):
        cli_client.queue("encode").enqueue(b"\xff%d" % n, id=f"f{n}", metadata={"project": f"p{n}"})
    printed = run("dequeue", "encode", "--limit", 10, "--json").stdout
    assert [message["payload_base64"] for message in map(json.loads, printed.splitlines())] == ["/zA=", "/zE=", "/zI="]
    done = documents(run("complete", "encode", "-", "--json", stdin=printed))
    assert [answer["id"] for answer in done] == ["f0", "f1", "f2"]
    assert cli_client.queue("encode").counts()["completed"] == 3


def test_the_text_of_dequeue_has_every_argument_of_complete(run: Run) -> None:
    run("enqueue", "jobs", "hello", "--id", "j1")
    shown = run("dequeue", "jobs").stdout
    assert shown.splitlines()[0] == "j1"
    token = next(line.split()[1] for line in shown.splitlines() if line.split()[0] == "token")
    assert run("complete", "jobs", "j1", "--token", token).stdout == "j1 completed\n"


def test_raw_output_is_the_payload_and_nothing_else(run: Run, cli_client: Tickwheel) -> None:
    run("enqueue", "jobs", "two\nlines")
    assert run("dequeue", "jobs", "--raw", "--complete").stdout_bytes == b"two\nlines\n"
    assert cli_client.queue("jobs").counts()["completed"] == 1


def test_fail_retries_a_message_and_redrive_retries_an_errored_message(run: Run, cli_client: Tickwheel) -> None:
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
    assert cli_client.queue("jobs").counts()["pending"] == 3


def test_extend_prolongs_a_lease(run: Run) -> None:
    run("enqueue", "jobs", "x", "--id", "j")
    message = document(run("dequeue", "jobs", "--json"))
    until = document(run("extend", "jobs", "j", "10m", "--token", message["token"], "--json"))["lease_until"]
    longer = datetime.fromisoformat(until) - datetime.fromisoformat(message["lease_until"])
    assert longer > timedelta(minutes=9)


def test_a_result_is_stored_and_printed(run: Run) -> None:
    run("enqueue", "jobs", "x", "--id", "j")
    message = document(run("dequeue", "jobs", "--json"))
    run("complete", "jobs", "j", "--token", message["token"], "--result", "card 4711")
    assert document(run("get", "jobs", "j", "--json"))["result"] == "card 4711"
    assert "card 4711" in run("get", "jobs", "j").stdout


def test_a_final_failure_is_errored_at_once(run: Run) -> None:
    run("enqueue", "jobs", "x", "--id", "j")
    token = document(run("dequeue", "jobs", "--json"))["token"]
    run("fail", "jobs", "j", "--token", token, "--final", "--retry-in", "1s", code=2)
    assert document(run("fail", "jobs", "j", "--token", token, "--final", "--json"))["state"] == "errored"


def test_release_returns_a_message_of_dequeue_as_if_it_had_not_been_delivered(run: Run, cli_client: Tickwheel) -> None:
    for n in range(3):
        run("enqueue", "jobs", f"x{n}", "--id", f"j{n}")
    printed = run("dequeue", "jobs", "--limit", 3, "--json").stdout
    done = documents(run("release", "jobs", "-", "--json", stdin=printed))
    assert done == [{"id": f"j{n}", "state": "pending"} for n in range(3)]
    assert [message.attempt for message in cli_client.queue("jobs").dequeue(limit=3)] == [1, 1, 1]
    run("release", "jobs", "-", stdin=printed, code=1)


def test_a_setting_is_set_read_listed_and_removed(run: Run, cli_client: Tickwheel) -> None:
    run("queue", "create", "jobs")
    assert run("setting", "list").stderr == "no settings\n"
    run("setting", "set", "mail.sender", "shop@example.com")
    assert cli_client.setting("mail.sender") == "shop@example.com"
    assert run("setting", "get", "mail.sender").stdout == "shop@example.com\n"
    assert document(run("setting", "list", "--json")) == {"mail.sender": "shop@example.com"}
    assert "shop@example.com" in run("setting", "list").stdout
    run("setting", "unset", "mail.sender")
    assert "'mail.sender' is not set" in run("setting", "get", "mail.sender", code=4).stderr


def test_a_route_is_set_listed_and_removed(run: Run) -> None:
    run("queue", "create", "jobs")
    assert "no routes" in run("route", "list").stderr
    run("route", "set", "mail.send", "--to", "tickwheel", "--share", "0.25")
    assert document(run("route", "list", "--json")) == {"mail.send": {"to": "tickwheel", "share": 0.25}}
    assert run("route", "list").stdout.split()[-3:] == ["mail.send", "tickwheel", "0.25"]
    assert (
        "share must be a number from 0 to 1"
        in run("route", "set", "x", "--to", "celery", "--share", "2", code=2).stderr
    )
    assert "to must be one of celery, tickwheel" in run("route", "set", "x", "--to", "mars", code=2).stderr
    run("route", "unset", "mail.send")
    assert document(run("route", "list", "--json")) == {}


def test_cancel_tries_every_id_and_reports_the_first_refusal(run: Run) -> None:
    run("enqueue", "jobs", "x", "--id", "a", "--delay", "1h")
    run("enqueue", "jobs", "x", "--id", "b", "--delay", "1h")
    result = run("cancel", "jobs", "a", "missing", "b", "--json", code=4)
    assert [(answer["id"], answer["state"], answer["changed"]) for answer in documents(result)] == [
        ("a", "cancelled", True),
        ("b", "cancelled", True),
    ]
    assert "'missing'" in result.stderr
    assert run("cancel", "jobs", "a").stdout == "a cancelled, unchanged\n"


def test_reschedule_moves_a_message(run: Run) -> None:
    run("enqueue", "jobs", "x", "--id", "a", "--delay", "1h")
    moved = document(run("reschedule", "jobs", "a", "--due", "2030-01-01T00:00:00Z", "--json"))
    assert (moved["state"], moved["at"]) == ("invisible", "2030-01-01T00:00:00.000+00:00")
    assert document(run("reschedule", "jobs", "a", "--delay", "0s", "--json"))["state"] == "pending"


def test_a_payload_comes_from_standard_input_byte_for_byte(run: Run, cli_client: Tickwheel) -> None:
    run("enqueue", "jobs", "-", stdin=b"\x00\xff\n")
    [message] = cli_client.queue("jobs").dequeue()
    assert message.payload == b"\x00\xff\n"


def test_the_creation_of_a_queue_with_a_sink_names_the_processes_that_the_sink_needs(run: Run) -> None:
    warning = "warning: mail: only processes with Kafka brokers deliver to a sink"
    assert warning in run("queue", "create", "mail", "--sink", "kafka://mail").stderr
    assert "warning" not in run("queue", "create", "mail", "--max-attempts", 3, "--update").stderr
    assert "warning" not in run("queue", "create", "mail", "--sink", "", "--update").stderr


def test_a_queue_is_created_listed_described_blocked_and_unblocked(run: Run) -> None:
    shown = document(
        run("queue", "create", "encode", *ENCODE, "--lease", "2m", "--indexed", "gpu", "--max-attempts", 3, "--json")
    )
    assert (shown["exclusive_key"], shown["lease_ms"], shown["indexed"]) == ("project", 120_000, ["gpu"])
    run("queue", "create", "encode", *ENCODE, "--lease", "2m", "--indexed", "gpu", "--max-attempts", 3)
    refused = run("queue", "create", "encode", *ENCODE, code=1).stderr
    assert "another configuration" in refused
    assert refused.endswith("; use --update to change it\n")
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


def test_counts_depth_and_forecast_print_numbers(run: Run) -> None:
    run("queue", "create", "jobs", "--forecast")
    for region in ("eu", "eu", "us"):
        run("enqueue", "jobs", "x", "--meta", f"region={region}")
    run("enqueue", "jobs", "x", "--delay", "90s")
    counted = document(run("counts", "jobs", "--json"))
    assert (counted["pending"], counted["invisible"], counted["deadlines"]["given"]) == (3, 1, 0)
    assert [entry["queue"] for entry in document(run("counts", "--json"))] == ["jobs"]
    assert run("depth", "jobs", "--where", "region=eu").stdout == "2\n"
    assert document(run("depth", "jobs", "--json"))["pending"] == 3
    coming = document(run("forecast", "jobs", "--minutes", 5, "--json"))
    assert sum(minute["due"] for minute in coming) == 1
    assert "▇" in run("forecast", "jobs").stdout


def test_messages_are_listed_of_one_state_or_all(run: Run, cli_client: Tickwheel) -> None:
    run("queue", "create", "jobs", "--max-attempts", 1)
    for id in ("done", "lost", "waits"):
        run("enqueue", "jobs", "x", "--id", id)
    done, lost = cli_client.queue("jobs").dequeue(limit=2)
    done.complete()
    lost.fail("no\ncard")
    listed = run("messages", "jobs").stdout.splitlines()
    assert listed[0].split() == ["id", "state", "due", "attempt", "error"]
    assert sorted(line.split()[0] for line in listed[1:]) == ["done", "lost", "waits"]
    [_, line] = run("messages", "jobs", "--state", "errored").stdout.splitlines()
    assert line.split()[:2] == ["lost", "errored"]
    assert line.endswith("        1  no\\ncard")
    message = document(run("messages", "jobs", "--state", "errored", "--json"))
    assert (message["id"], message["error"], message["payload"]) == ("lost", "no\ncard", "x")
    assert message == document(run("get", "jobs", "lost", "--json"))
    assert len(documents(run("messages", "jobs", "--limit", 2, "--json"))) == 2
    run("redrive", "jobs", message["id"])
    nothing = run("messages", "jobs", "--state", "errored")
    assert nothing.stdout == ""
    assert nothing.stderr.startswith("queue 'jobs' has no errored messages\n")


def test_messages_that_call_tasks_are_listed_with_the_names_of_the_tasks(run: Run) -> None:
    run("queue", "create", "jobs")
    run("enqueue", "jobs", '{"task": "shop.mail", "args": {"to": "ann"}}', "--id", "call")
    run("enqueue", "jobs", '{"task": "\\u001b[31m", "args": {}}', "--id", "strange")
    run("enqueue", "jobs", "x", "--id", "text")
    head, *lines = run("messages", "jobs").stdout.splitlines()
    assert head.split() == ["id", "state", "task", "due", "attempt", "error"]
    assert {line.split()[0]: line.split()[2] == "shop.mail" for line in lines} == {
        "call": True,
        "strange": False,
        "text": False,
    }
    assert "  task     shop.mail\n" in run("get", "jobs", "call").stdout
    assert "task" not in run("get", "jobs", "text").stdout


def test_messages_of_an_exclusive_queue_are_listed_with_their_values(run: Run) -> None:
    run("queue", "create", "encode", *ENCODE)
    run("enqueue", "encode", "film", "--id", "f1", "--meta", "project=p1")
    head, line = run("messages", "encode").stdout.splitlines()
    assert head.endswith("  exclusive value")
    assert line.endswith("  p1")
    assert document(run("messages", "encode", "--json"))["exclusive_value"] == "p1"


@pytest.mark.parametrize("command", [("queue", "list"), ("counts",)])
def test_only_the_text_output_mentions_that_a_namespace_has_no_queues(run: Run, command: tuple[str, ...]) -> None:
    shown = run(*command)
    assert (shown.stdout, shown.stderr) == ("", "no queues\n")
    shown = run(*command, "--json")
    assert (shown.stdout, shown.stderr) == ("[]\n", "")


def test_options_may_stand_before_the_command_and_win_over_the_environment(run: Run, cli_client: Tickwheel) -> None:
    run("enqueue", "jobs", "x")
    assert document(run("--json", "queue", "list"))[0]["queue"] == "jobs"
    run("--namespace", "cli-other", "queue", "list", code=4)
    assert document(
        run("--namespace", "cli-other", "queue", "list", "--namespace", cli_client._context.namespace, "--json")
    )
