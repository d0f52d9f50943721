"""`tickwheel doctor`: is the server fit, is the namespace driven, and is everything in it as its own records say?"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tickwheel.cli.command import command
from tickwheel.cli.exit_codes import Refusal
from tickwheel.cli.output import console, print_json, printable
from tickwheel.cli.target import TIMEOUT, Place
from tickwheel.client.settings import Opening
from tickwheel.doctor import LIVE_PASSES, audit
from tickwheel.doctor.health import (
    Finding,
    ShardFacts,
    judge_queues,
    judge_server,
    judge_shards,
    look_again,
    read_server,
    read_shard,
    unserved,
    which_servers,
)
from tickwheel.doctor.shard_reader import damage_told
from tickwheel.embedded.file_lock import is_free
from tickwheel.operations.context import Core
from tickwheel.operations.namespace import not_there, read_namespace
from tickwheel.operations.queues import listed
from tickwheel.redis.blocking_executor import SyncIO
from tickwheel.redis.pools import ServerPools
from tickwheel.redis.url import default_lock

commands = typer.Typer()
_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "bad": ("BAD", "bold red")}
_LINES = 20
# A driver that has read an entry of the inbox files it within two seconds, unless its host is very busy.
_LOOK_S, _PAUSE_S = 4.0, 0.1


@command(commands, "doctor", "tickwheel doctor", "tickwheel doctor --url redis://prod:6379 --quick", panel="Looking")
def doctor(
    place: Place,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not read every message: server and processes only.")
    ] = False,
) -> None:
    """Check the server, who drives the wheel, and every record, index, counter and timer.

    Changes nothing. Exit code 1 where something is bad; a warning is not.
    """
    report = _Report(place.json)
    with _opened(place) as (opening, io):
        core = Core(opening.namespace)
        servers = [_Server(core, io, name, shard) for name, shard in io.run(which_servers()).items()]
        facts = servers[0].facts
        facts.followed = frozenset[int]().union(*(server.facts.followed for server in servers))
        there, usable = True, False
        with report.phase("namespace"):
            there = usable = io.run(read_namespace(core))
        with report.phase("server"):
            for server in servers:
                report.add(server.judged(core.guard_ms))
        if usable:
            report.add([Finding("namespace", "ok", f"{core.namespace}, shards: {core.shards}")])
            shards = _shards(core, io, opening, facts.now_ms, report)
            with report.phase("driver"):
                report.add(judge_shards(core, shards, facts, embedded=opening.server is not None))
        if there:
            with report.phase("queues"):
                report.add(judge_queues(io.run(listed(core))))
        if usable and not quick:
            with report.phase("records"):
                report.add(_audit(core, io))
    if place.json:
        print_json([asdict(finding) for finding in report.found])
    if not there:
        raise not_there(core)
    bad = [finding for finding in report.found if finding.verdict == "bad"]
    if bad:
        raise Refusal(f"{len(bad)} of {len(report.found)} checks are bad")


class _Server:
    """One server, what it says and when."""

    def __init__(self, core: Core, io: SyncIO, name: str, shard: int) -> None:
        asked = time.perf_counter()
        self.facts = io.run(read_server(core, shard))
        self._answered_ms = (time.perf_counter() - asked) * 1000
        self._host_ms = time.time_ns() // 1_000_000
        self._name = name

    def judged(self, guard_ms: int) -> Iterator[Finding]:
        """The findings; those on one of several servers say which."""
        for finding in judge_server(self.facts, self._host_ms, self._answered_ms, guard_ms):
            yield replace(finding, text=f"{self._name}: {finding.text}") if self._name else finding


class _Report:
    """The findings, each shown as it comes, or kept for one document."""

    def __init__(self, quiet: bool) -> None:
        self.found: list[Finding] = []
        self._quiet = quiet

    def add(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.found.append(finding)
            if not self._quiet:
                _print(finding)

    def phase(self, check: str) -> AbstractContextManager[None]:
        """A part of the work. Where it meets damage that is a finding, and the other parts go on."""
        return damage_told(lambda text: self.add([Finding(check, "bad", text)]))


def _shards(core: Core, io: SyncIO, opening: Opening, now_ms: int, report: _Report) -> list[ShardFacts]:
    """What the shards say. Those where work waits are looked at until it moves, for as long as a driver may take."""
    is_locked = _is_locked(opening)
    shards: dict[int, ShardFacts] = {}
    for number in range(core.shards):
        with report.phase(f"shard {number}"):
            shards[number] = io.run(read_shard(core, number, is_locked))
    until = time.monotonic() + _LOOK_S
    while time.monotonic() < until:
        # An embedded wheel that nobody turns is as it should be.
        late = unserved(list(shards.values()), now_ms)
        waiting = [shard for shard in late if shard.locked or opening.server is None]
        if not waiting:
            break
        time.sleep(_PAUSE_S)
        for shard in waiting:
            del shards[shard.number]
            with report.phase(f"shard {shard.number}"):
                shards[shard.number] = io.run(look_again(core, shard, is_locked))
    return [shards[number] for number in sorted(shards)]


def _audit(core: Core, io: SyncIO) -> Iterator[Finding]:
    wrong = io.run(audit(core, passes=LIVE_PASSES))
    if not wrong:
        yield Finding("records", "ok", "messages, indexes, counters, timers and events agree")
    for line in wrong[:_LINES]:
        yield Finding("records", "bad", line)
    if len(wrong) > _LINES:
        yield Finding("records", "bad", f"and {len(wrong) - _LINES:,} more")


@contextmanager
def _opened(place: Place) -> Iterator[tuple[Opening, SyncIO]]:
    """The server alone: a client would refuse what is to be diagnosed, and create a namespace that is not there."""
    timeout = TIMEOUT if place.timeout is None else place.timeout
    opening = Opening(place.itself("doctor").url, place.namespace or "tw", place.data_dir, None, False, timeout)
    where = opening.open()
    io = SyncIO(ServerPools(where), opening.shown, opening.seconds)
    try:
        yield opening, io
    finally:
        io.close()
        opening.close()


def _is_locked(opening: Opening) -> Callable[[int], bool]:
    """Whether a process of this host holds the election's lock of a shard."""
    if opening.server is not None:
        lock = opening.server.data_dir / f"event-process-{opening.namespace}.lock"
    else:
        lock = default_lock(opening.url or "", opening.namespace)

    def is_locked(shard: int) -> bool:
        path = Path(f"{lock}.{shard}")
        return path.exists() and not is_free(path)

    return is_locked


def _print(finding: Finding) -> None:
    mark, style = _MARKS[finding.verdict]
    line = Text.assemble((f"{mark:<8}", style), (f"{finding.check:<11}", "bold"), printable(finding.text))
    console().print(line, soft_wrap=True)
