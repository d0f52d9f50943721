"""A producer for the test of rolling upgrades. It uses only what the earlier version has, too.

Usage: upgrade_producer.py NAME [BULK]. TICKWHEEL_URL names the server. The program prints the
directory of its version, and then a line ``sent QUEUE ID`` for each acknowledged message. SIGTERM ends the program.
With BULK, the program creates the namespace with BULK messages instead, prints no lines for them, and ends.
"""

import os
import random
import signal
import sys
import threading
from datetime import timedelta
from itertools import count

import tickwheel
from tests.support.print_line import print_line
from tests.upgrade.upgrade_app import app, note
from tickwheel import NewMessage, Tickwheel

TIMEOUT = timedelta(seconds=30)
# Of ten bulk messages, the first six fall due within the test. The test cancels the others, which are due in a month.
BULK_DUE = 6
PROJECTS = 20


def main() -> None:
    name = sys.argv[1]
    chance = random.Random(name)
    print_line(f"version {tickwheel.__path__[0]}")
    if len(sys.argv) > 2:
        create(int(sys.argv[2]), chance)
        return
    with Tickwheel(os.environ["TICKWHEEL_URL"], timeout=TIMEOUT) as client:
        jobs, videos = client.queue("jobs"), client.queue("videos")
        stopping = threading.Event()
        signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
        # A restarted producer sends new messages, not the ids of its predecessor again.
        prefix = f"{name}-{os.getpid()}"
        for n in count():
            if stopping.wait(0.4):
                break
            delay = timedelta(milliseconds=chance.choice([0, 5, 100, 2_000, 6_000]))
            for result in jobs.enqueue_many(
                NewMessage(b"x", f"{prefix}-{n}-{k}", delay, metadata={"region": "eu"}) for k in range(5)
            ):
                print_line("sent jobs", result.id)
            project = f"p{chance.randrange(PROJECTS)}"
            print_line("sent videos", videos.enqueue(id=f"{prefix}-{n}", metadata={"project": project}).id)
            print_line("sent tasks", note.later(delay, n).id)
    app.close()


def create(bulk: int, chance: random.Random) -> None:
    """Create the namespace, its queues and the bulk messages."""
    with Tickwheel(os.environ["TICKWHEEL_URL"], timeout=TIMEOUT, shards=4) as client:
        client.create_queue("videos", exclusive_key="project", max_attempts=50)
        jobs = client.create_queue("jobs", max_attempts=50)
        jobs.enqueue_many(
            NewMessage(
                b"x" * 200,
                f"bulk-{n}",
                timedelta(seconds=chance.uniform(0, 20)) if n % 10 < BULK_DUE else timedelta(days=30),
            )
            for n in range(bulk)
        )


if __name__ == "__main__":
    main()
