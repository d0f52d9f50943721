"""Move a Celery task to Tickwheel while the application runs: first none of its calls, then half, then all of them.

The Celery application needs two more lines: a `TaskApp`, and `migrate`. Each system has a worker of its own.
"""
# mypy: disable-error-code="untyped-decorator"

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from celery import Celery

from tickwheel.celery import migrate
from tickwheel.tasks import TaskApp
from tickwheel.testing import PrivateServer

celery: Any = Celery("shop", broker=os.environ.get("BROKER"))
tickwheel = TaskApp()
migrate(celery, tickwheel)
SENT = Path(os.environ.get("SENT", "/dev/null"))


@celery.task(bind=True, name="mail.send")
def send(self: Any, user: int) -> None:
    with SENT.open("a") as file:
        file.write(f"{self.request.hostname.partition('@')[0]} {self.request.id}\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, PrivateServer() as server:
        sent = Path(folder) / "sent"
        sent.touch()
        broker = f"{server.url.replace('unix:', 'redis+socket:')}?virtual_host=1"
        environment = {"BROKER": broker, "TICKWHEEL_URL": server.url, "SENT": str(sent)}
        os.environ |= environment
        celery.conf.broker_url = broker
        tickwheel.move(url=server.url)
        workers = [
            worker("celery", "-A", "celery_migration", "worker", "-P", "solo", "-n", "celery@shop"),
            worker("tickwheel", "worker", "celery_migration:tickwheel"),
        ]
        try:
            calls: list[str] = []
            for share in (0.0, 0.5, 1.0):
                tickwheel.route("mail.send", to="tickwheel", share=share)
                # A producer caches a route for one second.
                time.sleep(1.1)
                called = [send.delay(user).id for user in range(20)]
                ran = wait_for(sent, called)
                print(f"share {share:g}: {ran['celery']} calls run by Celery, {ran['tickwheel']} by Tickwheel")
                calls += called
            print(f"{len(calls)} calls, each run once: {sorted(calls) == sorted(ids(sent))}")
        finally:
            for process in workers:
                process.terminate()
            for process in workers:
                process.wait(20)
            tickwheel.close()
            celery.close()


def worker(*command: str) -> "subprocess.Popen[bytes]":
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-m", *command], cwd=Path(__file__).parent, **quiet)  # type: ignore[call-overload,no-any-return]


def ids(sent: Path) -> list[str]:
    return [line.split()[1] for line in sent.read_text().splitlines()]


def wait_for(sent: Path, calls: list[str]) -> Counter[str]:
    """Wait until all of these calls have run. Return how many of them each system ran."""
    deadline = time.monotonic() + 40
    while not set(calls) <= set(ids(sent)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return Counter(line.split()[0] for line in sent.read_text().splitlines() if line.split()[1] in calls)


if __name__ == "__main__":
    main()
