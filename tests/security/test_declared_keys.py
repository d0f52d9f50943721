"""Every script accesses only the keys that it declares, observed by MONITOR while all scripts run."""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import InvalidTransition, LeaseLost, Message, NamespaceInUse, NewMessage, Queue, Tickwheel
from tickwheel.event_process.queue_readings import read_queues
from tickwheel.operations.answered_calls import register_call
from tickwheel.operations.dispatch import push_config_version
from tickwheel.operations.driving.leader_permissions import find_denied
from tickwheel.operations.sessions import RequestId, RequestSessions
from tickwheel.operations.shard_status import reset_epoch
from tickwheel.plan import Request, send_request
from tickwheel.storage import scripts
from tickwheel.storage.fence import pack_fence
from tickwheel.storage.keys import election_key, namespace_key
from tickwheel.storage.scripts import Call
from tickwheel.testing import PrivateServer, VirtualClock, sandbox
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.security

_LINE = re.compile(rb"^\d+\.\d+ \[\d+ ([^\]]*)\] (.*)$", re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_SHORT = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}
_END = b"no more to come"


@dataclass
class Watched:
    """One call of a script: its declared keys, and the commands that it ran."""

    name: str
    declared: list[bytes]
    commands: list[list[bytes]] = field(default_factory=list)


class Monitor:
    """Records every command of a server on a separate connection."""

    def __init__(self, server: PrivateServer) -> None:
        self._client: Any = server.client()
        self._connection = _connection(self._client)
        self._connection.send_command("MONITOR")
        assert self._connection.read_response() == b"OK"
        self._lines: list[bytes] = []
        self._thread = threading.Thread(target=self._record, daemon=True)
        self._thread.start()

    def lines(self) -> list[bytes]:
        """Stop recording, and return the recorded lines."""
        self._client.execute_command("ECHO", _END)
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._connection.disconnect()
        self._client.close()
        return self._lines

    def _record(self) -> None:
        while True:
            line = self._connection.read_response()
            if _END in line:
                return
            self._lines.append(line)


def _connection(client: Any) -> Any:
    return client.connection_pool.get_connection()


def words(quoted: bytes) -> list[bytes]:
    """Parse a command as MONITOR prints it."""

    def unescaped(match: "re.Match[bytes]") -> bytes:
        code = match[1]
        return bytes.fromhex(code[1:].decode()) if code[:1] == b"x" and len(code) == 3 else _SHORT.get(code, code)

    return [_ESCAPE.sub(unescaped, word) for word in _WORD.findall(quoted)]


def calls(lines: list[bytes], names: dict[bytes, str]) -> Iterator[Watched]:
    """Yield the script calls in order: MONITOR prints a call, then the commands that it runs, marked `lua`."""
    current: Watched | None = None
    for line in lines:
        matched = _LINE.match(line)
        assert matched is not None, line
        command = words(matched[2])
        if matched[1] == b"lua":
            assert current is not None
            current.commands.append(command)
            continue
        if current is not None:
            yield current
        current = None
        if command[0].lower() == b"evalsha" and command[1] in names:
            count = int(command[2])
            current = Watched(names[command[1]], command[3 : 3 + count])
    if current is not None:
        yield current


def keys_of(command: list[bytes], server: Any) -> list[bytes]:
    """Return the keys and the sharded pub/sub channels that a command accesses, as the server reports them."""
    name = command[0].upper()
    if name in (b"TIME", b"INFO", b"PUBSUB"):
        return []
    if name == b"SPUBLISH":
        return [command[1]]
    return [key.encode() for key in server.command_getkeys(*command)]


def settle_in_every_way(queue: Queue, messages: list[Message]) -> None:
    """Release the first message, complete the second, fail the third, and cancel the others."""
    for n, message in enumerate(messages):
        if n == 0:
            message.extend(timedelta(minutes=1))
            message.release()
        elif n == 1:
            message.complete()
        elif n == 2:
            message.fail("boom", retry_in=timedelta(seconds=1))
        else:
            queue.cancel(message.id, message.exclusive_value)
            with pytest.raises(LeaseLost):
                message.complete()


