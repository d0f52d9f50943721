"""Numbers of queues: the placeholders of deleted queues, and the second use of a number.

Timers and events name a queue by its number. A number is given again only when all numbers were given:

- Messages: the deletion has removed all of them.
- Events: a queue of a namespace with the history `relay` is deleted only after the relay has published its events. The
  other histories are trimmed past the last event of the number.
- Timers stay on the wheel. Until the number is given again, the placeholder stands for the queue in `queues`, so that
  every event process, also an older one, finds a queue for the number, and its script ignores the timer. Later, the
  timer checks a message of the new queue, if one has the same name. This cannot do harm: the script then does what the
  record of the message demands (docs/decisions).

Before a number is given again, every shard learns LAST_VERSION of the placeholder. Since then, the shards reject the
calls of an event process that still has the placeholder in its cache, so the process reads the metadata shard again.
The relay calls no script with the version: it compares its cache with the metadata shard after it has read events.
"""

import logging
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct

from tickwheel import limits
from tickwheel.errors import DataLoss, InvalidArgument, TickwheelError
from tickwheel.model import validation
from tickwheel.model.queue_config import QueueConfig, placeholder_identity, stored_number
from tickwheel.operations.context import RELAYED, NamespaceContext
from tickwheel.operations.removal.free_numbers import FreeNumber
from tickwheel.operations.removal.queue_pages import PAGE_ROWS, QueuePages, Row
from tickwheel.plan import Pause, Plan, Request, Round, pairs_from_flat, send_request
from tickwheel.runtime.log_throttle import LogThrottle
from tickwheel.storage.keys import namespace_key, queues_key, shard_key
from tickwheel.storage.stored_text import decode_text
from tickwheel.storage.stream_id import id_after
from tickwheel.storage.transition import queue_number_of

LAST_VERSION = 2**32 - 1
_VERSION = Struct(">I4s")
# Events that are read at a time. This takes the event loop about 0.4 ms.
_PAGE = 250
_PLACEHOLDERS = "deleted.*"
_PLACEHOLDER = re.compile(rb"deleted\.[0-9]{1,5}\.[0-9a-f]{8}")
# Numbers that a search finds. Further calls take them without a search.
_ENOUGH = 100
# Placeholders among which a search prefers those without events in the history.
_READ_MAX = 5_000
# The pause of a call while another call of the process searches for numbers.
_SEARCH_PAUSE_S = 0.05
# Rows that are decoded without a pause. This takes about 0.5 ms. In a service, a call of another client waits for
# several such parts.
_ROWS_AT_ONCE = 10

_log = logging.getLogger("tickwheel.operations")
# Shared by all namespaces.
_log_throttle = LogThrottle()


def charge_nobody(messages: int) -> None:
    """Charge nobody: only the service has callers who pay."""


def placeholder_name(number: int, uid: bytes) -> str:
    """Return the name under which `queues` keeps the number of a deleted queue. The uid makes the name unique."""
    return f"deleted.{number}.{uid.hex()}"


def placeholder_settings() -> bytes:
    """Return the settings of a placeholder as the metadata shard stores them. Older clients see a blocked queue."""
    return QueueConfig(enqueue_blocked=True, dequeue_blocked=True, deleted=True).to_bytes()


@dataclass(frozen=True, slots=True)
class QueueRows:
    """The rows of the key `queues`: the readable configurations by name, and for each unreadable row its problem."""

    configs: dict[str, QueueConfig]
    unreadable: list[str]


def read_rows(context: NamespaceContext) -> Plan[QueueRows]:
    """Read the configuration of every queue and of every placeholder, all at the same moment.

    An unreadable row hides no other row. The plan pauses from time to time, so that other calls of an event loop go on.
    """
    stored_rows = yield from fetch_rows(context)
    rows = QueueRows({}, [])
    yield from decode_rows(context, stored_rows, rows)
    return rows


