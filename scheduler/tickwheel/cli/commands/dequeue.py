"""`tickwheel dequeue`: lease messages in order of urgency and print them."""

import sys
from datetime import timedelta
from typing import Annotated

import typer

from tickwheel import Forbidden, InvalidArgument, Message, Queue, QueueNotFound
from tickwheel.cli.arguments import Name
from tickwheel.cli.command import command
from tickwheel.cli.exit_codes import CommandError
from tickwheel.cli.output import format_moment, format_pairs, format_payload, payload_fields, print_json, print_status
from tickwheel.cli.parameter_types import option_parser, pairs, parse_duration
from tickwheel.cli.target import Target
from tickwheel.client.exit_codes import ExitCode

# An event process that this command starts needs less than this time until it has promoted the overdue messages.
_CATCH_UP = timedelta(seconds=2)


@command(
    "dequeue",
    "tickwheel dequeue orders --wait 20s --worker $(hostname)",
    "tickwheel dequeue encode --limit 10 --where gpu=a100 --json",
    "order=$(tickwheel dequeue orders --raw --complete)",
    "tickwheel dequeue orders --limit 100 --json | tee batch.jsonl | tickwheel complete orders -",
)
def dequeue(
    target: Target,
    queue: Name,
    limit: Annotated[int, typer.Option(help="Maximum number of messages, 1 to 1000.")] = 1,
    where: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only messages with this pair; may be repeated.")
    ] = None,
    wait: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="Maximum wait for the first message. Default: no wait; 2s with an embedded server, which may need this"
            " time to make overdue messages deliverable.",
        ),
    ] = None,
    lease: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="Duration of the lease. Default: the queue's.",
        ),
    ] = None,
    worker: Annotated[str | None, typer.Option(help="Name of this worker, for `explain` and events.")] = None,
    complete: Annotated[bool, typer.Option("--complete", help="Complete each message after printing it.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print only the payloads, each followed by a line break.")] = False,
) -> None:
    """Lease messages, most urgent first, and print them.

    A token is printed with each message. Pass the token to the commands complete, fail, release and extend. With
    --json, the output has one line for each message. If there is nothing to deliver, or no such queue, the exit code is
    4. With --wait, a line on stderr reports at once that there is no such queue. The command then continues to wait,
    because a message may create the queue.
    """
    if raw and target.json:
        raise InvalidArgument("--raw and --json are different output formats: use one")
    if raw and not complete:
        raise InvalidArgument("--raw does not print tokens, so it needs --complete")
    with target.open(drive=True) as tickwheel:
        handle = tickwheel.queue(queue)
        if wait:
            _report_if_missing(handle)
        elif wait is None and target.url is None:
            wait = _CATCH_UP
        messages = handle.dequeue(limit, where=pairs(where or ()) or None, lease=lease, wait=wait, worker=worker)
        for message in messages:
            _print_message(target, message, raw=raw, complete=complete)
        # A message that could not be printed is not completed. It is delivered again when its lease ends.
        sys.stdout.flush()
        if complete:
            handle.complete_many(messages)
        if not messages:
            # Raises QueueNotFound: a dequeue does not, because the first message of a queue may create the queue.
            handle.config()
    if not messages:
        raise CommandError(f"queue {queue!r} has nothing to deliver", ExitCode.NOT_FOUND)


def _report_if_missing(queue: Queue) -> None:
    """Print on stderr if the queue does not exist: the name may be wrong, and the wait long."""
    try:
        queue.config()
    except QueueNotFound as error:
        print_status(f"{error}: waiting for the queue and its first message")
    except Forbidden:
        # The token may dequeue without the right to read the configuration.
        pass


def _print_message(target: Target, message: Message, *, raw: bool, complete: bool) -> None:
    if raw:
        sys.stdout.buffer.write(message.payload + b"\n")
        return
    value = message.exclusive_value
    if target.json:
        fields = {
            "queue": message.queue,
            "id": message.id,
            "token": message.token.hex(),
            "exclusive_value": value,
            "attempt": message.attempt,
            "version": message.version,
            "due": message.due,
            "deadline": message.deadline,
            "lease_until": message.lease_until,
            "metadata": message.metadata,
        }
        print_json(fields | payload_fields(message.payload))
        return
    rows: list[tuple[str, object]] = [
        ("  attempt", message.attempt),
        ("  due", format_moment(message.due)),
        ("  deadline", format_moment(message.deadline) if message.deadline != message.due else ""),
        ("  metadata", format_pairs(message.metadata)),
        ("  payload", format_payload(message.payload)),
    ]
    if not complete:
        rows += [
            ("  exclusive value", value),
            ("  token", message.token.hex()),
            ("  lease until", format_moment(message.lease_until)),
        ]
    # Imported here, because its library takes 40 ms to import.
    from tickwheel.cli.tables import print_fields

    print_fields(rows, title=message.id)
