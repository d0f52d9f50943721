"""An event process in which the loop of shard 0 works without end while the file that HANG names exists.

The rest of the process runs: the loops of the other shards, the relays, and the thread of the election. The program
prints a line when the loop begins to hang.
"""

import os
import time
from pathlib import Path

from tests.support.print_line import print_line
from tickwheel.driver.commands import DutySteps
from tickwheel.driver.shard_driver import ShardDriver
from tickwheel.event_process.main import main

HANG = Path(os.environ["HANG"])
_work = ShardDriver.work


def work(driver: ShardDriver) -> DutySteps:
    done = yield from _work(driver)
    if driver._config.shard == 0 and HANG.exists():
        print_line("the loop hangs")
        while HANG.exists():
            time.sleep(0)
    return done


if __name__ == "__main__":
    setattr(ShardDriver, "work", work)  # noqa: B010
    main()
