"""A consumer for the test of rolling upgrades. It uses only what the earlier version has, too.

Usage: upgrade_consumer.py NAME QUEUE. TICKWHEEL_URL names the server. The program prints the
directory of its version, and a line ``done QUEUE ID`` for each message that it has completed. SIGTERM ends the program
after the batch.
"""

import os
import random
import signal
import sys
from datetime import timedelta

import tickwheel
from tests.support.print_line import print_line
from tickwheel import Tickwheel

TIMEOUT = timedelta(seconds=30)


def main() -> None:
    name, queue_name = sys.argv[1:]
    chance = random.Random(name)
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    print_line(f"version {tickwheel.__path__[0]}")
    with Tickwheel(os.environ["TICKWHEEL_URL"], timeout=TIMEOUT) as client:
        queue = client.queue(queue_name)
        while not signals:
            where = {"region": "eu"} if queue_name == "jobs" and chance.random() < 0.2 else None
            messages = queue.dequeue(200, where=where, worker=name, wait=timedelta(milliseconds=200))
            chance.shuffle(messages)
            unfinished = messages[: chance.choice([0, 0, 0, 1, 2])]
            for message in unfinished:
                message.extend(timedelta(seconds=40))
                if chance.random() < 0.5:
                    message.fail("again", retry_in=timedelta(milliseconds=chance.choice([0, 300])))
                else:
                    message.release()
            completed = messages[len(unfinished) :]
            queue.complete_many(completed)
            sys.stdout.write("".join(f"done {queue_name} {message.id}\n" for message in completed))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
