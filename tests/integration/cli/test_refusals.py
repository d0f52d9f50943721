"""The texts and exit codes of refused commands."""

import os
import subprocess
from pathlib import Path

import pytest

from services.process import Process
from tests.integration.cli.command_runner import ENDS_S, TICKWHEEL, Run, document
from tickwheel import Tickwheel

pytestmark = pytest.mark.integration


def test_control_characters_never_reach_a_terminal(run: Run) -> None:
    added = run("enqueue", "jobs", "\x1b[31mred", "--id", "\x1bid", "--meta", "k=\x07")
    assert added.stdout == "\\x1bid\n"
    for shown in (run("get", "jobs", "\x1bid").stdout, run("dequeue", "jobs").stdout):
        assert "\x1b" not in shown
        assert "\\x1b[31mred" in shown


def test_a_dequeue_without_messages_exits_with_code_4(run: Run) -> None:
    run("queue", "create", "jobs")
    result = run("dequeue", "jobs", code=4)
    assert (result.stdout, result.stderr) == ("", "tickwheel: queue 'jobs' has nothing to deliver\n")


def test_a_dequeue_from_a_missing_queue_names_the_queue(run: Run) -> None:
    run("queue", "create", "jobs")
    result = run("dequeue", "none", code=4)
    assert (result.stdout, result.stderr) == ("", run("counts", "none", code=4).stderr)
    assert "'none'" in result.stderr


def test_a_dequeue_with_a_wait_reports_a_missing_queue_at_once_and_waits_for_its_first_message(
    cli_client: Tickwheel, tmp_path: Path
) -> None:
    command = [*TICKWHEEL, "dequeue", "mailz", "--wait", "50s", "--raw", "--complete"]
    with Process("dequeue", command, tmp_path, "there is no queue 'mailz'") as process:
        cli_client.queue("mailz").enqueue(b"hello")
        assert process.wait(ENDS_S) == 0
        assert process.log.endswith(": waiting for the queue and its first message\nhello\n")


def test_an_invalid_timeout_of_the_environment_is_refused_with_its_name(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKWHEEL_TIMEOUT", "abc")
    refused = run("counts", code=2).stderr
    assert refused.startswith("tickwheel: TICKWHEEL_TIMEOUT: a duration is written like")
    assert refused.count("\n") == 1


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_an_import_from_a_broker_that_does_not_answer_moves_nothing(run: Run, options: tuple[str, ...]) -> None:
    result = run("import", "celery", "--from", "redis://127.0.0.1:1/0", *options, code=3)
    assert result.stderr.startswith("tickwheel: Celery's broker does not answer: ")
    assert "; nothing was moved: check --from" in result.stderr
    assert run("counts").stderr == "no queues\n"


def test_a_missing_queue_or_message_exits_with_code_4(run: Run) -> None:
    run("queue", "create", "jobs")
    for command in (("get", "jobs", "x"), ("explain", "jobs", "x"), ("cancel", "jobs", "x"), ("counts", "none"),
                    ("messages", "none"), ("depth", "none"), ("queue", "show", "none"),
                    ("queue", "block", "none")):  # fmt: skip
        result = run(*command, code=4)
        assert result.stderr.count("\n") == 1, command


def test_a_server_that_does_not_answer_gives_exit_code_3(run: Run) -> None:
    result = run("--url", "redis://127.0.0.1:1", "--timeout", "100ms", "counts", code=3)
    assert result.stdout == ""
    assert result.stderr.startswith("tickwheel: no answer from redis://127.0.0.1:1")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("enqueue", "jobs", "x", "--delay", "15"), "a duration is written like"),
        (("enqueue", "jobs", "x", "--delay", "6y"), "the longest delay is 1825d (5 years)"),
        (("enqueue", "jobs", "x", "--delay", "-5s"), "without a sign, not '-5s'"),
        (("enqueue", "jobs", "x", "--delay", "2000d"), "delay must be from 0 s to 1825 days"),
        (("reschedule", "jobs", "x", "--delay", "6y"), "the longest delay is 1825d (5 years)"),
        (("events", "--election", "foo"), "an election is lease, or has the form zk://"),
        (("dev",), "dev starts a server of its own: unset the variable TICKWHEEL_URL"),
        (("dev", "--url", "redis://127.0.0.1:1"), "dev starts a server of its own: leave --url out"),
        (("enqueue", "jobs", "x", "--due", "later"), "'later' is not a time: write 2026-05-17T18:00:00+02:00"),
        (("enqueue", "jobs", "x", "--meta", "novalue"), "a pair is written key=value"),
        (("enqueue", "jobs", "x", "--delay", "1s", "--due", "2030-01-01T00:00:00Z"), "a delay or a due time, not both"),
        (("enqueue", "jobs", "x", "--max-attempts", "0"), "--max-attempts must be a whole number"),
        (("enqueue", "jobs", "x", "--from", "file"), "with --from, the file contains the payload and the fields"),
        (("enqueue", "jobs", "--from", "/nowhere/file"), "cannot read /nowhere/file"),
        (("enqueue", "no/slashes", "x"), "a queue's name must have"),
        (("dequeue", "jobs", "--limit", "0"), "limit must be a whole number"),
        (("dequeue", "jobs", "--raw"), "--raw does not print tokens"),
        (("complete", "jobs", "x"), "--token is missing"),
        (("complete", "jobs", "x", "--token", "nothex"), "a token is 32 hexadecimal digits"),
        (("redrive", "jobs"), "use either the id of a message, or --all"),
        (("reschedule", "jobs", "x"), "give a new delay"),
        (("messages", "jobs", "--state", "lost"), "state must be one of invisible, pending"),
        (("messages", "jobs", "--limit", "0"), "greater than or equal to 1"),
        (("queue", "create", "jobs", "--lease", "1ms"), "lease must be from"),
        (("--timeout", "soon", "counts"), "a duration is written like"),
        (("demo", "--file", "/nowhere/day.csv"), "cannot read /nowhere/day.csv"),
        (("nosuch",), "No such command"),
    ],
)  # fmt: skip
def test_a_wrong_argument_gives_exit_code_2_and_the_allowed_values(
    run: Run, command: tuple[str, ...], text: str
) -> None:
    result = run(*command, code=2)
    assert result.stdout == ""
    assert text in " ".join(result.stderr.replace("│", " ").split())


