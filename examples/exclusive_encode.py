"""Three workers encode videos, earliest deadline first, and never two videos of one project at the same time.

No worker takes a lock. The queue is exclusive by project, so a project's next video is delivered when the previous one
is done. One worker has a big GPU, and takes only videos that need it.
"""

import tempfile
import threading
import time
from datetime import timedelta

from tickwheel import NewMessage, Queue, Tickwheel

# project, video, seconds until its deadline, GPU that it needs
VIDEOS = [
    ("alps", "alps-1", 30, "small"),
    ("alps", "alps-2", 10, "small"),
    ("alps", "alps-3", 20, "big"),
    ("coast", "coast-1", 40, "small"),
    ("coast", "coast-2", 15, "big"),
    ("dunes", "dunes-1", 25, "small"),
]


def encode(queue: Queue, worker: str, gpu: str, done: list[tuple[str, str, float, float]]) -> None:
    while len(done) < len(VIDEOS):
        for message in queue.dequeue(where={"gpu": gpu}, wait=timedelta(seconds=0.5), worker=worker):
            started = time.monotonic()
            print(f"{worker} encodes {message.id}\n", end="")  # one write, because the workers share the output
            time.sleep(0.3)
            ended = time.monotonic()
            message.complete()
            done.append((message.metadata["project"], message.id, started, ended))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Tickwheel(data_dir=folder) as tickwheel:
        videos = tickwheel.create_queue("videos", exclusive_key="project", indexed=["gpu"])
        videos.enqueue_many(
            NewMessage(id=video, deadline=timedelta(seconds=wanted), metadata={"project": project, "gpu": gpu})
            for project, video, wanted, gpu in VIDEOS
        )

        done: list[tuple[str, str, float, float]] = []
        workers = [
            threading.Thread(target=encode, args=(videos, name, gpu, done))
            for name, gpu in (("worker-1", "small"), ("worker-2", "small"), ("worker-3", "big"))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

        overlaps = sum(a[0] == b[0] and a[1] < b[1] and a[2] < b[3] and b[2] < a[3] for a in done for b in done)
        print(f"{len(done)} videos encoded; two of one project at the same time: {overlaps} times")


if __name__ == "__main__":
    main()
