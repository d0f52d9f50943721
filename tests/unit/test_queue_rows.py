"""Listing the queues of a namespace: pages are read, only wanted rows are decoded, and other calls of the event loop go
on.
"""

from collections.abc import Callable, Iterable

import pytest

from tickwheel import limits
from tickwheel.errors import NamespaceGone
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.queues import list_queues
from tickwheel.operations.removal import queue_numbers
from tickwheel.plan import Pause, Reply, Request, Round
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.service.queue_handlers import SerializedAnswer, _ListCost, _serialize_queues
from tickwheel.v1.queue_service_pb2 import ListQueuesResponse

pytestmark = pytest.mark.unit

ROW = bytes(8) + b"\0\1"
ROWS, PAGE = 1_000, 100


def run(
    is_wanted: Callable[[str], bool],
    pages: Iterable[list[bytes]],
    length: int = ROWS,
    shards: int = 1,
    placeholders: Iterable[object] = (),
    begin: Callable[[], None] = lambda: None,
) -> tuple[dict[str, QueueConfig], list[int]]:
    """Run the plan of `list_queues` with these pages. An empty page is the last one of a list. Return the result of the
    plan, and for each part between two pauses or requests, how many names were checked.

    ``placeholders``: the counter at the start of the list and after each page; otherwise there is none.
    """
    context, asked = NamespaceContext("tw"), [0]

    def count(name: str) -> bool:
        asked[-1] += 1
        return is_wanted(name)

    def answer(request: Request) -> object:
        match request.command:
            case ("HSCAN", *_):
                page = next(left)
                return [b"7" if page else b"0", page]
            case ("HLEN", _):
                return length
            case ("HGET", _, "shards"):
                return b"%d" % shards
            case ("HGET", _, "deleted_queues"):
                return next(counter, None)
        raise AssertionError(request)

    plan, left, counter = list_queues(context, count, begin), iter(pages), iter(placeholders)
    try:
        step = plan.send(None)
        while True:
            asked.append(0)
            if isinstance(step, Round):
                step = plan.send([Reply(answer(request)) for request in step.requests])
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


@pytest.mark.parametrize("counter", [[b"5", b"6"], [b"5", b"5", b"6"], [b"5"] * (len(pages_of(b"")) - 1) + [b"6"]])
def test_the_pages_are_not_read_another_time_for_a_row_that_a_deletion_has_replaced(counter: list[bytes]) -> None:
    counter += counter[-1:] * len(pages_of(b""))
    configs, _ = run(lambda _: True, pages_of(QueueConfig().to_bytes()), ROWS + 1, placeholders=counter)
    assert len(configs) == ROWS


@pytest.mark.parametrize("counter", [None, b"5", b"damaged", b"9" * 5_000])
def test_a_list_ends_and_a_warning_is_logged_if_rows_are_missing_each_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, counter: object
) -> None:
    monkeypatch.setattr(queue_numbers, "_log_throttle", LogThrottle())
    pages = pages_of(QueueConfig().to_bytes())
    for _ in range(2):
        configs, _ = run(lambda _: True, pages * 3, ROWS + 1, placeholders=[counter] * (3 * len(pages) + 3))
        assert len(configs) == ROWS
    assert [record.levelname for record in caplog.records if "may be incomplete" in record.message] == ["WARNING"]


def test_rows_that_are_read_another_time_cost_nothing_more() -> None:
    all_pages = pages_of(QueueConfig().to_bytes())
    cost = _ListCost(lambda name: True)
    run(cost.is_permitted, [*all_pages[:3], [], *all_pages], begin=cost.begin)
    assert cost.messages == ROWS // limits.ROWS_OF_A_MESSAGE + ROWS // limits.QUEUES_OF_A_MESSAGE
    cost.begin()
    for n in range(3 * PAGE):
        cost.is_permitted(f"q{n}")
    assert cost.messages == ROWS // limits.ROWS_OF_A_MESSAGE + ROWS // limits.QUEUES_OF_A_MESSAGE


def test_no_part_of_a_list_is_returned_if_the_namespace_is_gone() -> None:
    with pytest.raises(NamespaceGone):
        run(lambda _: True, pages_of(QueueConfig().to_bytes()), shards=0)


def test_a_broken_cursor_ends_the_list() -> None:
    plan = list_queues(NamespaceContext("tw"))
    plan.send(None)
    with pytest.raises(TypeError, match="cursor"):
        plan.send([Reply(0), Reply(None), Reply([b"", []]), Reply(b"1"), Reply(0), Reply(None)])


def test_the_parts_of_an_answer_are_the_whole_answer() -> None:
    queues = [(f"q{n}", QueueConfig(number=n + 1)) for n in range(5)]
    answer = SerializedAnswer()
    answer.parts += [_serialize_queues(queues[:3]), _serialize_queues(queues[3:])]
    assert answer.SerializeToString() == _serialize_queues(queues)
    assert [queue.name for queue in ListQueuesResponse.FromString(answer.SerializeToString()).queues] == [
        name for name, _ in queues
    ]
