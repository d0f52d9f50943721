"""An event process in which each search of a queue waits while the file that READING names exists.

It stands for a metadata shard that answers late, although it answers the calls of the election.
"""

import os
from pathlib import Path

from tests.support.wait_until import eventually
from tickwheel.driver.queue_lookup import QueueRef
from tickwheel.event_process.main import main
from tickwheel.event_process.queue_directory import QueueDirectory

READING = Path(os.environ["READING"])
_WITHIN_S = 120.0
_find = QueueDirectory.find


def find(queues: QueueDirectory, number: int) -> QueueRef | None:
    if READING.exists():
        print("reading", flush=True)
        eventually(lambda: not READING.exists(), "the metadata shard answers", _WITHIN_S)
    return _find(queues, number)


if __name__ == "__main__":
    setattr(QueueDirectory, "find", find)  # noqa: B010
    main()
