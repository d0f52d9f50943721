"""The no-op for Celery, over its Redis transport: JSON, no results. NO_OP_LATE=1: acknowledge after the run."""

import os

from celery import Celery

from bench.no_op.progress_marks import no_op

# The URL in the syntax of Celery.
_BROKER = os.environ["NO_OP_REDIS"].replace("unix://", "redis+socket://")
app = Celery("no_op", broker=_BROKER)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=os.environ.get("NO_OP_LATE") == "1",
    worker_prefetch_multiplier=int(os.environ.get("NO_OP_PREFETCH", "4")),
    broker_connection_retry_on_startup=True,
)


@app.task(name="no_op")  # type: ignore[untyped-decorator]
def sync_no_op(n: int) -> None:
    no_op()


def enqueue(count: int) -> None:
    """Enqueue all messages over one connection, which is faster than a connection for each message."""
    with app.producer_pool.acquire(block=True) as producer:
        for n in range(count):
            sync_no_op.apply_async((n,), producer=producer)
