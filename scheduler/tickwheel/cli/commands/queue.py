"""`tickwheel queue create|list|show|block|unblock|purge|delete`."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from tickwheel import DataLoss, InvalidArgument, Queue, QueueConfigConflict, Tickwheel
from tickwheel.cli.arguments import Name, OptionalName
from tickwheel.cli.command import command
from tickwheel.cli.command_help import CommandGroup
from tickwheel.cli.completion import complete_purged_state
from tickwheel.cli.confirmation import confirm
from tickwheel.cli.driver_warning import warn_if_undriven
from tickwheel.cli.exit_codes import CommandError
from tickwheel.cli.output import format_count, print_json, print_status, print_warnings
from tickwheel.cli.parameter_types import format_duration, option_parser, parse_duration
from tickwheel.cli.removal_progress import remove_all
from tickwheel.cli.tables import print_fields, print_table
from tickwheel.cli.target import AppTarget, Target, load_app_target
from tickwheel.cli.watch_option import Watch, repeat
from tickwheel.client.admin import Admin
from tickwheel.model.queue_config import QueueConfig, QueueSettings
from tickwheel.operations.removal.purge import check_states
from tickwheel.runtime.text_escape import escape_unprintable

commands = CommandGroup(no_args_is_help=True, help="Create, list, show, block, unblock, purge and delete queues.")

_SINK_ADVICE: Final = (
    "only processes with Kafka brokers deliver to a sink, and workers and services without brokers stop driving the"
    " whole namespace. Run `tickwheel events --kafka BROKERS`, or start the workers with --kafka BROKERS"
)


def _duration(flag: str, text: str) -> Any:
    return typer.Option(flag, parser=option_parser(parse_duration), metavar="DURATION", help=text, show_default=False)


_App = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:APP",
        help="Create all queues of this TaskApp in its namespace, as the app declares them, instead.",
    ),
]


@commands.command()
@command(
    "create",
    "tickwheel queue create orders --lease 30s --max-attempts 5",
    "tickwheel queue create encode --exclusive-key project --indexed gpu --indexed region",
    "tickwheel queue create mail --sink kafka://mail",
    "tickwheel queue create --app shop:app",
)
def create(
    target: Target,
    queue: OptionalName = None,
    app: _App = None,
    exclusive_key: Annotated[
        str | None,
        typer.Option(help="Metadata key: for each value of the key, only one message runs at a time."),
    ] = None,
    indexed: Annotated[
        list[str] | None, typer.Option(help="A metadata key that --where may use; may be repeated. Default: all keys.")
    ] = None,
    lease: Annotated[timedelta | None, _duration("--lease", "Duration of a lease; default 30s.")] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Maximum number of attempts; default 5.")] = None,
    backoff: Annotated[
        timedelta | None, _duration("--backoff", "Back-off after the first failure; default 1s.")
    ] = None,
    backoff_max: Annotated[timedelta | None, _duration("--backoff-max", "Longest back-off; default 10m.")] = None,
    retention: Annotated[
        timedelta | None, _duration("--retention", "How long finished messages are kept; default 10m.")
    ] = None,
    errored_retention: Annotated[
        timedelta | None, _duration("--errored-retention", "How long errored messages are kept; default 7d.")
    ] = None,
    payload_limit: Annotated[int | None, typer.Option(help="Maximum payload in bytes; default 32768.")] = None,
    forecast: Annotated[bool, typer.Option("--forecast", help="Count the messages due in each minute.")] = False,
    sink: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Deliver due messages to kafka://topic instead of to workers; '' returns the queue to workers.",
            show_default=False,
        ),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Change an existing queue; omitted options keep their values.")
    ] = False,
    shards: Annotated[
        int | None, typer.Option(help="Number of shards. If the namespace exists, it must have this number.")
    ] = None,
) -> None:
    """Create a queue, or check that an existing queue has this configuration. To change a queue, use --update.

    With --app, do so for each queue of the app, and for the queue of its schedules if the app has any, on the server
    and in the namespace of the app, unless an option names another one.
    """
    config: QueueSettings = {
        "exclusive_key": exclusive_key,
        "indexed": indexed or None,
        "lease": lease,
        "max_attempts": max_attempts,
        "backoff": backoff,
        "backoff_max": backoff_max,
        "retention": retention,
        "errored_retention": errored_retention,
        "payload_limit": payload_limit,
        "forecast": forecast or None,
        "sink": sink,
    }
    of_app = _load_app(target, app, queue, config)
    configs = {str(queue): config} if of_app is None else _declared_configs(of_app, str(app))
    with (of_app or target).open(shards=shards) as tickwheel:
        created = [_create(tickwheel, name, wanted, update=update) for name, wanted in configs.items()]
        if sinks := [name for name, wanted in configs.items() if wanted.get("sink")]:
            print_status(f"warning: {', '.join(sinks)}: {_SINK_ADVICE}")
        if app is not None and target.json:
            print_json([_document(item) for item in created])
            return
        for item in created:
            _show(target, item)


def _load_app(target: Target, app: str | None, queue: str | None, config: QueueSettings) -> AppTarget | None:
    """Return the app of --app. Raises InvalidArgument unless either the app or a queue is named."""
    if app is None:
        if queue is None:
            raise InvalidArgument("name the queue to create, or an app by --app MODULE:APP")
        return None
    if queue is not None or any(value is not None for value in config.values()):
        raise InvalidArgument("--app creates the queues as the app declares them: omit the queue and its settings")
    return load_app_target(target, app)


def _declared_configs(of_app: AppTarget, app: str) -> Mapping[str, Mapping[str, Any]]:
    from tickwheel.worker.app_loader import declared_configs

    if not (declared := declared_configs(of_app.app)):
        raise InvalidArgument(f"{app} has no queue and no task: declare one")
    return declared


def _create(tickwheel: Tickwheel, name: str, config: Mapping[str, Any], *, update: bool) -> Queue:
    try:
        return tickwheel.create_queue(name, update=update, **config)
    except QueueConfigConflict as error:
        if not error.advice:
            raise
        # The error's advice names an argument of the client. Name the option of the command line instead.
        raise CommandError(f"{str(error).removesuffix(error.advice)}use --update to change it") from error


@commands.command()
@command("list", "tickwheel queue list", "tickwheel queue list --json | jq -r '.[].queue'")
def list_(target: Target, watch: Watch = None) -> None:
    """List the queues, with the number of messages in each state."""
    with target.open() as tickwheel, print_warnings():
        repeat(watch, lambda: _print_queues(target, tickwheel))


@commands.command()
@command("show", "tickwheel queue show orders")
def show(target: Target, queue: Name) -> None:
    """Show a queue's configuration, and the number of its messages in each state."""
    with target.open() as tickwheel:
        _show(target, tickwheel.queue(queue))


