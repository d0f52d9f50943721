"""A shared limit: one caller gets half of the places, and each next caller half of those that are left."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from tests.support.wait_until import eventually_in_task
from tickwheel import LimitExceeded, limits
from tickwheel.client.settings import ClientSettings
from tickwheel.plan import ContinueWalk
from tickwheel.service import answer_limits
from tickwheel.service.answer_limits import AnswerLimits, Turn
from tickwheel.service.call_limits import PLACE, CallLimits, RequestLimits, peer_address
from tickwheel.service.fair_limit import FairLimit
from tickwheel.service.method_table import METHOD_TABLE
from tickwheel.service.server import Server
from tickwheel.v1.message_service_pb2 import AwaitMessagesRequest, GetMessageRequest

pytestmark = pytest.mark.unit


def take_all(limit: FairLimit, caller: str) -> int:
    """Take as much as the caller may, and return the number."""
    taken = 0
    while True:
        try:
            limit.take(caller)
        except LimitExceeded:
            return taken
        taken += 1


def test_one_caller_gets_half_of_the_places() -> None:
    assert take_all(FairLimit(12_000, "calls"), "token 'a'") == 6_000


def test_each_next_caller_gets_half_of_the_places_that_are_left() -> None:
    limit = FairLimit(12_000, "calls")
    assert [take_all(limit, f"token {n}") for n in range(5)] == [6_000, 3_000, 1_500, 750, 375]


def test_a_place_that_is_given_back_can_be_taken_again() -> None:
    limit = FairLimit(4, "calls")
    assert take_all(limit, "a") == 2
    limit.put_back("a")
    limit.take("a")
    with pytest.raises(LimitExceeded, match="a has 2 calls, and a caller may have at most"):
        limit.take("a")
    limit.put_back("a")
    assert (limit.total, take_all(limit, "a")) == (1, 1)


def test_a_caller_that_waits_goes_on_when_others_have_given_back_enough() -> None:
    async def wait() -> bool:
        limit = FairLimit(4, "calls")
        limit.take("a", 2)
        waiting = asyncio.create_task(limit.wait("b", 2))
        await asyncio.sleep(0)
        waited = not waiting.done()
        limit.put_back("a", 2)
        await waiting
        return waited

    assert asyncio.run(wait())


def test_a_caller_may_hold_the_minimal_share_in_any_case() -> None:
    limit = FairLimit(64, "bytes", min_share=3)
    limit.count("a", 100)
    assert (take_all(limit, "b"), take_all(limit, "a")) == (3, 0)


def test_what_a_caller_holds_above_its_share_takes_nothing_from_others() -> None:
    limit = FairLimit(64, "bytes", ignores_excess=True)
    limit.count("a", 100)
    limit.count("b", 1_000)
    assert [take_all(limit, name) for name in "abcd"] == [0, 0, 8, 4]
    limit.put_back("b", 1_000)
    limit.put_back("a", 90)
    assert (limit.total, take_all(limit, "a")) == (22, 16)


def test_the_unread_answers_of_one_caller_above_its_share_take_nothing_from_others() -> None:
    unread = AnswerLimits().bytes
    unread.count("a", limits.ANSWERS_BYTES)
    unread.count("b", 2 * limits.ANSWER_BYTES)
    unread.check("b")
    with pytest.raises(LimitExceeded):
        unread.check("a")


class Peer:
    """The context of a call from an address."""

    def peer(self) -> str:
        return "ipv4:10.0.0.1:50000"


def test_a_call_that_waits_for_the_reader_of_answers_does_not_overtake_an_earlier_call_of_its_caller() -> None:
    caller, ended = "the address 10.0.0.1", []
    answers = AnswerLimits()
    call_limits = CallLimits(FairLimit(100, "calls"), RequestLimits())

    async def wait(name: str) -> None:
        call_limits.take_place(Peer())
        await answers.wait()
        ended.append(name)

    async def run() -> None:
        answers.bytes.count("another caller", limits.ANSWERS_BYTES // 4)
        answers.bytes.count(caller, limits.ANSWERS_BYTES)
        earlier = [asyncio.create_task(wait(name)) for name in ("first", "second")]
        # Both calls wait, and check again after a pause.
        await asyncio.sleep(0)
        answers.bytes.put_back(caller, limits.ANSWERS_BYTES)
        # The caller may have more bytes now, before the pause is over.
        await asyncio.gather(wait("third"), *earlier)

    asyncio.run(run())

    assert ended == ["first", "second", "third"]


def test_a_walk_of_a_caller_waits_for_the_last_round_of_another_walk() -> None:
    answers = AnswerLimits()
    call_limits = CallLimits(FairLimit(100, "calls"), RequestLimits())

    async def run() -> None:
        call_limits.take_place(Peer())
        first, second = Turn(answers, 1), Turn(answers, 1)
        await first.begin()
        await second.begin()
        await first.continue_walk(ContinueWalk())
        first.begin_step()
        waiting = asyncio.create_task(second.continue_walk(ContinueWalk()))
        await asyncio.sleep(0)
        # The second call does not count as one that builds its answer.
        assert (waiting.done(), answers.building.total) == (False, 1)
        # The first call does something else, for example on the next shard.
        first.begin_step()
        await waiting
        assert answers.building.total == 2
        second.end()
        await first.continue_walk(ContinueWalk())

    asyncio.run(run())


def test_the_answers_that_a_caller_builds_leave_room_for_those_of_others() -> None:
    answers = AnswerLimits(100)
    call_limits = CallLimits(FairLimit(100, "calls"), RequestLimits())

    async def begin(caller: str) -> Turn:
        call_limits.take_place(Peer())
        PLACE.set((caller, Peer()))
        turn = Turn(answers, 10)
        await turn.begin()
        return turn

    async def run() -> None:
        # The calls without a place among these answers take turns of their caller instead.
        for _ in range(5 + limits.CALLER_ANSWERS):
            await begin("a")
        assert answers.building.total == 50
        waiting = asyncio.create_task(begin("a"))
        await asyncio.sleep(0)
        turns = [await begin("b") for _ in range(2)]
        assert (answers.building.total, waiting.done()) == (70, False)
        for turn in turns:
            turn.end()
        assert answers.building.total == 50
        waiting.cancel()

    asyncio.run(run())


def test_a_paused_turn_begins_again_before_the_next_read() -> None:
    answers = AnswerLimits()

    async def run() -> None:
        async with (turn := Turn(answers, 10)):
            turn.pause()
            assert answers.building.total == 0
            await turn.begin_before_read()
            assert answers.building.total == 10
            await turn.begin_before_read()
            assert answers.building.total == 10
            turn.pause()
            await turn.begin_after_wait()
            await turn.begin_before_read()
            assert answers.building.total == 10
        assert answers.building.total == 0

    asyncio.run(run())


def test_answers_of_a_shard_that_does_not_answer_hold_up_no_other_answers_of_their_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "TURN_S", 0.0)
    answers = AnswerLimits()
    # Others build as many answers as the process builds at a time.
    answers.building.count("others", limits.ANSWERS_AT_ONCE)
    call_limits = CallLimits(FairLimit(100, "calls"), RequestLimits())

    async def build(until: asyncio.Event) -> None:
        call_limits.take_place(Peer())
        async with Turn(answers, 1):
            await until.wait()

    async def run() -> None:
        resumed, ready = asyncio.Event(), asyncio.Event()
        ready.set()
        hanging = [asyncio.create_task(build(resumed)) for _ in range(limits.CALLER_ANSWERS + 3)]
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await asyncio.gather(*(build(ready) for _ in range(3)))
        assert not any(task.done() for task in hanging)
        resumed.set()
        await asyncio.gather(*hanging)

    asyncio.run(run())
    assert answers.building.total == limits.ANSWERS_AT_ONCE


def test_the_turn_of_a_large_answer_does_not_end_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TURN_S", 0.0)
    answers = AnswerLimits()
    answers.building.count("others", limits.ANSWERS_AT_ONCE)
    begun: list[int] = []
    call_limits = CallLimits(FairLimit(100, "calls"), RequestLimits())

    async def build(size: int, until: asyncio.Event) -> None:
        call_limits.take_place(Peer())
        async with Turn(answers, size):
            begun.append(size)
            await until.wait()

    async def run() -> None:
        end = asyncio.Event()
        # The first two large answers have all turns of their line. Only one of them is small enough to go on without a
        # turn. Smaller answers have other lines.
        large = limits.CALLER_HANGING_BYTES
        sizes = (large, large + 1, large + 2, 1, limits.ANSWER_BYTES, large + 3)
        tasks = [asyncio.create_task(build(size, end)) for size in sizes]
        async with asyncio.timeout(20):
            while len(begun) < 5:
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert sorted(begun) == sorted(sizes[:5])
        end.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_there_is_a_pause_between_two_turns() -> None:
    """In the pause, the event loop accepts the calls of others."""
    pause_s = 0.02

    async def measure() -> list[float]:
        answers = AnswerLimits(0, pause_s)
        call_limits = CallLimits(FairLimit(100, "calls"), RequestLimits())
        begun: list[float] = []

        async def call() -> None:
            call_limits.take_place(Peer())
            async with Turn(answers, 1):
                begun.append(asyncio.get_running_loop().time())

        await asyncio.gather(*(call() for _ in range(2 * limits.CALLER_ANSWERS)))
        # Without a garbage collection.
        await eventually_in_task(lambda: not answers._turns._lines, "no pause keeps the line of the caller")
        return begun

    begun = asyncio.run(measure())
    assert begun[limits.CALLER_ANSWERS] - begun[0] >= pause_s


@pytest.mark.parametrize(
    ("used", "late", "pauses"),
    [(0.0, 0.0, 1), (0.7, 0.0, 1), (0.9, 0.0, 4), (0.9, 5.0, 1)],
    ids=["idle", "two turns", "busy", "busy and late"],
)
def test_further_pauses_follow_while_the_event_loop_is_busy(
    used: float, late: float, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``used`` is the share of a pause that the thread uses, and ``late`` how many pauses later a pause ends."""
    pause_s, now, begun = 0.001, 0.0, 0
    clock = SimpleNamespace(monotonic=lambda: now, thread_time=lambda: used * now)
    monkeypatch.setattr(answer_limits, "time", clock)

    async def run() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def call_later(pause: float, end: Callable[[], None]) -> None:
            nonlocal now, begun
            begun += 1
            now += (1 + late) * pause
            loop.call_soon(end)

        monkeypatch.setattr(loop, "call_later", call_later)
        answer_limits._call_after_pauses(pause_s, done.set)
        await done.wait()

    asyncio.run(run())
    assert begun == pauses


