"""`tickwheel import celery`: what waits in Celery's Redis, moved here."""

from dataclasses import asdict
from typing import Annotated
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import redis
import typer

from tickwheel import InvalidArgument, Tickwheel, limits
from tickwheel.celery.importer import Importer, Report
from tickwheel.celery.source_queue import CeleryQueue
from tickwheel.cli.command import command
from tickwheel.cli.exit_codes import CommandError
from tickwheel.cli.output import escape_unprintable, print_json, print_status
from tickwheel.cli.target import Target

commands = typer.Typer(no_args_is_help=True, help="Bring in what waits elsewhere.")
_PING_S = 1.0


@command(
    commands,
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
            help="Celery's broker, as its app names it. One with a password: by the variable, which other users of the"
            " host cannot read. [TICKWHEEL_FROM]",
        ),
    ] = None,
    queue: Annotated[
        list[str] | None, typer.Option(help="A queue of Celery's; may be repeated. Default: celery.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="The queue here, for all of them. Default: each goes to the one of its name.")
    ] = None,
    unacked: Annotated[
        bool,
        typer.Option(
            "--unacked",
            help="Also what Celery's workers had taken: all that they wait with for an ETA. Stop them first, or they"
            " run it, too.",
        ),
    ] = False,
    max_attempts: Annotated[
        int | None, typer.Option(help="Deliveries of each before Errored. Default: the queue's.")
    ] = None,
    timezone: Annotated[str, typer.Option(help="Of ETAs that name none: the Celery app's timezone.")] = "UTC",
    key_prefix: Annotated[str, typer.Option(help="The broker's global_keyprefix.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be moved.")] = False,
) -> None:
    """Move the messages that wait in Celery's Redis, each once, however often this is interrupted and called again.

    They run in `tickwheel worker` with an app that has the Celery app's tasks. Only JSON bodies are read: pickled ones
    are named, and stay, as is what belongs to a chain, a group or a chord. Exit code 1 where something stays.
    """
    if not source:
        raise InvalidArgument("Celery's broker is not said: give --from or TICKWHEEL_FROM, as redis://localhost:6379/0")
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise InvalidArgument(f"there is no time zone {timezone!r}: say one like Europe/Berlin") from error
    names = list(dict.fromkeys(queue or ["celery"]))
    reports: list[Report] = []
    try:
        with _client(source) as client, target.open(create=True) as tickwheel:
            client.ping()
            if unacked:
                _check_no_worker(source, key_prefix)
            for name in names:
                source_queue = CeleryQueue(client, name, key_prefix)
                limit = _payload_limit(tickwheel, to or name, dry_run=dry_run)
                importer = Importer(
                    source_queue, tickwheel.queue(to or name), zone, max_attempts=max_attempts, payload_limit=limit
                )
                reports.append((importer.dry_run if dry_run else importer.run)(unacked=unacked))
    except redis.RedisError as error:
        raise CommandError(f"Celery's broker: {error}; what was moved is moved: call again to go on") from error
    _print(target, reports, dry_run=dry_run)


def _payload_limit(tickwheel: Tickwheel, name: str, *, dry_run: bool) -> int:
    """That of the queue, which is made here where it is not there."""
    if name in [item.name for item in tickwheel.queues()]:
        return tickwheel.queue(name).config().payload_limit
    if not dry_run:
        tickwheel.create_queue(name, payload_limit=limits.PAYLOAD_BYTES_MAX)
    return limits.PAYLOAD_BYTES_MAX


def _client(url: str) -> "redis.Redis":
    """Celery has a way of its own to write sockets."""
    if url.startswith("redis+socket://"):
        parts = urlsplit(url)
        db = parse_qs(parts.query).get("virtual_host", ["0"])[0].strip("/")
        url = f"unix://{parts.path}?db={db}"
    try:
        return redis.Redis.from_url(url, protocol=2)
    except ValueError as error:
        raise InvalidArgument(f"--from names no Redis: {error}; it is like redis://localhost:6379/0") from error


def _check_no_worker(url: str, key_prefix: str) -> None:
    try:
        from celery import Celery
    except ModuleNotFoundError as error:
        raise InvalidArgument("--unacked needs Celery, to see whether a worker of it is there: install it") from error
    if url.startswith("unix://"):
        parts = urlsplit(url)
        url = f"redis+socket://{parts.path}?virtual_host={parse_qs(parts.query).get('db', ['0'])[0]}"
    with Celery(broker=url, set_as_current=False) as app:
        app.conf.broker_transport_options = {"global_keyprefix": key_prefix} if key_prefix else {}
        names = sorted(name for reply in app.control.ping(timeout=_PING_S) for name in reply)
    if names:
        raise CommandError(f"workers of Celery are there, and have messages in hand: stop {', '.join(names)} first")


def _print(target: Target, reports: list[Report], *, dry_run: bool) -> None:
    refused = sum(len(report.refused) for report in reports)
    if target.json:
        print_json([asdict(report) for report in reports])
    else:
        for report in reports:
            outcome = "would be moved" if dry_run else "moved"
            before = f", {report.there_before} of them here before" if report.there_before else ""
            print(f"{report.queue}: {report.moved + report.there_before} {outcome}{before}; {len(report.refused)} stay")
            for skipped in report.refused:
                print_status(escape_unprintable(f"  {skipped.id} {skipped.task}: {skipped.reason}"))
    if refused:
        raise CommandError(f"{refused} messages stay in Celery")
