"""`tickwheel shards`: leader, inbox and lateness of each shard; `tickwheel shards reset-epoch`."""

import logging
from typing import Annotated, Final

import typer

from tickwheel import Forbidden
from tickwheel.cli.command import command, default_command
from tickwheel.cli.command_help import CommandGroup
from tickwheel.cli.confirmation import confirm
from tickwheel.cli.driver_warning import warn_if_undriven
from tickwheel.cli.exit_codes import CommandError
from tickwheel.cli.output import format_lateness, lateness_fields, print_json, print_status
from tickwheel.cli.parameter_types import format_duration
from tickwheel.cli.tables import print_table
from tickwheel.cli.target import Target
from tickwheel.client.admin import Admin
from tickwheel.election.unclaimed_shards import UNCLAIMED_MS
from tickwheel.operations.removal.election_members import has_election_members
from tickwheel.operations.shard_status import (
    END_ALL,
    Follower,
    ShardStatus,
    find_followers,
    reset_epoch,
    shard_statuses,
)
from tickwheel.runtime.log_format import log_to_stderr

commands = CommandGroup()

# What follows a reset.
_NEXT: Final = (
    "Now the first process that claims a shard decides the kind of election. If the election was by ZooKeeper, workers"
    " and services wait for an event process. Otherwise, those without `--drive never` claim the shards by lease after"
    f" {UNCLAIMED_MS / 1_000:g} s, and clients with `drive=True` at once: start event processes of another kind before"
)


@default_command(
    commands,
    "tickwheel shards",
    "tickwheel shards --json | jq '.[] | select(.inbox > 0 and (.oldest_ms // 5001) > 5000)'",
)
def shards(target: Target) -> None:
    """Show the leader of each shard, its inbox of new timers, and how late messages were.

    The owner is the event process that claimed the shard last. In a driven shard, a new timer leaves the inbox within
    seconds. So if the oldest timer of the inbox keeps getting older, the shard is not driven. If the server's clock was
    ahead and was corrected, this age can be unknown for some time: `tickwheel doctor` then checks whether the shard is
    driven. Lateness is the time from the due time of a message until the message was deliverable. The columns "late
    p50" and "late p99" show estimates of the median and of the 99th percentile. They are interpolated within buckets
    whose bounds are powers of two in ms, and are within a factor of two of the exact values.
    """
    with target.require_redis("shards").open() as tickwheel:
        admin = Admin(tickwheel)
        statuses = admin.run(shard_statuses(admin.context))
        if target.json:
            print_json([_document(view) for view in statuses])
        else:
            columns = ("shard", "owner", "epoch", "election", "inbox", "oldest", "late p50", "late p99")
            print_table(columns, map(_row, statuses), right=("shard", "epoch", *columns[4:]))
        warn_if_undriven(tickwheel, only_once=True)


@commands.command()
@command("reset-epoch", "tickwheel shards reset-epoch --url redis://redis:6379")
def reset(
    target: Target,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Forget the owners and epochs of the shards, if ZooKeeper has lost its data, or to use another kind of election.

    In both cases, epochs restart at low numbers, and without a reset the shards reject these epochs. First end every
    event process that still has an old epoch, also those of workers and services (start these with `--drive never`),
    and of clients with `drive=True`. Otherwise an old and a new leader could take a shard from each other again and
    again, or a worker could claim the shards by lease before event processes of another kind start. If ZooKeeper has
    lost its data, workers leave the shards to the event processes.
    """
    log_to_stderr(json=target.json, lowest=logging.WARNING)
    with target.require_redis("shards").open() as tickwheel:
        admin = Admin(tickwheel)
        context = admin.context
        unchecked = _refuse_if_driven(admin, unattended=yes)
        label = f"the epochs of {context.shards} shards of namespace {context.namespace!r}{unchecked}"
        confirm(f"Forget {label}?", yes=yes)
        forgotten = [shard for shard in range(context.shards) if admin.run(reset_epoch(context, shard))]
    print_status(_NEXT)
    if target.json:
        print_json({"forgotten": forgotten})
    else:
        print(f"{len(forgotten)} of {context.shards} shards have forgotten their owners and epochs")


def _refuse_if_driven(admin: Admin, *, unattended: bool) -> str:
    """Raise CommandError if an event process drives a shard or stands by. Return a remark if this user cannot check it.

    If the command is ``unattended``, nobody reads the remark: raise CommandError instead.
    """
    denied = ""
    followers: list[Follower] = []
    has_members = False
    try:
        followers = admin.run(find_followers(admin.context))
    except Forbidden:
        denied = "run CLIENT LIST"
    # A user who may not list connections may often read the rows of an election by lease.
    try:
        has_members = not followers and admin.run(has_election_members(admin.context))
    except Forbidden:
        denied = denied or "read the election by lease"
    if followers:
        raise CommandError(f"shard {followers[0].shard} is being driven: {followers[0].explanation}")
    if has_members:
        raise CommandError(
            "processes take part in the election by lease, and may drive the shards soon."
            f" {END_ALL}: `tickwheel doctor` names them"
        )
    if denied and unattended:
        raise CommandError(
            f"cannot check whether the shards are driven, because this user may not {denied}: run the command as an"
            " administrator of the server, or on a terminal without --yes"
        )
    return f" (not checked, because this user may not {denied}: is every event process ended?)" if denied else ""


def _document(view: ShardStatus) -> dict[str, object]:
    return {
        "shard": view.shard,
        "owner": view.owner,
        "epoch": view.epoch,
        "election": view.election,
        "inbox": view.inbox,
        "oldest_ms": view.oldest_ms,
        "lateness_ms": lateness_fields(view.lateness),
    }


def _row(view: ShardStatus) -> tuple[object, ...]:
    unknown = "unknown" if view.inbox else ""
    age = unknown if view.oldest_ms is None else format_duration(view.oldest_ms)
    return view.shard, view.owner, view.epoch, view.election, view.inbox, age, *format_lateness(view.lateness)
