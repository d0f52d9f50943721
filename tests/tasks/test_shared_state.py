"""The board of a worker process, written by one process while another one reads it."""

import subprocess
import sys
import time

import pytest

from tickwheel.worker.shared_state import MessageState, SharedState

pytestmark = pytest.mark.integration

WRITER = """
import sys
from tickwheel.worker.shared_state import MessageState, SharedState
page = SharedState(1, int(sys.argv[1])).batches[0]
page.begin(1, 10)
print("begun", flush=True)
for n in range(200_000):
    page.start(n % 10, 60.0)
    page.end(n % 10, MessageState.DONE)
"""


def test_no_task_counts_as_overdue_while_its_start_is_being_written() -> None:
    board = SharedState(1)
    page = board.batches[0]
    command = [sys.executable, "-c", WRITER, str(board.fd)]
    with subprocess.Popen(command, pass_fds=(board.fd,), stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        looks = 0
        while writer.poll() is None:
            # As the supervisor looks: after a time of grace.
            assert page.overdue_task(time.monotonic() - 1) is None
            looks += 1
    assert looks > 1_000
    assert {page.state(slot) for slot in range(10)} == {MessageState.DONE}
    board.close()


def test_a_task_is_overdue_once_its_time_limit_is_over() -> None:
    board = SharedState(1)
    page = board.batches[1]
    page.begin(1, 2)
    page.start(1, 5.0)
    now = time.monotonic()
    assert page.overdue_task(now) is None
    assert page.overdue_task(now + 6) == page.overdue_task(now + 60)
    assert (page.overdue_task(now + 6) or (None,))[0] == 1
    page.end(1, MessageState.FAILED)
    assert page.overdue_task(now + 60) is None
    board.close()
