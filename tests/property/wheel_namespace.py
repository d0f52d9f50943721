"""The namespace of a simulated wheel: a server that runs on injected time, a client, and the invariants.

Only the simulation advances time. The server's clock is the true time plus `clock_step`.
"""

import os
import random
from collections import Counter
from datetime import timedelta
from functools import lru_cache
from itertools import count
from typing import Any, Self

from tickwheel import Message, NewMessage, Queue, Tickwheel
from tickwheel.driver.commands import Command, ReadStream
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.errors import TickwheelError
from tickwheel.event_process import QueueRef
from tickwheel.storage import keys
from tickwheel.storage.record import State, decode
from tickwheel.storage.scripts import Call
from tickwheel.storage.timer import HEAD_BYTES, Kind, Timer, generation, pack, unpack
from tickwheel.storage.wheel_levels import number, parse, start
from tickwheel.testing import PrivateServer

CLOCK = "_clock_test"
# Half a minute before a slot of the highest level starts, and with it a slot of every level.
START_MS = 1_600 * 64**5 - 30_000
_numbers = count()


class WheelNamespace:
    """A namespace with two queues on one shard of a private server."""

    def __init__(self, server: PrivateServer, seed: int) -> None:
        self.random = random.Random(seed)
        self.monotonic = 0.0
        self.clock_step = 0
        self.corrupt_entries = 0
        self.redis: Any = server.client()
        self._woken, self._wake = os.pipe()
        self._link = ShardConnection(self.redis, self._woken)
        namespace = f"wheel-{next(_numbers)}"
        self.namespace = namespace
        self._server = server
        self._shard_keys = {name: keys.shard_key(namespace, 0, name) for name in keys.SHARD_KEYS}
        self._shown: int | None = None
        self._show_time()
        self.client = Tickwheel(server.url, namespace=namespace, clock=CLOCK)
        self._plain = self.client.create_queue("plain")
        self._exclusive = self.client.create_queue("exclusive", exclusive_key="v", max_attempts=2)
        self.queues = FixedQueues(self.client)
        self._leased: list[Message] = []
        self._ids: list[tuple[Queue, str, str | None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._server.clear(self.namespace)
        self._link.close()
        self.client.close()
        self.redis.close()
        os.close(self._woken)
        os.close(self._wake)

    @property
    def true_ms(self) -> float:
        """The time on a correct clock."""
        return START_MS + self.monotonic

    @property
    def server_ms(self) -> int:
        return int(self.true_ms) + self.clock_step

    def execute(self, command: Command) -> Any:
        """Let the server execute a command of an event process now."""
        self._show_time()
        if isinstance(command, ReadStream):
            return self._link.read_stream_now(command)
        if isinstance(command, Call) and command.script.name in ("promote", "expire", "retire"):
            return self._fire(command)
        return self._link.execute(command)

    def _fire(self, call: Call) -> bytes:
        """Execute a call of a leader that fires timers. The call must return the server's time, and must not change a
        message whose time the server's clock or the leader's bound has not reached.
        """
        limits, packed = call.args[1], call.args[3]
        assert isinstance(limits, bytes)
        assert isinstance(packed, bytes)
        timers = unpack(packed)
        assert 0 < len(timers) <= 1_000
        names = [timer.queue_number.to_bytes(2, "big") + timer.name for timer in timers]
        before = self.redis.hmget(self._shard_keys["messages"], names)
        reply: bytes = self._link.execute(call)
        shown = int.from_bytes(reply[:6], "big")
        assert shown == self.server_ms, (
            f"{call.script.name} returned the time {shown}, the server's is {self.server_ms}"
        )
        trusted = min(shown, int.from_bytes(limits[:6], "big"))
        for old, record in zip(before, self.redis.hmget(self._shard_keys["messages"], names), strict=True):
            if old != record:
                assert decode(old).until_ms <= trusted, f"{call.script.name} was early"
        return reply

    # Actions of clients.

    def act(self) -> None:
        """Let a client act now."""
        self._show_time()
        chosen = self.random.choices(
            [self.enqueue, self._dequeue, self._finish, self._extend, self._cancel, self._reschedule, self._redrive],
            weights=[50, 20, 15, 5, 6, 4, 8],
        )[0]
        try:
            chosen()
        except TickwheelError:
            return  # refused: an id that is finished, a lease that is over

    def enqueue(self, delays: list[int] | None = None) -> None:
        """Add messages with these delays in ms, by default some random ones."""
        self._show_time()
        if delays is None:
            delays = [self._some_delay() for _ in range(self.random.choice([1, 1, 1, 2, 5, 20]))]
        queue = self.random.choice([self._plain, self._plain, self._exclusive])
        new = []
        for delay in delays:
            value = self.random.choice("abc") if queue is self._exclusive else None
            id_ = f"m{len(self._ids)}"
            self._ids.append((queue, id_, value))
            metadata = {"v": value} if value else None
            attempts = self.random.choice([None, 1])
            new.append(
                NewMessage(id=id_, delay=timedelta(milliseconds=delay), metadata=metadata, max_attempts=attempts)
            )
        queue.enqueue_many(new)

    def make_cancelled(self, count: int) -> None:
        """Add `count` messages and cancel them."""
        self._show_time()
        results = self._plain.enqueue_many([NewMessage() for _ in range(count)])
        self._plain.cancel_many([result.id for result in results])

    def make_leases(self, count: int, lease: timedelta) -> None:
        """Add `count` messages and lease them."""
        self._show_time()
        self._plain.enqueue_many([NewMessage() for _ in range(count)])
        self._leased += self._plain.dequeue(count, lease=lease)

    def extend_leases(self, longer: timedelta) -> None:
        """Extend all leases."""
        self._show_time()
        for message in self._leased:
            message.extend(longer)

    def _some_delay(self) -> int:
        if self.random.random() < 0.4:
            # At -1, 0 or +1 ms of an edge of a level, in the current slot or the next.
            level = self.random.randint(1, 5)
            slot = number(level, self.server_ms) + self.random.choice([1, 1, 2, 3])
            return max(0, start(level, slot) + self.random.choice([-1, 0, 1]) - self.server_ms)
        return int(10 ** self.random.uniform(0, 9.4))

    def _dequeue(self) -> None:
        queue = self.random.choice([self._plain, self._exclusive])
        lease = timedelta(milliseconds=self.random.choice([1_000, 5_000, 70_000]))
        self._leased += queue.dequeue(self.random.randint(1, 5), lease=lease)

    def _finish(self) -> None:
        if self._leased:
            message = self._leased.pop(self.random.randrange(len(self._leased)))
            if self.random.random() < 0.6:
                message.complete()
            else:
                message.fail(retry_in=timedelta(milliseconds=self.random.choice([0, 1, 500, 9_000])))

    def _extend(self) -> None:
        if self._leased:
            longer = timedelta(milliseconds=self.random.choice([3_000, 20_000, 400_000]))
            self.random.choice(self._leased).extend(longer)

    def _cancel(self) -> None:
        if self._ids:
            queue, id_, value = self.random.choice(self._ids)
            queue.cancel(id_, value, release=self.random.random() < 0.3)

    def _reschedule(self) -> None:
        if self._ids:
            queue, id_, value = self.random.choice(self._ids)
            delay = timedelta(milliseconds=self._some_delay())
            queue.reschedule(id_, value, delay=delay)

    def _redrive(self) -> None:
        queue = self.random.choice([self._plain, self._exclusive])
        # The server returns the messages in an order that does not depend on the seed.
        errored = sorted((message.id, message.exclusive_value) for message in queue.messages("errored"))
        if errored:
            queue.redrive(*self.random.choice(errored))

    def spoil_inbox(self) -> None:
        """Add an entry that no script writes: bytes that are not timers, or timers of messages that do not exist."""
        good = [self._strange_timer() for _ in range(self.random.choice([1, 2, 5]))]
        packed = b"".join(good)
        kind = self.random.choice(["stale", "cut", "longer", "kind", "length", "noise", "empty"])
        match kind:
            case "cut":
                packed = packed[: self.random.randrange(1, len(packed))]
            case "longer":
                packed += self.random.randbytes(self.random.randrange(1, HEAD_BYTES))
            case "kind":
                packed += good[0][:10] + bytes((0xC0, 3)) + good[0][12:15]
            case "length":
                packed += good[0][:10] + bytes((0x00, self.random.choice([0, 1, 255]))) + good[0][12:15]
            case "noise":
                packed = self.random.randbytes(self.random.choice([1, 13, 5_000]))
            case "empty":
                packed = b""
        field = self.random.choice([b"t", b"t", b"\xff"])
        self.redis.xadd(self._shard_keys["inbox"], {field: packed})
        self.corrupt_entries += not _is_readable(packed)

    def _strange_timer(self) -> bytes:
        name_ = self.random.choice([b"", b"nobody", b"\xff\0", b"n" * 4_000])
        return pack(
            Timer(
                self.random.choice([0, self.server_ms, self.server_ms + self._some_delay()]),
                self.random.choice([1, 2]),
                self.random.getrandbits(32),
                self.random.choice([*Kind]),
                name_ + self.random.randbytes(6),
            )
        )

    # The invariants.

    def waiting(self) -> dict[tuple[int, bytes, Kind, int], int]:
        """Return the timer that each message waits for: (queue number, name, kind, generation) -> ms."""
        times = {}
        for key, record in self.redis.hgetall(self._shard_keys["messages"]).items():
            awaited = _awaited(record)
            if awaited is not None:
                kind, generation, until_ms = awaited
                times[int.from_bytes(key[:2], "big"), key[2:], kind, generation] = until_ms
        return times

    def pending(self) -> int:
        """Return how many messages have been promoted and not dequeued."""
        records = self.redis.hvals(self._shard_keys["messages"])
        return sum(record[0] == State.PENDING for record in records)

    def check(self) -> None:
        """Check that each message's timer is in the inbox or in a slot in use, and each timer once in its own slot."""
        stored: list[Timer] = []
        for _, fields in self.redis.xrange(self._shard_keys["inbox"]):
            [packed] = fields.values()
            stored += unpack(packed) if _is_readable(packed) else []
        in_use = dict(self.redis.zrange(self._shard_keys["slots"], 0, -1, withscores=True))
        lists = self.redis.keys(f"{self.namespace}:{{0}}:w*")
        assert len(lists) == len(in_use), f"lists {lists} and slots in use {in_use} differ"
        for slot_name, score in in_use.items():
            level, slot_number = parse(slot_name)
            assert score == start(level, slot_number)
            for chunk in self.redis.lrange(keys.slot_key(self.namespace, 0, level, slot_number), 0, -1):
                for timer in unpack(chunk):
                    assert number(level, timer.time_ms) == slot_number, f"{timer} is in slot {slot_name!r}"
                    stored.append(timer)
        times: dict[tuple[int, bytes, Kind, int], int] = {}
        for timer in stored:
            key = timer.queue_number, timer.name, timer.kind, timer.generation
            times[key] = min(timer.time_ms, times.get(key, timer.time_ms))
        for key, time_ms in self.waiting().items():
            assert key in times, f"lost: no timer for {key}, due {time_ms}"
            assert times[key] <= time_ms, f"late: {key}, due {time_ms}, has a timer at {times[key]}"
        # Each early firing puts the timer of an extended lease back once. Other timers are moved, never copied.
        copies = Counter(timer for timer in stored if timer.kind is not Kind.EXPIRE)
        assert max(copies.values(), default=1) == 1, f"stored twice: {copies.most_common(1)}"

    def check_nothing_is_overdue(self) -> None:
        """Check a wheel whose event process has no work. The time of the process may be about a ms behind."""
        overdue = {key: due for key, due in self.waiting().items() if due <= self.server_ms - 2}
        assert not overdue, f"at {self.server_ms} still waiting: {overdue}"

    def left_behind(self) -> dict[str, Any]:
        """Return the data that must be empty when the wheel has no work."""
        slots: list[bytes] = self.redis.zrange(self._shard_keys["slots"], 0, -1)
        return {"inbox": self.redis.xlen(self._shard_keys["inbox"]), "slots": slots}

    def next_event_ms(self) -> int | None:
        """Return when the next waiting message is due or, without waiting messages, when the next slot starts."""
        if waiting := self.waiting():
            return min(waiting.values())
        after = f"({self.server_ms}"
        first = self.redis.zrange(
            self._shard_keys["slots"], after, "+inf", byscore=True, offset=0, num=1, withscores=True
        )
        return int(first[0][1]) if first else None

    def _show_time(self) -> None:
        if self._shown != self.server_ms:
            self._shown = self.server_ms
            self.redis.hset(self._shard_keys["clock"], "now", self._shown)


@lru_cache(maxsize=4_096)
def _awaited(record: bytes) -> tuple[Kind, int, int] | None:
    """Return kind, generation and time of the timer that the message of a record waits for, if any."""
    message = decode(record)
    if message.state == State.INVISIBLE:
        kind = Kind.PROMOTE
    elif message.state == State.RUNNING or message.holds_exclusive_value:
        kind = Kind.EXPIRE
    elif message.state == State.PENDING:
        return None
    else:
        kind = Kind.RETIRE
    return kind, generation(message.incarnation, message.version), message.until_ms


class FixedQueues:
    """The two queues, by number, in the form that the event process needs."""

    unreadable_rows = 0
    read_pause_ms = 0.0

    def __init__(self, client: Tickwheel) -> None:
        history = client._context.history
        self._known = {
            config.number: QueueRef(queue.name, config.leader_context(history))
            for queue in client.queues()
            for config in [queue.config()]
        }

    def cached(self, number: int) -> QueueRef | None:
        return self._known.get(number)

    find = lookup = cached

    def renew(self, number: int, shard: int) -> QueueRef | None:
        raise AssertionError("no configuration changes here")

    def check_shards(self) -> bool:
        return True


def _is_readable(packed: bytes) -> bool:
    try:
        unpack(packed)
    except ValueError:
        return False
    return True
