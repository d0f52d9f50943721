"""What a worker does, from a shell: `tickwheel dequeue`, `complete`, `fail`, `release`, `extend`."""

import json
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Annotated

import typer

from tickwheel import InvalidArgument, LeaseLost, Message, Queue
from tickwheel.cli.command import command
from tickwheel.cli.commands.queue import Name
from tickwheel.cli.exit_codes import CommandError, ExitCode
from tickwheel.cli.output import (
    escape_unprintable,
    format_moment,
    format_pairs,
    format_payload,
    payload_fields,
    print_fields,
    print_json,
)
from tickwheel.cli.parameter_types import option_parser, pairs, parse_duration
from tickwheel.cli.parameter_types import token as parse_token
from tickwheel.cli.standard_streams import standard_input
from tickwheel.cli.target import Target

commands = typer.Typer()
Id = Annotated[str, typer.Argument(help="The message's id.", metavar="ID", show_default=False)]
ExclusiveValue = Annotated[
    str | None,
    typer.Option("--exclusive-value", metavar="VALUE", help="The message's value of the queue's exclusive key."),
]
Token = Annotated[str | None, typer.Option("--token", metavar="HEX", help="The lease's token, as dequeue printed it.")]
# An event process that starts with this command has caught up by then.
_CATCH_UP = timedelta(seconds=2)


@command(
    commands,
    "dequeue",
    "tickwheel dequeue orders --wait 20s --worker $(hostname)",
    "tickwheel dequeue encode --limit 10 --where gpu=a100 --json",
    "order=$(tickwheel dequeue orders --raw --complete)",
    "tickwheel dequeue orders --limit 100 --json | tee batch.jsonl | tickwheel complete orders -",
    panel="Messages",
)
def dequeue(
    target: Target,
    queue: Name,
    limit: Annotated[int, typer.Option(help="Messages at most, 1 to 1000.")] = 1,
    where: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only messages with this pair; may be repeated.")
    ] = None,
    wait: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="Sleep so long for the first one. Default: not at all; 1s with an embedded server, whose wheel has to"
            " catch up first where nobody drove it.",
        ),
    ] = None,
    lease: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="How long they are yours; default: the queue's.",
        ),
    ] = None,
    worker: Annotated[str | None, typer.Option(help="Your name, for `explain` and events.")] = None,
    complete: Annotated[bool, typer.Option("--complete", help="Complete each once it is printed.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the payloads, each with a line end, and nothing else.")
    ] = False,
) -> None:
    """Lease the most urgent messages and print them.

    The token printed with each is what complete, fail and extend ask for. With --json a line each. Exit code 4 where
    there is nothing to deliver.
    """
    if raw and target.json:
        raise InvalidArgument("--raw and --json are two ways to print: give one")
    if raw and not complete:
        raise InvalidArgument("--raw does not print tokens, so it needs --complete")
    if wait is None and target.url is None:
        wait = _CATCH_UP
    with target.open(drive=True) as tickwheel:
        handle = tickwheel.queue(queue)
        messages = handle.dequeue(limit, where=pairs(where or ()) or None, lease=lease, wait=wait, worker=worker)
        for message in messages:
            _print_message(target, message, raw=raw, complete=complete)
        # What could not be printed is not completed: it comes again.
        sys.stdout.flush()
        if complete:
            handle.complete_many(messages)
    if not messages:
        raise CommandError(f"queue {queue!r} has nothing to deliver", ExitCode.NOT_FOUND)


@command(
    commands,
    "complete",
    "tickwheel complete orders order-17 --token 5f3a... --exclusive-value 42 --result 'card 4711'",
    "tickwheel dequeue orders --limit 100 --json | tickwheel complete orders -",
    panel="Messages",
)
def complete(
    target: Target,
    queue: Name,
    id: Annotated[str, typer.Argument(help="The message's id; - reads what dequeue --json printed.", metavar="ID|-")],
    token: Token = None,
    exclusive_value: ExclusiveValue = None,
    result: Annotated[
        str | None, typer.Option(help="What came of it, up to 1 KiB; kept with the message. With -, of each.")
    ] = None,
) -> None:
    """Complete a message that was dequeued. Again is fine."""

    def complete_all(queue: Queue, messages: list[Message]) -> None:
        queue.complete_many(messages, None if result is None else [result] * len(messages))

    _settle(target, queue, (id, token, exclusive_value), "completed", complete_all)