def use_every_script(tw: Tickwheel, clock: VirtualClock) -> None:
    """Call every script in plain and exclusive queues, through its main branches."""
    for kind in ("plain", "exclusive"):
        key = "of" if kind == "exclusive" else None
        queue = tw.create_queue(kind, exclusive_key=key, forecast=True, max_attempts=2)
        metadata = [{"of": str(n % 7), "kind": str(n % 3), "odd": str(n % 2)} for n in range(60)]
        queue.enqueue_many(
            NewMessage(bytes(n * 100), id=f"now{n}", metadata=pairs, deadline=timedelta(seconds=n % 5))
            for n, pairs in enumerate(metadata)
        )
        delays = [timedelta(milliseconds=17), timedelta(hours=1), timedelta(days=1), timedelta(days=400)]
        queue.enqueue_many(
            NewMessage(id=f"later{n}{delay}", delay=delay, metadata=metadata[n]) for n in range(10) for delay in delays
        )
        for where in (None, {"kind": "1"}, {"kind": "1", "odd": "0"}, {"kind": "none"}):
            settle_in_every_way(queue, queue.dequeue(limit=4, where=where, worker="w"))
            queue.dequeue(limit=2, where=where, consistency="exact")
        value = "0" if key else None
        queue.dequeue(limit=50)
        queue.dequeue(limit=50, where={"kind": "0"})
        queue.reschedule("now56", value, delay=timedelta(hours=2)) if queue.get(
            "now56", value
        ).state == "pending" else None
        queue.reschedule(f"later0{delays[1]}", value, delay=timedelta(hours=2), deadline=timedelta(hours=1))
        queue.cancel(f"later0{delays[2]}", value)
        queue.cancel("now49", value)
        queue.explain("now0", value)
        queue.depth({"kind": "1", "odd": "1"})
        queue.counts()
        for shard in range(tw._context.shards):
            tw._run(read_queues(tw._context, shard, {kind: None}))
        queue.forecast()
        clock.advance(timedelta(hours=3))
        queue.dequeue(limit=50)
        clock.advance(timedelta(hours=3))
        errored = list(queue.messages("errored"))
        queue.redrive(errored[0].id, errored[0].exclusive_value)
        with pytest.raises(InvalidTransition):
            queue.redrive(errored[0].id, errored[0].exclusive_value)
        tw.create_queue(kind, exclusive_key=key, forecast=True, max_attempts=3, update=True)
        clock.advance(timedelta(days=30))
        queue.purge()
    newer = replace(tw.create_queue("empty").config(), version=9)
    # As if the metadata shard had lost updates.
    tw._run(push_config_version(tw._context, "empty", newer, [tw._context.shards - 1]))
    tw.delete_queue("empty")
    tw.set_setting("a", "b")
    tw.set_setting("a", None)
    clock.advance(timedelta(days=370))


@pytest.fixture(scope="module", params=[1, 4], ids=["1-shard", "4-shards"])
def watched(request: pytest.FixtureRequest, tickwheel_server: PrivateServer) -> list[Watched]:
    """All script calls of a run that calls every script."""
    names = {scripts.load(name, "_clock_test").sha.encode(): name for name in scripts.names()}
    with (
        sandbox(tickwheel_server, shards=request.param, history="relay") as (tw, clock),
        tickwheel_server.client() as server,
    ):
        monitor = Monitor(tickwheel_server)
        # A client checks its permissions when it is opened.
        Tickwheel(tickwheel_server.url, namespace=tw._context.namespace, clock=FRAGMENT).close()
        use_every_script(tw, clock)
        # The client sends this script if it waits for replicas.
        tw._run(
            send_request(
                Request(0, call=Call(scripts.load("replication_barrier"), [tw._context.keys(0, "plain")["clock"]], []))
            )
        )
        # The relay sends this script when Kafka has acknowledged the events that it trims.
        keys = [tw._context.keys(0, "plain")[name] for name in ("clock", "events")]
        (first, _), (second, _) = server.xrange(keys[1], count=2)
        args = [server.hget(keys[0], "fence"), first, second, 1]
        tw._run(send_request(Request(0, call=Call(scripts.load("trim_outbox", "_clock_test"), keys, args))))
        # The service sends this script before a call with a request id.
        tw._run(register_call(tw._context, "plain", RequestSessions(RequestId.parse("a:1").call("plain", "Any", b""))))
        # A program sends this script before it drives as a last resort.
        tw._run(find_denied(tw._context))
        # The members of an election by lease send these scripts, and commands that warn if there is no member.
        claim: list[bytes | int | str] = [pack_fence(9, 9), "lease", "", "host:1", 1, 0, "member", b"", b""]
        tw._run(reset_epoch(tw._context, 0))
        members = [election_key(tw._context.namespace), namespace_key(tw._context.namespace)]
        of_election: list[tuple[str, list[str], list[bytes | int | str]]] = [
            ("attend_election", members, ["member", "join", b"row", 1, b"", b"x" * 20, request.param]),
            ("attend_election", members, ["other", "leave", b"", 0, b"", b"", request.param, "member", b"row"]),
            ("claim_shard_by_lease", keys[:1], claim),
            ("release_shard", keys[:1], [claim[0]]),
            ("count_listeners", keys[:1], [members[0]]),
        ]
        for name, its_keys, arguments in of_election:
            tw._run(send_request(Request(0, call=Call(scripts.load(name, "_clock_test"), its_keys, arguments))))
        server.delete(members[0])
        # An operator sends this script.
        tw._run(reset_epoch(tw._context, 0))
        with sandbox(tickwheel_server, shards=request.param, history="relay") as (deleted, _):
            deleted.queue("q").enqueue_many(NewMessage(id=f"m{n}") for n in range(20))
            with pytest.raises(NamespaceInUse):
                deleted.delete_namespace()
            server.delete(*(deleted._context.keys(shard, "q")["events"] for shard in range(request.param)))
            deleted.delete_namespace()
        return list(calls(monitor.lines(), names))


