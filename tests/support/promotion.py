"""Whether somebody drives a namespace."""

from datetime import timedelta

from tickwheel import Tickwheel

# A lease, and the time of a start on a busy machine.
SETTLED_S = 60.0


def await_promotion(tickwheel: Tickwheel, queue: str, delay: timedelta) -> None:
    """Enqueue a message with this delay, wait until it is promoted, and complete it."""
    target = tickwheel.create_queue(queue)
    target.enqueue(delay=delay)
    [message] = target.dequeue(wait=timedelta(seconds=SETTLED_S))
    message.complete()
