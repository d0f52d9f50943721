"""Arguments and options that name a queue, a message or a lease."""

from typing import Annotated

import typer

from tickwheel.cli.completion import complete_queue

Name = Annotated[
    str,
    typer.Argument(help="The queue's name.", metavar="QUEUE", show_default=False, autocompletion=complete_queue),
]
OptionalName = Annotated[
    str | None,
    typer.Argument(help="The queue's name.", metavar="QUEUE", show_default=False, autocompletion=complete_queue),
]
Id = Annotated[str, typer.Argument(help="The message's id.", metavar="ID", show_default=False)]
ExclusiveValue = Annotated[
    str | None,
    typer.Option("--exclusive-value", metavar="VALUE", help="The value of the queue's exclusive key in the message."),
]
Token = Annotated[str | None, typer.Option("--token", metavar="HEX", help="The lease's token, as dequeue printed it.")]