def fetch_rows(context: NamespaceContext) -> Plan[Iterator[Row]]:
    """Fetch every row as stored, all at the same moment. Decodes nothing."""
    reply = yield from send_request(Request(0, command=("HGETALL", queues_key(context.namespace))))
    return pairs_from_flat(reply.value)


def decode_rows(
    context: NamespaceContext,
    stored_rows: Iterable[Row],
    rows: QueueRows,
    is_wanted: Callable[[str], bool] = lambda _: True,
) -> Plan[None]:
    """Add the rows whose names are wanted to ``rows``, with the pauses of `read_rows`."""
    key = queues_key(context.namespace)
    label = f"the name of a queue of namespace {context.namespace!r}"
    for n, (stored_name, stored) in enumerate(stored_rows):
        if n % _ROWS_AT_ONCE == _ROWS_AT_ONCE - 1:
            yield Pause(0)
        try:
            name = validation.plain_name(label, decode_text(label, stored_name))
            if is_wanted(name):
                rows.configs[name] = QueueConfig.from_bytes(name, stored)
        except (DataLoss, InvalidArgument) as error:
            rows.unreadable.append(
                f"the row {stored_name!r:.80} of the key {key} is unreadable: {error}; restore the row, or remove it as"
                " an administrator of the server (HDEL). Without a row, the messages of a queue cannot be reached"
            )


def read_row(context: NamespaceContext, name: str) -> Plan[QueueConfig | None]:
    """Read the configuration of one queue or placeholder. Return None if there is no such row, or it is unreadable."""
    reply = yield from send_request(Request(0, command=("HGET", queues_key(context.namespace), name)))
    try:
        return None if reply.value is None else QueueConfig.from_bytes(name, reply.value)
    except DataLoss:
        return None


def read_configs(context: NamespaceContext) -> Plan[dict[str, QueueConfig]]:
    """Return the readable configurations of `read_rows`. The log names the unreadable rows."""
    rows = yield from read_rows(context)
    log_unreadable(context, rows)
    return rows.configs


def fetch_name(context: NamespaceContext, number: int) -> Plan[str | None]:
    """Return the name that the metadata shard stores for a number, if any. Compare the number in the row.

    The name may be outdated, because clients of older versions store no name when they create or delete a queue.
    """
    command = ("HGET", namespace_key(context.namespace), f"queue:{number}")
    stored = (yield from send_request(Request(0, command=command))).value
    label = f"the name of queue number {number}"
    try:
        return None if stored is None else validation.plain_name(label, decode_text(label, stored))
    except (DataLoss, InvalidArgument):
        return None


def fetch_numbers(context: NamespaceContext, names: Sequence[str]) -> Plan[list[int | None]]:
    """Return the number of each queue or placeholder, None if there is none of this name. Decodes no settings."""
    reply = yield from send_request(Request(0, command=("HMGET", queues_key(context.namespace), *names)))
    return [stored and stored_number(stored) for stored in reply.value]


def log_unreadable(context: NamespaceContext, rows: QueueRows) -> None:
    """Log a warning if there are unreadable rows, at most twice a minute."""
    if rows.unreadable:
        _log.log(
            _log_throttle.level(context.namespace),
            "namespace %s: %d unreadable rows of queues are skipped. The first: %s",
            *(context.namespace, len(rows.unreadable), rows.unreadable[0]),
        )


def log_missed(context: NamespaceContext) -> None:
    """Log a warning that a list of queues may be incomplete, at most twice a minute."""
    _log.log(
        _log_throttle.level(f"list of {context.namespace}"),
        "namespace %s: a list of queues may be incomplete: rows were missing each time it was read",
        context.namespace,
    )


