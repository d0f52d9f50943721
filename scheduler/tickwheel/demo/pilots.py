"""A worker process of the demo, with many pilots. A pilot dequeues a flight, sleeps while it lasts, and completes it.

The pilots do not check aircraft: the exclusive queue ensures that no two pilots fly the same aircraft.

[TICKWHEEL_URL=…] python -m tickwheel.demo.pilots --namespace NAME --worker NAME --logbook FILE
    --crew QUEUE=PILOTS ... [--data-dir DIR] [--timeout SECONDS]
The program prints `ready` on standard output, and ends when standard input ends.
"""

import argparse
import asyncio
import os
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from tickwheel import LeaseLost, aio
from tickwheel.demo.logbook import Landing, Logbook
from tickwheel.redis.url import VARIABLE
from tickwheel.runtime.event_loop import open_standard_input
from tickwheel.runtime.foreign_data import decode_json

_WAIT = timedelta(seconds=20)


async def fly(queue: aio.Queue, worker: str, logbook: Logbook) -> None:
    """Run one pilot until its task is cancelled."""
    while True:
        for message in await queue.dequeue(wait=_WAIT, worker=worker):
            off_ns = time.monotonic_ns()
            await asyncio.sleep(decode_json(message.payload)["flight_ms"] / 1000)
            on_ns, completed = time.monotonic_ns(), True
            try:
                await message.complete()
            except LeaseLost:
                completed = False
            logbook.write(
                Landing(worker, message.id, message.exclusive_value, message.attempt, off_ns, on_ns, completed)
            )


async def work(args: argparse.Namespace) -> None:
    """Run all pilots of this process until standard input ends."""
    standard_input = await open_standard_input()
    with closing(Logbook(args.logbook)) as logbook:
        async with aio.Tickwheel(
            os.environ.get(VARIABLE) or None,
            namespace=args.namespace,
            data_dir=args.data_dir,
            drive=False,
            timeout=args.timeout,
        ) as tickwheel:
            pilots = [
                asyncio.create_task(fly(tickwheel.queue(queue), args.worker, logbook))
                for queue, _, count in (crew.partition("=") for crew in args.crew)
                for _ in range(int(count))
            ]
            print("ready", flush=True)
            stop_task = asyncio.create_task(standard_input.read())
            done, _ = await asyncio.wait([stop_task, *pilots], return_when=asyncio.FIRST_COMPLETED)
            for task in (stop_task, *pilots):
                task.cancel()
            await asyncio.gather(stop_task, *pilots, return_exceptions=True)
            for task in done - {stop_task}:
                task.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", required=True)
    parser.add_argument("--logbook", type=Path, required=True)
    parser.add_argument("--crew", action="append", required=True, metavar="QUEUE=PILOTS")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--timeout", type=lambda text: timedelta(seconds=float(text)))
    asyncio.run(work(parser.parse_args()))


if __name__ == "__main__":
    main()
