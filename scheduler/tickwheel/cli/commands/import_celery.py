"""`tickwheel import celery`: move messages that wait in Celery's Redis."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

import redis
import typer

from tickwheel import InvalidArgument, Tickwheel, limits
from tickwheel.celery.broker_url import kombu_url
from tickwheel.celery.importer import CeleryQueue, Importer, Report
from tickwheel.cli.command import command
from tickwheel.cli.command_help import CommandGroup
from tickwheel.cli.driver_warning import warn_if_undriven
from tickwheel.cli.exit_codes import CommandError
from tickwheel.cli.output import format_count, print_json, print_status
from tickwheel.cli.target import Target
from tickwheel.client.exit_codes import ExitCode
from tickwheel.model.validation import preview, preview_url
from tickwheel.redis.url import validate_redis_url
from tickwheel.runtime.text_escape import escape_unprintable

commands = CommandGroup(no_args_is_help=True, help="Import messages from other systems.")
_PING_S = 1.0
_NEVER_S = 10**11
_SCHEMES = ("redis", "rediss", "unix", "redis+socket")


@commands.command()
@command(
    "celery",
    "tickwheel import celery --from redis://localhost:6379/0 --queue celery --dry-run",
    "tickwheel import celery --from redis://localhost:6379/0 --queue celery --queue mail --unacked",
)
def celery(
    target: Target,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            envvar="TICKWHEEL_FROM",
            show_envvar=False,
            help="URL of Celery's broker, as in its app. Set a URL with a password in the environment variable: other"
            " users of the host can read options. [TICKWHEEL_FROM]",
        ),
    ] = None,
    queue: Annotated[
        list[str] | None, typer.Option(help="A queue of Celery; may be repeated. Default: celery.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="The target queue of all messages. Default: for each queue, the queue of the same name."),
    ] = None,
    unacked: Annotated[
        bool,
        typer.Option(
            "--unacked",
            help="Also move messages that Celery's workers have reserved, such as those with an ETA. Stop the"
            " workers first: a worker that is only paused runs these messages, too.",
        ),
    ] = False,
    max_attempts: Annotated[
        int | None, typer.Option(help="Maximum number of attempts of each message. Default: the queue's.")
    ] = None,
    key_prefix: Annotated[str, typer.Option(help="The broker's global_keyprefix.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report which messages would be moved.")] = False,
) -> None:
    """Move the messages that wait in Celery's Redis. If the command is interrupted, repeat it: no message moves twice.

    The messages run in `tickwheel worker` with an app that has the Celery app's tasks. Only JSON bodies are supported:
    messages with pickled bodies, and parts of a chain, group or chord, are listed and stay in Celery. If messages stay,
    the exit code is 1.
    """
    if not source:
        raise InvalidArgument(
            "the URL of Celery's broker is missing: set --from or TICKWHEEL_FROM, like redis://localhost:6379/0"
        )
    reports: list[Report] = []
    has_begun = False
    try:
        with ExitStack() as stack:
            client = stack.enter_context(_client(source))
            client.ping()
            tickwheel = stack.enter_context(target.open())
            if unacked:
                _check_no_worker(source, key_prefix)
            for name in dict.fromkeys(queue or ["celery"]):
                source_queue = CeleryQueue(client, name, key_prefix)
                importer = _make_importer(source_queue, tickwheel, to or name, max_attempts)
                has_begun = not dry_run
                reports.append((importer.dry_run if dry_run else importer.run)(unacked=unacked))
            _warn(tickwheel, reports, dry_run=dry_run)
    except redis.RedisError as error:
        raise _broker_error(error, has_begun=has_begun) from error
    _print(target, reports, dry_run=dry_run)


def _warn(tickwheel: Tickwheel, reports: list[Report], *, dry_run: bool) -> None:
    """Warn if nobody drives the namespace: some of the messages may have an ETA."""
    if not dry_run and any(report.moved for report in reports):
        warn_if_undriven(tickwheel)


def _make_importer(source: CeleryQueue, tickwheel: Tickwheel, name: str, max_attempts: int | None) -> Importer:
    limit, create = _prepare(tickwheel, name)
    queue = tickwheel.queue(name)
    return Importer(source, queue, max_attempts=max_attempts, payload_limit=limit, before_move=create)


def _prepare(tickwheel: Tickwheel, name: str) -> tuple[int, Callable[[], object]]:
    """Return the payload limit of the queue, and a function that creates the queue if it does not exist."""
    if name in [item.name for item in tickwheel.queues()]:
        config = tickwheel.queue(name).config()
        if config.exclusive_key is not None:
            raise InvalidArgument(
                f"queue {name!r} is exclusive, and messages of Celery have no exclusive value: name another queue by"
                " --to"
            )
        return config.payload_limit, lambda: None
    # The name of Celery's queue may be wrong, so the queue is created with its first message.
    return limits.PAYLOAD_BYTES_MAX, partial(tickwheel.create_queue, name, payload_limit=limits.PAYLOAD_BYTES_MAX)


def _client(url: str) -> "redis.Redis":
    """Return a client of Celery's broker. Converts Celery's form of Unix socket URLs.

    Raises InvalidArgument. The error does not quote the URL, which can contain a password.
    """
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES:
        raise InvalidArgument(
            f"--from is not a Redis URL: it starts with {', '.join(f'{known}://' for known in _SCHEMES)}, not"
            f" {preview_url(url)}"
        )
    try:
        if scheme == "redis+socket":
            parts = urlsplit(url)
            db = parse_qs(parts.query).get("virtual_host", ["0"])[0].strip("/")
            url = f"unix://{parts.netloc}{parts.path}?db={db}"
        validate_redis_url(url)
    except ValueError as error:
        text = str(error) if isinstance(error, InvalidArgument) else "the host is invalid"
        raise InvalidArgument(f"--from is not a Redis URL: {text}; use one like redis://localhost:6379/0") from None
    return redis.Redis.from_url(url, protocol=2)


def _broker_error(error: redis.RedisError, *, has_begun: bool) -> CommandError:
    """Return the error of the command for an error of Celery's broker. ``has_begun``: messages may have been moved."""
    # redis-py derives the error about a wrong password from ConnectionError.
    refused = isinstance(error, redis.AuthenticationError)
    silent = isinstance(error, (redis.ConnectionError, redis.TimeoutError)) and not refused
    problem = f"Celery's broker does not answer: {error}" if silent else f"Celery's broker: {error}"
    effect = (
        "some messages may have been moved: repeat the command to move the others"
        if has_begun
        else "nothing was moved: check --from, and repeat the command"
    )
    return CommandError(f"{problem}; {effect}", ExitCode.UNAVAILABLE if silent else ExitCode.REFUSED)


