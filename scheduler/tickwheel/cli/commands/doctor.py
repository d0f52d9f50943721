"""`tickwheel doctor`: check the server, the leaders of the shards, and the records of a namespace."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tickwheel.cli.command import command
from tickwheel.cli.exit_codes import CommandError
from tickwheel.cli.output import print_json
from tickwheel.cli.tables import console
from tickwheel.cli.target import TIMEOUT, Target
from tickwheel.client.local_processes import LocalProcesses
from tickwheel.client.settings import ClientSettings
from tickwheel.doctor import LIVE_PASSES, audit
from tickwheel.doctor.finding import Finding
from tickwheel.doctor.followers import read_followers
from tickwheel.doctor.health import check_overdue, check_queues, check_shards
from tickwheel.doctor.lease_health import check_election
from tickwheel.doctor.lease_members import LeaseMembers, read_member_rows, watch_members
from tickwheel.doctor.overdue import OverdueMessages
from tickwheel.doctor.server_health import check_server, list_servers, read_server
from tickwheel.doctor.shard_facts import ShardFacts, read_shard
from tickwheel.doctor.shard_reader import report_damage
from tickwheel.doctor.shard_watch import recheck, watch_overdue, watch_undriven
from tickwheel.embedded.file_lock import is_free
from tickwheel.operations.attestation import attest as attest_servers
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.namespace import has_other_format, namespace_not_found_error, read_namespace
from tickwheel.operations.removal.queue_numbers import read_rows
from tickwheel.redis.blocking_executor import RedisExecutor
from tickwheel.redis.pools import ConnectionPools
from tickwheel.runtime.text_escape import escape_unprintable

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "bad": ("BAD", "bold red")}
_LINES = 20
# An operator may wait for a slow server for longer than a program.
_TIMEOUT_MS_MAX = 600_000


@command(
    "doctor",
    "tickwheel doctor",
    "tickwheel doctor --url redis://prod:6379 --quick",
    "tickwheel doctor --url redis://admin@prod:6379 --attest",
)
def doctor(
    target: Target,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check only server and processes; do not read every message.")
    ] = False,
    attest: Annotated[
        bool,
        typer.Option(
            "--attest",
            help="Store in the namespace which servers write to their disks before they answer, for users that may not"
            " read the settings of the server. Needs a user that may run CONFIG GET.",
        ),
    ] = False,
) -> None:
    """Check the server, the leaders, and every record, index, counter and timer.

    Without --attest, the command changes nothing. If the result of a check is bad, the exit code is 1. If the namespace
    does not exist, it is 4. Warnings do not change the exit code.
    """
    report = _Report(target.json)
    with _open_server(target) as (client_settings, io):
        context = NamespaceContext(client_settings.namespace)
        servers = [_Server(context, io, name, shard) for name, shard in io.run(list_servers()).items()]
        exists, usable, is_foreign, embedded = True, False, False, client_settings.url is None
        with report.phase("namespace"):
            is_foreign = io.run(has_other_format(context))
            exists = usable = io.run(read_namespace(context))
        with report.phase("server"):
            for server in servers:
                report.add(server.findings(context.clock_guard_ms))
        if usable:
            report.add([Finding("namespace", "ok", f"{context.namespace}, shards: {context.shards}")])
            if attest:
                report.add(_attestations(context, io))
            members: LeaseMembers | None = None
            with report.phase("election"):
                members = watch_members(lambda: io.run(read_member_rows(context)))
            reader = _ShardReader(context, io, report, _is_locked(client_settings), members)
            shards = reader.read_all()
            watch_undriven(shards, embedded=embedded, read_again=reader.read_again)
            # After the shards, so that an event process that drives one of them is found, even if it has just started.
            followers = io.run(read_followers(context, [server.shard for server in servers]))
            with report.phase("driver"):
                report.add(check_shards(context, list(shards.values()), followers, embedded=embedded))
            report.add(check_election(list(shards.values()), members))
        # The data of another version of Tickwheel is not damaged, although this version cannot read it.
        if exists and not is_foreign:
            with report.phase("queues"):
                report.add(check_queues(io.run(read_rows(context))))
        if usable and not quick:
            with report.phase("records"):
                overdue: OverdueMessages = {}
                report.add(_audit(context, io, overdue))
                stalled = watch_overdue(
                    shards, overdue, followers.shards, embedded=embedded, read_again=reader.read_again
                )
                report.add(check_overdue(overdue, stalled, followers))
    if target.json:
        print_json([asdict(finding) for finding in report.findings])
    if not exists:
        raise namespace_not_found_error(context)
    bad = [finding for finding in report.findings if finding.verdict == "bad"]
    if bad:
        raise CommandError(f"{len(bad)} of {len(report.findings)} checks are bad")


class _Server:
    """The facts that one server reported, and its name."""

    def __init__(self, context: NamespaceContext, io: RedisExecutor, name: str, shard: int) -> None:
        self.shard = shard
        self.facts = io.run(read_server(context, shard))
        self._name = name

    def findings(self, guard_ms: int) -> Iterator[Finding]:
        """Yield the findings about the server. The text names the server if there are several."""
        for finding in check_server(self.facts, guard_ms):
            yield replace(finding, text=f"{self._name}: {finding.text}") if self._name else finding


class _Report:
    """Prints each finding immediately, or keeps all of them for one JSON document."""

    def __init__(self, quiet: bool) -> None:
        self.findings: list[Finding] = []
        self._quiet = quiet

    def add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.findings.append(finding)
            if not self._quiet:
                _print(finding)

    def phase(self, check: str) -> AbstractContextManager[None]:
        """Return a context manager for one part of the checks. If the part meets damaged data, it ends with a finding,
        and the other parts still run.
        """
        return report_damage(lambda text: self.add([Finding(check, "bad", text)]))


def _attestations(context: NamespaceContext, io: RedisExecutor) -> Iterator[Finding]:
    """Store the attestation of each server that supports ``fsync``, and yield a finding about each server."""
    for name, reason in io.run(attest_servers(context.namespace)).items():
        text = reason or "stored: the server supports the durability fsync"
        yield Finding("attested", "bad" if reason else "ok", f"{name}: {text}" if name else text)


class _ShardReader:
    """Reads the facts about shards. ``members`` are those of an election by lease."""

    def __init__(
        self,
        context: NamespaceContext,
        io: RedisExecutor,
        report: _Report,
        is_locked: Callable[[int], bool],
        members: LeaseMembers | None,
    ) -> None:
        self._context, self._io, self._report = context, io, report
        self._leaders = is_locked, members

    def read_all(self) -> dict[int, ShardFacts]:
        """Return the facts of the readable shards, by number."""
        shards: dict[int, ShardFacts] = {}
        for number in range(self._context.shards):
            with self._report.phase(f"shard {number}"):
                shards[number] = self._io.run(read_shard(self._context, number, *self._leaders))
        return shards

    def read_again(self, shard: ShardFacts) -> ShardFacts | None:
        """Read a shard again (`recheck`). Return None if the shard is unreadable."""
        with self._report.phase(f"shard {shard.number}"):
            return self._io.run(recheck(self._context, shard, *self._leaders))
        return None


def _audit(context: NamespaceContext, io: RedisExecutor, overdue: OverdueMessages) -> Iterator[Finding]:
    problems = io.run(audit(context, passes=LIVE_PASSES, overdue=overdue))
    if not problems:
        yield Finding("records", "ok", "messages, indexes, counters, timers and events agree")
    for line in problems[:_LINES]:
        yield Finding("records", "bad", line)
    if len(problems) > _LINES:
        yield Finding("records", "bad", f"and {len(problems) - _LINES:,} more")


@contextmanager
def _open_server(target: Target) -> Iterator[tuple[ClientSettings, RedisExecutor]]:
    """Open the server without a client: a client would reject damaged data, or create a missing namespace."""
    timeout = TIMEOUT if target.timeout is None else target.timeout
    client_settings = ClientSettings.validate(
        *(target.require_redis("doctor").url, target.namespace or "tw", target.data_dir, None, False, timeout),
        timeout_ms_max=_TIMEOUT_MS_MAX,
    )
    processes = LocalProcesses(client_settings)
    server_url = processes.open()
    servers = ConnectionPools(server_url, client_settings.answer_s, is_embedded=processes.server is not None)
    io = RedisExecutor(servers, client_settings.display_url, client_settings.timeout_s)
    try:
        yield client_settings, io
    finally:
        io.close()
        processes.close()


def _is_locked(client_settings: ClientSettings) -> Callable[[int], bool]:
    """Return a function that checks whether a process of this host holds the election lock of a shard."""

    def is_locked(shard: int) -> bool:
        path = Path(f"{client_settings.election_lock}.{shard}")
        return path.exists() and not is_free(path)

    return is_locked


def _print(finding: Finding) -> None:
    mark, style = _MARKS[finding.verdict]
    line = Text.assemble((f"{mark:<8}", style), (f"{finding.check:<12}", "bold"), escape_unprintable(finding.text))
    console().print(line, soft_wrap=True)
