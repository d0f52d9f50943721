"""`tickwheel bench`: a short measurement of a server, which needs only the installed package."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

import typer

from tickwheel import InvalidArgument, NewMessage, Queue
from tickwheel.cli.command import command
from tickwheel.cli.output import print_json
from tickwheel.cli.tables import print_table
from tickwheel.cli.target import Target
from tickwheel.client.admin import Admin
from tickwheel.operations.removal.delete_namespace import delete_namespace

_BATCH = 100
_PAYLOAD_BYTES = 200


@command("bench", "tickwheel bench", "tickwheel bench --url redis://localhost:6379 --messages 100000 --json")
def bench(
    target: Target,
    messages: Annotated[int, typer.Option(min=_BATCH, max=1_000_000, help="Number of messages.")] = 20_000,
) -> None:
    """Measure enqueue, dequeue and complete with this one process, in batches of 100 and one by one.

    The messages have 200 bytes and are due immediately. Their namespace is temporary: it is deleted at the end. For all
    measurements of the project, clone its repository and run `make bench`.
    """
    if target.namespace is not None:
        raise InvalidArgument("bench creates a namespace of its own and deletes it: leave --namespace out")
    own = replace(target.require_redis("bench"), namespace=f"bench-{os.urandom(4).hex()}")
    with own.open() as tickwheel:
        try:
            queue = tickwheel.create_queue("bench", lease=timedelta(hours=1))
            rates = _measure(queue, messages // _BATCH * _BATCH)
        finally:
            admin = Admin(tickwheel)
            admin.run(delete_namespace(admin.context))
    if target.json:
        print_json({"messages": messages, "payload_bytes": _PAYLOAD_BYTES, "per_second": rates})
    else:
        columns = ("operation", "batches of 100", "one by one")
        print_table(columns, [(name, *item.values()) for name, item in rates.items()], right=columns[1:])


def _measure(queue: Queue, count: int) -> dict[str, dict[str, int]]:
    """Return the messages per second of each operation, in batches and one by one.

    The calls with one message handle only 1 % of the messages, because they are slower.
    """
    singly = count // 100
    batch = [NewMessage(os.urandom(_PAYLOAD_BYTES)) for _ in range(_BATCH)]
    rounds = range(count // _BATCH)
    taken = []

    def take(size: int) -> None:
        taken.append(queue.dequeue(size))

    rates: dict[str, dict[str, int]] = {}
    for kind, size, times in (("batches", _BATCH, rounds), ("singly", 1, range(singly))):
        taken.clear()
        steps: dict[str, Callable[[int], object]] = {
            "enqueue": lambda n, size=size: queue.enqueue_many(batch[:size]),  # type: ignore[misc]
            "dequeue": lambda n, size=size: take(size),  # type: ignore[misc]
            "complete": lambda n: queue.complete_many(taken[n]),
        }
        for name, step in steps.items():
            started = time.perf_counter()
            for n in times:
                step(n)
            seconds = time.perf_counter() - started
            rates.setdefault(name, {})[kind] = round(len(times) * size / seconds)
    return rates
