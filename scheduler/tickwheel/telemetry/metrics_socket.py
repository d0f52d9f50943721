"""The metrics of a child process on a Unix socket, from which its program reads them. Needs the extra `metrics`.

The answer is a JSON document with the samples. So the program need not parse the text of a page, and serves the samples
in each format that a scrape asks for.
"""

import json
import logging
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from tickwheel.runtime.foreign_data import decode_json
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.runtime.wake_pipe import WakePipe

# The longest time in which the program waits for the answer, and the child for the program to read it, in seconds.
_ANSWER_S: Final = 2.0
# The pause before the next accept after an error: perhaps the process has no free file descriptor.
_ACCEPT_AGAIN_MS: Final = 100.0
_CHUNK_BYTES: Final = 1 << 20

_log = logging.getLogger("tickwheel")


class MetricsSocket:
    """Serves the metrics of this process on a Unix socket, in a thread of its own, until `close`.

    One thread answers one connection after the other.
    """

    def __init__(self, path: Path, collector: Collector) -> None:
        """Start the thread. Every user who has access to the folder of ``path`` can read the metrics.

        Raises OSError if the socket cannot be made, and RuntimeError if the host has no resources for a thread.
        """
        self._path = path
        self._collector = collector
        self._is_closing = False
        self._log_throttle = LogThrottle()
        # A process that was killed has left its socket there.
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._wake = WakePipe()
        self._thread = Thread(target=self._run, name="tickwheel-metrics-socket", daemon=True)
        try:
            self._listener.bind(str(path))
            self._listener.listen()
            self._listener.setblocking(False)
            self._thread.start()
        except (OSError, RuntimeError):
            self._free()
            raise

    def close(self) -> None:
        """End the thread, and remove the socket. An answer in progress ends first, within seconds."""
        self._is_closing = True
        self._wake.set()
        self._thread.join()
        self._free()

    def _free(self) -> None:
        self._listener.close()
        self._wake.close()
        self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while True:
            poll.poll()
            if self._is_closing:
                return
            try:
                self._answer()
            except OSError:
                # The program has closed its connection, or this process has too many open files.
                self._wake.wait(_ACCEPT_AGAIN_MS)
            except Exception as error:
                # This is a bug. The next answer may succeed.
                if self._log_throttle.should_log(repr(error)):
                    _log.exception("the metrics for the program of this process failed (repeats are throttled)")

    def _answer(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(_ANSWER_S)
            connection.sendall(_pack(self._collector))


class SocketMetrics(Collector):
    """Collects the metrics that a child of this program serves on the Unix socket at ``path``.

    While no child serves them, nothing is collected. A child that hangs delays a page by _ANSWER_S at most.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log_throttle = LogThrottle()

    def collect(self) -> Iterator[Metric]:
        """Yield each metric of the child with its samples."""
        try:
            metrics = _parse(_read(self._path))
        except (FileNotFoundError, ConnectionRefusedError):
            # No child runs now.
            return
        except (OSError, ValueError) as error:
            level = self._log_throttle.level(str(error))
            _log.log(level, "the metrics page lacks the metrics of the child that drives: %s", error)
            return
        yield from metrics


def _pack(collector: Collector) -> bytes:
    """Return the metrics as JSON: name, help, type, and for each sample its name, labels and value."""
    metrics = [
        [
            *(metric.name, metric.documentation, metric.type),
            [[sample.name, sample.labels, sample.value] for sample in metric.samples],
        ]
        for metric in collector.collect()
        if metric.samples
    ]
    return json.dumps(metrics).encode()


def _parse(text: bytes) -> list[Metric]:
    """Return the metrics. Raises ValueError if the child has ended before the end of its answer."""
    metrics = []
    for name, documentation, kind, samples in decode_json(text):
        metric = Metric(name, documentation, kind)
        for sample in samples:
            metric.add_sample(*sample)
        metrics.append(metric)
    return metrics


def _read(path: Path) -> bytes:
    ends_at = monotonic() + _ANSWER_S
    received = []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_S)
        connection.connect(str(path))
        while chunk := connection.recv(_CHUNK_BYTES):
            received.append(chunk)
            if (left_s := ends_at - monotonic()) <= 0:
                raise TimeoutError("timed out")
            connection.settimeout(left_s)
    return b"".join(received)
