"""Queues: create, update, block, list.

The metadata shard stores the configurations. Every shard has a copy of their versions.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tickwheel import limits
from tickwheel.errors import QueueNotFound
from tickwheel.model import validation
from tickwheel.model.queue_config import QueueConfig, parse
from tickwheel.model.queue_config_update import apply_update
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import call_metadata_shard, push_config_version
from tickwheel.plan import Plan, Request, pairs_from_flat, send_request
from tickwheel.storage.keys import queues_key
from tickwheel.storage.stored_text import decode_text


def create(
    context: NamespaceContext, queue: str, settings: Mapping[str, Any], *, update: bool = False
) -> Plan[QueueConfig]:
    """Create a queue, or check that an existing queue has these settings.

    With ``update``, change the named settings of an existing queue. Otherwise raises QueueConfigConflict if a setting
    differs.
    """
    validation.boolean("update", update)
    new = parse(settings)
    while True:
        existing = yield from context.load_config(queue)
        if existing is None:
            changed = yield from _create(context, queue, new)
        else:
            updated = apply_update(queue, existing, settings, update=update)
            if updated is None:
                return existing
            changed = yield from _configure(context, queue, updated, existing.version)
        if changed:
            return (yield from publish_config(context, queue))


def ensure(context: NamespaceContext, queue: str) -> Plan[QueueConfig]:
    """Return the queue's configuration. A missing queue is created with the defaults.

    Raises QueueNotFound if the queue is missing and the namespace was opened with ``auto_create=False``.
    """
    known = context.configs.get(queue) or (yield from context.load_config(queue))
    if known is not None:
        return known
    if not context.auto_create:
        raise QueueNotFound(
            f"there is no queue {queue!r} in namespace {context.namespace!r}, which does not create queues"
            f" automatically; call create_queue({queue!r}) first"
        )
    yield from _create(context, queue, QueueConfig())
    return (yield from publish_config(context, queue))


def block(context: NamespaceContext, queue: str, blocked: bool, *, enqueue: bool, dequeue: bool) -> Plan[QueueConfig]:
    """Block or unblock enqueue (if ``enqueue`` is True) and dequeue (if ``dequeue`` is True)."""
    validation.boolean("enqueue", enqueue)
    validation.boolean("dequeue", dequeue)
    return (yield from set_blocks(context, queue, blocked if enqueue else None, blocked if dequeue else None))


def set_blocks(context: NamespaceContext, queue: str, enqueue: bool | None, dequeue: bool | None) -> Plan[QueueConfig]:
    """Block (True) or unblock (False) enqueue and dequeue; None changes nothing."""
    while True:
        existing = yield from context.fetch_config(queue)
        wanted = replace(
            existing,
            enqueue_blocked=existing.enqueue_blocked if enqueue is None else enqueue,
            dequeue_blocked=existing.dequeue_blocked if dequeue is None else dequeue,
        )
        if wanted == existing or (yield from _configure(context, queue, wanted, existing.version)):
            return (yield from publish_config(context, queue))


def list_queues(context: NamespaceContext) -> Plan[dict[str, QueueConfig]]:
    """Return the configuration of every queue of the namespace, by name."""
    reply = yield from send_request(Request(0, command=("HGETALL", queues_key(context.namespace))))
    label = f"the name of a queue of namespace {context.namespace!r}"
    named = ((decode_text(label, name), stored) for name, stored in pairs_from_flat(reply.value))
    configs = {name: QueueConfig.from_bytes(name, stored) for name, stored in named}
    context.configs.update(configs)
    return dict(sorted(configs.items()))


def publish_config(context: NamespaceContext, queue: str) -> Plan[QueueConfig]:
    """Return the configuration from the metadata shard, after its version was sent to every shard."""
    config = yield from context.fetch_config(queue)
    yield from push_config_version(context, queue, config, range(context.shards))
    return config


def _create(context: NamespaceContext, queue: str, config: QueueConfig) -> Plan[bool]:
    """Create the queue. Return False if it exists already."""
    reply = yield from call_metadata_shard(
        context, "create_queue", [queue, config.to_bytes(), limits.QUEUES_MAX, os.urandom(4), context.shards]
    )
    return bool(reply.value[0])


def _configure(context: NamespaceContext, queue: str, config: QueueConfig, expected_version: int) -> Plan[bool]:
    """Change the configuration. Return False if the queue has another version."""
    reply = yield from call_metadata_shard(
        context, "update_queue", [queue, expected_version, config.to_bytes(), context.shards]
    )
    return bool(reply.value[0])
