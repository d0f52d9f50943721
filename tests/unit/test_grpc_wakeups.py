"""The socket by which the thread of `grpc.aio` wakes the event loop."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

# In a process of its own, because `grpc.aio` creates the socket once.
PROGRAM = """
import asyncio, socket
from tickwheel.service.grpc_wakeups import make_server

pairs, make_pair = [], socket.socketpair

def recorded(*arguments):
    pairs.append(make_pair(*arguments))
    return pairs[-1]

async def main():
    socket.socketpair = recorded
    make_server([])
    assert socket.socketpair is recorded
    [(read, write)] = pairs
    print(read.getblocking(), write.getblocking())

asyncio.run(main())
"""


def test_a_full_socket_does_not_stop_the_thread_that_polls_for_events() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False False\n", "")
