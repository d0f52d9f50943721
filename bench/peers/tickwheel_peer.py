"""Tickwheel as one of the compared queues: a client that enqueues, a client that dequeues, and an event process."""

import json
import random
import subprocess
import sys
import time
from datetime import timedelta

from tickwheel import NewMessage, Queue, Tickwheel

BATCH, RATE, TICK_S = 100, 500, 0.01
PAYLOAD = b"x" * 200
DAY = timedelta(days=1)


def enqueue(queue: Queue, count: int) -> dict[str, object]:
    began = time.perf_counter()
    for _ in range(0, count, BATCH):
        queue.enqueue_many([NewMessage(PAYLOAD) for _ in range(BATCH)])
    return {"seconds": time.perf_counter() - began}


def delay(queue: Queue, count: int) -> dict[str, object]:
    for _ in range(0, count, BATCH):
        queue.enqueue_many([NewMessage(PAYLOAD, delay=(3 + random.random()) * DAY) for _ in range(BATCH)])
    return {}


def drain(queue: Queue, count: int) -> dict[str, object]:
    began = 0.0
    late_ms: list[float] = []
    while len(late_ms) < count:
        messages = queue.dequeue(BATCH, wait=timedelta(seconds=30))
        now_ms = time.time_ns() / 1e6
        began = began or time.perf_counter()
        late_ms += [now_ms - message._due_ms for message in messages]
        queue.complete_many(messages)
    return {"seconds": time.perf_counter() - began, "late_ms": late_ms}


def late(queue: Queue, count: int) -> dict[str, object]:
    worker = subprocess.Popen([sys.executable, __file__, "drain", sys.argv[2], str(count)], stdout=subprocess.PIPE)
    began, per_tick = time.perf_counter(), round(RATE * TICK_S)
    for n in range(count // per_tick):
        time.sleep(max(0.0, began + n * TICK_S - time.perf_counter()))
        queue.enqueue_many(
            [NewMessage(PAYLOAD, delay=timedelta(seconds=random.uniform(0.5, 5))) for _ in range(per_tick)]
        )
    answer: dict[str, object] = json.loads(worker.communicate()[0])
    return answer


if __name__ == "__main__":
    phases = {"enqueue": enqueue, "delay": delay, "drain": drain, "late": late}
    with Tickwheel(f"unix://{sys.argv[2]}", drive=True) as tickwheel:
        print(json.dumps(phases[sys.argv[1]](tickwheel.create_queue("peers"), int(sys.argv[3]))))