def test_every_script_is_used_by_python(watched: list[Watched]) -> None:
    several = any(b"{1}" in key for call in watched for key in call.declared)
    # `peek_orders` runs only if there are several shards to compare.
    assert {call.name for call in watched} == set(scripts.names()) - (set() if several else {"peek_orders"})


def test_a_script_touches_no_key_that_it_did_not_declare(watched: list[Watched], server: Any) -> None:
    known: dict[tuple[bytes, ...], list[bytes]] = {}
    for call in watched:
        for command in call.commands:
            # The command is shortened to its keys, so that the server is queried once for each form of a command.
            shape = tuple(command[:3])
            if command[0].upper() in (b"UNLINK", b"DEL"):
                shape = tuple(command)
            if shape not in known:
                known[shape] = keys_of(command, server)
            undeclared = [key for key in known[shape] if key not in call.declared]
            assert not undeclared, f"{call.name} touched {undeclared} by {command}"


def test_all_keys_of_a_call_belong_to_one_shard(watched: list[Watched]) -> None:
    for call in watched:
        tags = {key[key.index(b"{") : key.index(b"}") + 1] for key in call.declared}
        assert len(tags) == 1, f"{call.name} declared {call.declared}"


def test_read_only_scripts_write_nothing(watched: list[Watched], server: Any) -> None:
    reading = {name for name in scripts.names() if "no-writes" in scripts.load(name).source.splitlines()[0]}
    assert reading == {
        *("counts", "depth", "explain", "forecast", "get", "queue_metrics", "scan"),
        *("check_permissions", "check_leader_permissions", "count_listeners"),
    }
    used = {command[0].decode().lower() for call in watched if call.name in reading for command in call.commands}
    flags = {name: about["flags"] for name, about in server.command().items() if name in used}
    assert flags.keys() == used
    assert not [name for name in used if "write" in flags[name]]


def test_an_empty_dequeue_writes_nothing(tickwheel_server: PrivateServer) -> None:
    names = {scripts.load(name, "_clock_test").sha.encode(): name for name in scripts.names()}
    with sandbox(tickwheel_server) as (tw, _):
        queue = tw.create_queue("q")
        queue.enqueue()
        queue.dequeue()
        monitor = Monitor(tickwheel_server)
        assert queue.dequeue() == []
        # The next dequeue sends plain commands instead of the script.
        assert queue.dequeue(where={"a": "b"}) == []
        queue.enqueue()
        assert queue.dequeue(where={"a": "b"}) == []
        dequeues = [call for call in calls(monitor.lines(), names) if call.name == "dequeue"]
    assert len(dequeues) == 2
    assert {command[0].upper() for call in dequeues for command in call.commands} <= {
        *(b"HGET", b"GET", b"EXISTS", b"ZRANGE", b"ZRANGEBYLEX"),
    }
