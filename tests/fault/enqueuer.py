"""A program for the test of embedded crashes: enqueues messages and prints the acknowledged ids.

Usage: enqueuer.py DATA_DIR FIRST. It runs until it is killed.
"""

import sys
from datetime import timedelta
from itertools import count

from tests.support.print_line import print_line
from tickwheel import NewMessage, Tickwheel


def main() -> None:
    with Tickwheel(data_dir=sys.argv[1], drive=False) as tickwheel:
        work = tickwheel.queue("work")
        for n in count(int(sys.argv[2])):
            delay = timedelta(hours=n % 2)
            results = work.enqueue_many(NewMessage(b"x" * 1_500 * (n % 3), f"m{n}-{k}", delay) for k in range(5))
            print_line(*(result.id for result in results))


if __name__ == "__main__":
    main()