@command(
    commands,
    "fail",
    "tickwheel fail orders order-17 --token 5f3a... --error 'card declined' --retry-in 40s",
    "tickwheel fail orders order-17 --token 5f3a... --error 'no such card' --final",
    panel="Messages",
)
def fail(
    target: Target,
    queue: Name,
    id: Id,
    token: Token = None,
    exclusive_value: ExclusiveValue = None,
    error: Annotated[str | None, typer.Option(help="Why; kept with the message, up to 1 KiB.")] = None,
    retry_in: Annotated[
        timedelta | None,
        typer.Option(parser=option_parser(parse_duration), metavar="DURATION", help="Default: the queue's back-off."),
    ] = None,
    final: Annotated[bool, typer.Option("--final", help="Errored at once, whatever attempts are left.")] = False,
) -> None:
    """Give a message back, and print its new state.

    It is tried again after the back-off, or is errored where its attempts are used up or the failure is final.
    """
    with target.open() as tickwheel:
        state = _resume_lease(tickwheel.queue(queue), id, token, exclusive_value).fail(error, retry_in, final=final)
    _print_state(target, id, state)


@command(
    commands,
    "release",
    "tickwheel release orders order-17 --token 5f3a... --exclusive-value 42",
    "tickwheel release orders - < batch.jsonl",
    panel="Messages",
)
def release(
    target: Target,
    queue: Name,
    id: Annotated[str, typer.Argument(help="The message's id; - reads what dequeue --json printed.", metavar="ID|-")],
    token: Token = None,
    exclusive_value: ExclusiveValue = None,
) -> None:
    """Give a message back as if it had not been delivered.

    It is pending at once, and the attempt is not counted.
    """
    _settle(target, queue, (id, token, exclusive_value), "released", Queue.release_many)


@command(commands, "extend", "tickwheel extend orders order-17 5m --token 5f3a...", panel="Messages")
def extend(
    target: Target,
    queue: Name,
    id: Id,
    by: Annotated[
        timedelta, typer.Argument(parser=option_parser(parse_duration), metavar="DURATION", help="How long from now.")
    ],
    token: Token = None,
    exclusive_value: ExclusiveValue = None,
) -> None:
    """Hold a lease longer, and print when it ends.

    It ends so long from now, if that is later than before.
    """
    with target.open() as tickwheel:
        until = _resume_lease(tickwheel.queue(queue), id, token, exclusive_value).extend(by)
    if target.json:
        print_json({"id": id, "state": "running", "lease_until": until})
    else:
        print(f"{escape_unprintable(id)} is yours until {format_moment(until)}")


def _settle(
    target: Target,
    name: str,
    lease_args: tuple[str, str | None, str | None],
    outcome: str,
    call: Callable[[Queue, list[Message]], None],
) -> None:
    """Do it with the messages meant, print each, and refuse in the end where a lease is lost."""
    with target.open() as tickwheel:
        queue = tickwheel.queue(name)
        messages, lost = _resume_leases(queue, *lease_args)
        try:
            call(queue, messages)
        except LeaseLost as error:
            lost += [str(error)]
            messages = [message for message in messages if message not in error.lost]
    for message in messages:
        _print_state(target, message.id, "pending" if outcome == "released" else outcome)
    if lost:
        raise CommandError(lost[0] + (f"; {len(messages)} others were {outcome}" if messages else ""))


def _resume_lease(queue: Queue, id: str, token: str | None, exclusive_value: str | None) -> Message:
    if token is None:
        raise InvalidArgument("--token is missing: it is what dequeue printed with the message")
    return queue.leased(id, parse_token(token), exclusive_value)


def _resume_leases(
    queue: Queue, id: str, token: str | None, exclusive_value: str | None
) -> tuple[list[Message], list[str]]:
    """The messages meant, and a sentence for each of which the lease is lost."""
    if id != "-":
        return [_resume_lease(queue, id, token, exclusive_value)], []
    if token is not None or exclusive_value is not None:
        raise InvalidArgument("with -, tokens and exclusive values are those of the lines: give nothing else")
    messages: list[Message] = []
    lost: list[str] = []
    for lease_args in _read_leases():
        try:
            messages.append(_resume_lease(queue, *lease_args))
        except LeaseLost as error:
            lost.append(str(error))
    return messages, lost


def _read_leases() -> Iterator[tuple[str, str, str | None]]:
    """Id, token and exclusive value of each line that `dequeue --json` printed."""
    for number, line in enumerate(standard_input(), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            yield fields["id"], fields["token"], fields.get("exclusive_value")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CommandError(
                f"line {number} of standard input is not what dequeue --json prints: an object with id, token and, of"
                " an exclusive queue, exclusive_value; nothing was done for any line: put it right and give all again"
            ) from error


def _print_state(target: Target, id: str, state: str) -> None:
    if target.json:
        print_json({"id": id, "state": state})
    else:
        print(f"{escape_unprintable(id)} {state}")


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
    print_fields(rows, title=message.id)
