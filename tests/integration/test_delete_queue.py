"""Deletion of queues: the messages end by events, the keys go, and the name and the number can be used again."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import (
    DataLoss,
    InvalidArgument,
    LeaseLost,
    Message,
    NewMessage,
    Queue,
    QueueBlocked,
    QueueConfigConflict,
    QueueNotEmpty,
    QueueNotFound,
    Tickwheel,
    TickwheelError,
    limits,
)
from tickwheel.doctor import audit
from tickwheel.operations.queues import configure, publish_config
from tickwheel.operations.removal.delete_queue import QueueDeletion
from tickwheel.storage.keys import queue_key, shard_key
from tickwheel.storage.transition import OutboxTransition
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.integration

Bring = Callable[..., Message | None]
History = Callable[[str], list[OutboxTransition]]
MS = timedelta(milliseconds=1)


def begin(direct: Tickwheel, name: str, steps: int, purge: bool = True) -> None:
    """Take the first steps of a deletion, and stop, as if the program was killed."""
    deletion = QueueDeletion(direct._context, name, purge)
    for _ in range(steps):
        assert not deletion.ended
        direct._run(deletion.next())


def names_of_keys(server: Any, tw: Tickwheel, queue: str) -> list[bytes]:
    return list(server.scan_iter(match=f"{tw._context.namespace}:*:q:{queue}:*", count=10_000))


def test_an_empty_queue_is_deleted_with_all_its_keys(queue: Queue, tw: Tickwheel, server: Any, bring: Bring) -> None:
    bring("completed", queue)
    assert tw.delete_queue("q") == 1
    assert names_of_keys(server, tw, "q") == []
    assert tw.queues() == []
    for call in (queue.config, queue.purge, queue.counts, lambda: tw.delete_queue("q")):
        with pytest.raises(QueueNotFound):
            call()


@pytest.mark.parametrize("state", ["invisible", "pending", "running", "errored"])
def test_a_queue_with_unfinished_messages_is_refused_and_stays_usable(
    queue: Queue, tw: Tickwheel, bring: Bring, state: str
) -> None:
    bring(state, queue)
    before = queue.config()
    with pytest.raises(QueueNotEmpty, match=f"1 {state}; .*--purge"):
        tw.delete_queue("q")
    assert queue.config() == before
    assert queue.enqueue().created
    tw.delete_queue("q", purge=True)


@pytest.mark.queue(exclusive_key="of")
def test_with_purge_all_messages_end_by_events(queue: Queue, tw: Tickwheel, bring: Bring, history: History) -> None:
    states = ["completed", "cancelled", "errored", "invisible", "running", "pending"]
    for state in states:
        bring(state, queue, state, metadata={"of": state})
    assert tw.delete_queue("q", purge=True) == 6
    for state in states:
        transitions = history(state)
        assert [item.version for item in transitions] == list(range(1, len(transitions) + 1))
        assert transitions[-1].to_state is None
    assert [item.to_state.label for item in history("running") if item.to_state][-1] == "cancelled"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("2", "x"),
        ("2", "-7"),
        ("2", "4000"),
        ("2", "9" * 30),
        ("2", "9" * 5_000),
        ("1", "nan"),
        ("foo", "bar"),
        ("99", "5"),
    ],
)
def test_damaged_counters_do_not_keep_a_queue_from_being_deleted_with_purge(
    queue: Queue, tw: Tickwheel, server: Any, direct_client: Tickwheel, history: History, field: str, value: str
) -> None:
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(300))
    namespace, shards = direct_client._context.namespace, direct_client._context.shards
    for shard in range(shards):
        server.hset(queue_key(namespace, shard, "q", "counts"), field, value)
    for steps in (0, 1):
        begin(direct_client, "q", steps)
        with pytest.raises((DataLoss, QueueNotEmpty)):
            tw.delete_queue("q")
        assert not queue.config().deleting
        assert not queue.config().enqueue_blocked
    assert tw.delete_queue("q", purge=True) == 300
    assert names_of_keys(server, tw, "q") == []
    assert {transitions[-1].to_state for transitions in map(history, ("m0", "m299"))} == {None}
    for shard in range(shards):
        assert server.hlen(shard_key(namespace, shard, "messages")) == 0


def test_a_worker_loses_its_lease_during_the_deletion_and_afterwards(
    queue: Queue, tw: Tickwheel, bring: Bring, direct_client: Tickwheel
) -> None:
    running = bring("running", queue)
    assert running is not None
    deletion = QueueDeletion(direct_client._context, "q", True)
    while not deletion.token.endswith("/end"):
        direct_client._run(deletion.next())
    with pytest.raises(LeaseLost):
        running.complete()
    tw.delete_queue("q", purge=True)
    with pytest.raises(QueueNotFound):
        running.complete()


def test_while_a_queue_is_deleted_it_refuses_other_calls_with_the_reason(
    queue: Queue, tw: Tickwheel, direct_client: Tickwheel
) -> None:
    queue.enqueue(id="m")
    begin(direct_client, "q", 1)
    calls: list[Callable[[], object]] = [
        queue.enqueue,
        queue.dequeue,
        queue.unblock,
        lambda: tw.create_queue("q"),
        lambda: tw.create_queue("q", lease=timedelta(seconds=5), update=True),
    ]
    for call in calls:
        with pytest.raises(QueueBlocked, match="is being deleted"):
            call()
    assert queue.config().deleting
    tw.delete_queue("q", purge=True)


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_a_deletion_that_was_cut_off_can_be_repeated(
    queue: Queue, tw: Tickwheel, direct_client: Tickwheel, server: Any, steps: int
) -> None:
    queue.enqueue_many(NewMessage(id=f"m{n}", delay=n * MS) for n in range(800))
    begin(direct_client, "q", steps)
    assert direct_client._run(audit(direct_client._context)) == []
    tw.delete_queue("q", purge=True)
    assert names_of_keys(server, tw, "q") == []


def test_a_deletion_that_an_older_client_undid_fails_without_damage(
    queue: Queue, direct_client: Tickwheel, server: Any
) -> None:
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(10))
    deletion = QueueDeletion(direct_client._context, "q", True)
    direct_client._run(deletion.next())
    # An older client unblocks the queue: it keeps only the settings that it knows.
    key = f"{direct_client._context.namespace}:{{0}}:queues"
    stored = server.hget(key, "q")
    version = int.from_bytes(stored[:4]) + 1
    settings = stored[10:].replace(b'"deleting": true, ', b"").replace(b'blocked": true', b'blocked": false')
    server.hset(key, "q", version.to_bytes(4) + stored[4:10] + settings)

    def finish() -> None:
        while not deletion.ended:
            direct_client._run(deletion.next())

    with pytest.raises(TickwheelError, match="not being deleted any more"):
        finish()
    assert queue.enqueue(id="again").created


@pytest.mark.parametrize("position", ["0:0", "0:7", "end"])
@pytest.mark.parametrize("messages", [0, 10])
def test_a_token_does_not_continue_the_deletion_of_a_queue_that_is_not_being_deleted(
    queue: Queue, direct_client: Tickwheel, position: str, messages: int
) -> None:
    queue.enqueue_many(NewMessage(id=f"m{n}") for n in range(messages))
    before = queue.config()
    config = direct_client._run(direct_client._context.fetch_config("q"))
    mark = (config.packed_version + config.number.to_bytes(2)).hex()
    with pytest.raises(InvalidArgument, match="page_token continues no deletion"):
        direct_client._run(QueueDeletion(direct_client._context, "q", True, f"{mark}/{position}").next())
    assert queue.config() == before
    assert queue.counts()["pending"] == messages


@pytest.mark.parametrize("name", ["q", "absent"])
def test_an_invented_token_is_not_answered_as_the_end_of_a_deletion(
    queue: Queue, direct_client: Tickwheel, name: str
) -> None:
    with pytest.raises(InvalidArgument, match="page_token continues no deletion"):
        direct_client._run(QueueDeletion(direct_client._context, name, True, f"{0:020x}/end").next())
    assert queue.counts()["pending"] == 0


@pytest.mark.parametrize("token", ["0:0", "end", "/end", "0123456789abcdef/end", f"{0:020x}/"])
def test_a_token_of_another_form_is_refused(queue: Queue, direct_client: Tickwheel, token: str) -> None:
    begin(direct_client, "q", 1)
    with pytest.raises(InvalidArgument, match="page_token must be the token of the previous page"):
        direct_client._run(QueueDeletion(direct_client._context, "q", True, token).next())


def test_a_token_that_skips_the_purge_leaves_no_message(
    queue: Queue, direct_client: Tickwheel, server: Any, history: History
) -> None:
    queue.enqueue_many(NewMessage(bytes(2_000), id=f"m{n}") for n in range(300))
    context = direct_client._context
    deletion = QueueDeletion(context, "q", True)
    direct_client._run(deletion.next())
    removed, token = 0, deletion.token.replace("0:0", "end")
    assert token.endswith("/end")
    while token:
        deletion = QueueDeletion(context, "q", True, token)
        removed += direct_client._run(deletion.next())
        token = deletion.token
    assert removed == 300
    assert names_of_keys(server, direct_client, "q") == []
    for shard in range(context.shards):
        for key in ("messages", "bodies"):
            assert server.hlen(shard_key(context.namespace, shard, key)) == 0
    assert history("m0")[-1].to_state is None


@pytest.mark.parametrize("steps", [1, 2, 200])
def test_a_token_does_not_continue_the_next_deletion_of_the_same_queue(
    queue: Queue, tw: Tickwheel, direct_client: Tickwheel, steps: int
) -> None:
    first = QueueDeletion(direct_client._context, "q", True)
    for _ in range(steps):
        if not first.token.endswith("/end"):
            direct_client._run(first.next())
    # The first deletion is undone, as by a deletion without `purge` that finds a message.
    context = direct_client._context
    marked = direct_client._run(context.fetch_config("q"))
    assert direct_client._run(configure(context, "q", marked.unmarked(), marked))
    direct_client._run(publish_config(context, "q"))
    queue.enqueue(id="m")
    begin(direct_client, "q", 1)
    with pytest.raises(InvalidArgument, match="page_token continues no deletion"):
        direct_client._run(QueueDeletion(context, "q", True, first.token).next())
    assert queue.counts()["pending"] == 1
    tw.delete_queue("q", purge=True)


def test_a_deleted_queue_can_be_created_again_with_another_configuration(
    queue: Queue, tw: Tickwheel, clock: VirtualClock, history: History
) -> None:
    queue.enqueue(id="m", delay=timedelta(hours=1))
    first = queue.config()
    tw.delete_queue("q", purge=True)
    again = tw.create_queue("q", exclusive_key="of")
    assert again.config().number != first.number
    again.enqueue(id="m", delay=timedelta(hours=2), metadata={"of": "a"})
    clock.advance(timedelta(hours=1))
    assert again.get("m", "a").state == "invisible"
    clock.advance(timedelta(hours=1))
    assert [message.id for message in again.dequeue()] == ["m"]
    incarnations = [(item.queue_number, item.incarnation, item.version) for item in history("m")]
    assert len(set(incarnations)) == len(incarnations) == 6


def test_clients_of_the_deleted_queue_notice_the_new_queue(
    queue: Queue, tw: Tickwheel, direct_client: Tickwheel, bring: Bring
) -> None:
    running = bring("running", queue)
    assert running is not None
    with Tickwheel(
        direct_client._client_settings.url, namespace=direct_client._context.namespace, clock="_clock_test"
    ) as other:
        other.delete_queue("q", purge=True)
        other.create_queue("q", lease=timedelta(seconds=5))
        with pytest.raises(QueueNotFound, match="previous queue"):
            running.complete()
        with pytest.raises(QueueConfigConflict):
            tw.create_queue("q", lease=timedelta(seconds=6))
        assert queue.enqueue().created
        assert other.queue("q").counts()["pending"] == 1


NEW_READS: dict[str, Callable[[Queue], object]] = {
    "messages": lambda queue: [message.id for message in queue.messages()] == ["new"],
    "counts": lambda queue: queue.counts()["pending"] == 1,
    "depth": lambda queue: queue.depth({"a": "1"}) == 1,
    "forecast": lambda queue: len(queue.forecast(minutes=5)) == 5,
}


@pytest.mark.queue(indexed=["b"])
@pytest.mark.parametrize("reads_new", NEW_READS.values(), ids=NEW_READS)
def test_every_client_reads_the_messages_and_the_settings_of_the_new_queue(
    queue: Queue, direct_client: Tickwheel, engine: Any, reads_new: Callable[[Queue], object]
) -> None:
    queue.enqueue()
    with Tickwheel(engine.url, namespace=direct_client._context.namespace, clock="_clock_test") as other:
        other.delete_queue("q", purge=True)
        other.create_queue("q", indexed=["a"], forecast=True).enqueue(id="new", metadata={"a": "1"})
    assert reads_new(queue)


READS: dict[str, Callable[[Queue], object]] = {
    "messages": lambda queue: list(queue.messages()),
    "counts": lambda queue: queue.counts(),
    "lateness": lambda queue: queue.lateness(),
    "depth": lambda queue: queue.depth(),
    "forecast": lambda queue: queue.forecast(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_client_notices_that_the_queue_was_deleted(
    tw: Tickwheel, direct_client: Tickwheel, engine: Any, read: Callable[[Queue], object]
) -> None:
    queue = tw.create_queue("q", forecast=True)
    queue.enqueue()
    with Tickwheel(engine.url, namespace=direct_client._context.namespace, clock="_clock_test") as other:
        other.delete_queue("q", purge=True)
    with pytest.raises(QueueNotFound):
        read(queue)


def test_the_limit_counts_only_queues_that_exist(
    tw: Tickwheel, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, direct_client: Tickwheel
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 3)
    numbers = [tw.create_queue(name).config().number for name in "abc"]
    with pytest.raises(TickwheelError, match="at most 3 queues"):
        tw.create_queue("d")
    tw.queue("b").enqueue(id="m", delay=timedelta(hours=1))
    tw.delete_queue("b", purge=True)
    queue = tw.create_queue("d", exclusive_key="of")
    assert queue.config().number == numbers[1]
    with pytest.raises(TickwheelError, match="at most 3 queues"):
        tw.create_queue("e")
    queue.enqueue(id="m", delay=timedelta(hours=2), metadata={"of": "a"})
    clock.advance(timedelta(hours=1))
    assert queue.get("m", "a").state == "invisible"
    clock.advance(timedelta(hours=1))
    assert queue.get("m", "a").state == "pending"
    assert direct_client._run(audit(direct_client._context)) == []


def test_an_event_process_that_knows_the_placeholder_serves_the_new_queue_of_its_number(
    tw: Tickwheel, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 1)
    for n in range(5):
        queue = tw.create_queue(f"q{n % 2}")
        queue.enqueue(id="m", delay=MS)
        clock.advance(MS)
        assert [message.id for message in queue.dequeue()] == ["m"]
        queue.enqueue(id="later", delay=2 * MS)
        tw.delete_queue(queue.name, purge=True)
        # The event process looks up the number of the deleted queue.
        clock.advance(2 * MS)


def test_a_placeholder_is_not_a_queue(queue: Queue, tw: Tickwheel, server: Any, direct_client: Tickwheel) -> None:
    tw.delete_queue("q")
    [name] = server.hkeys(f"{direct_client._context.namespace}:{{0}}:queues")
    assert tw.queues() == []
    for call in (lambda: tw.create_queue(name.decode()), tw.queue(name.decode()).enqueue):
        with pytest.raises(QueueNotFound, match="stands for a deleted queue"):
            call()


@pytest.mark.tickwheel(history="relay")
def test_a_queue_is_deleted_only_after_its_events_are_relayed(
    queue: Queue, tw: Tickwheel, direct_client: Tickwheel, server: Any
) -> None:
    queue.enqueue(id="m")
    with pytest.raises(QueueNotEmpty, match="not yet relayed"):
        tw.delete_queue("q", purge=True)
    assert queue.config().deleting
    assert not any(queue.counts().values())
    for shard in range(direct_client._context.shards):
        prefix = f"{direct_client._context.namespace}:{{{shard}}}:"
        server.delete(f"{prefix}events")
        server.hdel(f"{prefix}clock", "outbox")
    tw.delete_queue("q")
    assert tw.queues() == []
