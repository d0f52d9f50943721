"""Large messages are copied from gRPC to Python in different turns of the event loop."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise, product

import pytest

from tickwheel import limits
from tickwheel.rpc import message_copies
from tickwheel.rpc.message_copies import MessageCopies

pytestmark = pytest.mark.unit

LARGE, SMALL = bytes(limits.UNCOUNTED_REQUEST_BYTES + 1), b"small"


class Library:
    """Calls whose messages arrive at once. As in gRPC, a task copies its message when it continues."""

    def __init__(self) -> None:
        self._arrivals: list[asyncio.Future[None]] = []
        self._turn = 0
        self.copied_in: list[int] = []
        """The turn of the event loop in which each message was copied."""

    async def copy(self, message: bytes) -> bytes:
        arrival = asyncio.get_running_loop().create_future()
        self._arrivals.append(arrival)
        await arrival
        self.copied_in.append(self._turn)
        return message

    def arrive(self) -> None:
        for arrival in self._arrivals:
            if not arrival.done():
                arrival.set_result(None)
        self._count_turns()

    def _count_turns(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self._count_turns)


class Call:
    def __init__(self, library: Library, message: bytes, caller: str = "a") -> None:
        self._library, self._message, self.caller = library, message, caller

    async def read(self) -> bytes:
        return await self._library.copy(self._message)


def name_caller(call: Call) -> str:
    return call.caller


def turns(
    messages: Sequence[bytes], cancelled: int | None = None, *, is_early: bool = False, at_once: bool = False
) -> list[int]:
    """Return the turns in which the messages are copied if all arrive at once. The read with the number ``cancelled``
    is cancelled: if ``is_early`` is true before its message arrives, if ``at_once`` is true in the turn in which its
    message arrives, and otherwise while the message waits.
    """
    library, copies = Library(), MessageCopies(name_caller)

    async def read(message: bytes) -> bytes:
        received: bytes = await copies.read(Call(library, message))
        return received

    async def run() -> None:
        reads = [asyncio.create_task(read(message)) for message in messages]
        # All tasks begin to read.
        await asyncio.sleep(0)
        if not is_early:
            library.arrive()
            if not at_once:
                # The first message is copied, and the others wait if the first one is large.
                await asyncio.sleep(0)
        if cancelled is not None:
            reads[cancelled].cancel()
            await asyncio.sleep(0)
        if is_early:
            library.arrive()
        ended = await asyncio.gather(*reads, return_exceptions=True)
        expected: list[object] = list(messages)
        if cancelled is not None:
            assert isinstance(ended[cancelled], asyncio.CancelledError)
            expected[cancelled] = ended[cancelled]
        assert ended == expected

    asyncio.run(run())
    return library.copied_in


def test_many_turns_pass_between_the_copies_of_large_messages_that_arrive_at_once() -> None:
    copied_in = turns([LARGE] * 10)
    # In these turns, `grpc.aio` accepts calls.
    assert min(following - turn for turn, following in pairwise(copied_in)) >= 30


def test_few_turns_pass_between_the_copies_of_small_messages_that_wait() -> None:
    copied_in = turns([LARGE, *[SMALL] * 10])
    assert max(following - turn for turn, following in pairwise(copied_in[1:])) <= 3


def test_small_messages_that_arrive_at_once_are_copied_in_one_turn() -> None:
    copied_in = turns([SMALL] * 10)
    assert len(copied_in) == 10
    assert len(set(copied_in)) == 1


def test_messages_that_arrive_with_a_large_one_follow_in_their_order() -> None:
    copied_in = turns([LARGE, SMALL, LARGE, SMALL])
    assert len(copied_in) == 4
    assert copied_in == sorted(copied_in)
    assert copied_in[0] != copied_in[2]


def order_of(messages: Sequence[tuple[str, bytes]]) -> tuple[str, list[int]]:
    """Return the callers in the order in which their messages are copied if all arrive at once, and the turns."""
    library, copies = Library(), MessageCopies(name_caller)
    order: list[str] = []

    async def read(call: Call) -> None:
        await copies.read(call)
        order.append(call.caller)

    async def run() -> None:
        reads = [asyncio.create_task(read(Call(library, message, caller))) for caller, message in messages]
        await asyncio.sleep(0)
        library.arrive()
        await asyncio.gather(*reads)

    asyncio.run(run())
    return "".join(order), library.copied_in


def test_the_small_messages_of_a_caller_wait_for_two_large_ones_of_another_caller_at_most() -> None:
    order, copied_in = order_of([*[("a", LARGE)] * 10, *[("b", SMALL)] * 30, ("c", SMALL)])
    assert order == "aa" + "b" * 30 + "c" + "a" * 8
    # The small messages do not make the large ones share a turn of the event loop.
    assert len(set(copied_in)) == 41


def test_many_small_messages_of_a_caller_let_the_large_ones_of_another_go_on() -> None:
    order, _ = order_of([*[("a", LARGE)] * 4, *[("b", SMALL)] * 150])
    assert order == "aa" + "b" * 64 + "a" + "b" * 64 + "a" + "b" * 22


def test_a_read_that_is_cancelled_while_its_message_waits_copies_the_message() -> None:
    assert len(set(turns([LARGE] * 3, cancelled=1))) == 3


@pytest.mark.parametrize("cancelled", [0, 1])
def test_a_read_that_is_cancelled_when_its_message_has_just_arrived_copies_the_message(cancelled: int) -> None:
    assert len(set(turns([LARGE] * 3, cancelled, at_once=True))) == 3


def test_a_read_that_is_cancelled_before_its_message_arrives_copies_nothing() -> None:
    assert len(turns([LARGE] * 3, cancelled=1, is_early=True)) == 2


@pytest.mark.parametrize(
    ("more_turns", "callers", "cancelled_turns"),
    [(0, "aa", 9), (0, "aaa", 9), (0, "aba", 9), (2, "aa", 13), (2, "aab", 13)],
    ids=["two", "three", "of two callers", "two with more turns", "of two callers with more turns"],
)
def test_every_read_ends_whichever_reads_are_cancelled_and_when(
    monkeypatch: pytest.MonkeyPatch, more_turns: int, callers: str, cancelled_turns: int
) -> None:
    # With all turns, there would be too many cases.
    monkeypatch.setattr(message_copies, "_MORE_TURNS_MAX", more_turns)

    async def unfinished(cancelled_in: Sequence[int]) -> int:
        """Cancel each read in the turn with this number. Return how many reads do not end."""
        library, copies = Library(), MessageCopies(name_caller)
        reads = [asyncio.ensure_future(copies.read(Call(library, LARGE, caller))) for caller in callers]
        await asyncio.sleep(0)
        library.arrive()
        for turn in range(30):
            for read, cancelled in zip(reads, cancelled_in, strict=True):
                if turn == cancelled:
                    read.cancel()
            await asyncio.sleep(0)
        found = sum(not read.done() for read in reads)
        while copies._waiting:
            # Otherwise the event loop would not end.
            copies._admit()
        await asyncio.wait(reads)
        return found

    choices = product(range(cancelled_turns), repeat=len(callers))
    assert {turns: left for turns in choices if (left := asyncio.run(unfinished(turns)))} == {}
