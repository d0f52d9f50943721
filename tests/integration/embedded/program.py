"""A user's program that executes one action for each line of its input and ends with the input."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tickwheel.embedded import EmbeddedServer

server = EmbeddedServer(Path(sys.argv[1]), appendfsync="always" if sys.argv[2] == "always" else "everysec")


def fork_a_child_that_closes() -> int:
    child = os.fork()
    if child == 0:
        assert not server.is_open
        server.close()
        sys.exit()
    return os.waitpid(child, 0)[1]


def fork_a_child_that_stays() -> int:
    child = os.fork()
    if child == 0:
        signal.pause()
    return child


def fork_a_child_that_opens() -> int:
    opened, tell = os.pipe()
    child = os.fork()
    if child == 0:
        server.open()
        os.write(tell, b".")
        signal.pause()
    os.read(opened, 1)
    return child


def come_and_go() -> str:
    for _ in range(15):
        with server:
            if server.pid is None:
                return "no server"
    return "always a server"


actions: dict[str, Callable[[], object]] = {
    "open": server.open,
    "close": server.close,
    "ensure_running": server.ensure_running,
    "pid": lambda: server.pid,
    "is_open": lambda: server.is_open,
    "come_and_go": come_and_go,
    "fork_a_child_that_closes": fork_a_child_that_closes,
    "fork_a_child_that_stays": fork_a_child_that_stays,
    "fork_a_child_that_opens": fork_a_child_that_opens,
}
for line in sys.stdin:
    print(json.dumps(actions[line.strip()]()), flush=True)
