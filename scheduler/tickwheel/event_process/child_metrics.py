"""The metrics of a process of last resort, for the metrics page of the program that started the process.

While the process drives shards, they are those of `tickwheel events --metrics`. A process that stands by has none:
otherwise, the page of each worker would have all shards, although another process drives them.
"""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tickwheel.event_process.supervisor import EventProcess

_log = logging.getLogger("tickwheel.driving")


@contextmanager
def serving_metrics(process: EventProcess, namespace: str, path: Path | None) -> Iterator[None]:
    """Serve the metrics on the Unix socket at ``path`` during the ``with`` block. If it is None, do nothing.

    If they cannot be served, log this: the shards are driven without metrics.
    """
    if path is None:
        yield
        return
    # The library of metrics takes memory.
    from tickwheel.event_process.metrics import ShardMetrics
    from tickwheel.telemetry.metrics_socket import MetricsSocket

    reader = process.queue_metrics
    assert reader is not None
    collector = ShardMetrics(
        *(namespace, process.health, process.unreadable_nodes, reader.readings), lambda: bool(process.led_epochs())
    )
    try:
        served = MetricsSocket(path, collector)
    except (OSError, RuntimeError) as error:
        _log.warning("the metrics of namespace %s cannot be served to the program: %s", namespace, error)
        yield
        return
    with closing(served), reader.running():
        yield
