"""An event process in a thread of the test's own process, so that the test can read its state."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext

from tests.support.in_thread import in_thread
from tickwheel.event_process import EventProcess
from tickwheel.event_process.assembly import ElectionOptions, open_event_process
from tickwheel.kafka.producer import KafkaProducers

_STOP_S = 30.0


@contextmanager
def run_event_process(
    url: str,
    namespace: str,
    election: ElectionOptions,
    broker: KafkaProducers | None = None,
    replicas: int = 0,
    *,
    relays: bool = True,
    sink_topics: Sequence[str] = ("*",),
    clock: str = "_clock",
) -> Iterator[EventProcess]:
    """Run an event process until the end of the block, then close it and ``broker``.

    ``clock`` is the Lua fragment with which scripts read the time.
    """
    with (
        nullcontext() if broker is None else closing(broker),
        open_event_process(
            *(url, namespace, election),
            clock=clock,
            producers=broker,
            replicas=replicas,
            relays=relays,
            sink_topics=sink_topics,
        ) as process,
        in_thread(process, _STOP_S),
    ):
        yield process
