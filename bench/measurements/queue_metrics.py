"""What the metrics of queues cost the server: the commands that an event process sends to read them."""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench.harness.measurement import Measurement, Scale
from services.process import Process, free_port, wait_until
from tickwheel import Tickwheel
from tickwheel.redis.url import VARIABLE
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

NAMESPACE: Final = "metrics"
# The number of queues with metrics of their own (docs/operations.md).
QUEUES: Final = 1_000
# Goal: commands a second.
BAR: Final = 200
_WINDOWS, _WINDOW_S = 3, 15
_DEADLINE_S: Final = 60.0


def queue_metrics(scale: Scale) -> list[Measurement]:
    """Count the commands of an idle event process with metrics, and without them, in a namespace with 1,000 queues."""
    queues = scale.size(QUEUES, 20)
    with PrivateServer() as server, server.client() as redis, tempfile.TemporaryDirectory() as folder:
        with Tickwheel(server.url, namespace=NAMESPACE, drive=False) as tickwheel:
            for n in range(queues):
                tickwheel.create_queue(f"q{n}").enqueue(id="m")
        rates: list[list[float]] = []
        for options in ((), ("--metrics", f"127.0.0.1:{free_port()}")):
            command = [sys.executable, "-m", "tickwheel", "events", "--namespace", NAMESPACE, *options]
            with Process("events", command, Path(folder), environment={VARIABLE: server.url}, cwd=Path.cwd()):
                rates.append(_command_rates(redis, scale))
    without_metrics = max(rates[0])
    return [
        Measurement(
            "queue_metrics",
            f"commands to read the metrics of {queues:,} queues, of one event process",
            "commands/s",
            [rate - without_metrics for rate in rates[1]],
            BAR,
            details={"without_metrics_per_s": [round(rate, 2) for rate in rates[0]]},
        )
    ]


def _command_rates(redis: Any, scale: Scale) -> list[float]:
    """Return the commands a second that the server has executed in each window, once a process drives."""
    holder = shard_key(NAMESPACE, 0, "clock")
    wait_until(lambda: redis.hget(holder, "holder"), "the process drives", _DEADLINE_S)
    rates = []
    for _ in range(scale.size(_WINDOWS, 1)):
        began, commands = time.monotonic(), _commands(redis)
        time.sleep(scale.size(_WINDOW_S, 2))
        rates.append((_commands(redis) - commands - 1) / (time.monotonic() - began))
    return rates


def _commands(redis: Any) -> int:
    """Return how many commands the server has executed, also for scripts. The call is one itself."""
    return sum(row["calls"] for row in redis.info("commandstats").values())
