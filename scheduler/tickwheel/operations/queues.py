"""Queues: create, change, block, list. Their home is shard 0; the shards get their copies of versions from there."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tickwheel import limits
from tickwheel.errors import QueueConfigConflict, QueueNotFound, TickwheelError
from tickwheel.model import validation as arguments
from tickwheel.model.queue_config import QueueConfig, differences, parse
from tickwheel.operations.context import Core
from tickwheel.plan import Plan, Request, one, pairwise
from tickwheel.storage.keys import namespace_key, queues_key
from tickwheel.storage.scripts import Call, load


def create(core: Core, queue: str, given: Mapping[str, Any], *, update: bool = False) -> Plan[QueueConfig]:
    """Create a queue, or check that it is as given; with ``update`` change the settings that are named."""
    arguments.boolean("update", update)
    wanted = parse(given)
    while True:
        there = yield from core.load_config(queue)
        if there is None:
            changed = yield from _create(core, queue, wanted)
        else:
            if update:
                wanted = parse(given, there)
            differing = differences(there, wanted)
            if not differing:
                return there
            if not update:
                there.check_fixed(queue, parse(given, there))
                raise QueueConfigConflict(
                    f"queue {queue!r} exists with another configuration: {differing}; pass update=True to change it"
                )
            changed = yield from _configure(core, queue, there.updated(queue, wanted), there.version)
        if changed:
            return (yield from spread(core, queue))


def ensure(core: Core, queue: str) -> Plan[QueueConfig]:
    """The queue's configuration; one that does not exist is created with the defaults, if the namespace says so."""
    known = core.configs.get(queue) or (yield from core.load_config(queue))
    if known is not None:
        return known
    if not core.auto_create:
        raise QueueNotFound(
            f"there is no queue {queue!r} in namespace {core.namespace!r}, which does not create queues by itself:"
            f" call create_queue({queue!r}) first"
        )
    yield from _create(core, queue, QueueConfig())
    return (yield from spread(core, queue))


def block(core: Core, queue: str, blocked: bool, *, enqueue: bool, dequeue: bool) -> Plan[QueueConfig]:
    """Block or unblock enqueue, dequeue or both: each that is named by True; the other stays as it is."""
    arguments.boolean("enqueue", enqueue)
    arguments.boolean("dequeue", dequeue)
    return (yield from set_blocks(core, queue, blocked if enqueue else None, blocked if dequeue else None))


def set_blocks(core: Core, queue: str, enqueue: bool | None, dequeue: bool | None) -> Plan[QueueConfig]:
    """Block (True) or unblock (False) enqueue and dequeue; None leaves it as it is."""
    while True:
        there = yield from core.config_at_home(queue)
        wanted = replace(
            there,
            enqueue_blocked=there.enqueue_blocked if enqueue is None else enqueue,
            dequeue_blocked=there.dequeue_blocked if dequeue is None else dequeue,
        )
        if wanted == there or (yield from _configure(core, queue, wanted, there.version)):
            return (yield from spread(core, queue))


def current(core: Core, queue: str) -> Plan[QueueConfig]:
    """The configuration as it is at home now; QueueNotFound where there is none."""
    return (yield from core.config_at_home(queue))


def listed(core: Core) -> Plan[dict[str, QueueConfig]]:
    """Every queue of the namespace by name."""
    reply = yield from one(Request(0, command=("HGETALL", queues_key(core.namespace))))
    flat = reply.value
    pairs = flat.items() if isinstance(flat, dict) else pairwise(flat)
    named = ((name.decode(), stored) for name, stored in pairs)
    found = {name: QueueConfig.restored(name, stored) for name, stored in named}
    core.configs.update(found)
    return dict(sorted(found.items()))


def spread(core: Core, queue: str) -> Plan[QueueConfig]:
    """Read the configuration from home and give every shard its copy."""
    config = yield from core.config_at_home(queue)
    yield from core.adopt(queue, config, range(core.shards))
    return config


def _create(core: Core, queue: str, config: QueueConfig) -> Plan[bool]:
    return (
        yield from _at_home(core, "create", [queue, config.stored(), limits.QUEUES_MAX, os.urandom(4), core.shards])
    )


def _configure(core: Core, queue: str, config: QueueConfig, seen: int) -> Plan[bool]:
    return (yield from _at_home(core, "configure", [queue, seen, config.stored(), core.shards]))


def _at_home(core: Core, name: str, args: list[bytes | int | str]) -> Plan[bool]:
    """Whether the script did it; it did not where the queue is there, or has another version by now."""
    script = load(name, core.clock)
    keys = {"namespace": namespace_key(core.namespace), "queues": queues_key(core.namespace)}
    reply = yield from one(Request(0, Call(script, [keys[key] for key in script.keys], args), durable=True))
    if reply.error is not None:
        raise core.lost_its_state() if reply.error[0] == "NAMESPACEGONE" else TickwheelError(reply.error[1])
    return bool(reply.value[0])
