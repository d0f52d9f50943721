"""Queue configurations: created once, updated explicitly, adopted by every client and shard; and namespace settings."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import (
    InvalidArgument,
    NewMessage,
    Queue,
    QueueBlocked,
    QueueConfigConflict,
    QueueNotFound,
    Tickwheel,
)
from tickwheel.operations import queues
from tickwheel.operations.dispatch import push_config_version
from tickwheel.storage.keys import queues_key
from tickwheel.testing import PrivateServer, VirtualClock

pytestmark = pytest.mark.integration

Dump = Callable[[], dict[str, Any]]
Connect = Callable[..., Tickwheel]
SECOND = timedelta(seconds=1)


@pytest.fixture
def connect(tw: Tickwheel, tickwheel_server: PrivateServer) -> Iterator[Connect]:
    """Open other clients of the test's namespace."""
    with ExitStack() as opened:

        def another(**options: Any) -> Tickwheel:
            settings: dict[str, Any] = {"namespace": tw._context.namespace, "clock": "_clock_test"} | options
            return opened.enter_context(Tickwheel(tickwheel_server.url, **settings))

        yield another


def test_a_queue_is_created_with_the_defaults_by_its_first_message(tw: Tickwheel) -> None:
    tw.queue("q").enqueue(id="m")
    assert [queue.name for queue in tw.queues()] == ["q"]
    config = tw.queue("q").config()
    assert (config.lease_ms, config.max_attempts, config.retention_ms) == (30_000, 5, 600_000)
    assert (config.errored_retention_ms, config.exclusive_key, config.indexed) == (7 * 86_400_000, None, None)


RESERVED = ["deleted.1.00c0ffee", "deleted.65535.0a1b2c3d", "deleted.70000.0"]


@pytest.mark.parametrize("name", RESERVED)
def test_the_name_of_a_placeholder_is_refused_for_a_new_queue(tw: Tickwheel, dump: Dump, name: str) -> None:
    before = dump()
    for create in (lambda: tw.create_queue(name), tw.queue(name).enqueue):
        with pytest.raises(InvalidArgument, match=r"must not have the form deleted\.NUMBER\.UID"):
            create()
    assert dump() == before


@pytest.mark.parametrize("name", ["deleted", "deleted.1", "deleted.orders.1", "deleted.1.orders", "un-deleted.1.0"])
def test_similar_names_are_allowed(tw: Tickwheel, name: str) -> None:
    assert tw.create_queue(name).enqueue().created


def test_an_existing_queue_with_the_name_of_a_placeholder_continues_to_work(tw: Tickwheel, server: Any) -> None:
    tw.create_queue("q")
    # An earlier version created the queue.
    key = queues_key(tw._context.namespace)
    server.hset(key, RESERVED[0], server.hget(key, "q"))
    server.hdel(key, "q")
    queue = tw.create_queue(RESERVED[0])
    queue.enqueue(id="m")
    assert [message.id for message in queue.dequeue()] == ["m"]
    tw.create_queue(RESERVED[0], max_attempts=7, update=True)
    assert queue.config().max_attempts == 7
    assert tw.delete_queue(RESERVED[0], purge=True) == 1


@pytest.mark.tickwheel(auto_create=False)
def test_without_auto_create_a_queue_must_be_created_first(tw: Tickwheel, dump: Dump) -> None:
    before = dump()
    for call in (
        lambda: tw.queue("q").enqueue(id="m"),
        lambda: tw.queue("q").dequeue(),
        lambda: tw.queue("q").get("m"),
        lambda: tw.queue("q").counts(),
        lambda: tw.queue("q").block(),
        lambda: tw.queue("q").config(),
    ):
        with pytest.raises(QueueNotFound, match="'q'"):
            call()
    assert dump() == before
    tw.create_queue("q").enqueue(id="m")
    assert tw.queue("q").counts()["pending"] == 1


def test_with_auto_create_a_worker_may_come_before_the_first_message(tw: Tickwheel) -> None:
    assert tw.queue("q").dequeue() == []
    assert tw.queues() == []


