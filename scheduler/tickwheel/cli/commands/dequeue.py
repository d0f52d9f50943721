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
from tickwheel.cli.exit_codes import ExitCode, Refusal
from tickwheel.cli.output import (
    moment,
    pairs_text,
    payload_fields,
    payload_text,
    print_fields,
    print_json,
    printable,
)
from tickwheel.cli.parameter_types import duration, option, pairs
from tickwheel.cli.parameter_types import token as parse_token
from tickwheel.cli.standard_streams import standard_input
from tickwheel.cli.target import Place

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
    place: Place,
    queue: Name,
    limit: Annotated[int, typer.Option(help="Messages at most, 1 to 1000.")] = 1,
    where: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only messages with this pair; may be repeated.")
    ] = None,
    wait: Annotated[
        timedelta | None,
        typer.Option(
            parser=option(duration),
            metavar="DURATION",
            help="Sleep so long for the first one. Default: not at all; 1s with an embedded server, whose wheel has to"
            " catch up first where nobody drove it.",
        ),
    ] = None,
    lease: Annotated[
        timedelta | None,
        typer.Option(
            parser=option(duration), metavar="DURATION", help="How long they are yours; default: the queue's."
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
    if raw and place.json:
        raise InvalidArgument("--raw and --json are two ways to print: give one")
    if raw and not complete:
        raise InvalidArgument("--raw does not print tokens, so it needs --complete")
    if wait is None and place.url is None:
        wait = _CATCH_UP
    with place.open(drives=True) as tickwheel:
        asked = tickwheel.queue(queue)
        found = asked.dequeue(limit, where=pairs(where or ()) or None, lease=lease, wait=wait, worker=worker)
        for message in found:
            _print_message(place, message, raw=raw, complete=complete)
        # What could not be printed is not completed: it comes again.
        sys.stdout.flush()
        if complete:
            asked.complete_many(found)
    if not found:
        raise Refusal(f"queue {queue!r} has nothing to deliver", ExitCode.NOT_FOUND)


@command(
    commands,
    "complete",
    "tickwheel complete orders order-17 --token 5f3a... --exclusive-value 42 --result 'card 4711'",
    "tickwheel dequeue orders --limit 100 --json | tickwheel complete orders -",
    panel="Messages",
)
def complete(
    place: Place,
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

    _finish(place, queue, (id, token, exclusive_value), "completed", complete_all)


@command(
    commands,
    "fail",
    "tickwheel fail orders order-17 --token 5f3a... --error 'card declined' --retry-in 40s",
    "tickwheel fail orders order-17 --token 5f3a... --error 'no such card' --final",
    panel="Messages",
)
def fail(
    place: Place,
    queue: Name,
    id: Id,
    token: Token = None,
    exclusive_value: ExclusiveValue = None,
    error: Annotated[str | None, typer.Option(help="Why; kept with the message, up to 1 KiB.")] = None,
    retry_in: Annotated[
        timedelta | None,
        typer.Option(parser=option(duration), metavar="DURATION", help="Default: the queue's back-off."),
    ] = None,
    final: Annotated[bool, typer.Option("--final", help="Errored at once, whatever attempts are left.")] = False,
) -> None:
    """Give a message back, and print its new state.

    It is tried again after the back-off, or is errored where its attempts are used up or the failure is final.
    """
    with place.open() as tickwheel:
        state = _one(tickwheel.queue(queue), id, token, exclusive_value).fail(error, retry_in, final=final)
    _print_state(place, id, state)


@command(
    commands,
    "release",
    "tickwheel release orders order-17 --token 5f3a... --exclusive-value 42",
    "tickwheel release orders - < batch.jsonl",
    panel="Messages",
)
def release(
    place: Place,
    queue: Name,
    id: Annotated[str, typer.Argument(help="The message's id; - reads what dequeue --json printed.", metavar="ID|-")],
    token: Token = None,
    exclusive_value: ExclusiveValue = None,
) -> None:
    """Give a message back as if it had not been delivered.

    It is pending at once, and the attempt is not counted.
    """
    _finish(place, queue, (id, token, exclusive_value), "released", Queue.release_many)


@command(commands, "extend", "tickwheel extend orders order-17 5m --token 5f3a...", panel="Messages")
def extend(
    place: Place,
    queue: Name,
    id: Id,
    by: Annotated[timedelta, typer.Argument(parser=option(duration), metavar="DURATION", help="How long from now.")],
    token: Token = None,
    exclusive_value: ExclusiveValue = None,
) -> None:
    """Hold a lease longer, and print when it ends.

    It ends so long from now, if that is later than before.
    """
    with place.open() as tickwheel:
        until = _one(tickwheel.queue(queue), id, token, exclusive_value).extend(by)
    if place.json:
        print_json({"id": id, "state": "running", "lease_until": until})
    else:
        print(f"{printable(id)} is yours until {moment(until)}")


def _finish(
    place: Place,
    name: str,
    given: tuple[str, str | None, str | None],
    what: str,
    call: Callable[[Queue, list[Message]], None],
) -> None:
    """Do it with the messages meant, print each, and refuse in the end where a lease is lost."""
    with place.open() as tickwheel:
        queue = tickwheel.queue(name)
        found, lost = _leased(queue, *given)
        try:
            call(queue, found)
        except LeaseLost as error:
            lost += [str(error)]
            found = [message for message in found if message not in error.lost]
    for message in found:
        _print_state(place, message.id, "pending" if what == "released" else what)
    if lost:
        raise Refusal(lost[0] + (f"; {len(found)} others were {what}" if found else ""))


def _one(queue: Queue, id: str, token: str | None, exclusive_value: str | None) -> Message:
    if token is None:
        raise InvalidArgument("--token is missing: it is what dequeue printed with the message")
    return queue.leased(id, parse_token(token), exclusive_value)


def _leased(queue: Queue, id: str, token: str | None, exclusive_value: str | None) -> tuple[list[Message], list[str]]:
    """The messages meant, and a sentence for each of which the lease is lost."""
    if id != "-":
        return [_one(queue, id, token, exclusive_value)], []
    if token is not None or exclusive_value is not None:
        raise InvalidArgument("with -, tokens and exclusive values are those of the lines: give nothing else")
    found: list[Message] = []
    lost: list[str] = []
    for given in _printed():
        try:
            found.append(_one(queue, *given))
        except LeaseLost as error:
            lost.append(str(error))
    return found, lost


def _printed() -> Iterator[tuple[str, str, str | None]]:
    """Id, token and exclusive value of each line that `dequeue --json` printed."""
    for number, line in enumerate(standard_input(), 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            yield given["id"], given["token"], given.get("exclusive_value")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Refusal(
                f"line {number} of standard input is not what dequeue --json prints: an object with id, token and, of"
                " an exclusive queue, exclusive_value; nothing was done for any line: put it right and give all again"
            ) from error


def _print_state(place: Place, id: str, state: str) -> None:
    if place.json:
        print_json({"id": id, "state": state})
    else:
        print(f"{printable(id)} {state}")


def _print_message(place: Place, message: Message, *, raw: bool, complete: bool) -> None:
    if raw:
        sys.stdout.buffer.write(message.payload + b"\n")
        return
    value = message.exclusive_value
    if place.json:
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
    shown: list[tuple[str, object]] = [
        ("  attempt", message.attempt),
        ("  due", moment(message.due)),
        ("  deadline", moment(message.deadline) if message.deadline != message.due else ""),
        ("  metadata", pairs_text(message.metadata)),
        ("  payload", payload_text(message.payload)),
    ]
    if not complete:
        shown += [
            ("  exclusive value", value),
            ("  token", message.token.hex()),
            ("  lease until", moment(message.lease_until)),
        ]
    print_fields(shown, title=message.id)
