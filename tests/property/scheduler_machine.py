"""Every operation in any order, by hypothesis, on a real server that is compared with the model after each step.

Only rules move the clock, run the event process, kill it during its work, or wake a deposed event process.
"""

import copy
import itertools
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, ClassVar

import hypothesis.strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.property.machine_values import (
    as_changed,
    as_explained,
    as_new,
    buckets,
    clients,
    deadline_of,
    delays,
    dues_in,
    durations,
    filters,
    ids,
    key_of,
    leases,
    limits,
    lost_or,
    reason_for,
    results,
    traces,
    urgencies,
    values,
)
from tests.property.model_messages import (
    CANCELLED,
    ERRORED,
    INVISIBLE,
    PENDING,
    RUNNING,
    EnqueueArguments,
    Entry,
    Key,
    Settings,
)
from tests.property.namespace_under_test import NamespaceUnderTest, duration, in_ms, moment, outcome, plain
from tests.property.removal_rules import RemovalRules
from tests.support.state_table import all_transitions
from tickwheel import LeaseLost, Message, Queue, SessionExpired
from tickwheel.testing import PrivateServer


class SchedulerMachine(RemovalRules):
    """Subclasses choose the server, the number of shards and the queues."""

    server: ClassVar[PrivateServer]
    shards: ClassVar[int] = 1
    queues: ClassVar[Mapping[str, Settings]] = {"work": Settings()}
    service: ClassVar[str | None] = None
    """The URL of the service that one of the two clients uses. None: both clients use the server directly."""
    most_by_request: ClassVar[int] = 10
    """The maximum limit of a dequeue with a request id, which makes only one call to each shard."""

    @initialize()
    def open(self) -> None:
        self.under_test = NamespaceUnderTest(self.server, self.shards, self.queues, self.service)
        self.model = self.under_test.model
        self.deliveries: list[Message] = []
        self.requests: list[tuple[int, str, dict[str, Any], list[Message]]] = []
        self.sequence = itertools.count(1)
        for name in self.queues:
            pairs = [{"region": "eu"}, {"region": "us", "gpu": "a"}, {}, {"gpu": "a"}]
            if self.queues[name].exclusive_key is not None:
                pairs = [{**each, "customer": f"c{n % 2 + 1}"} for n, each in enumerate(pairs)]
            batch = [EnqueueArguments(f"m{n}", metadata=tuple(sorted(each.items()))) for n, each in enumerate(pairs)]
            self._enqueue(name, 0, batch)

    # Callers

    @rule(data=st.data(), client=clients)
    def enqueue(self, data: st.DataObject, client: int) -> None:
        name = self._name(data)
        self._enqueue(name, client, data.draw(st.lists(self._arguments(name, self._times()), min_size=1, max_size=3)))

    @rule(data=st.data(), client=clients)
    def enqueue_without_a_delay(self, data: st.DataObject, client: int) -> None:
        name = self._name(data)
        self._enqueue(name, client, data.draw(st.lists(self._arguments(name, st.just({})), min_size=1, max_size=4)))

    @precondition(lambda self: any(queue.messages for queue in self.model.queues.values()))
    @rule(data=st.data(), client=clients)
    def enqueue_the_same_again(self, data: st.DataObject, client: int) -> None:
        name = data.draw(st.sampled_from([name for name, queue in self.model.queues.items() if queue.messages]))
        entry = data.draw(st.sampled_from(list(self.model.queues[name].messages.values())))
        self._enqueue(name, client, [entry.arguments])

    @rule(data=st.data(), client=clients, limit=limits)
    def dequeue(self, data: st.DataObject, client: int, limit: int) -> None:
        self._dequeue(data, client, {"limit": limit})

    @rule(data=st.data(), client=clients, limit=limits, where=filters)
    def dequeue_with_a_filter(self, data: st.DataObject, client: int, limit: int, where: dict[str, str]) -> None:
        self._dequeue(data, client, {"limit": limit, "where": where})

    @rule(data=st.data(), client=clients, lease=leases, consistency=st.sampled_from(["heads", "exact"]))
    def dequeue_with_a_lease(self, data: st.DataObject, client: int, lease: int | None, consistency: str) -> None:
        self._dequeue(data, client, {"limit": 3, "lease": lease, "worker": "w1", "consistency": consistency})

    @rule(data=st.data(), client=clients, limit=limits, where=filters)
    def dequeue_by_request(self, data: st.DataObject, client: int, **options: Any) -> None:
        name, sequence = self._name(data), next(self.sequence)
        options |= {"consistency": "exact", "limit": min(options["limit"], self.most_by_request)}
        answer = outcome(lambda: self._call(client, name, options, request_id=f"caller:{sequence}"))
        if self._delivered(name, answer, options):
            self.requests.append((sequence, name, options, answer))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), client=clients, newest=st.booleans(), has_new_holder=st.booleans())
    def repeat_a_request(self, data: st.DataObject, client: int, newest: bool, has_new_holder: bool) -> None:
        sequence, name, options, first = self.requests[-1] if newest else data.draw(st.sampled_from(self.requests))
        if has_new_holder:
            # Release the messages that the first call returned, so that another call may lease them.
            for message in filter(self._is_live, first):
                message.release()
                self.model.queues[name].release(key_of(message), message.token)
            self._delivered(name, outcome(lambda: self._call(client, name, options)), options)
        answer = outcome(lambda: self._call(client, name, options, request_id=f"caller:{sequence}"))
        if any(sequence < other for other, of, *_ in self.requests if of == name):
            assert answer == (SessionExpired.__name__, None)
        else:
            still = [message for message in first if self._is_live(message)]
            assert {(new.id, new.token) for new in answer} == {(message.id, message.token) for message in still}

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), result=results)
    def complete(self, data: st.DataObject, result: str | None) -> None:
        message = self._some_delivery(data)
        queue = self.model.queues[message.queue]
        answer = outcome(lambda: message.complete(result))
        assert answer == lost_or(lambda: queue.complete(key_of(message), message.token, result), message)

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), client=clients)
    def complete_many(self, data: st.DataObject, client: int) -> None:
        messages = data.draw(st.lists(st.sampled_from(self.deliveries), min_size=1, max_size=3))
        drawn = data.draw(st.none() | st.lists(results, min_size=len(messages), max_size=len(messages)))
        expected_results = [None] * len(messages) if drawn is None else drawn
        lost = self._lost(messages, lambda queue, *of, n: queue.complete(*of, expected_results[n]))
        answer = outcome(lambda: self._queue(client, messages[0].queue).complete_many(messages, drawn))
        assert answer == lost

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), client=clients)
    def release_many(self, data: st.DataObject, client: int) -> None:
        messages = data.draw(st.lists(st.sampled_from(self.deliveries), min_size=1, max_size=3))
        lost = self._lost(messages, lambda queue, *of, n: queue.release(*of))
        assert outcome(lambda: self._queue(client, messages[0].queue).release_many(messages)) == lost

    def _lost(self, messages: list[Message], call: Callable[..., None]) -> Any:
        """Return the error of a call with many messages; ``call`` settles the n-th message in the model."""
        lost = []
        for n, message in enumerate(messages):
            try:
                call(self.model.queues[message.queue], key_of(message), message.token, n=n)
            except LeaseLost:
                lost.append(key_of(message))
        return ("LeaseLost", sorted(lost, key=str)) if lost else None

    @precondition(lambda self: self.deliveries)
    @rule(
        data=st.data(),
        delay=st.sampled_from([None, 0, 0, 1, 5_000]),
        error=st.sampled_from([None, "no luck"]),
        final=st.sampled_from([False, False, True]),
    )
    def fail(self, data: st.DataObject, delay: int | None, error: str | None, final: bool) -> None:
        message = self._some_delivery(data)
        delay = None if final else delay
        answer = outcome(lambda: message.fail(error, duration(delay), final=final))
        waits = delay or 0
        if delay is None and answer == INVISIBLE:
            until = self._queue(0, message.queue).get(*key_of(message)).until
            assert until is not None
            waits = in_ms(until) - self.model.now
            assert 1 <= waits <= 1_000 * 2 ** (message.attempt - 1)
        queue = self.model.queues[message.queue]
        assert answer == lost_or(lambda: queue.fail(key_of(message), message.token, error or "", waits, final), message)

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        message = self._some_delivery(data)
        queue = self.model.queues[message.queue]
        assert outcome(message.release) == lost_or(lambda: queue.release(key_of(message), message.token), message)

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), lease=st.sampled_from([1_000, 45_000, 45_000]))
    def extend(self, data: st.DataObject, lease: int) -> None:
        message = self._some_delivery(data)
        answer = outcome(lambda: in_ms(message.extend(timedelta(milliseconds=lease))))
        queue = self.model.queues[message.queue]
        assert answer == lost_or(lambda: queue.extend(key_of(message), message.token, lease), message)

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), client=clients, lease=st.sampled_from([1_000, 45_000]))
    def extend_many(self, data: st.DataObject, client: int, lease: int) -> None:
        messages = data.draw(st.lists(st.sampled_from(self.deliveries), min_size=1, max_size=3))
        lost = self._lost(messages, lambda queue, *of, n: queue.extend(*of, lease))
        client_queue = self._queue(client, messages[0].queue)
        assert outcome(lambda: client_queue.extend_many(messages, timedelta(milliseconds=lease))) == lost

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), action=st.sampled_from(["complete", "fail", "release", "extend"]))
    def act_with_a_wrong_token(self, data: st.DataObject, action: str) -> None:
        forged = copy.copy(self._some_delivery(data))
        forged.token = bytes(16)
        arguments = [duration(1_000)] if action == "extend" else []
        assert outcome(lambda: getattr(forged, action)(*arguments)) == ("LeaseLost", [key_of(forged)])

    @rule(data=st.data(), client=clients, release=st.booleans())
    def cancel(self, data: st.DataObject, client: int, release: bool) -> None:
        name, key = self._some_key(data, INVISIBLE, PENDING, CANCELLED)
        self._cancel(client, name, key, release)

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), client=clients, release=st.booleans())
    def cancel_a_leased_message(self, data: st.DataObject, client: int, release: bool) -> None:
        message = self._some_delivery(data)
        self._cancel(client, message.queue, key_of(message), release)

    def _cancel(self, client: int, name: str, key: Key, release: bool) -> None:
        answer = outcome(lambda: as_changed(self._queue(client, name).cancel(*key, release=release)))
        assert answer == outcome(lambda: self.model.queues[name].cancel(key, release))

    @rule(data=st.data(), client=clients)
    def reschedule(self, data: st.DataObject, client: int) -> None:
        self._reschedule(client, *self._some_key(data, INVISIBLE, PENDING), data.draw(self._times().filter(bool)))

    def _reschedule(self, client: int, name: str, key: Key, changes: dict[str, int]) -> None:
        queue = self.model.queues[name]
        high = self.under_test.stored.high(queue.messages[key].shard) if key in queue.messages else None
        answer = outcome(
            lambda: as_changed(
                self._queue(client, name).reschedule(
                    *key,
                    delay=duration(changes.get("delay")),
                    due=moment(changes.get("due")),
                    deadline=deadline_of(**changes),
                )
            )[:3]
        )
        assert answer == outcome(lambda: queue.reschedule(key, high, **changes))

    @precondition(lambda self: any(queue.counts()[ERRORED] for queue in self.model.queues.values()))
    @rule(data=st.data(), client=clients)
    def redrive(self, data: st.DataObject, client: int) -> None:
        name, key = self._some_key(data, ERRORED)
        answer = outcome(lambda: as_changed(self._queue(client, name).redrive(*key))[:3])
        assert answer == outcome(lambda: self.model.queues[name].redrive(key))

    # Operators

    @rule(data=st.data(), client=clients, enqueue=st.booleans(), on=st.sampled_from([True, False, False]))
    def block_or_unblock(self, data: st.DataObject, client: int, enqueue: bool, on: bool) -> None:
        name = self._name(data)
        queue, settings = self._queue(client, name), self.model.queues[name].settings
        (queue.block if on else queue.unblock)(enqueue=enqueue or not on, dequeue=not enqueue or not on)
        settings.enqueue_blocked = on and (enqueue or settings.enqueue_blocked)
        settings.dequeue_blocked = on and (not enqueue or settings.dequeue_blocked)

    @rule(data=st.data(), client=clients, lease=st.sampled_from([5_000, 30_000]), attempts=st.sampled_from([1, 2, 3]))
    def update_the_queue(self, data: st.DataObject, client: int, lease: int, attempts: int) -> None:
        name = self._name(data)
        settings = self.model.queues[name].settings
        settings.lease, settings.max_attempts = lease, attempts
        self.under_test.configure(client, name)

    @rule(data=st.data(), client=clients, where=filters)
    def inspect(self, data: st.DataObject, client: int, where: dict[str, str]) -> None:
        name = self._name(data)
        queue, model = self._queue(client, name), self.model.queues[name]
        assert queue.counts() == model.counts()
        assert queue.depth(where) == len(model.pending(None, where))
        assert [minute.due for minute in queue.forecast(30)] == model.forecast(30)
        late = queue.lateness()
        assert late.promoted == buckets(model.lateness)
        assert (late.missed, late.deadlines) == (buckets(model.missed), model.deadlines)
        name, key = self._some_key(data, PENDING)
        entry = self.model.queues[name].messages.get(key)
        answer = outcome(lambda: as_explained(self._queue(client, name).explain(*key)))
        assert answer == (("MessageNotFound", None) if entry is None else reason_for(self.model.queues[name], entry))

    # Time

    @rule(ms=durations, event_process=st.booleans())
    def time_passes(self, ms: int, event_process: bool) -> None:
        if event_process:
            self.under_test.advance(ms)
        else:
            self.under_test.turn(ms)

    @rule(data=st.data(), more=st.sampled_from([-1, 0, 0, 1]), event_process=st.booleans())
    def time_passes_until_something_happens(self, data: st.DataObject, more: int, event_process: bool) -> None:
        """Advance to the exact millisecond of the next change, or to the millisecond before or after."""
        times = {entry.until - self.model.now for queue in self.model.queues.values() for entry in queue.waiting()}
        self.time_passes(max(0, data.draw(st.sampled_from(sorted(times) or [0])) + more), event_process)

    @rule(back=st.sampled_from([0, 0, 0, 1, 1_000, 100_000]))
    def drive_due_timers(self, back: int) -> None:
        """Run the event process now, or after the clock has stepped back."""
        if back:
            self.under_test.turn(-back)
        self.under_test.run_due()

    @rule(shard=st.integers(0, 3), commands=st.integers(1, 20))
    def another_event_process_is_killed_in_the_middle(self, shard: int, commands: int) -> None:
        self.under_test.kill_another_event_process(shard % self.shards, commands)

    # Invariants

    @invariant()
    def the_server_agrees_with_the_model(self) -> None:
        self.under_test.compare()

    def teardown(self) -> None:
        if not hasattr(self, "under_test"):
            return
        try:
            if sys.exc_info()[0] is None:
                self.under_test.check_timers()
                self.under_test.check_history()
                self.under_test.finish_everything()
                self.under_test.check_history()
                assert self.under_test.transitions() <= all_transitions()
                self.under_test.check_that_nothing_is_left()
        finally:
            self.under_test.close()

    # Helpers of the rules

    def _name(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(list(self.queues))) if len(self.queues) > 1 else next(iter(self.queues))

    def _queue(self, client: int, name: str) -> Queue:
        return self.under_test.queue(client, name)

    def _some_key(self, data: st.DataObject, *states: str) -> tuple[str, Key]:
        """Return the key of a message in one of these states, if any; sometimes return any other key."""
        name = self._name(data)
        messages = self.model.queues[name].messages
        fitting = [key for key, entry in messages.items() if entry.state in states]
        exclusive = self.queues[name].exclusive_key is not None
        choices: list[st.SearchStrategy[Key]] = [st.tuples(ids, values if exclusive else st.none())]
        choices += [st.sampled_from(list(messages))] * (2 if messages else 0)
        choices += [st.sampled_from(fitting)] * (6 if fitting else 0)
        return name, data.draw(st.one_of(choices))

    def _some_delivery(self, data: st.DataObject) -> Message:
        """Return a message whose lease is valid, if any; sometimes return any message that was ever delivered."""
        live = [message for message in self.deliveries if self._is_live(message) or self._is_awaited(message)]
        choices = [st.sampled_from(self.deliveries), *[st.sampled_from(live)] * (3 if live else 0)]
        return data.draw(st.one_of(choices))

    def _is_live(self, message: Message) -> bool:
        entry = self.model.queues[message.queue].messages.get(key_of(message))
        return entry is not None and entry.state == RUNNING and entry.token == message.token

    def _is_awaited(self, message: Message) -> bool:
        """Return whether the message was cancelled and keeps its exclusive value until the worker calls again."""
        entry = self.model.queues[message.queue].messages.get(key_of(message))
        return entry is not None and entry.held and entry.token == message.token

    def _times(self) -> st.SearchStrategy[dict[str, int]]:
        when: st.SearchStrategy[dict[str, int]] = st.one_of(
            st.just({}),
            delays.map(lambda ms: {"delay": ms}),
            dues_in.map(lambda ms: {"due": self.model.now + ms}),
        )
        return st.builds(lambda when, urgency: when | urgency, when, urgencies)

    def _arguments(self, name: str, times: st.SearchStrategy[dict[str, int]]) -> st.SearchStrategy[EnqueueArguments]:
        metadata = filters
        if self.queues[name].exclusive_key is not None:
            metadata = st.builds(lambda pairs, value: pairs | {"customer": value}, filters, values)
        return st.builds(
            lambda id, payload, pairs, times, lease, limit, trace: EnqueueArguments(
                id, payload, metadata=tuple(sorted(pairs.items())), lease=lease, max_attempts=limit, trace=trace,
                **times,
            ),
            ids, st.sampled_from([b"", b"x", b"y" * 2_000]), metadata, times, leases, st.sampled_from([None, 1, 2]),
            traces,
        )  # fmt: skip

    def _enqueue(self, name: str, client: int, batch: list[EnqueueArguments]) -> None:
        highs = [self.under_test.stored.high(shard) for shard in range(self.shards)]
        answer = outcome(lambda: self._queue(client, name).enqueue_many([as_new(arguments) for arguments in batch]))
        if isinstance(answer, list):
            answer = [plain(result) for result in answer]
        assert answer == outcome(lambda: self.model.queues[name].enqueue(batch, lambda shard: highs[shard]))

    def _call(self, client: int, name: str, options: dict[str, Any], **more: Any) -> list[Message]:
        arguments = options | {"where": options.get("where") or None, "lease": duration(options.get("lease"))} | more
        return self._queue(client, name).dequeue(**arguments)

    def _dequeue(self, data: st.DataObject, client: int, options: dict[str, Any]) -> None:
        name = self._name(data)
        answer = outcome(lambda: self._call(client, name, options))
        self._delivered(name, answer, options, in_order=self.service is not None and client == 1)

    def _delivered(self, name: str, answer: Any, options: dict[str, Any], *, in_order: bool = False) -> bool:
        """Check a dequeue against the model, which leases the same messages. Return whether the queue was open."""
        queue = self.model.queues[name]
        if queue.settings.dequeue_blocked:
            assert answer == ("QueueBlocked", None)
            return False
        got = [queue.messages[key_of(message)] for message in answer]
        limit, where = options["limit"], options.get("where", {})
        best = sorted(
            (entry for shard in range(self.shards) for entry in queue.take(shard, limit, where)),
            key=lambda entry: (entry.urgency, entry.shard),
        )[:limit]
        wanted: list[Entry] = []
        if options.get("consistency") == "exact":
            wanted = sorted(best, key=lambda entry: (entry.urgency[0], entry.shard))
        elif in_order:
            # The service polls the shards like every client, and returns the most urgent messages first.
            for shards in itertools.permutations(range(self.shards)):
                wanted = []
                for shard in shards:
                    wanted += queue.take(shard, limit - len(wanted), where)
                wanted.sort(key=lambda entry: (entry.urgency[0], entry.shard))
                if wanted == got:
                    break
        else:
            # The client orders shards by their last known heads. The messages of one shard are always in exact order.
            first = list(dict.fromkeys(entry.shard for entry in got))
            for shard in first + [shard for shard in range(self.shards) if shard not in first]:
                wanted += queue.take(shard, limit - len(wanted), where)
        assert [entry.key for entry in got] == [entry.key for entry in wanted]
        for message, entry in zip(answer, wanted, strict=True):
            queue.lease(entry, options.get("lease"), message.token, options.get("worker", ""))
            assert (message.attempt, message.version, message.payload) == (entry.attempts, entry.version, entry.payload)
            assert (message.metadata, message.due) == (entry.metadata, moment(entry.due))
            assert in_ms(message.deadline) == entry.urgency[0]
            assert in_ms(message.lease_until) == entry.until
        self.deliveries = [*self.deliveries, *answer][-20:]
        return True