def test_creating_a_queue_again_with_the_same_configuration_does_nothing(tw: Tickwheel, dump: Dump) -> None:
    options: dict[str, Any] = {"exclusive_key": "of", "indexed": ["b", "a"], "lease": 10 * SECOND, "forecast": True}
    tw.create_queue("q", **options)
    before = dump()
    tw.create_queue("q", **options)
    tw.create_queue("q", **options | {"indexed": ["a", "b", "a"]}, update=True)
    assert dump() == before


CHANGES: dict[str, Any] = {
    "lease": 10 * SECOND,
    "max_attempts": 7,
    "backoff": 2 * SECOND,
    "backoff_max": 100 * SECOND,
    "retention": timedelta(hours=1),
    "errored_retention": timedelta(hours=1),
    "payload_limit": 100,
}


@pytest.mark.parametrize("setting", CHANGES)
def test_another_configuration_is_a_conflict_unless_it_is_an_update(tw: Tickwheel, dump: Dump, setting: str) -> None:
    tw.create_queue("q")
    before = dump()
    with pytest.raises(
        QueueConfigConflict, match=f"'q' exists with another configuration: {setting}.*update=True"
    ) as raised:
        tw.create_queue("q", **{setting: CHANGES[setting]})
    assert str(raised.value).endswith(f"; {raised.value.advice}")
    assert dump() == before
    tw.create_queue("q", **{setting: CHANGES[setting]}, update=True)
    tw.create_queue("q", **{setting: CHANGES[setting]})
    assert tw.queue("q").config().version == 2


@pytest.mark.parametrize("setting", [{"exclusive_key": "of"}, {"indexed": ["a"]}, {"forecast": True}])
@pytest.mark.parametrize("update", [False, True])
def test_settings_that_indexes_depend_on_never_change(
    tw: Tickwheel, dump: Dump, setting: dict[str, Any], update: bool
) -> None:
    tw.create_queue("q")
    before = dump()
    with pytest.raises(QueueConfigConflict, match=next(iter(setting)) + ".*never changes"):
        tw.create_queue("q", **setting, update=update)
    assert dump() == before


def test_an_unknown_setting_is_named(tw: Tickwheel) -> None:
    with pytest.raises(InvalidArgument, match=r"'leese' \(did you mean 'lease'\?\); the settings are backoff, "):
        tw.create_queue("q", leese=SECOND)  # type: ignore[call-arg]  # mypy knows the settings


def test_a_client_with_an_old_configuration_adopts_the_new_one(
    tw: Tickwheel, clock: VirtualClock, connect: Connect
) -> None:
    old = tw.create_queue("q", lease=10 * SECOND)
    old.enqueue_many(NewMessage(id=f"before{n}") for n in range(20))
    connect().create_queue("q", lease=20 * SECOND, update=True)
    old.enqueue_many(NewMessage(id=f"after{n}") for n in range(20))
    leases = {message.lease_until - clock.now for message in old.dequeue(limit=40)}
    assert leases == {20 * SECOND}


