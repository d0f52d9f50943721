"""A worker process for the test with many workers: leases messages, holds them briefly, settles them, prints a record.

Usage: exclusive_worker.py URL NAMESPACE NAME. SIGTERM stops the program.
"""

import random
import signal
import sys
import time
from datetime import timedelta

from tests.support.print_line import print_line
from tickwheel import LeaseLost, Tickwheel


def main() -> None:
    url, namespace, name = sys.argv[1:]
    chance = random.Random(name)
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    with Tickwheel(url, namespace=namespace) as tickwheel:
        work = tickwheel.queue("work")
        print_line("ready - - 0 0")
        while not signals:
            where = chance.choice([None, None, {"colour": "red"}, {"colour": "blue", "size": "big"}])
            messages = work.dequeue(chance.randint(1, 3), where=where, worker=name, wait=timedelta(milliseconds=200))
            for message in messages:
                print_line("has", message.exclusive_value, message.id, message.attempt, time.monotonic_ns())
            time.sleep(chance.uniform(0, 0.01))
            for message in messages:
                # Printed before the call, because after the call another worker may lease a message of the value.
                print_line("ends", message.exclusive_value, message.id, message.attempt, time.monotonic_ns())
                try:
                    if chance.random() < 0.1:
                        message.fail(retry_in=timedelta(milliseconds=chance.choice([0, 20])))
                    else:
                        message.complete()
                except LeaseLost:
                    print_line("lost", message.exclusive_value, message.id, message.attempt, time.monotonic_ns())


if __name__ == "__main__":
    main()
