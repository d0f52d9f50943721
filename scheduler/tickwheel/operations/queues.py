"""Queues: create, update, block, list.

The metadata shard stores the configurations. Every shard has a copy of their versions.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from heapq import merge
from typing import Any

from tickwheel import limits
from tickwheel.errors import QueueNotFound
from tickwheel.model import validation
from tickwheel.model.queue_config import QueueConfig, parse
from tickwheel.model.queue_config_update import apply_update
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.dispatch import (
    call_metadata_shard,
    confirm_earlier_changes,
    push_config_version,
    queue_deleting_error,
)
from tickwheel.operations.removal.queue_numbers import (
    QueueRows,
    charge_nobody,
    decode_rows,
    log_missed,
    log_unreadable,
    prepare_number,
)
from tickwheel.operations.removal.queue_pages import QueuePages
from tickwheel.plan import Pause, Plan
from tickwheel.storage.script_errors import NUMBERSGIVEN

# Names that are sorted without a pause. This takes about 0.5 ms.
_NAMES_AT_ONCE = 500
# If the pages lack rows, all of them are read another time, up to this number of times in all.
_LISTS_MAX = 3


@dataclass(frozen=True, slots=True)
class CreationLimit:
    """The limit of auto-create for a token: at most ``queues`` queues that exist were created for it.

    ``charge`` charges the token: see `prepare_number`.
    """

    token: str
    queues: int
    charge: Callable[[int], None] = charge_nobody


def create(
    context: NamespaceContext,
    queue: str,
    settings: Mapping[str, Any],
    *,
    update: bool = False,
    charge: Callable[[int], None] = charge_nobody,
    check_sink: Callable[[str], None] = lambda _: None,
) -> Plan[QueueConfig]:
    """Create a queue, or check that an existing queue has these settings.

    With ``update``, change the named settings of an existing queue. Otherwise raises QueueConfigConflict if a setting
    differs. ``charge``: see `prepare_number`. Before the queue gets a sink that it does not have, ``check_sink`` is
    called with the sink, and can raise an error.
    """
    validation.boolean("update", update)
    new = parse(settings)
    while True:
        existing = yield from context.load_config(queue)
        if existing is None:
            if new.sink is not None:
                check_sink(new.sink)
            changed = yield from _create(context, queue, new, charge=charge)
        elif existing.deleting:
            raise queue_deleting_error(queue)
        else:
            updated = apply_update(queue, existing, settings, update=update)
            if updated is None:
                yield from confirm_earlier_changes(context, [0])
                if update:
                    # A program that ended between the steps of its update may not have published the configuration.
                    shards = range(context.shards)
                    yield from push_config_version(context, queue, existing, shards, allow_partial=True)
                return existing
            if updated.sink is not None and updated.sink != existing.sink:
                check_sink(updated.sink)
            changed = yield from configure(context, queue, updated, existing)
        if changed:
            return (yield from publish_config(context, queue))


def ensure(
    context: NamespaceContext,
    queue: str,
    limit: CreationLimit | None = None,
    uid: bytes = b"",
    *,
    check: Callable[[QueueConfig], Plan[None]] | None = None,
) -> Plan[QueueConfig]:
    """Return the queue's configuration. A missing queue is created with the defaults, unless its ``uid`` is passed.

    Before a queue is created, the plan ``check`` for its configuration runs, and can raise an error.
    Raises Forbidden if the creation would exceed the ``limit`` of the caller's token.
    Raises QueueNotFound if the queue is missing and the namespace was opened with ``auto_create=False``, or if it does
    not have the ``uid``.
    """
    known = context.configs.get(queue)
    if known is None or (uid and known.uid != uid):
        known = yield from context.load_config(queue)
        if known is not None:
            yield from confirm_earlier_changes(context, [0])
    if known is not None:
        if uid and known.uid != uid:
            raise QueueNotFound(f"queue {queue!r} was deleted, and was created again by another program")
        return known
    if uid:
        raise context.queue_not_found_error(queue)
    if not context.auto_create:
        raise QueueNotFound(
            f"there is no queue {queue!r} in namespace {context.namespace!r}, which does not create queues"
            f" automatically; call create_queue({queue!r}) first"
        )
    config = QueueConfig()
    if check is not None:
        yield from check(config)
    yield from _create(context, queue, config, limit, charge_nobody if limit is None else limit.charge)
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
        if existing.deleting:
            raise queue_deleting_error(queue)
        wanted = replace(
            existing,
            enqueue_blocked=existing.enqueue_blocked if enqueue is None else enqueue,
            dequeue_blocked=existing.dequeue_blocked if dequeue is None else dequeue,
        )
        if wanted == existing:
            yield from confirm_earlier_changes(context, [0])
        if wanted == existing or (yield from configure(context, queue, wanted, existing)):
            return (yield from publish_config(context, queue))


def list_queues(
    context: NamespaceContext,
    is_wanted: Callable[[str], bool] = lambda _: True,
    begin: Callable[[], None] = lambda: None,
) -> Plan[dict[str, QueueConfig]]:
    """Return the configuration of every queue of the namespace whose name is wanted, by name. Raises NamespaceGone.

    ``begin`` is called before all rows are read, also if they are read another time.
    """
    for _ in range(_LISTS_MAX):
        begin()
        configs: dict[str, QueueConfig] = {}
        sorted_names: list[list[str]] = []
        pages = QueuePages(context, must_exist=True)
        rows = QueueRows({}, [])
        while not pages.ended:
            page = QueueRows({}, rows.unreadable)
            yield from decode_rows(context, (yield from pages.next()), page, is_wanted)
            existing = {name: config for name, config in page.configs.items() if not config.deleted}
            context.cache_configs(existing)
            sorted_names.append(sorted(existing.keys() - configs.keys()))
            configs.update(existing)
        if not pages.has_missed_rows:
            break
    else:
        log_missed(context)
    log_unreadable(context, rows)
    listed: dict[str, QueueConfig] = {}
    for n, name in enumerate(merge(*sorted_names)):
        if n % _NAMES_AT_ONCE == _NAMES_AT_ONCE - 1:
            yield Pause(0)
        listed[name] = configs[name]
    return listed


def publish_config(context: NamespaceContext, queue: str) -> Plan[QueueConfig]:
    """Return the configuration from the metadata shard, after its version was sent to every shard."""
    while True:
        config = yield from context.fetch_config(queue)
        if not (yield from push_config_version(context, queue, config, range(context.shards))):
            return config


def _create(
    context: NamespaceContext,
    queue: str,
    config: QueueConfig,
    limit: CreationLimit | None = None,
    charge: Callable[[int], None] = charge_nobody,
) -> Plan[bool]:
    """Create the queue. Return False if it exists already. Raises InvalidArgument if its name is reserved."""
    validation.check_new_queue(queue)
    placeholder = ""
    while True:
        args: list[bytes | int | str] = [queue, config.to_bytes(), limits.QUEUES_MAX, os.urandom(4), context.shards]
        args += [placeholder, *(() if limit is None else (limit.token, limit.queues))]
        reply = yield from call_metadata_shard(context, "create_queue", args, handles=NUMBERSGIVEN)
        if reply.error is None:
            return bool(reply.value[0])
        placeholder = yield from prepare_number(context, charge)


def configure(context: NamespaceContext, queue: str, config: QueueConfig, previous: QueueConfig) -> Plan[bool]:
    """Replace the configuration ``previous``. Return False if the queue has another version, or was recreated."""
    reply = yield from call_metadata_shard(
        context, "update_queue", [queue, previous.packed_version, config.to_bytes(), context.shards]
    )
    return bool(reply.value[0])
