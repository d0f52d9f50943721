"""The program: all commands and groups of commands; `main`."""

import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import tickwheel
from tickwheel.cli.command import store_options, top_signature
from tickwheel.cli.command_help import CommandGroup
from tickwheel.cli.exit_codes import EXIT_CODES_HELP, CommandError
from tickwheel.cli.lazy_commands import LazyCommands
from tickwheel.cli.output import is_json, print_failure, use_json
from tickwheel.cli.parameter_values import convert_quickly
from tickwheel.cli.standard_streams import prepare_streams
from tickwheel.client.exit_codes import ExitCode
from tickwheel.runtime.log_format import print_uncaught
from tickwheel.runtime.text_escape import escape_unprintable

# The base class of the parser's errors, of which typer exports only this subclass.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]

_HELP = f"""A delay scheduler and priority queue: run work later, most urgent first, and never twice at the same time.

Without --url, commands use an embedded server, which is started and stopped as needed.

\b
Examples:
  tickwheel demo
  tickwheel enqueue orders 'order 17' --delay 15m
  tickwheel dequeue orders --wait 20m
  tickwheel --url redis://localhost:6379 counts

{EXIT_CODES_HELP}"""

# The commands and the groups of commands that each panel of the help shows, in the order of the help.
_PANELS = {
    "Messages": (
        "enqueue",
        "dequeue",
        "complete",
        "fail",
        "release",
        "extend",
        "cancel",
        "reschedule",
        "redrive",
        "import",
    ),
    "Inspection": ("get", "messages", "explain", "counts", "depth", "forecast", "schedules", "doctor"),
    "Processes": ("demo", "events", "serve", "dev", "token", "worker", "acl", "load", "bench", "shards"),
    "Queues": ("queue", "namespace", "setting", "route"),
}


def _print_version(value: bool) -> None:
    if value:
        print(f"tickwheel {tickwheel.__version__}")
        raise typer.Exit


def _top(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    **options: Any,
) -> None:
    store_options(context, **options)


_top.__signature__ = top_signature(  # type: ignore[attr-defined]  # a function may have this attribute
    inspect.signature(_top).parameters["version"].replace(kind=inspect.Parameter.KEYWORD_ONLY)
)


# Commands that a user may expect from other systems, and what to use instead.
_OTHER_NAMES = {
    "beat": "`tickwheel schedules` lists recurring tasks, and workers fire them",
    "check": "`tickwheel doctor` checks a namespace",
    "checkup": "`tickwheel doctor` checks a namespace",
    "inspect": "use `tickwheel get`, `messages`, `explain` or `counts`",
    "jobs": "use `tickwheel messages`",
    "list": "use `tickwheel queue list` or `tickwheel messages`",
    "metrics": "`tickwheel events`, `serve` and `worker` export metrics with the option --metrics",
    "namespaces": "the server has no list of namespaces: the page docs/operations.md has a command that finds them",
    "pause": "use `tickwheel queue block`",
    "purge": "use `tickwheel queue purge`",
    "queues": "use `tickwheel queue list`",
    "resume": "use `tickwheel queue unblock`",
    "retry": "use `tickwheel redrive`",
    "revoke": "use `tickwheel cancel`",
    "routes": "use `tickwheel route list`",
    "settings": "use `tickwheel setting list`",
    "stats": "use `tickwheel counts`",
    "status": "use `tickwheel counts`, `shards` or `doctor`",
    "version": "use `tickwheel --version`",
    "workers": "the lease of a running message names its worker: use `tickwheel messages QUEUE --state running`",
}


class _Program(TyperGroup):
    """The program, whose parser quotes arguments in its errors without control characters."""

    def __init__(self, *, commands: Any, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands(_PANELS)
        self.commands.update(commands)

    def get_params(self, ctx: Any) -> Any:
        return convert_quickly(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except _UsageError as error:
            if args and args[0] in _OTHER_NAMES:
                error.message = (  # type: ignore[attr-defined]  # every usage error has it
                    f"No such command {args[0]!r}: {_OTHER_NAMES[args[0]]}."
                )
            raise

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _printable_errors():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _printable_errors():
            return super().invoke(ctx)


@contextmanager
def _printable_errors() -> Iterator[None]:
    """Escape the text of the parser's errors. JSON documents have an escape of their own."""
    try:
        yield
    except _UsageError as error:
        message = getattr(error, "message", None)
        if message and not is_json():
            error.message = escape_unprintable(message)  # type: ignore[attr-defined]  # every usage error has it
        raise


app = CommandGroup(
    name="tickwheel", cls=_Program, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False
)
app.callback(help=_HELP)(_top)


def main() -> None:
    """Run the console script `tickwheel`."""
    prepare_streams()
    # A command reports an error in one line of its own. Only long-running commands print the log.
    logging.getLogger("tickwheel").addHandler(logging.NullHandler())
    words = sys.argv[1:]
    json = "--json" in words[: words.index("--") if "--" in words else None]
    print_uncaught(json=json)
    # `app()` would replace the hook for uncaught exceptions, and print them as they are.
    program = typer.main.get_command(app)
    if json:
        _run_with_json_errors(program)
    else:
        program()


def _run_with_json_errors(program: Callable[..., object]) -> None:
    """Run the command of the command line. An error of the parser is a JSON document, like all other errors."""
    use_json(True)
    try:
        sys.exit(program(standalone_mode=False))  # type: ignore[arg-type]  # a command returns its exit code
    except _UsageError as error:
        print_failure(CommandError(error.format_message()))  # type: ignore[attr-defined]  # every usage error has it
        sys.exit(ExitCode.USAGE)
    except typer.Abort:
        print_failure(CommandError("aborted"))
        sys.exit(ExitCode.REFUSED)
