"""Opens, checks and identifies a namespace.

The number of shards, the history, the outbox settings and the clock guard are fixed when the namespace is created.
"""

import re
import uuid

from tickwheel import limits
from tickwheel.errors import InvalidArgument, NamespaceGone, NamespaceNotFound, TickwheelError
from tickwheel.model import validation
from tickwheel.operations.context import DROPS, RELAYED, NamespaceContext
from tickwheel.operations.namespace_options import HISTORIES, OUTBOX_FULL, NamespaceOptions
from tickwheel.plan import Plan, Reply, Request, Round, send_request
from tickwheel.storage.keys import namespace_key, shard_key

# Rises with every change of the stored format.
FORMAT = 2
_FIELDS = ("format", "shards", "history", "auto_create", "clock_guard_ms", "outbox_kib", "outbox_full")
# Namespaces of older versions of Tickwheel lack two fields. These values are read instead. They have no effect, because
# the events of these namespaces are not relayed to Kafka.
_FIELD_DEFAULTS = {"outbox_kib": str(limits.OUTBOX_BYTES // 1024), "outbox_full": "block"}
_NUMBERS = {
    "shards": (1, limits.SHARDS_MAX),
    "auto_create": (0, 1),
    "clock_guard_ms": (limits.CLOCK_GUARD_MS_MIN, limits.CLOCK_GUARD_MS_MAX),
    "outbox_kib": (limits.OUTBOX_BYTES_MIN // 1024, limits.OUTBOX_BYTES_MAX // 1024),
}


def open_namespace(context: NamespaceContext, options: NamespaceOptions) -> Plan[None]:
    """Create the namespace, or check the existing one against the options; then fill the context.

    Raises InvalidArgument if an option other than ``auto_create`` differs from the existing namespace, or a new
    namespace would have too many shards. With ``existing`` nothing is written, and NamespaceNotFound is raised if there
    is no namespace.
    """
    shards, history, outbox_full = options.shards, options.history, options.outbox_full
    clock_guard_ms = options.clock_guard_ms
    kib = (options.outbox_limit or limits.OUTBOX_BYTES) // 1024
    key = namespace_key(context.namespace)
    settings: dict[str, int | str] = {
        "format": FORMAT,
        "shards": shards or 1,
        "history": history or "capped",
        "auto_create": int(options.auto_create is not False),
        "clock_guard_ms": limits.CLOCK_GUARD_MS if clock_guard_ms is None else clock_guard_ms,
        "outbox_kib": kib,
        "outbox_full": outbox_full or "block",
    }
    # Read first: a server at its memory limit rejects writes, but clients must be able to open an existing namespace.
    read = Request(0, command=("HMGET", key, *_FIELDS))
    replies: list[Reply] = yield Round([read])
    is_new = not options.existing and not _exists(replies[0].value)
    if options.existing:
        if not _exists(replies[0].value):
            raise namespace_not_found_error(context)
    elif None in replies[0].value:
        if replies[0].value[_FIELDS.index("shards")] is None:
            _check_created_shards(context, options)
        requests = [Request(0, command=("HSETNX", key, name, settings[name])) for name in _FIELDS]
        replies = yield Round([*requests, read])
    stored = _decode_fields(context, replies[-1].value)
    fixed = "; this was fixed when it was created"
    for option, field, difference in (
        (shards, "shards", f"has {stored['shards']} shards, not {shards}{fixed}"),
        (history, "history", f"keeps history {stored['history']!r}, not {history!r}"),
        (
            clock_guard_ms,
            "clock_guard_ms",
            f"has a clock guard of {stored['clock_guard_ms']} ms, not {clock_guard_ms} ms{fixed}",
        ),
        (
            None if options.outbox_limit is None else kib,
            "outbox_kib",
            f"has an outbox of {stored['outbox_kib']} KiB a shard, not {kib} KiB{fixed}",
        ),
        (outbox_full, "outbox_full", f"has the outbox policy {stored['outbox_full']!r}, not {outbox_full!r}{fixed}"),
    ):
        if option is not None and str(option) != stored[field]:
            raise InvalidArgument(f"namespace {context.namespace!r} {difference}")
    _fill(context, stored)
    if is_new:
        yield from _mark_creation(context)


def _check_created_shards(context: NamespaceContext, options: NamespaceOptions) -> None:
    shards = options.shards or 1
    if shards > options.created_shards:
        raise InvalidArgument(
            f"shards must be at most {options.created_shards:,} for a new namespace, not {shards:,}: choose fewer"
            f" shards, or ask the operator of the service to create namespace {context.namespace!r} (`tickwheel serve`"
            f" or `tickwheel events` with `--namespace {context.namespace} --shards {shards}`), or to raise its option"
            " `--max-shards`"
        )


def _mark_creation(context: NamespaceContext) -> Plan[None]:
    """Store the time of each shard's server: a witness of the clock guard at the first claim (claim_shard.lua).

    On the embedded server of a data directory, also store that no election by lease may take the shards. Each claim of
    an event process of the directory stores this again.
    """
    replies = yield Round([Request(shard, command=("TIME",)) for shard in range(context.shards)])
    marks = [int(seconds) * 1000 + int(micros) // 1000 for seconds, micros in (reply.value for reply in replies)]
    fields = [("created", shard, mark) for shard, mark in enumerate(marks)]
    if context.is_embedded:
        fields += [("embedded", shard, 1) for shard in range(context.shards)]
    yield Round(
        [
            Request(shard, command=("HSETNX", shard_key(context.namespace, shard, "clock"), field, value))
            for field, shard, value in fields
        ]
    )


def read_namespace(context: NamespaceContext) -> Plan[bool]:
    """Return whether the namespace exists. If it exists, fill the context from its fields. Writes nothing."""
    reply = yield from send_request(Request(0, command=("HMGET", namespace_key(context.namespace), *_FIELDS)))
    if not _exists(reply.value):
        return False
    _fill(context, _decode_fields(context, reply.value))
    return True


def namespace_not_found_error(context: NamespaceContext) -> NamespaceNotFound:
    """Return the error for a namespace that does not exist."""
    return NamespaceNotFound(
        f"there is no namespace {context.namespace!r} on this server: enqueue a message, create a queue or start an"
        " event process to create it"
    )


def is_other_format(stored: bytes | None) -> bool:
    """Return whether another version of Tickwheel has written the namespace. A value that is no number is damage."""
    return stored is not None and re.fullmatch(rb"[0-9]{1,9}", stored) is not None and int(stored) != FORMAT


def has_other_format(context: NamespaceContext) -> Plan[bool]:
    """Return whether the stored format of the namespace is that of another version (`is_other_format`)."""
    reply = yield from send_request(Request(0, command=("HGET", namespace_key(context.namespace), "format")))
    return is_other_format(reply.value)


def other_format_error(context: NamespaceContext, stored: bytes | None) -> TickwheelError:
    """Return the error for a namespace whose stored format this version does not read."""
    return _invalid_field_error(context, "format", stored, f"this version reads {FORMAT}")


def _exists(values: list[bytes | None]) -> bool:
    return any(value is not None for value in values)


def _fill(context: NamespaceContext, stored: dict[str, str]) -> None:
    context.clock_guard_ms = int(stored["clock_guard_ms"])
    context.shards = int(stored["shards"])
    relayed = RELAYED + int(stored["outbox_kib"]) + (DROPS if stored["outbox_full"] == "drop" else 0)
    context.history = {"capped": limits.HISTORY_ENTRIES, "relay": relayed, "off": 0}[stored["history"]]
    context.auto_create = stored["auto_create"] == "1"


def ensure_namespace_id(context: NamespaceContext) -> Plan[bytes]:
    """Return the random id of the namespace. If the namespace has no id yet, create one.

    The id distinguishes this namespace from others of the same name: on another server, or earlier on this one. The
    metadata shard stores the id.
    """
    key = namespace_key(context.namespace)
    read = Request(0, command=("HGET", key, "id"))
    # Read first, as in `open_namespace`.
    namespace_id = (yield from send_request(read)).value
    if namespace_id is None:
        replies = yield Round([Request(0, command=("HSETNX", key, "id", uuid.uuid4().hex)), read])
        namespace_id = replies[1].value
    assert isinstance(namespace_id, bytes)
    return namespace_id


def fetch_shard_count(context: NamespaceContext) -> Plan[int | None]:
    """Return the number of shards that the metadata shard stores, or None if this shard has lost its state."""
    reply = yield from send_request(context.shards_request())
    return None if reply.value is None else int(_number(context, "shards", reply.value))


def _decode_fields(context: NamespaceContext, values: list[bytes | None]) -> dict[str, str]:
    """Return the fields by name. Raises NamespaceGone if the namespace is being deleted.

    Raises TickwheelError if a field has a value that this version does not write.
    """
    fields = dict(zip(_FIELDS, values, strict=True))
    # The format comes first: another format may allow other values.
    if fields["format"] != str(FORMAT).encode():
        raise other_format_error(context, fields["format"])
    if fields["shards"] == b"0":
        raise NamespaceGone(
            f"namespace {context.namespace!r} is being deleted: repeat `tickwheel namespace delete` if it was cut off;"
            " afterwards, the namespace can be created again"
        )
    history = fields["history"]
    if _text(history) not in HISTORIES:
        raise _invalid_field_error(context, "history", history, f"allowed is one of {', '.join(HISTORIES)}")
    for name, value in _FIELD_DEFAULTS.items():
        if fields[name] is None:
            fields[name] = value.encode()
    if _text(fields["outbox_full"]) not in OUTBOX_FULL:
        raise _invalid_field_error(
            context, "outbox_full", fields["outbox_full"], f"allowed is one of {', '.join(OUTBOX_FULL)}"
        )
    return {name: _number(context, name, value) if name in _NUMBERS else _text(value) for name, value in fields.items()}


def _number(context: NamespaceContext, name: str, value: bytes | None) -> str:
    minimum, maximum = _NUMBERS[name]
    if value is None or not re.fullmatch(rb"[0-9]{1,9}", value) or not minimum <= int(value) <= maximum:
        raise _invalid_field_error(context, name, value, f"allowed is a whole number from {minimum} to {maximum}")
    return str(int(value))


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="backslashreplace")


def _invalid_field_error(context: NamespaceContext, name: str, value: bytes | None, allowed: str) -> TickwheelError:
    problem = "is missing" if value is None else f"is {validation.preview(value)}"
    return TickwheelError(
        f"namespace {context.namespace!r} cannot be opened: its field {name!r} {problem}, and {allowed};"
        f" the field is in the hash {namespace_key(context.namespace)}"
    )