def test_a_lost_lease_gives_exit_code_1(run: Run) -> None:
    run("enqueue", "jobs", "x", "--id", "j")
    token = document(run("dequeue", "jobs", "--json"))["token"]
    run("fail", "jobs", "j", "--token", token, "--retry-in", "0s")
    assert "the lease of this token has ended" in run("complete", "jobs", "j", "--token", token, code=1).stderr


def test_a_timeout_of_zero_is_refused(run: Run) -> None:
    assert "timeout must be from 1 ms to 30 s, not 0 s" in run("counts", "--timeout", "0s", code=2).stderr
    assert "timeout must be from" in run("doctor", "--timeout", "0s", code=2).stderr


def test_an_empty_data_directory_is_refused(run: Run) -> None:
    assert "the directory's name is empty" in run("counts", "--data-dir", "", code=2).stderr


@pytest.mark.parametrize("token", ["abcd", "x" * 32, "00" * 17, ""])
def test_an_invalid_token_is_printed_as_written(run: Run, cli_client: Tickwheel, token: str) -> None:
    cli_client.queue("jobs").enqueue(id="m")
    stderr = run("complete", "jobs", "m", "--token", token, code=2).stderr
    assert f"a token is 32 hexadecimal digits, as printed by dequeue, not '{token}'" in stderr


@pytest.mark.parametrize("line", ["x", "[]", '{"id": ' + "9" * 5_000 + "}", '{"id":' * 5_000])
def test_a_line_that_dequeue_does_not_print_is_refused(run: Run, line: str) -> None:
    stderr = run("complete", "jobs", "-", stdin=line, code=1).stderr
    assert stderr.startswith("tickwheel: line 1 of standard input is not valid. Each line must be a JSON object")


def test_forecast_of_a_queue_without_forecast_names_the_option(run: Run, cli_client: Tickwheel) -> None:
    cli_client.create_queue("jobs")
    assert "create it with `tickwheel queue create --forecast`" in run("forecast", "jobs", code=2).stderr


@pytest.mark.parametrize("command", [("queue", "create"), ("enqueue",)])
def test_a_new_queue_with_the_name_of_a_placeholder_is_refused(run: Run, command: tuple[str, ...]) -> None:
    result = run(*command, "deleted.1.00c0ffee", code=2)
    assert result.stderr.startswith("tickwheel: the name of a new queue must not have the form deleted.NUMBER.UID")
    assert run("queue", "list", "--json").stdout == "[]\n"


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ((b"\xff:app",), r"MODULE:APP must be valid Unicode text, not '\udcff:app'"),
        ((b"shop:app", b"--queue", b"q\xff"), r"--queue must be valid Unicode text, not 'q\udcff'"),
        ((b"shop:app", b"--selector", b"\xff:x"), r"--selector must be valid Unicode text, not '\udcff:x'"),
        ((b"shop:app", b"--data-dir", b"\xff"), r"--data-dir must be valid Unicode text, not '\udcff'"),
        ((b"shop:app", b"--url", b"redis://secret\xff@host"), "--url must be valid Unicode text"),
    ],
)
def test_a_worker_refuses_text_that_is_not_utf_8(options: tuple[bytes, ...], refusal: str) -> None:
    command = [*map(os.fsencode, TICKWHEEL), b"worker", *options]
    ended = subprocess.run(command, capture_output=True, timeout=ENDS_S, check=False)
    assert (ended.returncode, ended.stderr.decode()) == (2, f"tickwheel: {refusal}\n")
