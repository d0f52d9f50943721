"""`tickwheel enqueue`: add one message from the command line, or many from JSON lines."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from tickwheel import InvalidArgument, NewMessage
from tickwheel.cli.arguments import Name
from tickwheel.cli.command import command
from tickwheel.cli.enqueue_file import enqueue_file, print_result
from tickwheel.cli.parameter_types import deadline as parse_deadline, moment, option_parser, pairs, parse_duration
from tickwheel.cli.standard_streams import standard_input
from tickwheel.cli.target import Target
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
_Deadline = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|DURATION",
        help="The earliest deadline is delivered first. A duration counts from now; -10d is ten days ago.",
    ),
]


@command(
    "enqueue",
    "tickwheel enqueue orders 'order 17' --delay 15m --meta customer=42",
    "tickwheel enqueue reminders 'standup' --due 2026-05-18T09:25:00+02:00",
    "generate-report | tickwheel enqueue reports -",
    "tickwheel enqueue orders --from orders.jsonl",
    "zcat orders.jsonl.gz | tickwheel enqueue orders --from - --json | jq -r .id",
)
def enqueue(
    target: Target,
    queue: Name,
    payload: Annotated[str, typer.Argument(help="The payload; - reads it from standard input.")] = "",
    id: _Id = None,
    delay: Annotated[
        timedelta | None,
        typer.Option(
            parser=option_parser(parse_duration), metavar="DURATION", help="Deliver after this time: 15m, 30s, 2h30m."
        ),
    ] = None,
    due: _Due = None,
    deadline: _Deadline = None,
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
            " payload or payload_base64, id, delay, due, deadline, metadata, lease, max_attempts.",
        ),
    ] = None,
) -> None:
    """Add a message, or with --from, many messages.

    The output is the id. With --json, it has the fields id, state and created. created is false if the same message
    existed before.
    """
    if source is not None:
        if payload or any(value is not None for value in (id, delay, due, deadline, meta, lease, max_attempts)):
            raise InvalidArgument(
                "with --from, the file contains the payload and the fields of each message: omit the argument PAYLOAD"
                " and the options of a single message"
            )
        with target.open() as tickwheel:
            enqueue_file(tickwheel.queue(queue), source, json=target.json)
        return
    new = NewMessage(
        standard_input().read() if payload == "-" else payload.encode(errors="surrogateescape"),
        id,
        delay,
        due,
        None if deadline is None else parse_deadline(deadline),
        pairs(meta) if meta else None,
        lease,
        max_attempts,
    )
    with target.open() as tickwheel:
        [result] = tickwheel.queue(queue).enqueue_many([new])
    if target.json:
        print_result(result)
    else:
        print(escape_unprintable(result.id))
