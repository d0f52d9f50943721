"""Every operation in any order, by hypothesis, on a real server; after each step the server holds what the model says.

Two clients work on the queues, so that one of them often has old configurations. Time stands still until a rule turns
it; the event process works when a rule lets it, is killed in the middle of its work, and wakes when it is deposed.
"""

import copy
import itertools
import math
import random
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import hypothesis.strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from tests.property.model import INVISIBLE, PENDING, STATES, Entry, Event, Given, Key, Model, QueueModel, Settings
from tests.property.stored import Stored, expected, group_heads, held_prefixes, lost_timers
from tests.property.unsteady_wheel import UnsteadyWheel
from tickwheel import IdConflict, LeaseLost, Message, NewMessage, Queue, SessionExpired, Tickwheel, TickwheelError
from tickwheel.routing import shard_of
from tickwheel.testing import PrivateServer, VirtualClock
from tickwheel.testing.clock import FRAGMENT

START = 1_800_000_000_000
NAMESPACES = itertools.count()
_MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000

ids = st.sampled_from(["m1", "m2", "m3", "m4", "m5"])
values = st.sampled_from(["c1", "c2", "c11"])
durations = st.sampled_from([1, 2, 50, 999, 1_000, 4_095, 4_097, 30_000, 262_144, 600_000, 3_600_000, 8 * _DAY])
short = st.sampled_from([1, 2, 50, 999, 1_000, 5_000])
leases = st.none() | st.sampled_from([1_000, 2_000, 60_000])
clients = st.integers(0, 1)
filters = st.fixed_dictionaries({}, optional={"region": st.sampled_from(["eu", "us"]), "gpu": st.just("a")})
deadlines = st.none() | st.sampled_from([START, START + 60, START - 400 * 365 * _DAY])
deadlines_in = st.sampled_from([-1_000, 0, 0, 5, 60_000])


def _ms(value: int | None) -> timedelta | None:
    return None if value is None else value * _MS


def _moment(value: int | None) -> datetime | None:
    return None if value is None else _EPOCH + value * _MS


def outcome(action: Callable[[], Any]) -> Any:
    """What an operation answers, or what is to be compared of the error it raises."""
    try:
        return action()
    except IdConflict as error:
        return "IdConflict", [_plain(result) for result in error.results]
    except LeaseLost as error:
        return "LeaseLost", [(each.id, each.exclusive_value) for each in error.lost] if error.lost else []
    except TickwheelError as error:
        return type(error).__name__, getattr(error, "state", None)


def _plain(result: Any) -> Any:
    return result if result is None or isinstance(result, tuple) else (result.id, result.state, result.created)


