"""`tickwheel enqueue`: add one message from the command line, or many from JSON lines."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from tickwheel import InvalidArgument, NewMessage
from tickwheel.cli.arguments import Name
from tickwheel.cli.command import command
from tickwheel.cli.driver_warning import warn_if_undriven
from tickwheel.cli.enqueue_file import enqueue_file, print_result
from tickwheel.cli.parameter_types import (
    deadline as parse_deadline,
    delay as parse_delay,
    moment,
    option_parser,
    pairs,
    parse_duration,
)
from tickwheel.cli.standard_streams import standard_input
from tickwheel.cli.target import Target
from tickwheel.model.json_payload import encode_payload
from tickwheel.model.validation import preview
from tickwheel.runtime.foreign_data import decode_json
from tickwheel.runtime.text_escape import escape_unprintable

_Id = Annotated[
    str | None,
    typer.Option(help="Id. If a message with this id and content exists, nothing changes. Default: a new id."),
]
_Due = Annotated[
    datetime | None,
    typer.Option(
        parser=option_parser(moment),
        metavar="TIME",
        help="Deliver at this ISO 8601 time; without an offset, it is local time.",
    ),
]
_PayloadJson = Annotated[
    bool, typer.Option("--payload-json", help="The payload is JSON: check it, and store it in compact form.")
]
_Priority = Annotated[
    int | None, typer.Option(help="Priority from 0 to 9; 9 is the most urgent. Not possible with --deadline.")
]
_Deadline = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|DURATION",
        help="The earliest deadline is delivered first. A duration counts from now; -10d is ten days ago.",
    ),
]
_Delay = Annotated[
    timedelta | None,
    typer.Option(
        parser=option_parser(parse_delay),
        metavar="DURATION",
        help="Deliver after this time: 15m, 30s, 2h30m, up to 1825d (5 years).",
    ),
]


@command(
    "enqueue",
    "tickwheel enqueue orders 'order 17' --delay 15m --meta customer=42",
    "tickwheel enqueue reminders 'standup' --due 2026-05-18T09:25:00+02:00",
    "tickwheel enqueue orders '{\"order\": 17}' --payload-json --priority 5",
    "generate-report | tickwheel enqueue reports -",
    "tickwheel enqueue orders --from orders.jsonl",
    "zcat orders.jsonl.gz | tickwheel enqueue orders --from - --json | jq -r .id",
)
def enqueue(
    target: Target,
    queue: Name,
    payload: Annotated[str, typer.Argument(help="The payload; - reads it from standard input.")] = "",
    payload_json: _PayloadJson = False,
    id: _Id = None,
    delay: _Delay = None,
    due: _Due = None,
    deadline: _Deadline = None,
    priority: _Priority = None,
    meta: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Metadata; may be repeated.")] = None,
    lease: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration),
            metavar="DURATION",
            help="Duration of the lease. Default: the queue's.",
        ),
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Maximum number of attempts. Default: the queue's.")] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Add the messages of a file with one JSON object on each line; - is standard input. Fields:"
            " payload, payload_base64 or json, id, delay, due, deadline or priority, metadata, lease, max_attempts.",
        ),
    ] = None,
) -> None:
    """Add a message, or with --from, many messages.

    The output is the id. With --json, it has the fields id, state and created (false if the message existed before). If
    the message is not due yet, and it is known that no event process drives the namespace, stderr has a warning. The
    check of `tickwheel doctor` is more thorough.
    """
    if source is not None:
        options = (id, delay, due, deadline, priority, meta, lease, max_attempts)
        if payload or payload_json or any(value is not None for value in options):
            raise InvalidArgument(
                "with --from, the file contains the payload and the fields of each message: omit the argument PAYLOAD"
                " and the options of a single message"
            )
        with target.open() as tickwheel:
            enqueue_file(tickwheel.queue(queue), source, json=target.json)
        return
    content = standard_input().read() if payload == "-" else payload.encode(errors="surrogateescape")
    new = NewMessage(
        _compact_json(content) if payload_json else content,
        id,
        delay,
        due,
        None if deadline is None else parse_deadline(deadline),
        pairs(meta) if meta else None,
        lease,
        max_attempts,
        priority,
    )
    with target.open() as tickwheel:
        [result] = tickwheel.queue(queue).enqueue_many([new])
        if result.state == "invisible":
            warn_if_undriven(tickwheel)
    if target.json:
        print_result(result)
    else:
        print(escape_unprintable(result.id))


def _compact_json(text: bytes) -> bytes:
    try:
        value = decode_json(text)
    except ValueError as error:
        raise InvalidArgument(f"with --payload-json, the payload must be JSON, not {preview(text)}: {error}") from error
    return encode_payload(value)
