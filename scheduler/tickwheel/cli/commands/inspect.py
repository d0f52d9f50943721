"""Commands that only read: `tickwheel get`, `messages`, `explain`, `counts`, `depth`, `forecast`."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated

import typer

from tickwheel import Lateness, MessageView, Queue, Tickwheel
from tickwheel.cli.arguments import ExclusiveValue, Id, Name
from tickwheel.cli.command import command
from tickwheel.cli.completion import complete_queue, complete_state
from tickwheel.cli.driver_warning import OverdueCount, warn_if_undriven
from tickwheel.cli.exit_codes import CommandError
from tickwheel.cli.message_tables import format_relative, format_state, format_time
from tickwheel.cli.output import (
    format_lateness,
    format_moment,
    format_pairs,
    format_payload,
    lateness_fields,
    payload_fields,
    print_json,
    print_status,
    print_warnings,
)
from tickwheel.cli.parameter_types import pairs
from tickwheel.cli.tables import print_fields, print_table
from tickwheel.cli.target import Target
from tickwheel.cli.watch_option import Watch, repeat
from tickwheel.client.exit_codes import ExitCode

_WITHHELD = "withheld, like the result: the token needs the role consume or admin on this queue"
_UNTIL = {"invisible": "invisible until", "running": "leased until"}


@command("get", "tickwheel get orders order-17")
def get(target: Target, queue: Name, id: Id, exclusive_value: ExclusiveValue = None) -> None:
    """Show a message and its state."""
    with target.open() as tickwheel:
        view = tickwheel.queue(queue).get(id, exclusive_value)
    if target.json:
        _print_view(view)
        return
    print_fields(
        [
            ("  state", format_state(view.state)),
            ("  task", _task_of(view)),
            (f"  {_UNTIL.get(view.state, 'kept until')}", format_moment(view.until) if view.until else ""),
            ("  due", f"{format_moment(view.due)} ({format_relative(view.due, datetime.now(UTC))})"),
            ("  deadline", format_moment(view.deadline) if view.deadline != view.due else ""),
            ("  attempt", view.attempt or ""),
            ("  worker", view.worker),
            ("  error", view.error),
            ("  result", view.result),
            ("  exclusive value", view.exclusive_value),
            ("  metadata", format_pairs(view.metadata)),
            ("  payload", _WITHHELD if view.payload_withheld else format_payload(view.payload) if view.payload else ""),
            ("  version", view.version),
        ],
        title=view.id,
    )


@command(
    "messages",
    "tickwheel messages orders --state errored",
    "tickwheel messages orders --limit 20 --json",
    "tickwheel messages orders --state errored --json | jq -r .id | xargs -r -n 1 tickwheel redrive orders",
)
def messages(
    target: Target,
    queue: Name,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            help="A state: invisible, pending, running, completed, cancelled or errored. Default: all states.",
            autocompletion=complete_state,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum number of messages. Default: all.")
    ] = None,
    watch: Watch = None,
) -> None:
    """List the messages of a queue, in no particular order.

    The command reads every message of the namespace, so it is for people and tools, not for workers. A message that
    exists during the whole command is listed, possibly twice. On a terminal, times are relative to now by this host's
    clock. With --json, the output has one line for each message, in the format of `get --json`.
    """
    with target.open() as tickwheel:
        listed = tickwheel.queue(queue)
        repeat(watch, lambda: _print_messages(target, tickwheel, listed, state, limit))


@command("explain", "tickwheel explain orders order-17", "tickwheel explain encode film-3 --exclusive-value project-9")
def explain(target: Target, queue: Name, id: Id, exclusive_value: ExclusiveValue = None) -> None:
    """Explain why a message is not running, and when it will run."""
    with target.open() as tickwheel:
        explanation = tickwheel.queue(queue).explain(id, exclusive_value)
    if target.json:
        print_json(asdict(explanation))
    else:
        print_fields([(explanation.state, explanation.reason)])


@command("counts", "tickwheel counts", "tickwheel counts orders --json")
def counts(
    target: Target,
    queue: Annotated[
        str | None,
        typer.Argument(help="One queue. Default: all.", metavar="[QUEUE]", autocompletion=complete_queue),
    ] = None,
    watch: Watch = None,
) -> None:
    """Count messages by state, and show how late they were.

    Lateness is the time from the due time of a message until the message was deliverable. Messages that did not wait on
    the wheel have no lateness. The columns "late p50" and "late p99" show estimates of the median and of the 99th
    percentile. They are interpolated within buckets whose bounds are powers of two in ms, and are within a factor of
    two of the exact values. An explicit deadline is missed if the message is delivered after the deadline.
    """
    with target.open() as tickwheel, print_warnings():
        repeat(watch, lambda: _count(target, tickwheel, queue))


@command("depth", "tickwheel depth orders", "tickwheel depth encode --where gpu=a100 --where region=eu")
def depth(
    target: Target,
    queue: Name,
    where: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only messages with this pair; may be repeated.")
    ] = None,
) -> None:
    """Count the messages that wait for a worker."""
    filters = pairs(where or ())
    with target.open() as tickwheel:
        pending = tickwheel.queue(queue).depth(filters or None)
    if target.json:
        print_json({"queue": queue, "where": filters, "pending": pending})
    else:
        print(pending)


@command(
    "forecast",
    "tickwheel forecast reminders --minutes 120",
    "tickwheel forecast reminders --json | jq 'map(.due) | add'",
)
def forecast(
    target: Target, queue: Name, minutes: Annotated[int, typer.Option(help="Number of minutes ahead, 1 to 1440.")] = 60
) -> None:
    """Show how many messages fall due in each of the next minutes, for a queue created with --forecast."""
    with target.open() as tickwheel:
        handle = tickwheel.queue(queue)
        if not handle.config().forecast:
            raise CommandError(
                f"queue {queue!r} keeps no forecast: create it with `tickwheel queue create --forecast`", ExitCode.USAGE
            )
        coming = handle.forecast(minutes)
    if target.json:
        print_json([asdict(minute) for minute in coming])
        return
    maximum = max((minute.due for minute in coming), default=0)
    rows = [
        (f"{minute.start:%Y-%m-%d %H:%M} UTC", minute.due, "▇" * -(-40 * minute.due // maximum))
        for minute in coming
        if minute.due
    ]
    if rows:
        print_table(("minute", "due", ""), rows, right=("due",))
    else:
        print(f"nothing falls due in the next {minutes} minutes")


def _print_messages(target: Target, tickwheel: Tickwheel, queue: Queue, state: str | None, limit: int | None) -> None:
    overdue = OverdueCount()
    views = overdue.observe(islice(queue.messages(state), limit))
    if target.json:
        for view in views:
            _print_view(view)
    else:
        _print_table(queue, views, state)
    overdue.warn(tickwheel)


def _print_table(queue: Queue, views: Iterable[MessageView], state: str | None) -> None:
    rows = [
        {
            "id": view.id,
            "state": format_state(view.state),
            "task": _task_of(view),
            "due": format_time(view.due),
            "attempt": view.attempt,
            "error": view.error,
            "exclusive value": view.exclusive_value,
        }
        for view in views
    ]
    if rows:
        hidden = set() if any(row["task"] for row in rows) else {"task"}
        if queue.config().exclusive_key is None:
            hidden.add("exclusive value")
        columns = [column for column in rows[0] if column not in hidden]
        print_table(columns, ([row[column] for column in columns] for row in rows), right=("attempt",))
    else:
        print_status(f"queue {queue.name!r} has no {f'{state} ' if state else ''}messages")


def _count(target: Target, tickwheel: Tickwheel, queue: str | None) -> None:
    queues = tickwheel.queues() if queue is None else [tickwheel.queue(queue)]
    _print_counts(target, queue, [(item, item.counts(), item.lateness()) for item in queues])
    if queues:
        warn_if_undriven(tickwheel, only_once=True)


def _print_counts(target: Target, queue: str | None, results: Sequence[tuple[Queue, dict[str, int], Lateness]]) -> None:
    if target.json:
        documents = [_counts_document(*item) for item in results]
        print_json(documents if queue is None else documents[0])
        return
    rows = [
        (item.name, *n.values(), *format_lateness(late), f"{sum(late.missed.values()):,} of {late.deadlines:,}")
        for item, n, late in results
    ]
    if rows:
        states = tuple(results[0][1])
        columns = ("queue", *states, "late p50", "late p99", "deadlines missed")
        print_table(columns, rows, right=columns[1:])
    else:
        print_status("no queues")


def _task_of(view: MessageView) -> str:
    """Return the name of the task that the message calls, or "" if it is no call or its payload is withheld."""
    # Imported here, because the package of tasks takes 40 ms to import, and most of these commands print no task.
    from tickwheel.tasks.signature import UNKNOWN, called_task

    name = called_task(view.payload, ())
    return "" if name == UNKNOWN else name


def _print_view(view: MessageView) -> None:
    fields = asdict(view)
    del fields["payload"]
    print_json(fields | payload_fields(view.payload))


def _counts_document(queue: Queue, states: dict[str, int], late: Lateness) -> dict[str, object]:
    return {
        "queue": queue.name,
        **states,
        "lateness_ms": lateness_fields(late),
        "deadlines": {"given": late.deadlines, "missed": sum(late.missed.values()), "buckets": late.missed},
    }
