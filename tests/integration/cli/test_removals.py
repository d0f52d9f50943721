"""The commands that remove messages, queues and namespaces: confirmation, effect and output."""

import os
import pty
import subprocess
from contextlib import suppress

import pytest

from tests.integration.cli.command_runner import ENDS_S, TICKWHEEL, Run, answer_on_terminal, document
from tickwheel import NewMessage, Tickwheel
from tickwheel.operations.removal.delete_namespace import NamespaceDeletion
from tickwheel.operations.removal.delete_queue import QueueDeletion

pytestmark = pytest.mark.integration

COMMANDS = (("queue", "purge", "jobs"), ("queue", "delete", "jobs", "--purge"), ("namespace", "delete"))


def test_without_a_terminal_and_without_yes_nothing_is_removed(run: Run, cli_client: Tickwheel) -> None:
    cli_client.queue("jobs").enqueue(id="m")
    for command in COMMANDS:
        refused = run(*command, code=1, stdin="y\n")
        assert "Nothing was changed" in refused.stderr
        assert "--yes" in refused.stderr
    assert cli_client.queue("jobs").counts()["pending"] == 1


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_removal_asks_on_a_terminal(cli_client: Tickwheel, command: tuple[str, ...]) -> None:
    cli_client.queue("jobs").enqueue(id="m")
    code, text = answer_on_terminal("n", *command)
    assert (code, cli_client.queue("jobs").counts()["pending"]) == (1, 1), text
    code, text = answer_on_terminal("y", *command)
    assert (code, "removed" in text) == (0, True), text


def test_purge_removes_messages_of_the_given_states(run: Run, cli_client: Tickwheel) -> None:
    queue = cli_client.queue("jobs")
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(3))
    queue.dequeue()
    assert run("queue", "purge", "jobs", "--state", "errored", "--yes").stdout == "0 removed\n"
    purged = document(run("queue", "purge", "jobs", "--yes", "--json"))
    assert (purged["queue"], purged["removed"], purged["counts"]["running"]) == ("jobs", 2, 1)
    assert "must not contain 'running'" in run("queue", "purge", "jobs", "--state", "running", "--yes", code=2).stderr


def test_delete_removes_a_queue(run: Run, cli_client: Tickwheel) -> None:
    cli_client.queue("jobs").enqueue(id="m")
    assert "1 pending" in run("queue", "delete", "jobs", "--yes", code=1).stderr
    assert document(run("queue", "delete", "jobs", "--purge", "--yes", "--json")) == {"queue": "jobs", "removed": 1}
    run("queue", "delete", "jobs", "--yes", code=4)
    cli_client.create_queue("jobs")
    assert run("queue", "delete", "jobs", "--yes").stdout == "queue jobs is deleted; removed: 0 messages\n"


def test_a_queue_in_deletion_is_shown_as_such(run: Run, cli_client: Tickwheel) -> None:
    cli_client.create_queue("jobs")
    deletion = QueueDeletion(cli_client._context, "jobs", False)
    cli_client._run(deletion.next())
    assert "being deleted" in run("queue", "list").stdout
    assert document(run("queue", "list", "--json"))[0]["deleting"]
    assert "is being deleted" in run("enqueue", "jobs", "x", code=1).stderr
    run("queue", "delete", "jobs", "--yes")


def test_namespace_delete_finishes_a_deletion_that_was_cut_off(run: Run, cli_client: Tickwheel) -> None:
    cli_client.queue("jobs").enqueue(id="m")
    cli_client._run(NamespaceDeletion(cli_client._context).next())
    assert "is being deleted" in run("queue", "list", code=1).stderr
    name = cli_client._context.namespace
    assert run("namespace", "delete", "--yes").stdout.startswith(f"namespace {name} is deleted; removed: ")
    run("namespace", "delete", "--yes", code=4)


REMOVALS = {
    "purge": (("queue", "purge", "jobs"), "messages removed", b"300 removed\n"),
    "delete a queue": (("queue", "delete", "jobs", "--purge"), "messages removed", b"removed: 300 messages\n"),
    "delete a namespace": (("namespace", "delete"), "keys removed", b" keys\n"),
}


def run_on_terminal(client: Tickwheel, *command: str) -> tuple[bytes, str]:
    """Run a command whose standard error is a terminal. Return its output, and what it wrote to the terminal."""
    environment = os.environ | {
        "TICKWHEEL_URL": str(client._client_settings.url),
        "TICKWHEEL_NAMESPACE": str(client._context.namespace),
        "TERM": "xterm",
    }
    main, terminal = pty.openpty()
    with os.fdopen(main, "rb", buffering=0) as shown:
        try:
            ended = subprocess.run(
                [*TICKWHEEL, *command], env=environment, stdout=subprocess.PIPE, stderr=terminal, timeout=ENDS_S
            )
        finally:
            os.close(terminal)
        assert ended.returncode == 0
        pieces = []
        # Linux reports the end of a terminal that nobody has open as an error.
        with suppress(OSError):
            while piece := shown.read(65_536):
                pieces.append(piece)
    return ended.stdout, b"".join(pieces).decode()


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_removal_shows_its_progress_only_on_a_terminal(run: Run, cli_client: Tickwheel, removal: str) -> None:
    command, progress, printed = REMOVALS[removal]
    for options, is_shown in ((("--yes",), True), (("--yes", "--json"), False)):
        with Tickwheel(cli_client._client_settings.url, namespace=cli_client._context.namespace) as client:
            client.queue("jobs").enqueue_many(NewMessage(id=f"m{n}") for n in range(300))
        output, shown = run_on_terminal(cli_client, *command, *options)
        assert (progress in shown) == is_shown
        assert not is_shown or output.endswith(printed)
    with Tickwheel(cli_client._client_settings.url, namespace=cli_client._context.namespace) as client:
        client.queue("jobs").enqueue_many(NewMessage(id=f"m{n}") for n in range(300))
    assert run(*command, "--yes").stderr == ""
