"""With `--watch`, a command prints its output again, with the changes, until Ctrl-C."""

import signal
from pathlib import Path

import pytest

from services.process import Process
from tests.integration.cli.command_runner import ENDS_S, TICKWHEEL, Run
from tests.support.wait_until import eventually
from tickwheel import Tickwheel

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (("counts", "jobs"), '"pending": 1', '"pending": 2'),
        (("queue", "list"), '"pending": 1', '"pending": 2'),
        (("messages", "jobs"), '"id": "first"', '"id": "second"'),
    ],
    ids=["counts", "queue list", "messages"],
)
def test_a_watched_command_follows_changes_until_ctrl_c(
    cli_client: Tickwheel, tmp_path: Path, words: tuple[str, ...], before: str, after: str
) -> None:
    jobs = cli_client.create_queue("jobs")
    jobs.enqueue(id="first")
    with Process("watched", [*TICKWHEEL, *words, "--watch", "100ms", "--json"], tmp_path) as watched:
        eventually(lambda: before in watched.log, "the command prints the first message", ENDS_S)
        jobs.enqueue(id="second")
        eventually(lambda: after in watched.log, "the command prints the second message", ENDS_S)
        watched.send_signal(signal.SIGINT)
        assert watched.wait(ENDS_S) == 130


def test_a_pause_that_is_too_short_is_refused(run: Run) -> None:
    error = run("counts", "--watch", "99ms", code=2).stderr
    assert "'99ms' is too short: write 100ms or more" in " ".join(error.replace("│", " ").split())
