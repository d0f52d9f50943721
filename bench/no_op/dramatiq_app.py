"""The no-op for dramatiq, over its RedisBroker: JSON, its default middleware, no results."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.no_op.progress_marks import no_op

broker = RedisBroker(url=os.environ["NO_OP_REDIS"])  # type: ignore[no-untyped-call]
dramatiq.set_broker(broker)


@dramatiq.actor
def sync_no_op(n: int) -> None:
    no_op()


def enqueue(count: int) -> None:
    for n in range(count):
        sync_no_op.send(n)
