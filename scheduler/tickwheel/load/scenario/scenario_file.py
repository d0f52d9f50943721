"""Scenarios from TOML files, checked field by field; docs/load.md says what each field means."""

import tomllib
from dataclasses import replace
from importlib.resources.abc import Traversable
from pathlib import Path

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.load.scenario import arrival_rate as curve
from tickwheel.load.scenario import distributions, recording
from tickwheel.load.scenario import metadata_values as values
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
from tickwheel.load.scenario.toml_fields import Table, items, seconds
from tickwheel.model import validation as arguments
from tickwheel.model.validation import shown
from tickwheel.tasks.queue_selectors import MOST_WEIGHT, SELECTORS

_DAY_S, _YEAR_S = 86_400.0, 365 * 86_400.0
_WEEK_S = 7 * _DAY_S
_OFFSET_MOST_S = 100 * _YEAR_S
_WORKERS_MOST = 100_000
_POLLS_MOST = 1e6
_TOGETHER_MOST = 1_000


def read(file: Traversable) -> Scenario:
    """The scenario of a file. Raises InvalidArgument, which names the file, the field or line, and what is allowed."""
    try:
        text = file.read_bytes().decode()
        document = tomllib.loads(text)
    except OSError as error:
        raise InvalidArgument(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{file.name} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{file.name} is no TOML: {error}") from error
    return _scenario(Table(f"{file.name}: ", document), file)


def _scenario(table: Table, file: Traversable) -> Scenario:
    rows = _recording(table, file)
    queues = [_queue(each, recorded=bool(rows)) for each in table.tables("queue")]
    names = [queue.name for queue in queues]
    if not queues and not rows:
        raise InvalidArgument(f"{table.path('queue')} is missing: a scenario has one [[queue]] or more")
    if len(set(names)) < len(names):
        raise InvalidArgument(f"{table.path('queue')} names a queue twice: {', '.join(names)}")
    if rows:
        queues = recording.completed(queues, rows)
        names = [queue.name for queue in queues]
    workers = [_workers(each, n, names) for n, each in enumerate(table.tables("workers"), 1)]
    producers = table.table("producers") or Table(table.path("producers"), {})
    bounds = table.table("bounds") or Table(table.path("bounds"), {})
    found = Scenario(
        name=Path(file.name).stem,
        about=table.text("about", ""),
        queues=queues,
        workers=workers or default_workers(queues),
        seed=table.whole("seed", 0, 2**63 - 1, 1),
        start_s=table.seconds("start", 0, _DAY_S, rows[0].arrival_s if rows else 0.0),
        length_s=table.seconds("length", 0.001, _WEEK_S, recording.length_s(rows) if rows else _DAY_S),
        drain_s=table.seconds("drain", 0, _YEAR_S, 3_600.0),
        speed_up=table.number("speed_up", 0.001, 1e6, 1.0),
        producer_batch=producers.whole("batch", 1, 10_000, 1),
        linger_s=producers.seconds("linger", 0, 60, 0.0),
        most_seconds=bounds.seconds("seconds", 0.001, _WEEK_S) if "seconds" in bounds else None,
        most_messages=bounds.whole("messages", 1, 10**9) if "messages" in bounds else None,
        warm_up_s=table.seconds("warm_up", 0, _DAY_S, 0.0),
        recording=rows,
    )
    for part in (producers, bounds, table):
        part.done()
    _check_served(table, found)
    return found


def _recording(table: Table, file: Traversable) -> list[Row]:
    if "recording" not in table:
        return []
    name = table.text("recording")
    if not isinstance(file, Path):
        raise InvalidArgument(f"{table.path('recording')} is for scenarios in a file of their own")
    return recording.read(file.parent / name)


def _queue(table: Table, *, recorded: bool) -> QueueLoad:
    found = QueueLoad(
        name=table.plain_name("name"),
        weight=table.whole("weight", 1, MOST_WEIGHT, 40),
        batch=table.whole("batch", 1, limits.DEQUEUE_MESSAGES, 10),
        iterations=table.whole("iterations", 1, 1_000, 5),
        lease_s=table.seconds("lease", limits.LEASE_MS_MIN / 1e3, limits.LEASE_MS_MAX / 1e3, limits.LEASE_MS / 1e3),
        long_poll_s=table.seconds("long_poll", 0, limits.WAIT_MS_MAX / 1e3, 1.0),
        failures=table.number("failures", 0, 1, 0.0),
        max_attempts=table.whole("max_attempts", 1, limits.MAX_ATTEMPTS_MAX, limits.MAX_ATTEMPTS),
        backoff_s=table.seconds("backoff", 0, limits.RETENTION_MS_MAX / 1e3, limits.BACKOFF_MS / 1e3),
        payload_bytes=table.whole("payload_bytes", 32, limits.PAYLOAD_BYTES, 200),
        polls=_polls(table.table("polls")),
        wait_target_s=table.seconds("wait_target", 0, _WEEK_S, 5.0),
    )
    if recorded:
        table.done()
        return found
    exclusive = table.table("exclusive")
    metadata = values.parse_metadata(table.path("metadata"), table.take("metadata", {}))
    found = replace(
        found,
        arrivals=curve.parse(table),
        delay=distributions.parse(table.path("delay"), table.take("delay", "0s")),
        run=distributions.parse(table.path("run"), table.take("run")),
        cancel=_cancel(table.table("cancel")),
        exclusive=None if exclusive is None else values.parse_exclusive(exclusive),
        metadata=metadata,
        urgency=_urgency(table),
    )
    table.done()
    return found


def _polls(table: Table | None) -> Polls | None:
    if table is None:
        return None
    found = Polls(
        table.number("per_second", 0.001, _POLLS_MOST),
        table.whole("batch", 1, limits.DEQUEUE_MESSAGES, 1),
        table.whole("together", 1, _TOGETHER_MOST, 1),
    )
    table.done()
    return found


def _cancel(table: Table | None) -> Cancel | None:
    if table is None:
        return None
    found = Cancel(table.number("share", 0, 1), distributions.parse(table.path("after"), table.take("after")))
    table.done()
    return found


def _urgency(table: Table) -> list[Urgency]:
    found = []
    for each in table.tables("urgency"):
        offset = each.text("offset")
        length = seconds(each.path("offset"), offset.removeprefix("-"))
        if length > _OFFSET_MOST_S:
            raise InvalidArgument(f"{each.path('offset')} must be at most 100 years (36500d), not {shown(offset)}")
        found.append(Urgency(each.number("share", 0, 1), -length if offset.startswith("-") else length))
        each.done()
    if found and abs(sum(each.share for each in found) - 1) > 1e-6:
        total = sum(each.share for each in found)
        raise InvalidArgument(f"the shares of {table.path('urgency')} must be 1 together, not {total:g}")
    return found


def _workers(table: Table, number: int, names: list[str]) -> WorkerGroup:
    queues = items(table.path("queues"), table.take("queues", names))
    for name in queues:
        if name not in names:
            raise InvalidArgument(f"{table.path('queues')} must be of {', '.join(names)}, not {shown(name)}")
    found = WorkerGroup(
        name=table.text("name", f"workers {number}"),
        queues=queues,
        hosts=table.whole("hosts", 1, _WORKERS_MOST, 1),
        processes=table.whole("processes", 1, _WORKERS_MOST, 1),
        where=_where(table),
        selector=table.one_of("selector", list(SELECTORS), "reduced-lottery"),
    )
    table.done()
    return found


def _where(table: Table) -> dict[str, str]:
    try:
        return arguments.filters(table.take("where", {}))
    except InvalidArgument as error:
        raise InvalidArgument(f"{table.path('where')}: {error}") from error


def _check_served(table: Table, scenario: Scenario) -> None:
    """Raises InvalidArgument where nobody takes from a queue, or a filter asks for what no message has."""
    for queue in scenario.queues:
        groups = scenario.of_queue(queue.name)
        if not groups and queue.polls is None:
            raise InvalidArgument(f"{table.path('workers')}: nobody takes from queue {queue.name!r}")
        known = {each.key for each in queue.metadata} | ({queue.exclusive.key} if queue.exclusive else set())
        for group in groups:
            for key in group.where:
                if key not in known:
                    raise InvalidArgument(
                        f"{table.path('workers')}: {group.name!r} asks for {key!r}, which no message of queue"
                        f" {queue.name!r} has; its metadata has {', '.join(sorted(known)) or 'no keys'}"
                    )