_Enqueue = Annotated[bool, typer.Option("--enqueue", help="Only enqueue.")]
_Dequeue = Annotated[bool, typer.Option("--dequeue", help="Only dequeue.")]


@commands.command()
@command("block", "tickwheel queue block orders --dequeue")
def block(target: Target, queue: Name, enqueue: _Enqueue = False, dequeue: _Dequeue = False) -> None:
    """Block enqueue and dequeue, or only one of them, until `unblock`."""
    with target.open() as tickwheel:
        blocked = _require_queue(tickwheel, queue)
        blocked.block(enqueue=enqueue or not dequeue, dequeue=dequeue or not enqueue)
        _show(target, blocked)


@commands.command()
@command("unblock", "tickwheel queue unblock orders")
def unblock(target: Target, queue: Name, enqueue: _Enqueue = False, dequeue: _Dequeue = False) -> None:
    """Unblock enqueue and dequeue, or only one of them."""
    with target.open() as tickwheel:
        blocked = _require_queue(tickwheel, queue)
        blocked.unblock(enqueue=enqueue or not dequeue, dequeue=dequeue or not enqueue)
        _show(target, blocked)


_Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@commands.command()
@command("purge", "tickwheel queue purge orders --state errored", "tickwheel queue purge orders --yes")
def purge(
    target: Target,
    queue: Name,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help="Only messages in this state; may be repeated. Default: all that are not running.",
            autocompletion=complete_purged_state,
        ),
    ] = None,
    yes: _Yes = False,
) -> None:
    """Remove messages that do not run, whatever their retention is. If the command is cut off, repeat it."""
    states = check_states(state)
    with target.open() as tickwheel:
        purged = _require_queue(tickwheel, queue)
        count = sum(purged.counts()[name] for name in states)
        confirm(f"Remove {format_count(count, 'message')} ({', '.join(states)}) from queue {queue!r}?", yes=yes)
        admin = Admin(tickwheel)
        removed = remove_all(admin.backend.purge(queue, states), admin.run, "messages", total=count, json=target.json)
        if target.json:
            print_json({"queue": queue, "removed": removed, "counts": purged.counts()})
        else:
            print(f"{removed:,} removed")


