"""Scenarios from TOML files, checked field by field. docs/load.md describes the fields."""

from dataclasses import replace
from functools import partial
from importlib.resources.abc import Traversable
from pathlib import Path

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.load.scenario import arrival_rate, distributions, metadata_values, recording
from tickwheel.load.scenario.scenario import (
    Cancel,
    Polls,
    QueueLoad,
    Row,
    Scenario,
    Urgency,
    WorkerGroup,
    default_workers,
)
from tickwheel.load.scenario.toml_fields import TomlTable, items, seconds
from tickwheel.model.message_content import filters
from tickwheel.model.validation import preview
from tickwheel.runtime.foreign_data import decode_toml
from tickwheel.runtime.text_file import read_text
from tickwheel.tasks.task_queue import MAX_WEIGHT
from tickwheel.worker.selectors import SELECTORS

_DAY_S, _YEAR_S = 86_400.0, 365 * 86_400.0
_WEEK_S = 7 * _DAY_S
_OFFSET_MAX_S = 100 * _YEAR_S
_WORKERS_MAX = 100_000
_POLLS_MAX = 1e6
_TOGETHER_MAX = 1_000


def read(file: Traversable) -> Scenario:
    """Read the scenario of a file. Raises InvalidArgument, which names file, field or line, and what is allowed."""
    text = read_text(file)
    try:
        document = decode_toml(text)
    except ValueError as error:
        raise InvalidArgument(f"{file.name} is not TOML: {error}") from error
    return _scenario(TomlTable(f"{file.name}: ", document), file)


def _scenario(table: TomlTable, file: Traversable) -> Scenario:
    rows = _recording(table, file)
    queues = [item.parse(partial(_queue, recorded=bool(rows))) for item in table.tables("queue")]
    names = [queue.name for queue in queues]
    if not queues and not rows:
        raise InvalidArgument(f"{table.path('queue')} is missing: a scenario needs at least one [[queue]]")
    if len(set(names)) < len(names):
        raise InvalidArgument(f"{table.path('queue')} names a queue twice: {', '.join(names)}")
    if rows:
        queues = recording.complete_queues(queues, rows)
        names = [queue.name for queue in queues]
    workers = [
        item.parse(partial(_workers, number=n, names=names)) for n, item in enumerate(table.tables("workers"), 1)
    ]
    producers, bounds = table.table("producers"), table.table("bounds")
    scenario = Scenario(
        name=Path(file.name).stem,
        about=table.text("about", ""),
        queues=queues,
        workers=workers or default_workers(queues),
        seed=table.integer("seed", 0, 2**63 - 1, 1),
        start_s=table.seconds("start", 0, _DAY_S, rows[0].arrival_s if rows else 0.0),
        length_s=table.seconds("length", 0.001, _WEEK_S, recording.length_s(rows) if rows else _DAY_S),
        drain_s=table.seconds("drain", 0, _YEAR_S, 3_600.0),
        speed_up=table.number("speed_up", 0.001, 1e6, 1.0),
        producer_batch=producers.integer("batch", 1, 10_000, 1),
        linger_s=producers.seconds("linger", 0, 60, 0.0),
        max_seconds=bounds.seconds("seconds", 0.001, _WEEK_S) if "seconds" in bounds else None,
        max_messages=bounds.integer("messages", 1, 10**9) if "messages" in bounds else None,
        warm_up_s=table.seconds("warm_up", 0, _DAY_S, 0.0),
        recording=rows,
    )
    for part in (producers, bounds, table):
        part.reject_unknown()
    _check_served(table, scenario)
    return scenario


def _recording(table: TomlTable, file: Traversable) -> list[Row]:
    if "recording" not in table:
        return []
    name = table.text("recording")
    if not isinstance(file, Path):
        raise InvalidArgument(f"{table.path('recording')} is only allowed in scenario files on disk")
    return recording.read(file.parent / name)