def test_a_repeated_update_reaches_the_shards_that_an_interrupted_one_did_not(
    tw: Tickwheel, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may end between the change on the metadata shard and the calls of the shards."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    queue = tw.create_queue("q", max_attempts=5)
    queue.enqueue(id="m")
    with monkeypatch.context() as patch:
        patch.setattr(queues, "publish_config", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connect().create_queue("q", max_attempts=1, update=True)
    connect().create_queue("q", max_attempts=1, update=True)
    [message] = queue.dequeue()
    message.fail("wrong")
    assert queue.get("m").state == "errored"


OPERATIONS: dict[str, Callable[[Queue], object]] = {
    "enqueue": lambda queue: queue.enqueue(id="new"),
    "dequeue": lambda queue: queue.dequeue(),
    "cancel": lambda queue: queue.cancel("m"),
    "reschedule": lambda queue: queue.reschedule("m", delay=SECOND),
    "redrive": lambda queue: queue.redrive("errored"),
    "purge": lambda queue: queue.purge(),
    "get": lambda queue: queue.get("m"),
    "explain": lambda queue: queue.explain("m"),
    "depth": lambda queue: queue.depth({"a": "b"}),
    "counts": lambda queue: queue.counts(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_works_after_the_configuration_has_changed(
    tw: Tickwheel, connect: Connect, bring: Callable[..., Any], operation: str
) -> None:
    queue = tw.create_queue("q")
    bring("errored", queue, id="errored")
    queue.enqueue(id="m", metadata={"a": "b"})
    connect().create_queue("q", max_attempts=9, update=True)
    OPERATIONS[operation](queue)


@pytest.mark.parametrize("operation", ["complete", "fail", "release", "extend"])
def test_a_worker_continues_after_the_configuration_has_changed(
    tw: Tickwheel, connect: Connect, operation: str
) -> None:
    queue = tw.create_queue("q")
    queue.enqueue(id="m")
    [message] = queue.dequeue()
    connect().create_queue("q", max_attempts=1, update=True)
    if operation == "complete":
        message.complete()
        assert queue.get("m").state == "completed"
    elif operation == "fail":
        # The new configuration allows no further attempt.
        assert message.fail() == "errored"
    elif operation == "release":
        message.release()
        assert queue.get("m").state == "pending"
    else:
        message.extend(timedelta(minutes=1))


def test_the_event_process_adopts_a_new_configuration(tw: Tickwheel, clock: VirtualClock, connect: Connect) -> None:
    queue = tw.create_queue("q")
    queue.enqueue_many(NewMessage(id=f"m{n}", delay=SECOND) for n in range(20))
    clock.advance(SECOND)
    queue.dequeue(limit=20)
    connect().create_queue("q", max_attempts=1, errored_retention=timedelta(hours=1), update=True)
    clock.advance(30 * SECOND)
    assert queue.counts()["errored"] == 20
    clock.advance(timedelta(hours=1))
    assert sum(queue.counts().values()) == 0


def test_shards_adopt_a_new_configuration_when_they_are_used(tw: Tickwheel, server: Any, connect: Connect) -> None:
    queue = tw.create_queue("q")
    # As if a client died during an update: the metadata shard has the new configuration, the other shards do not.
    other = connect().create_queue("q", lease=10 * SECOND, update=True)
    for shard in range(tw._context.shards):
        key = f"{tw._context.namespace}:{{{shard}}}:q:q:config"
        server.hset(key, "version", b"\0\0\0\1" + server.hget(key, "version")[4:])
    other.enqueue_many(NewMessage(id=f"m{n}") for n in range(20))
    assert len(queue.dequeue(limit=20)) == 20


def test_a_shard_does_not_return_to_an_older_configuration(tw: Tickwheel, server: Any, connect: Connect) -> None:
    queue = tw.create_queue("q")
    queue.enqueue(id="m")
    old = connect()
    config = old._run(old._context.load_config("q"))
    tw.create_queue("q", lease=10 * SECOND, update=True)
    assert config is not None
    old._run(push_config_version(old._context, "q", config, range(old._context.shards)))
    for shard in range(tw._context.shards):
        assert server.hget(f"{tw._context.namespace}:{{{shard}}}:q:q:config", "version")[:4] == b"\0\0\0\2"


def test_two_clients_that_create_a_queue_at_once_agree_or_one_gets_a_conflict(connect: Connect) -> None:
    one, two = connect(), connect()
    one.create_queue("same", lease=10 * SECOND)
    two.create_queue("same", lease=10 * SECOND)
    one.create_queue("other", lease=10 * SECOND)
    with pytest.raises(QueueConfigConflict, match=r"lease_ms is 10000, not 20000"):
        two.create_queue("other", lease=20 * SECOND)


def test_a_queue_blocked_for_enqueue_accepts_no_message_and_still_delivers(
    tw: Tickwheel, dump: Dump, connect: Connect
) -> None:
    queue = tw.create_queue("q")
    queue.enqueue(id="m")
    connect().queue("q").block(dequeue=False)
    before = dump()
    for call in (lambda: queue.enqueue(), lambda: queue.enqueue_many([NewMessage()] * 20)):
        with pytest.raises(QueueBlocked, match=r"'q'.*unblock"):
            call()
    assert dump() == before
    assert len(queue.dequeue()) == 1


def test_a_queue_blocked_for_dequeue_delivers_nothing_and_still_accepts_messages(
    tw: Tickwheel, clock: VirtualClock, dump: Dump, connect: Connect
) -> None:
    queue = tw.create_queue("q")
    queue.enqueue(id="m")
    connect().queue("q").block(enqueue=False)
    before = dump()
    filters: list[dict[str, str] | None] = [None, {"a": "b"}]
    for where in filters:
        with pytest.raises(QueueBlocked, match=r"'q'.*unblock"):
            queue.dequeue(where=where)
    assert dump() == before
    queue.enqueue(id="later", delay=SECOND)
    clock.advance(SECOND)
    assert queue.counts()["pending"] == 2


@pytest.mark.parametrize("consistency", ["heads", "exact"])
def test_a_poll_of_an_empty_queue_raises_queue_blocked_after_a_block(
    tw: Tickwheel, connect: Connect, consistency: str
) -> None:
    queue = tw.create_queue("q")
    for _ in range(3):
        assert queue.dequeue(consistency=consistency) == []
    connect().queue("q").block(enqueue=False)
    for _ in range(2):
        with pytest.raises(QueueBlocked):
            queue.dequeue(consistency=consistency)
    connect().queue("q").unblock()
    assert queue.dequeue(consistency=consistency) == []


def test_running_messages_continue_while_the_queue_is_blocked(tw: Tickwheel, clock: VirtualClock) -> None:
    queue = tw.create_queue("q")
    for n in range(4):
        queue.enqueue(id=f"m{n}")
    messages = queue.dequeue(limit=4)
    queue.block()
    messages[0].complete()
    messages[1].fail(retry_in=timedelta(0))
    messages[2].extend(timedelta(minutes=10))
    queue.cancel(messages[3].id)
    clock.advance(timedelta(minutes=10))
    assert queue.counts() | {"pending": 2, "running": 0} == queue.counts()


def test_unblocking_permits_only_the_unblocked_operation(tw: Tickwheel) -> None:
    queue = tw.create_queue("q")
    queue.block()
    queue.unblock(dequeue=False)
    queue.enqueue(id="m")
    with pytest.raises(QueueBlocked):
        queue.dequeue()
    queue.unblock()
    assert len(queue.dequeue()) == 1


def test_a_waiting_dequeue_raises_queue_blocked_after_a_block(tw: Tickwheel) -> None:
    queue = tw.create_queue("q")
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(queue.dequeue, wait=30 * SECOND)
        queue.block(enqueue=False)
        with pytest.raises(QueueBlocked):
            waiting.result(20)


def test_a_block_survives_a_new_configuration(tw: Tickwheel) -> None:
    queue = tw.create_queue("q")
    queue.block()
    tw.create_queue("q", lease=10 * SECOND, update=True)
    with pytest.raises(QueueBlocked):
        queue.enqueue()


def test_the_number_of_shards_is_fixed_when_the_namespace_is_created(tw: Tickwheel, connect: Connect) -> None:
    shards = tw._context.shards
    with pytest.raises(InvalidArgument, match=f"has {shards} shards, not {shards + 1}; this was fixed when"):
        connect(shards=shards + 1)
    assert connect(shards=shards)._context.shards == shards
    assert connect()._context.shards == shards


def test_the_history_is_fixed_when_the_namespace_is_created(connect: Connect) -> None:
    with pytest.raises(InvalidArgument, match="keeps history 'capped', not 'off'"):
        connect(history="off")
    connect(history="capped")


def test_the_clock_guard_is_fixed_when_the_namespace_is_created(connect: Connect) -> None:
    with pytest.raises(InvalidArgument, match="has a clock guard of 1000 ms, not 250 ms; this was fixed when"):
        connect(clock_guard=timedelta(milliseconds=250))
    assert connect(clock_guard=timedelta(seconds=1))._context.clock_guard_ms == 1_000
    other = connect(namespace="guarded", clock_guard=timedelta(hours=1))
    assert other._context.clock_guard_ms == connect(namespace="guarded")._context.clock_guard_ms == 3_600_000


def test_two_namespaces_on_one_server_are_independent(
    tw: Tickwheel, tickwheel_server: PrivateServer, contents: Callable[[str], dict[str, Any]]
) -> None:
    tw.queue("q").enqueue(id="m")
    namespace = f"{tw._context.namespace}.other"
    with Tickwheel(tickwheel_server.url, namespace=namespace) as other:
        assert other.queues() == []
        other.queue("q").enqueue(b"other", id="m")
        assert tw.queue("q").get("m").payload == b""
    assert contents(namespace)
    tickwheel_server.clear(namespace)