@commands.command()
@command("delete", "tickwheel queue delete orders", "tickwheel queue delete orders --purge --yes")
def delete(
    target: Target,
    queue: Name,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also cancel all messages; their workers lose their leases.")
    ] = False,
    yes: _Yes = False,
) -> None:
    """Delete a queue with its configuration. If the command is cut off, repeat it.

    Without --purge, the queue may contain only completed and cancelled messages.
    """
    with target.open() as tickwheel:
        count = _count_messages(_require_queue(tickwheel, queue))
        described = "an unknown number of messages" if count is None else format_count(count, "message")
        confirm(f"Delete queue {queue!r} with {described}?", yes=yes)
        admin = Admin(tickwheel)
        removed = remove_all(
            admin.backend.delete_queue(queue, purge), admin.run, "messages", total=count, json=target.json
        )
    if target.json:
        print_json({"queue": queue, "removed": removed})
    else:
        print(f"queue {escape_unprintable(queue)} is deleted; removed: {format_count(removed, 'message')}")


def _print_queues(target: Target, tickwheel: Tickwheel) -> None:
    entries = [(queue, queue.config(), queue.counts()) for queue in tickwheel.queues()]
    if target.json:
        print_json(
            [
                {
                    "queue": queue.name,
                    "blocked": _blocked_operations(config),
                    "deleting": config.deleting,
                    "counts": n,
                }
                for queue, config, n in entries
            ]
        )
    elif not entries:
        print_status("no queues")
    else:
        rows = [(queue.name, *n.values(), _describe_blocks(config)) for queue, config, n in entries]
        states = tuple(entries[0][2])
        print_table(("queue", *states, "blocked"), rows, right=states)
    if entries:
        warn_if_undriven(tickwheel, only_once=True)


def _require_queue(tickwheel: Tickwheel, name: str) -> Queue:
    queue = tickwheel.queue(name)
    queue.config()
    return queue


def _count_messages(queue: Queue) -> int | None:
    """Return the number of messages, or None if the counters of the queue are damaged."""
    try:
        return sum(queue.counts().values())
    except DataLoss:
        return None


def _blocked_operations(config: QueueConfig) -> list[str]:
    return [name for name in ("enqueue", "dequeue") if getattr(config, f"{name}_blocked")]


def _describe_blocks(config: QueueConfig) -> str:
    return "being deleted" if config.deleting else ", ".join(_blocked_operations(config))


def _yes_or_empty(value: object) -> object:
    return ("yes" if value else "") if isinstance(value, bool) else value


def _document(queue: Queue) -> dict[str, object]:
    config, counts = queue.config(), queue.counts()
    return {
        "queue": queue.name,
        **config.settings(),
        "version": config.version,
        "deleting": config.deleting,
        "counts": counts,
    }


def _show(target: Target, queue: Queue) -> None:
    if target.json:
        print_json(_document(queue))
        return
    config, counts = queue.config(), queue.counts()
    rows: list[tuple[str, object]] = []
    for name, value in config.settings().items():
        if name.endswith("_ms"):
            rows.append((name.removesuffix("_ms").replace("_", " "), format_duration(value)))
        elif name == "indexed":
            rows.append((name, "all keys" if value is None else ", ".join(value) or "none"))
        elif not name.endswith("_blocked"):
            rows.append((name.replace("_", " "), _yes_or_empty(value)))
    rows.append(("blocked for", _describe_blocks(config)))
    rows += [(state, f"{count:,}") for state, count in counts.items()]
    print_fields(rows, title=escape_unprintable(queue.name))
