"""An application for the smallest set-up: one task, and a producer that sends a call of the task every half second."""

import os
import time
from datetime import timedelta
from itertools import count

from tickwheel import Unavailable
from tickwheel.tasks import TaskApp

app = TaskApp(os.environ["TICKWHEEL_URL"])
app.queue("orders", lease=timedelta(seconds=5))


@app.task(queue="orders", max_attempts=5)
def cancel_if_unpaid(order: int) -> str:
    return f"order {order} is cancelled"


if __name__ == "__main__":
    for order in count():
        try:
            print("sent", cancel_if_unpaid.later(timedelta(seconds=2), order).id, flush=True)
        except Unavailable as error:
            # A web application would answer its caller with an error here.
            print(f"order {order} was not sent: {error}", flush=True)
        time.sleep(0.5)
