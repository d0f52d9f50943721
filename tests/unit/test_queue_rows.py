"""Listing the queues of a namespace: only wanted rows are decoded, and other calls of the event loop go on."""

from collections.abc import Callable

import pytest

from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.queues import list_queues
from tickwheel.plan import Pause, Reply, Round

pytestmark = pytest.mark.unit

ROW = bytes(8) + b"\0\1"
ROWS = 1_000


def run(is_wanted: Callable[[str], bool], rows: list[bytes]) -> tuple[dict[str, QueueConfig], int]:
    """Run the plan of `list_queues`. Return its result, and how often it has paused."""
    context, pauses = NamespaceContext("tw"), 0
    plan, answers = list_queues(context, is_wanted), [Reply(rows), Reply(b"%d" % context.shards)]
    try:
        step = plan.send(None)
        while True:
            pauses += isinstance(step, Pause)
            step = plan.send(answers if isinstance(step, Round) else None)
    except StopIteration as end:
        return end.value, pauses


def rows_of(settings: bytes) -> list[bytes]:
    return [value for n in range(ROWS) for value in (b"q%d" % n, ROW + settings)]


def test_the_decoding_of_many_rows_pauses() -> None:
    configs, pauses = run(lambda _: True, rows_of(QueueConfig().to_bytes()))
    assert len(configs) == ROWS
    assert pauses == 100


def test_rows_that_are_not_wanted_are_not_decoded(caplog: pytest.LogCaptureFixture) -> None:
    rows = rows_of(b"no JSON")
    rows[1] = ROW + QueueConfig().to_bytes()
    configs, _ = run(lambda name: name == "q0", rows)
    assert list(configs) == ["q0"]
    assert not caplog.records
