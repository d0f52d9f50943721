"""An event process in which the loop of shard 0 works without end while the file that HANG names exists.

The rest of the process runs: the loops of the other shards, and the thread of the election.
"""

import os
import time
from pathlib import Path

from tickwheel.driver.commands import DutySteps
from tickwheel.driver.shard_driver import ShardDriver
from tickwheel.event_process.main import main

HANG = Path(os.environ["HANG"])
_work = ShardDriver.work


def work(driver: ShardDriver) -> DutySteps:
    done = yield from _work(driver)
    while driver._config.shard == 0 and HANG.exists():
        time.sleep(0)
    return done


if __name__ == "__main__":
    setattr(ShardDriver, "work", work)  # noqa: B010
    main()