def _queue(table: TomlTable, *, recorded: bool) -> QueueLoad:
    queue = QueueLoad(
        name=table.plain_name("name"),
        weight=table.integer("weight", 1, MAX_WEIGHT, 40),
        batch=table.integer("batch", 1, limits.DEQUEUE_MESSAGES, 10),
        iterations=table.integer("iterations", 1, 1_000, 5),
        lease_s=table.seconds("lease", limits.LEASE_MS_MIN / 1e3, limits.LEASE_MS_MAX / 1e3, limits.LEASE_MS / 1e3),
        long_poll_s=table.seconds("long_poll", 0, limits.WAIT_MS_MAX / 1e3, 1.0),
        failures=table.number("failures", 0, 1, 0.0),
        max_attempts=table.integer("max_attempts", 1, limits.MAX_ATTEMPTS_MAX, limits.MAX_ATTEMPTS),
        backoff_s=table.seconds("backoff", 0, limits.RETENTION_MS_MAX / 1e3, limits.BACKOFF_MS / 1e3),
        payload_bytes=table.integer("payload_bytes", 32, limits.PAYLOAD_BYTES, 200),
        polls=table.parse_table("polls", _polls),
        wait_target_s=table.seconds("wait_target", 0, _WEEK_S, 5.0),
    )
    if recorded:
        return queue
    return replace(
        queue,
        arrivals=arrival_rate.parse(table),
        delay=distributions.parse(table.path("delay"), table.take("delay", "0s")),
        run=distributions.parse(table.path("run"), table.take("run")),
        cancel=table.parse_table("cancel", _cancel),
        exclusive=table.parse_table("exclusive", metadata_values.parse_exclusive),
        metadata=metadata_values.parse_metadata(table.path("metadata"), table.take("metadata", {})),
        urgency=_urgencies(table),
    )


def _polls(table: TomlTable) -> Polls:
    return Polls(
        table.number("per_second", 0.001, _POLLS_MAX),
        table.integer("batch", 1, limits.DEQUEUE_MESSAGES, 1),
        table.integer("together", 1, _TOGETHER_MAX, 1),
    )


def _cancel(table: TomlTable) -> Cancel:
    return Cancel(table.number("share", 0, 1), distributions.parse(table.path("after"), table.take("after")))


def _urgency(table: TomlTable) -> Urgency:
    offset = table.text("offset")
    length = seconds(table.path("offset"), offset.removeprefix("-"))
    if length > _OFFSET_MAX_S:
        raise InvalidArgument(f"{table.path('offset')} must be at most 100 years (36500d), not {preview(offset)}")
    return Urgency(table.number("share", 0, 1), -length if offset.startswith("-") else length)


def _urgencies(table: TomlTable) -> list[Urgency]:
    urgencies = [item.parse(_urgency) for item in table.tables("urgency")]
    if urgencies and abs(sum(item.share for item in urgencies) - 1) > 1e-6:
        total = sum(item.share for item in urgencies)
        raise InvalidArgument(f"the shares of {table.path('urgency')} must add up to 1, not {total:g}")
    return urgencies


def _workers(table: TomlTable, number: int, names: list[str]) -> WorkerGroup:
    queues = items(table.path("queues"), table.take("queues", names))
    for name in queues:
        if name not in names:
            raise InvalidArgument(f"{table.path('queues')} must be among {', '.join(names)}, not {preview(name)}")
    return WorkerGroup(
        name=table.text("name", f"workers {number}"),
        queues=queues,
        hosts=table.integer("hosts", 1, _WORKERS_MAX, 1),
        processes=table.integer("processes", 1, _WORKERS_MAX, 1),
        where=_where(table),
        selector=table.one_of("selector", list(SELECTORS), "reduced-lottery"),
    )


def _where(table: TomlTable) -> dict[str, str]:
    try:
        return filters(table.take("where", {}))
    except InvalidArgument as error:
        raise InvalidArgument(f"{table.path('where')}: {error}") from error


def _check_served(table: TomlTable, scenario: Scenario) -> None:
    """Raise InvalidArgument if nobody takes from a queue, or a filter has a key that no message of its queue has."""
    for queue in scenario.queues:
        groups = [group for group in scenario.workers if queue.name in group.queues]
        if not groups and queue.polls is None:
            raise InvalidArgument(f"{table.path('workers')}: no worker takes from queue {queue.name!r}")
        known = {item.key for item in queue.metadata} | ({queue.exclusive.key} if queue.exclusive else set())
        for group in groups:
            for key in group.where:
                if key not in known:
                    raise InvalidArgument(
                        f"{table.path('workers')}: {group.name!r} filters by {key!r}, which no message of queue"
                        f" {queue.name!r} has; its metadata has {', '.join(sorted(known)) or 'no keys'}"
                    )