def test_a_call_that_was_woken_waits_for_a_turn_only_before_it_reads() -> None:
    async def run() -> None:
        answers = AnswerLimits(0, 0.001)
        CallLimits(FairLimit(100, "calls"), RequestLimits()).take_place(Peer())
        others = [Turn(answers, 1) for _ in range(limits.CALLER_ANSWERS)]
        woken = Turn(answers, 1)
        await woken.begin()
        # The call waits for messages.
        woken.end()
        await asyncio.gather(*(other.begin() for other in others))
        await woken.begin_after_wait()
        reading = asyncio.create_task(woken.begin_before_read())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not reading.done()
        others[0].end()
        async with asyncio.timeout(20):
            await reading
            # It has its turn now.
            await woken.begin_before_read()
        woken.end()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("queues", "is_large"), [(1, False), (limits.UNCOUNTED_ITEMS, False), (limits.UNCOUNTED_ITEMS + 1, True)]
)
def test_the_checks_of_many_queues_have_turns_of_their_own(queues: int, is_large: bool) -> None:
    server = Server(ClientSettings.validate("redis://127.0.0.1:1", "tw", None, None, None, None), "127.0.0.1:0")
    row, request = METHOD_TABLE["AwaitMessages"], AwaitMessagesRequest(queues=["jobs"] * queues)
    assert server._limits_of_answer(row, request) is (server._large_checks if is_large else server._checks)
    assert server._limits_of_answer(METHOD_TABLE["GetMessage"], GetMessageRequest()) is server._answers


