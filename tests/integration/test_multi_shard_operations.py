"""Operations on a whole queue or namespace reach every shard."""

from datetime import timedelta
from typing import Any

import pytest

from tickwheel import NewMessage, QueueBlocked, Tickwheel
from tickwheel.operations.removal.delete_namespace import delete_namespace
from tickwheel.storage.keys import namespace_key, queues_key, shard_key
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.integration

MANY = [NewMessage(b"", id=f"m{n}") for n in range(200)]


def test_a_queue_is_blocked_and_unblocked_on_all_shards(tw: Tickwheel) -> None:
    queue = tw.create_queue("q")
    queue.enqueue_many(MANY)
    queue.block()
    for n in range(20):
        with pytest.raises(QueueBlocked):
            queue.enqueue(id=f"another{n}")
    with pytest.raises(QueueBlocked):
        queue.dequeue(limit=1)
    queue.unblock()
    queue.enqueue_many(MANY)
    assert len(queue.dequeue(limit=1_000)) == len(MANY)


def test_an_updated_configuration_applies_on_all_shards(tw: Tickwheel, clock: VirtualClock) -> None:
    queue = tw.create_queue("q", lease=timedelta(minutes=1), max_attempts=2)
    queue.enqueue_many(MANY)
    tw.create_queue("q", update=True, lease=timedelta(hours=1), max_attempts=1)
    messages = queue.dequeue(limit=1_000)
    assert len(messages) == len(MANY)
    assert all(message.lease_until > clock.now + timedelta(minutes=50) for message in messages)
    assert {message.fail("no more") for message in messages} == {"errored"}


def test_a_namespace_is_deleted_with_all_its_data(tw: Tickwheel, direct_client: Tickwheel, server: Any) -> None:
    tw.create_queue("q").enqueue_many(MANY)
    namespace, shards = tw._context.namespace, tw._context.shards
    names = [namespace_key(namespace), queues_key(namespace)]
    names += [shard_key(namespace, shard, "messages") for shard in range(shards)]
    assert sum(server.exists(name) for name in names) > 2
    direct_client._run(delete_namespace(direct_client._context))
    assert not [name for name in names if server.exists(name)]
