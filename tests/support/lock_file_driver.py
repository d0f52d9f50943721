"""An event process with the default lock file of a server, in a child process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tickwheel.election.lock_file import default_lock
from tickwheel.redis.url import VARIABLE
from tickwheel.runtime.child_process import ChildProcess


@contextmanager
def driving_with_lock_file(url: str, namespace: str) -> Iterator[int]:
    """Run the event process until the end of the block. Yield its pid."""
    command = [sys.executable, "-m", "tickwheel.event_process", "--until-eof", "--existing", "--namespace", namespace]
    child = ChildProcess([*command, "--lock", str(default_lock(url, namespace))], {VARIABLE: url})
    try:
        yield child.pid
    finally:
        child.stop()