def test_a_caller_may_send_one_large_request_whatever_others_send() -> None:
    in_flight = RequestLimits().bytes
    in_flight.count("others", 2 * limits.REQUESTS_BYTES)
    in_flight.take("a", limits.REQUEST_BYTES)
    with pytest.raises(LimitExceeded, match=f"{limits.REQUEST_BYTES:,} in any case"):
        in_flight.take("a")


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(-20, 20))))
def test_if_no_caller_has_more_than_its_share_it_does_not_matter_that_excess_is_ignored(
    steps: list[tuple[str, int]],
) -> None:
    held = dict.fromkeys("abcde", 0)
    plain, other = FairLimit(64, "bytes"), FairLimit(64, "bytes", ignores_excess=True)
    for caller, amount in steps:
        if amount < 0:
            amount = -min(-amount, held[caller])
            plain.put_back(caller, -amount)
            other.put_back(caller, -amount)
            held[caller] += amount
            continue
        with suppress(LimitExceeded):
            plain.take(caller, amount)
            held[caller] += amount
        with suppress(LimitExceeded):
            other.take(caller, amount)
        assert other.total == plain.total == sum(held.values())


def test_a_waiting_call_is_not_counted_as_a_call_of_its_caller_but_in_the_total() -> None:
    limit = FairLimit(6, "calls")
    limit.take("a")
    with limit.lend("a"):
        assert (limit.total, take_all(limit, "a"), take_all(limit, "b")) == (1, 2, 1)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.1.2.3:50000", "10.1.2.3"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:50000", "2001:db8:1:2::/64"),
        ("ipv6:[::1]:50000", "::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:50000", "fe80::/64"),
        ("ipv6:[::ffff:10.1.2.3]:50000", "10.1.2.3"),
        ("unix:/run/tickwheel.sock", "unix"),
        ("unknown", "unknown"),
    ],
)
def test_a_peer_is_an_address_without_its_port_and_for_ipv6_a_network(peer: str, address: str) -> None:
    assert peer_address(peer) == address
