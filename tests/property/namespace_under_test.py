"""A namespace on a real server and its model: two clients, one clock, and the comparison of server and model."""

import copy
import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.property.crashing_wheel import CrashingWheel
from tests.property.model import Model, QueueModel
from tests.property.model_messages import STATES, Key, Settings
from tests.property.stored_data import Stored, expected, group_heads, held_prefixes, lost_timers
from tickwheel import IdConflict, LeaseLost, Queue, QueueNotEmpty, QueueNotFound, Tickwheel, TickwheelError
from tickwheel.doctor import audit
from tickwheel.storage.sharding import shard_of
from tickwheel.testing import PrivateServer, VirtualClock
from tickwheel.testing.virtual_clock import FRAGMENT

START = 1_800_000_000_000
_NAMES = itertools.count()
_MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000
# The service has a clock key of its own.
_TURNED: dict[str, Any] = {"clock": FRAGMENT}


def duration(ms: int | None) -> timedelta | None:
    return None if ms is None else ms * _MS


def moment(ms: int | None) -> datetime | None:
    return None if ms is None else _EPOCH + ms * _MS


def in_ms(of: datetime) -> int:
    return (of - _EPOCH) // _MS


def outcome(action: Callable[[], Any]) -> Any:
    """Return the result of an operation, or the attributes of its error that are compared."""
    try:
        return action()
    except IdConflict as error:
        return "IdConflict", [plain(result) for result in error.results]
    except LeaseLost as error:
        return "LeaseLost", sorted(((lease.id, lease.exclusive_value) for lease in error.lost), key=str)
    except TickwheelError as error:
        return type(error).__name__, getattr(error, "state", None)


def plain(result: Any) -> Any:
    """Return the result of an enqueue in the model's form."""
    return result if result is None or isinstance(result, tuple) else (result.id, result.state, result.created)


