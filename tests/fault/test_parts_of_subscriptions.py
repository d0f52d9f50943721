"""A process with many wake channels and many waiting calls changes or wakes a part of them in a turn of the event loop.

The parts are counted, not timed: other tasks run in between.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.fault.faulty_server import FaultyServer
from tests.support.wait_until import eventually_in_task
from tickwheel import aio
from tickwheel.operations.several_queues.message_wait import MessageWait
from tickwheel.redis import subscriptions
from tickwheel.redis.subscriptions import Subscriptions
from tickwheel.redis.wait_list import WaitList
from tickwheel.redis.wake_channels import CHANNELS_AT_ONCE, WakeChannels

pytestmark = pytest.mark.fault

NAMESPACE, SHARDS, QUEUES = "parts", 64, 40
CHANNELS = SHARDS * QUEUES
NAMES = [f"queue-{n}" for n in range(QUEUES)]
LONG_S = 100.0
# A part of the channels, and the last queue of the part; the announcements and the wake-ups of a turn.
MOST_CHANNELS, MOST_MESSAGES, MOST_WAKEUPS = 500 + SHARDS, 50, 20
CALLS = 400

Body = Callable[["Process"], Awaitable[None]]


class Process:
    """A client with calls that wait for all queues, and the work of each turn of its event loop."""

    def __init__(self, tw: Any, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tw = tw
        self.server = server
        self.subscriptions: Subscriptions[Any] = tw._io.wakeups._subscriptions
        self.waiters: WaitList = tw._io.wakeups._waiters
        self.waits: list[MessageWait] = []
        self.calls: list[asyncio.Task[Any]] = []
        self._turn = 0
        self._work: dict[str, Counter[int]] = {}
        self._record(monkeypatch, WakeChannels, "_set_server", "channels", lambda *_: 1)
        self._record(monkeypatch, WakeChannels, "remove", "channels", len)
        self._record(monkeypatch, Subscriptions, "on_message", "messages", lambda *_: 1)
        self._record(monkeypatch, WaitList, "_wake", "wakeups", lambda *_: 1)
        self._count_turn()

    def _count_turn(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self._count_turn)

    def _record(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, kind: str, size: Callable[..., int]
    ) -> None:
        method = getattr(owner, name)

        def recorded(instance: Any, *arguments: Any) -> Any:
            self._work.setdefault(kind, Counter())[self._turn] += size(*arguments)
            return method(instance, *arguments)

        monkeypatch.setattr(owner, name, recorded)

    def forget_work(self) -> None:
        self._work.clear()

    def total(self, kind: str) -> int:
        return sum(self._work.get(kind, Counter()).values())

    def maximum(self, kind: str) -> int:
        """Return the work of the turn that had most of it."""
        return max(self._work.get(kind, Counter()).values())

    async def begin_calls(self, count: int) -> None:
        """Begin calls that wait for all queues, and return when they wait."""
        self.waits = [MessageWait(self.tw._context, NAMES) for _ in range(count)]
        self.calls = [asyncio.create_task(self.tw._io.run(wait.plan(LONG_S))) for wait in self.waits]
        await eventually_in_task(lambda: self.waiters.count() == count, "all calls wait")

    async def end_calls(self) -> None:
        for wait in self.waits:
            wait.cancel_wait()
        await asyncio.gather(*self.calls)

    def count_channels(self) -> int:
        return len(self.server.execute_command("PUBSUB", "SHARDCHANNELS", "*:wake"))

    def is_subscribed(self) -> bool:
        return self.subscriptions.all_confirmed and self.count_channels() == CHANNELS


def run(faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch, body: Body) -> None:
    async def with_process() -> None:
        with faulty.client() as server:
            async with aio.Tickwheel(faulty.url, namespace=NAMESPACE, shards=SHARDS) as tw:
                for name in NAMES:
                    await tw.create_queue(name)
                await body(Process(tw, server, monkeypatch))

    asyncio.run(with_process())


def test_the_subscriptions_of_idle_queues_end_in_parts(faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def end_all(process: Process) -> None:
        await process.begin_calls(1)
        assert process.is_subscribed()
        process.forget_work()
        await process.end_calls()

        monkeypatch.setattr(subscriptions, "IDLE_S", -1)

        await eventually_in_task(lambda: process.count_channels() == 0, "the subscriptions end")
        assert process.total("channels") == CHANNELS
        assert process.maximum("channels") <= MOST_CHANNELS

    run(faulty, monkeypatch, end_all)


def test_the_channels_of_a_lost_connection_are_subscribed_to_in_parts(
    faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose_connection(process: Process) -> None:
        await process.begin_calls(1)
        process.forget_work()

        process.server.execute_command("CLIENT", "KILL", "TYPE", "pubsub")

        await eventually_in_task(lambda: process.total("messages") >= CHANNELS, "the channels are confirmed again")
        assert process.is_subscribed()
        # Each channel has lost its server, and has one again.
        assert process.total("channels") == 2 * CHANNELS
        assert process.maximum("channels") <= MOST_CHANNELS
        assert process.maximum("messages") <= MOST_MESSAGES
        await process.end_calls()

    run(faulty, monkeypatch, lose_connection)


def test_messages_that_become_ready_at_once_wake_the_waiting_calls_in_parts(
    faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wake_all(process: Process) -> None:
        monkeypatch.setattr(WaitList, "begin_sweep", lambda _: None)
        await process.begin_calls(CALLS)
        process.forget_work()

        with process.server.pipeline(transaction=False) as pipeline:
            for n in range(CALLS):
                channel = process.tw._context.channels(NAMES[n % QUEUES])[n % SHARDS]
                pipeline.execute_command("SPUBLISH", channel, 1)
            pipeline.execute()

        ready = await asyncio.gather(*process.calls)
        assert [len(queues) for queues in ready] == [1] * CALLS
        assert process.total("wakeups") == CALLS
        assert process.maximum("wakeups") <= MOST_WAKEUPS

    run(faulty, monkeypatch, wake_all)


def test_the_calls_that_have_possibly_missed_messages_are_woken_in_parts(
    faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose_connection(process: Process) -> None:
        monkeypatch.setattr(WaitList, "begin_sweep", lambda _: None)
        await process.begin_calls(CALLS)
        process.forget_work()

        process.server.execute_command("CLIENT", "KILL", "TYPE", "pubsub")

        await eventually_in_task(lambda: process.total("messages") >= CHANNELS, "the channels are confirmed again")
        await eventually_in_task(lambda: process.total("wakeups") >= CALLS, "all calls are woken")
        # The task that reads from the server wakes a part in a turn, and the one that sends the subscriptions another.
        assert process.maximum("wakeups") <= 2 * MOST_WAKEUPS
        await process.end_calls()

    run(faulty, monkeypatch, lose_connection)


def test_a_caller_does_not_wait_for_the_subscriptions_of_others(
    faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def subscribe_both(process: Process) -> None:
        await process.tw.create_queue("other")
        wakeups = process.tw._io.wakeups
        many = asyncio.create_task(wakeups.subscribe_jointly(NAMES, "first"))
        await eventually_in_task(lambda: len(process.subscriptions._by_queue) == QUEUES, "the first call subscribes")
        answers = process.total("messages")
        other = await wakeups.subscribe("other", caller="second")
        # The answers to the last part, and to a part with the channels of both callers.
        assert process.total("messages") - answers <= 2 * CHANNELS_AT_ONCE
        assert not many.done()
        other.unsubscribe()
        (await many).unsubscribe()
        assert process.total("messages") == CHANNELS + SHARDS

    run(faulty, monkeypatch, subscribe_both)


def test_a_process_without_waiting_calls_has_no_connection_for_wake_ups(
    faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_twice(process: Process) -> None:
        monkeypatch.setattr(subscriptions, "IDLE_S", -1)
        for _ in range(2):
            await process.begin_calls(1)
            await eventually_in_task(process.is_subscribed, "the call is subscribed")
            await process.end_calls()
            await eventually_in_task(lambda: process.tw._io.wakeups._task is None, "the task ends")
            assert process.server.client_list("pubsub") == []

    run(faulty, monkeypatch, wait_twice)