class SchedulerMachine(RuleBasedStateMachine):
    """Subclasses say on which server, with how many shards and which queues."""

    server: ClassVar[PrivateServer]
    shards: ClassVar[int] = 1
    queues: ClassVar[Mapping[str, Settings]] = {"work": Settings()}

    held = Bundle("held")
    requests = Bundle("requests")

    @initialize()
    def open(self) -> None:
        self.namespace = f"p{next(NAMESPACES)}"
        self.clients = [
            Tickwheel(self.server.url, namespace=self.namespace, shards=self.shards, history="relay", clock=FRAGMENT)
            for _ in range(2)
        ]
        self.clock = VirtualClock(self.server.url, self.namespace, _moment(START))
        self.redis = self.server.client()
        self.stored = Stored(self.redis, self.namespace)
        self.model = Model(self.shards, START, lambda queue, key: shard_of(queue, key.encode(), self.shards))
        self.numbers: dict[str, int] = {}
        self.sequence = itertools.count(1)
        self.newest_request = 0
        for name, settings in self.queues.items():
            self.clients[0].create_queue(name, **self._config(settings), **self._fixed(settings))
            self.model.create_queue(name, copy.copy(settings))
            self.numbers[name] = self.clients[0].queue(name).config().number

    # Callers

    @rule(data=st.data(), client=clients)
    def enqueue(self, data: st.DataObject, client: int) -> None:
        name = self._name(data)
        batch = data.draw(st.lists(self._given(name), min_size=1, max_size=3))
        self._enqueue(name, client, batch)

    @precondition(lambda self: any(queue.messages for queue in self.model.queues.values()))
    @rule(data=st.data(), client=clients)
    def enqueue_the_same_again(self, data: st.DataObject, client: int) -> None:
        name = data.draw(st.sampled_from([name for name, queue in self.model.queues.items() if queue.messages]))
        entry = data.draw(st.sampled_from(list(self.model.queues[name].messages.values())))
        self._enqueue(name, client, [entry.given])

    @rule(
        target=held, data=st.data(), client=clients, limit=st.sampled_from([1, 1, 2, 3, 10]), where=filters,
        lease=leases, worker=st.sampled_from(["", "w1"]), consistency=st.sampled_from(["heads", "exact"]),
    )  # fmt: skip
    def dequeue(self, data: st.DataObject, client: int, **asked: Any) -> Any:
        name = self._name(data)
        found = outcome(lambda: self._queue(client, name).dequeue(**self._call(asked)))
        return self._delivered(name, found, asked)

    @rule(target=requests, data=st.data(), client=clients, limit=st.sampled_from([1, 2, 10]), where=filters)
    def dequeue_by_request(self, data: st.DataObject, client: int, **asked: Any) -> Any:
        name = self._name(data)
        asked |= {"lease": None, "worker": "", "consistency": "exact"}
        self.newest_request = next(self.sequence)
        request = f"caller:{self.newest_request}"
        found = outcome(lambda: self._queue(client, name).dequeue(**self._call(asked), request_id=request))
        self._delivered(name, found, asked)
        return (request, name, asked, found) if isinstance(found, list) else multiple()

    @rule(target=held, client=clients, request=requests)
    def repeat_the_request(self, client: int, request: Any) -> Any:
        request_id, name, asked, first = request
        found = outcome(lambda: self._queue(client, name).dequeue(**self._call(asked), request_id=request_id))
        if request_id != f"caller:{self.newest_request}" or self.model.queues[name].settings.dequeue_blocked:
            assert found in ([], (SessionExpired.__name__, None), ("QueueBlocked", None))
            return multiple()
        entries = self.model.queues[name].messages
        still = [each for each in first if (entry := entries.get(_key(each))) and entry.token == each.token]
        still = [each for each in still if entries[_key(each)].state == "running"]
        assert sorted(each.id for each in found) == sorted(each.id for each in still)
        assert {each.token for each in found} <= {each.token for each in first}
        return multiple(*found)

    @rule(message=held)
    def complete(self, message: Message) -> None:
        queue = self.model.queues[message.queue]
        assert outcome(message.complete) == self._lost_or(lambda: queue.complete(_key(message), message.token), message)

    @rule(client=clients, messages=st.lists(held, min_size=1, max_size=3))
    def complete_many(self, client: int, messages: list[Message]) -> None:
        lost = []
        for message in messages:
            try:
                self.model.queues[message.queue].complete(_key(message), message.token)
            except LeaseLost:
                lost.append(_key(message))
        found = outcome(lambda: self._queue(client, messages[0].queue).complete_many(messages))
        assert (found or ("", []))[0] == ("LeaseLost" if lost else "")
        assert sorted((found or ("", []))[1]) == sorted(lost)

    @rule(message=held, delay=st.sampled_from([None, 0, 1, 5_000]), error=st.sampled_from([None, "", "no luck"]))
    def fail(self, message: Message, delay: int | None, error: str | None) -> None:
        queue = self.model.queues[message.queue]
        found = outcome(lambda: message.fail(error, _ms(delay)))
        waits = delay or 0
        if delay is None and found == INVISIBLE:
            until = self.clients[0].queue(message.queue).get(*_key(message)).until
            assert until is not None
            waits = (until - _EPOCH) // _MS - self.model.now
            assert 1 <= waits <= 1_000 * 2 ** (message.attempt - 1)
        wanted = self._lost_or(lambda: queue.fail(_key(message), message.token, error or "", waits), message)
        assert found == wanted

    @rule(message=held, lease=st.sampled_from([1_000, 45_000, 700_000]))
    def extend(self, message: Message, lease: int) -> None:
        queue = self.model.queues[message.queue]
        found = outcome(lambda: message.extend(lease * _MS))
        wanted = self._lost_or(lambda: queue.extend(_key(message), message.token, lease), message)
        assert found == (_moment(wanted) if isinstance(wanted, int) else wanted)

    @rule(message=held, action=st.sampled_from(["complete", "fail", "extend"]))
    def act_with_a_wrong_token(self, message: Message, action: str) -> None:
        forged = copy.copy(message)
        forged.token = bytes(16)
        arguments = [_MS * 1_000] if action == "extend" else []
        assert outcome(lambda: getattr(forged, action)(*arguments)) == ("LeaseLost", [_key(message)])

    @rule(data=st.data(), client=clients, release=st.booleans())
    def cancel(self, data: st.DataObject, client: int, release: bool) -> None:
        name, key = self._some_key(data)
        found = outcome(lambda: self._change(self._queue(client, name).cancel(*key, release=release)))
        assert found == outcome(lambda: self.model.queues[name].cancel(key, release))

    @rule(
        data=st.data(), client=clients, delay=st.none() | st.sampled_from([0, 1, 5_000]),
        due_in=st.none() | deadlines_in, deadline=deadlines, deadline_in=st.none() | deadlines_in,
    )  # fmt: skip
    def reschedule(
        self, data: st.DataObject, client: int, delay: int | None, due_in: int | None, deadline: int | None,
        deadline_in: int | None,
    ) -> None:  # fmt: skip
        name, key = self._some_key(data)
        due = self.model.now + due_in if delay is None and due_in is not None else None
        deadline = deadline if deadline_in is None else None
        if delay is None and due is None and deadline is None and deadline_in is None:
            delay = 0
        urgency = _moment(deadline) if deadline_in is None else _ms(deadline_in)
        queue = self.model.queues[name]
        high = self.stored.high(queue.messages[key].shard) if key in queue.messages else None
        found = outcome(
            lambda: self._change(
                self._queue(client, name).reschedule(*key, delay=_ms(delay), due=_moment(due), deadline=urgency)
            )[:3]
        )
        assert found == outcome(lambda: queue.reschedule(key, delay, due, deadline, deadline_in, high))

    @rule(data=st.data(), client=clients)
    def redrive(self, data: st.DataObject, client: int) -> None:
        name, key = self._some_key(data)
        found = outcome(lambda: self._change(self._queue(client, name).redrive(*key))[:3])
        assert found == outcome(lambda: self.model.queues[name].redrive(key))

    # Operators

    @rule(data=st.data(), client=clients, enqueue=st.booleans(), dequeue=st.booleans(), on=st.booleans())
    def block_or_unblock(self, data: st.DataObject, client: int, enqueue: bool, dequeue: bool, on: bool) -> None:
        name = self._name(data)
        queue, settings = self._queue(client, name), self.model.queues[name].settings
        (queue.block if on else queue.unblock)(enqueue=enqueue, dequeue=dequeue)
        settings.enqueue_blocked = on if enqueue else settings.enqueue_blocked
        settings.dequeue_blocked = on if dequeue else settings.dequeue_blocked

    @rule(data=st.data(), client=clients, lease=st.sampled_from([5_000, 30_000]), attempts=st.sampled_from([1, 2, 5]))
    def update_the_queue(self, data: st.DataObject, client: int, lease: int, attempts: int) -> None:
        name = self._name(data)
        settings = self.model.queues[name].settings
        settings.lease, settings.max_attempts = lease, attempts
        config = self._config(settings) | self._fixed(settings)
        self.clients[client].create_queue(name, update=True, **config)

    @rule(data=st.data(), client=clients, where=filters)
    def look(self, data: st.DataObject, client: int, where: dict[str, str]) -> None:
        name = self._name(data)
        queue, model = self._queue(client, name), self.model.queues[name]
        assert queue.counts() == model.counts()
        assert queue.depth(where) == len(model.pending(None, where))
        assert [minute.due for minute in queue.forecast(30)] == model.forecast(30)
        late = queue.lateness()
        assert late.promoted == _buckets(model.lateness)
        assert (late.missed, late.deadlines) == (_buckets(model.missed), model.deadlines)

    @rule(data=st.data(), client=clients)
    def explain(self, data: st.DataObject, client: int) -> None:
        name, key = self._some_key(data)
        queue = self.model.queues[name]
        if key not in queue.messages:
            assert outcome(lambda: self._queue(client, name).explain(*key))[0] == "MessageNotFound"
            return
        entry = queue.messages[key]
        found = self._queue(client, name).explain(*key)
        wanted = _explained(queue, entry)
        assert (found.state, found.code, found.ahead, found.ahead_in_value) == (entry.state, *wanted)

    # Time

    @rule(duration=durations)
    def time_passes_without_an_event_process(self, duration: int) -> None:
        self.model.now += duration
        self.clock.set(_EPOCH + self.model.now * _MS)

    @rule(duration=st.sampled_from([1, 1_000, 100_000]))
    def the_clock_steps_back(self, duration: int) -> None:
        self.model.now -= duration
        self.clock.set(_EPOCH + self.model.now * _MS)

    @rule(duration=short | durations)
    def time_passes(self, duration: int) -> None:
        self.clock.advance(duration * _MS)
        self.model.advance(duration)

    @rule()
    def do_what_is_due(self) -> None:
        self.clock.run_due()
        self.model.run_due()

    @rule(shard=st.integers(0, 3), commands=st.integers(1, 20))
    def another_event_process_is_killed_in_the_middle(self, shard: int, commands: int) -> None:
        UnsteadyWheel(self.server, self.namespace, shard % self.shards, self.model.now).die_after(commands)
        # The one before it wakes, is fenced, and takes over again.
        self.clock.run_due()
        self.model.run_due()

    # What always holds

    @invariant()
    def the_server_holds_what_the_model_says(self) -> None:
        for (name, queue), shard in itertools.product(self.model.queues.items(), range(self.shards)):
            exclusive = queue.settings.exclusive_key is not None
            found, parked = self.stored.found(name, self.numbers[name], exclusive, shard)
            wanted = expected(queue, self.numbers[name], shard)
            for key, value in wanted.items():
                assert found[key] == value, f"{key} of {name} on shard {shard}"
            if exclusive:
                heads = group_heads(queue, shard)
                assert self.stored.pairs == {head for group, head in heads.items() if group not in parked}
                assert all(group.startswith(held_prefixes(queue)) for group in parked)

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        try:
            if sys.exc_info()[0] is None:
                self._check_timers()
                self._check_history()
                self._finish_everything()
                self._check_history()
                self._check_that_nothing_is_left()
        finally:
            self.clock.close()
            for tickwheel in self.clients:
                tickwheel.close()
            self.server.clear(self.namespace)
            self.redis.close()

    def _check_timers(self) -> None:
        for shard in range(self.shards):
            timers = self.stored.timers(shard)
            for name, queue in self.model.queues.items():
                here = [entry for entry in queue.messages.values() if entry.shard == shard]
                assert lost_timers(here, self.numbers[name], timers) == []

    def _check_history(self) -> None:
        told: dict[tuple[int, str, str | None, int], list[Event]] = {}
        for shard in range(self.shards):
            told |= self.stored.history(shard)
        wanted = {
            (self.numbers[name], *entry.key, entry.order): entry.history
            for name, queue in self.model.queues.items()
            for entry in queue.everything()
        }
        shards = {key: [event.version for event in events] for key, events in told.items()}
        assert all(versions == list(range(1, len(versions) + 1)) for versions in shards.values())
        assert told == wanted

    def _finish_everything(self) -> None:
        for name, queue in self.model.queues.items():
            for key, entry in list(queue.messages.items()):
                if entry.state in STATES[:3]:
                    self._queue(0, name).cancel(*key, release=True)
                    queue.cancel(key, True)
        for _ in range(2):
            self.clock.advance(30 * _DAY * _MS)
            self.model.advance(30 * _DAY)

    def _check_that_nothing_is_left(self) -> None:
        assert not any(queue.messages for queue in self.model.queues.values())
        self.the_server_holds_what_the_model_says()
        lasting = {"clock", "config", "counts", "lateness", "events", "namespace", "queues", "inbox"}
        for key in self.stored.names():
            assert key.startswith(f"{self.namespace}:{{"), f"a key of nobody: {key}"
            last = key.rpartition(":")[2]
            assert last in lasting or ":session:" in key, f"left behind: {key}"
        assert all(self.stored.timers(shard) == [] for shard in range(self.shards))

    # The parts of the above

    def _name(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(list(self.queues))) if len(self.queues) > 1 else next(iter(self.queues))

    def _queue(self, client: int, name: str) -> Queue:
        return self.clients[client].queue(name)

    def _some_key(self, data: st.DataObject) -> tuple[str, Key]:
        name = self._name(data)
        there = list(self.model.queues[name].messages)
        exclusive = self.queues[name].exclusive_key is not None
        anything: st.SearchStrategy[Key] = st.tuples(ids, values if exclusive else st.none())
        return name, data.draw(st.one_of(*[st.sampled_from(there)] * 9, anything) if there else anything)

    def _given(self, name: str) -> st.SearchStrategy[Given]:
        metadata = filters
        if self.queues[name].exclusive_key is not None:
            metadata = st.builds(lambda pairs, value: pairs | {"customer": value}, filters, values)
        when = st.one_of(
            *[st.just({})] * 3,
            st.sampled_from([0, 1, 50, 5_000, 4_096, 300_000, 20_000_000, 20 * _DAY]).map(lambda ms: {"delay": ms}),
            st.sampled_from([-5_000, 0, 1, 70_000]).map(lambda ms: {"due": self.model.now + ms}),
        )
        urgency: st.SearchStrategy[dict[str, Any]] = st.one_of(
            st.just({}),
            deadlines.map(lambda ms: {"deadline": ms}),
            deadlines_in.map(lambda ms: {"deadline_in": ms}),
        )
        return st.builds(
            lambda id, payload, pairs, when, urgency, lease, most: Given(
                id, payload, metadata=tuple(sorted(pairs.items())), lease=lease, max_attempts=most, **when, **urgency
            ),
            ids, st.sampled_from([b"", b"x", b"y" * 2_000]), metadata, when, urgency,
            leases, st.sampled_from([None, None, 1, 2]),
        )  # fmt: skip

    def _enqueue(self, name: str, client: int, batch: list[Given]) -> None:
        queue = self.model.queues[name]
        highs = [self.stored.high(shard) for shard in range(self.shards)]
        found = outcome(lambda: self._queue(client, name).enqueue_many([_new(given) for given in batch]))
        if isinstance(found, list):
            found = [_plain(result) for result in found]
        assert found == outcome(lambda: queue.enqueue(batch, lambda shard: highs[shard]))

    def _call(self, asked: dict[str, Any]) -> dict[str, Any]:
        return asked | {"where": asked["where"] or None, "lease": _ms(asked["lease"])}

    def _delivered(self, name: str, found: Any, asked: dict[str, Any]) -> Any:
        """Checks a dequeue against the model, which leases the same messages."""
        queue = self.model.queues[name]
        if queue.settings.dequeue_blocked:
            assert found == ("QueueBlocked", None) or (found == [] and self.shards > 1)
            return multiple()
        heads = {shard: queue.take(shard, 1, {}) for shard in range(self.shards)}
        by_head = sorted((head[0].urgency[0], shard) for shard, head in heads.items() if head)
        order = [shard for _, shard in by_head]
        got = [queue.messages[_key(message)] for message in found]
        if asked["consistency"] == "heads" and self.shards > 1:
            # By what the client heard last of each shard; what comes from one shard is exact all the same.
            first = list(dict.fromkeys(entry.shard for entry in got))
            order = first + [shard for shard in order if shard not in first]
        wanted: list[Entry] = []
        for shard in order:
            wanted += queue.take(shard, asked["limit"] - len(wanted), asked["where"])
        assert [entry.key for entry in got] == [entry.key for entry in wanted]
        for message, entry in zip(found, wanted, strict=True):
            assert entry.until <= self.model.now or entry.state == PENDING
            queue.lease(entry, asked["lease"], message.token, asked["worker"])
            assert _as_delivered(message) == (
                entry.attempts, entry.version, entry.payload, entry.metadata, _moment(entry.until), _moment(entry.due)
            )  # fmt: skip
        return multiple(*found)

    @staticmethod
    def _lost_or(action: Callable[[], Any], message: Message) -> Any:
        try:
            return action()
        except LeaseLost:
            return "LeaseLost", [_key(message)]

    @staticmethod
    def _change(change: Any) -> tuple[Any, ...]:
        return change.state, change.version, (change.at - _EPOCH) // _MS, change.changed

    @staticmethod
    def _config(settings: Settings) -> dict[str, Any]:
        return {"lease": _ms(settings.lease), "max_attempts": settings.max_attempts}

    @staticmethod
    def _fixed(settings: Settings) -> dict[str, Any]:
        return {"exclusive_key": settings.exclusive_key, "indexed": settings.indexed, "forecast": True}