class NamespaceUnderTest:
    """Two clients, of which one often has an old configuration, and a clock with an event process that tests run."""

    def __init__(
        self, server: PrivateServer, shards: int, queues: Mapping[str, Settings], service: str | None = None
    ) -> None:
        """If ``service`` is a URL, one of the clients uses the service."""
        self.name = f"p{next(_NAMES)}"
        self.shards = shards
        self._server = server
        self._redis = server.client()
        # Other tests leave their namespaces on the shared server.
        self.stored = Stored(self._redis, self.name)
        self._of_others = self.stored.names()
        self.clients = [
            Tickwheel(url, namespace=self.name, shards=shards, history="relay", **({} if url == service else _TURNED))
            for url in (server.url, service or server.url)
        ]
        self.clock = VirtualClock(server.url, self.name, moment(START))
        self.model = Model(shards, START, lambda queue, key: shard_of(queue, key.encode(), shards))
        self._numbers: dict[str, int] = {}
        self._deleted: list[tuple[int, QueueModel]] = []
        for name, settings in queues.items():
            self.model.create_queue(name, copy.copy(settings))
            self.configure(0, name)
            self._numbers[name] = self.clients[0].queue(name).config().number

    def queue(self, client: int, name: str) -> Queue:
        return self.clients[client].queue(name)

    def configure(self, client: int, name: str) -> None:
        """Give the queue the settings of its model."""
        settings = self.model.queues[name].settings
        self.clients[client].create_queue(
            name, update=True, exclusive_key=settings.exclusive_key, indexed=settings.indexed, forecast=True,
            lease=duration(settings.lease), max_attempts=settings.max_attempts,
        )  # fmt: skip

    def delete_and_create(self, client: int, name: str) -> None:
        """Delete a queue with all its messages, and create it again."""
        self.model.queues[name].purge(STATES)
        # The queue is deleted only after the relay has published its events.
        with suppress(QueueNotEmpty):
            self.clients[client].delete_queue(name, purge=True)
        self.stored.relay(self.shards)
        with suppress(QueueNotFound):
            self.clients[client].delete_queue(name, purge=True)
        self._deleted.append((self._numbers[name], self.model.queues[name]))
        settings = replace(self.model.queues[name].settings, enqueue_blocked=False, dequeue_blocked=False)
        self.model.create_queue(name, settings)
        self.configure(client, name)
        # Without this call, the next call of a client would report that the queue was recreated.
        self._numbers[name] = max(one.queue(name).config().number for one in self.clients)

    def turn(self, ms: int) -> None:
        """Set the clock forward or back without running an event process."""
        self.model.now += ms
        self.clock.set(_EPOCH + self.model.now * _MS)

    def advance(self, ms: int) -> None:
        """Advance the clock with an event process running."""
        self.clock.advance(ms * _MS)
        self.model.advance(ms)

    def run_due(self) -> None:
        self.clock.run_due()
        self.model.run_due()

    def kill_another_event_process(self, shard: int, commands: int) -> None:
        """Kill another event process after it took the shard over. The first process then takes over again."""
        CrashingWheel(self._server, self.name, shard, self.model.now).die_after(commands)
        self.run_due()

    def compare(self) -> None:
        """Check that the server holds the records, indexes and counts of the model."""
        places = list(itertools.product(self.model.queues, range(self.shards)))
        for (name, shard), replies in zip(places, self.stored.read(places), strict=True):
            queue = self.model.queues[name]
            exclusive = queue.settings.exclusive_key is not None
            contents, parked = self.stored.contents(replies, self._numbers[name], exclusive)
            for key, value in expected(queue, self._numbers[name], shard).items():
                assert contents[key] == value, f"{key} of {name} on shard {shard}"
            if exclusive:
                heads = group_heads(queue, shard)
                assert self.stored.pairs == {head for group, head in heads.items() if group not in parked}
                assert all(group.startswith(held_prefixes(queue)) for group in parked)

    def check_timers(self) -> None:
        """Check that every message that waits for a time has a timer that survives the death of any process."""
        for shard in range(self.shards):
            timers = self.stored.timers(shard)
            for name, queue in self.model.queues.items():
                here = [entry for entry in queue.messages.values() if entry.shard == shard]
                assert lost_timers(here, self._numbers[name], timers) == []
        assert self.clients[0]._run(audit(self.clients[0]._context)) == []

    def check_history(self) -> None:
        """Check that the event stream contains every transition, in order, without a gap."""
        history = self.stored.history(self.shards)
        assert all(
            [event.version for event in events] == list(range(1, len(events) + 1)) for events in history.values()
        )
        assert history == {
            (number, *entry.key, entry.order): entry.history
            for number, queue in self._all_queues()
            for entry in queue.everything()
        }

    def transitions(self) -> set[tuple[str | None, str, str | None]]:
        """Return (state before, script, state after) of each transition in the model's history."""
        return {
            (event.before, event.by, event.after)
            for _, queue in self._all_queues()
            for entry in queue.everything()
            for event in entry.history
        }

    def _all_queues(self) -> list[tuple[int, QueueModel]]:
        return [*self._deleted, *((self._numbers[name], queue) for name, queue in self.model.queues.items())]

    def finish_everything(self) -> None:
        """Cancel all unfinished messages and let every retention end."""
        for name, queue in self.model.queues.items():
            unfinished: list[Key] = [key for key, entry in queue.messages.items() if not entry.is_finished]
            for key in unfinished:
                self.queue(0, name).cancel(*key, release=True)
                queue.cancel(key, True)
        for _ in range(2):
            self.advance(30 * _DAY)

    def check_that_nothing_is_left(self) -> None:
        assert not any(queue.messages for queue in self.model.queues.values())
        self.compare()
        lasting = {"clock", "config", "counts", "lateness", "events", "namespace", "queues", "inbox"}
        for key in self.stored.names() - self._of_others:
            assert key.startswith(f"{self.name}:{{"), f"an unknown key: {key}"
            assert key.rpartition(":")[2] in lasting or ":session:" in key, f"a leftover key: {key}"
        assert all(self.stored.timers(shard) == [] for shard in range(self.shards))

    def close(self) -> None:
        self.clock.close()
        for tickwheel in self.clients:
            tickwheel.close()
        self._server.clear(self.name)
        self._redis.close()
