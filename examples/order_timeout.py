"""Cancel orders that are not paid in time. The timeout is two seconds here; in a shop it is fifteen minutes.

A timeout for every order costs very little: most timeouts are cancelled, and no worker reads a cancelled message.
"""

import tempfile
from datetime import timedelta

from tickwheel import Tickwheel

TIME_TO_PAY = timedelta(seconds=2)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Tickwheel(data_dir=folder) as tickwheel:
        timeouts = tickwheel.create_queue("order-timeouts", lease=timedelta(seconds=30))

        for number in range(1, 6):
            timeouts.enqueue(b"cancel order %d" % number, id=f"order-{number}", delay=TIME_TO_PAY)
        print("5 orders are placed, each with a timeout")

        for number in (1, 2, 4):
            timeouts.cancel(f"order-{number}")
            print(f"order-{number} is paid")

        unpaid = 2
        while unpaid:
            for message in timeouts.dequeue(limit=10, wait=timedelta(seconds=10)):
                print(f"{message.id} was not paid in time: {message.payload.decode()}")
                message.complete()
                unpaid -= 1

        counts = timeouts.counts()
        print(f"timed out: {counts['completed']}, paid: {counts['cancelled']}")


if __name__ == "__main__":
    main()