def _check_no_worker(url: str, key_prefix: str) -> None:
    try:
        from celery import Celery
        from kombu.exceptions import OperationalError
    except ModuleNotFoundError as error:
        raise InvalidArgument("--unacked needs Celery, to check for running workers: install celery") from error
    with Celery(broker=kombu_url(url), set_as_current=False) as app:
        # While kombu waits for an answer, it reads the messages that workers have held for at least this time, and
        # returns them to their queues. No message is that old.
        app.conf.broker_transport_options = {"visibility_timeout": _NEVER_S} | (
            {"global_keyprefix": key_prefix} if key_prefix else {}
        )
        try:
            names = sorted(name for reply in app.control.ping(timeout=_PING_S) for name in reply)
        except OperationalError as error:
            raise redis.ConnectionError(str(error)) from error
    if names:
        raise CommandError(f"Celery workers are running and hold messages: stop {', '.join(names)} first")


def _print(target: Target, reports: list[Report], *, dry_run: bool) -> None:
    refused = sum(len(report.refused) for report in reports)
    if target.json:
        print_json([asdict(report) for report in reports])
    else:
        for report in reports:
            outcome = "would be moved" if dry_run else "moved"
            before = f", {report.there_before} of them existed in Tickwheel before" if report.there_before else ""
            moved = f"{report.moved + report.there_before} {outcome}{before}"
            print(f"{escape_unprintable(report.queue)}: {moved}; {len(report.refused)} stay")
            for skipped in report.refused:
                # Escaped as a whole, so that an id with a line break cannot forge a second line.
                print_status(escape_unprintable(f"  {skipped.id} {skipped.task}: {skipped.reason}"))
    for report in reports:
        if not (report.moved or report.there_before or report.refused):
            print_status(f"the broker has no messages in {preview(report.queue)}; is the name right?")
    if refused:
        raise CommandError(f"stay in Celery: {format_count(refused, 'message')}")
