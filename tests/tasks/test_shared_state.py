"""The shared state of a worker process, written by one process while another process reads it."""

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
page.begin(1, [0.0] * 10)
print("begun", flush=True)
for n in range(200_000):
    page.start(n % 10, 60.0)
    page.end(n % 10, MessageState.DONE)
"""


def test_no_task_counts_as_overdue_while_its_start_is_being_written() -> None:
    state = SharedState(1)
    page = state.batches[0]
    command = [sys.executable, "-c", WRITER, str(state.fd)]
    with subprocess.Popen(command, pass_fds=(state.fd,), stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        checks = 0
        while writer.poll() is None:
            # The supervisor checks with a grace period, too.
            assert page.overdue_task(time.monotonic() - 1) is None
            checks += 1
    assert checks > 1_000
    assert {page.state(slot) for slot in range(10)} == {MessageState.DONE}
    state.close()


def test_a_task_is_overdue_once_its_time_limit_is_over() -> None:
    state = SharedState(1)
    page = state.batches[1]
    page.begin(1, [0.0, 0.0])
    page.start(1, 5.0)
    now = time.monotonic()
    assert page.overdue_task(now) is None
    assert page.overdue_task(now + 6) == page.overdue_task(now + 60)
    assert (page.overdue_task(now + 6) or (None,))[0] == 1
    page.end(1, MessageState.FAILED)
    assert page.overdue_task(now + 60) is None
    state.close()
