"""Listing the queues of a namespace: pages are read, only wanted rows are decoded, and other calls of the event loop go
on.
"""

from collections.abc import Callable, Iterable

import pytest

from tickwheel.errors import NamespaceGone
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.queues import list_queues
from tickwheel.plan import Pause, Reply, Round
from tickwheel.service.queue_handlers import SerializedAnswer, _serialize_queues
from tickwheel.v1.queue_service_pb2 import ListQueuesResponse

pytestmark = pytest.mark.unit

ROW = bytes(8) + b"\0\1"
ROWS, PAGE = 1_000, 100


def run(
    is_wanted: Callable[[str], bool], pages: Iterable[list[bytes]], length: int = ROWS, shards: int = 1
) -> tuple[dict[str, QueueConfig], list[int]]:
    """Run the plan of `list_queues` with these pages. An empty page is the last one of a list. Return the result of the
    plan, and for each part between two pauses or requests, how many names were checked.
    """
    context, asked = NamespaceContext("tw"), [0]

    def count(name: str) -> bool:
        asked[-1] += 1
        return is_wanted(name)

    plan, left = list_queues(context, count), iter(pages)
    try:
        step = plan.send(None)
        while True:
            asked.append(0)
            if isinstance(step, Round):
                assert [request.command and request.command[0] for request in step.requests] == [
                    "HSCAN",
                    "HLEN",
                    "HGET",
                ]
                page = next(left)
                cursor = b"7" if page else b"0"
                step = plan.send([Reply([cursor, page]), Reply(length), Reply(b"%d" % shards)])
            else:
                assert isinstance(step, Pause)
                step = plan.send(None)
    except StopIteration as end:
        return end.value, asked


def pages_of(settings: bytes, rows: int = ROWS) -> list[list[bytes]]:
    names = [b"q%d" % n for n in range(rows)]
    pages = [names[first : first + PAGE] for first in range(0, rows, PAGE)]
    return [*([item for name in page for item in (name, ROW + settings)] for page in pages), []]


def test_few_rows_are_decoded_without_a_pause_and_the_list_is_sorted() -> None:
    configs, asked = run(lambda _: True, pages_of(QueueConfig().to_bytes()))
    assert list(configs) == sorted(f"q{n}" for n in range(ROWS))
    assert sum(asked) == ROWS
    assert max(asked) <= 10


def test_rows_that_are_not_wanted_are_not_decoded(caplog: pytest.LogCaptureFixture) -> None:
    pages = pages_of(b"no JSON")
    pages[0][1] = ROW + QueueConfig().to_bytes()
    configs, _ = run(lambda name: name == "q0", pages)
    assert list(configs) == ["q0"]
    assert not caplog.records


def test_a_row_that_two_pages_have_is_listed_once() -> None:
    pages = pages_of(QueueConfig().to_bytes())
    pages[1] += pages[0]
    configs, _ = run(lambda _: True, pages)
    assert list(configs) == sorted(f"q{n}" for n in range(ROWS))


def test_all_pages_are_read_another_time_if_they_lack_rows() -> None:
    all_pages = pages_of(QueueConfig().to_bytes())
    configs, _ = run(lambda _: True, [*all_pages[:3], [], *all_pages])
    assert len(configs) == ROWS


def test_a_list_ends_if_other_programs_change_the_rows_all_the_time() -> None:
    pages = pages_of(QueueConfig().to_bytes())
    configs, _ = run(lambda _: True, pages * 3, ROWS + 1)
    assert len(configs) == ROWS


def test_no_part_of_a_list_is_returned_if_the_namespace_is_gone() -> None:
    with pytest.raises(NamespaceGone):
        run(lambda _: True, pages_of(QueueConfig().to_bytes()), shards=0)


def test_a_broken_cursor_ends_the_list() -> None:
    plan = list_queues(NamespaceContext("tw"))
    plan.send(None)
    with pytest.raises(TypeError, match="cursor"):
        plan.send([Reply([b"", []]), Reply(0), Reply(b"1")])


def test_the_parts_of_an_answer_are_the_whole_answer() -> None:
    queues = [(f"q{n}", QueueConfig(number=n + 1)) for n in range(5)]
    answer = SerializedAnswer()
    answer.parts += [_serialize_queues(queues[:3]), _serialize_queues(queues[3:])]
    assert answer.SerializeToString() == _serialize_queues(queues)
    assert [queue.name for queue in ListQueuesResponse.FromString(answer.SerializeToString()).queues] == [
        name for name, _ in queues
    ]