def numbers_in_history(
    context: NamespaceContext, charge: Callable[[int], None] = charge_nobody
) -> Plan[dict[int, dict[int, bytes]]]:
    """Return, for each queue number in the history, the id of its last event on each shard. ``charge``: see
    `prepare_number`.
    """
    last_ids: dict[int, dict[int, bytes]] = {}
    for shard in range(context.shards):
        after = b"-"
        while True:
            command = ("XRANGE", shard_key(context.namespace, shard, "events"), after, "+", "COUNT", _PAGE)
            entries = (yield from send_request(Request(shard, command=command))).value
            for entry_id, fields in entries:
                last_ids.setdefault(queue_number_of(fields[1]), {})[shard] = entry_id
            if len(entries) < _PAGE:
                break
            charge(1)
            after = b"(" + entries[-1][0]
    return last_ids


def prepare_number(context: NamespaceContext, charge: Callable[[int], None] = charge_nobody) -> Plan[str]:
    """Prepare the number of a deleted queue for a new queue, and return the name of its placeholder.

    ``charge`` receives the cost of what a search for numbers reads, in messages. Raises TickwheelError if there is no
    deleted queue.
    """
    while True:
        if (free := context.free_numbers.take()) is None:
            yield from _search_numbers(context, charge)
            continue
        stored = yield from send_request(Request(0, command=("HGET", queues_key(context.namespace), free.placeholder)))
        # Another process may have given the number since the search.
        if stored.value is not None and (identity := placeholder_identity(stored.value)) is not None:
            break
    _, uid = identity
    trims = [
        Request(shard, command=("XTRIM", shard_key(context.namespace, shard, "events"), "MINID", id_after(last_id)))
        for shard, last_id in free.last_ids.items()
    ]
    if trims:
        yield Round(trims)
    version = _VERSION.pack(LAST_VERSION, uid)
    yield Round(
        [
            Request(shard, context.call("sync_queue_version", shard, free.placeholder, [version]))
            for shard in range(context.shards)
        ]
    )
    return free.placeholder


def _search_numbers(context: NamespaceContext, charge: Callable[[int], None]) -> Plan[None]:
    """Search for numbers that new queues may have. If another call of this process searches, wait for a short time.

    Raises TickwheelError if there is no deleted queue.
    """
    if not context.free_numbers.begin_search():
        yield Pause(_SEARCH_PAUSE_S)
        return
    found: list[FreeNumber] = []
    try:
        found += yield from _find_numbers(context, charge)
    finally:
        context.free_numbers.end_search(found)
    if not found:
        raise TickwheelError(f"a namespace has at most {limits.QUEUES_MAX} queues")


def _find_numbers(context: NamespaceContext, charge: Callable[[int], None]) -> Plan[list[FreeNumber]]:
    """Return numbers of deleted queues in a random order, so that several processes rarely begin with the same one.

    Numbers without events are preferred. A placeholder appears after the last event of its queue. So the history is
    read after the placeholders: before them, it could lack events of a queue that is deleted during the search.
    """
    has_events = context.history < RELAYED
    placeholders = yield from _read_placeholders(context, _READ_MAX if has_events else _ENOUGH, charge)
    last_ids = (yield from numbers_in_history(context, charge)) if has_events and placeholders else {}
    chosen = [item for item in placeholders if item[0] not in last_ids] or placeholders
    return [
        FreeNumber(name.decode(), last_ids.get(number, {}))
        for number, name in random.sample(chosen, min(len(chosen), _ENOUGH))
    ]


def _read_placeholders(
    context: NamespaceContext, enough: int, charge: Callable[[int], None]
) -> Plan[list[tuple[int, bytes]]]:
    """Return the numbers of deleted queues with the names of their placeholders: all, or at least ``enough``."""
    placeholders: dict[int, bytes] = {}
    pages = QueuePages(context, match=_PLACEHOLDERS)
    while not pages.ended and len(placeholders) < enough:
        page = yield from pages.next()
        charge(PAGE_ROWS // limits.ROWS_OF_A_MESSAGE)
        for name, stored in page:
            if _PLACEHOLDER.fullmatch(name) and (identity := placeholder_identity(stored)) is not None:
                placeholders[identity[0]] = name
    return list(placeholders.items())