def _key(message: Message) -> Key:
    return message.id, message.exclusive_value


def _new(given: Given) -> NewMessage:
    pairs = list(given.metadata)
    random.Random(given.id).shuffle(pairs)
    deadline = _moment(given.deadline) if given.deadline_in is None else _ms(given.deadline_in)
    return NewMessage(
        given.payload, given.id, None if given.due is not None else _ms(given.delay), _moment(given.due), deadline,
        dict(pairs) or None, _ms(given.lease), given.max_attempts,
    )  # fmt: skip


def _as_delivered(message: Message) -> tuple[object, ...]:
    return (
        message.attempt, message.version, message.payload, message.metadata, message.lease_until, message.due
    )  # fmt: skip


def _buckets(late: list[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for ms in late:
        end = 2 ** math.frexp(ms)[1]
        found[end] = found.get(end, 0) + 1
    return found


def _explained(queue: QueueModel, entry: Entry) -> tuple[str, int | None, int | None]:
    """(code, ahead, ahead in its value)."""
    if entry.state != PENDING:
        return entry.state, None, None
    first = queue.take(entry.shard, len(queue.messages), {})
    ahead = first.index(entry) if entry in first else None
    if queue.settings.dequeue_blocked:
        return "blocked", ahead, None
    if ahead is not None:
        return ("behind_others" if ahead else "next"), ahead, None
    of_value = [other for other in queue.pending(entry.shard, {}) if other.value == entry.value]
    return "behind_value", None, of_value.index(entry)
