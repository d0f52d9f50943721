"""The connections of an election by lease: they execute the commands of `LeaseSteps`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from tickwheel.driver.commands import ReadClaim
from tickwheel.driver.shard_connection import ServerRejects, ShardConnection, make_connection
from tickwheel.election.lease_attendance import Attendance, Attended
from tickwheel.election.stored_assignment import StoredAssignment
from tickwheel.errors import TickwheelError
from tickwheel.plan import BROKEN_ANSWER, broken_answer_error
from tickwheel.redis.channel_listener import ChannelListener
from tickwheel.runtime.time import monotonic_ms
from tickwheel.storage import scripts
from tickwheel.storage.fence import StoredClaim
from tickwheel.storage.keys import election_key, namespace_key, shard_key
from tickwheel.storage.scripts import Call

# The shard with the metadata, on whose server the election has its rows.
_METADATA_SHARD: Final = 0
# Members are words. Other programs may have written any bytes.
_ENCODING: Final = "latin-1"


class LeaseConnection:
    """Connections to the servers of the shards: one for calls to each server, and one that listens to the election.

    After an error, the caller replaces the whole object.
    """

    def __init__(
        self, connect: Callable[[int], Redis], namespace: str, member: str, shards: int, wake: int, answer_ms: float
    ) -> None:
        """``connect`` returns a client of a shard's server. ``wake`` is a file descriptor that ends a wait.

        ``answer_ms`` is the time-out of a call.
        """
        self._connect = connect
        self._namespace = namespace
        self._member = member
        self._shards = shards
        self._answer_ms = answer_ms
        self._key = election_key(namespace)
        self._namespace_key = namespace_key(namespace)
        self._attend = scripts.load("attend_election")
        self._release = scripts.load("release_shard")
        # By the pool of connections to the server; and by shard, because in a cluster each `connect` is a call.
        self._connections: dict[Any, ShardConnection] = {}
        self._by_shard: dict[int, ShardConnection] = {}
        # The shards to which the last attempt to connect has failed.
        self._unreachable: set[int] = set()
        self._listener: ChannelListener | None = None
        try:
            self._home = self._connection(_METADATA_SHARD)
            self._listener = ChannelListener(make_connection(connect(_METADATA_SHARD)), wake, answer_ms)
            self._listener.set_channels([self._key])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        if self._listener is not None:
            self._listener.close()

    def attend(self, call: Attendance) -> Attended:
        """Call the script `attend_election`. Raises ScriptError, also if the namespace is gone."""
        args: list[bytes | int | str] = [
            self._member,
            call.mode,
            call.row.pack(self._shards),
            int(call.announces),
            call.seen.header,
            call.proposal.packed() if call.proposal else b"",
            self._shards,
        ]
        for member, row in call.removals:
            args += [member.encode(_ENCODING), row]
        reply = self._home.execute(Call(self._attend, [self._key, self._namespace_key], args))
        try:
            had_row, header, rest, *fields = reply
            rows = zip(fields[::2], fields[1::2], strict=True)
            return Attended(
                had_row=bool(had_row),
                rows={member.decode(_ENCODING): bytes(row) for member, row in rows},
                assignment=call.seen if header == call.seen.header else StoredAssignment.parse(header, rest),
            )
        except BROKEN_ANSWER as error:
            raise broken_answer_error("the server of the election", error) from error

    def read_claims(self, shards: list[int]) -> dict[int, StoredClaim | None]:
        """Read the last claims of shards; None for a claim that cannot be read."""
        replies = self._execute_all({shard: ReadClaim(self._clock_key(shard)) for shard in shards})
        claims: dict[int, StoredClaim | None] = {}
        for shard in shards:
            try:
                claims[shard] = None if replies[shard] is None else StoredClaim.parse(replies[shard])
            except BROKEN_ANSWER:
                claims[shard] = None
        return claims

    def release(self, fences: Mapping[int, bytes]) -> None:
        """Release the fences of shards. A fence that cannot be released now ends with this process's row."""
        calls = {shard: Call(self._release, [self._clock_key(shard)], [fence]) for shard, fence in fences.items()}
        self._execute_all(calls)

    def wait(self, until_ms: float) -> bool:
        """Wait until a moment, a wake-up or a message. Return whether a change of the election was published."""
        assert self._listener is not None
        return bool(self._listener.poll(until_ms))

    def _execute_all(self, commands: Mapping[int, ReadClaim | Call]) -> dict[int, Any]:
        """Execute one command for each shard, in one round trip for each server. Return the replies.

        The reply is None if the command fails, or if the server of a shard, other than that of the metadata, does not
        answer.
        """
        by_server: dict[ShardConnection, dict[int, ReadClaim | Call]] = {}
        replies: dict[int, Any] = dict.fromkeys(commands)
        # An attempt to connect can take as long as the pause between two calls of the election. So if the attempts of
        # this call have taken as long, the call goes on with the servers that are connected. The next call begins with
        # the shards that may be reachable.
        ends_at = monotonic_ms() + self._answer_ms
        for shard in sorted(commands, key=self._unreachable.__contains__):
            if shard not in self._by_shard and monotonic_ms() >= ends_at:
                continue
            try:
                by_server.setdefault(self._connection(shard), {})[shard] = commands[shard]
            except (RedisError, OSError, TickwheelError):
                self._unreachable.add(shard)
            else:
                self._unreachable.discard(shard)
        for connection, own in by_server.items():
            try:
                answers = connection.execute_together([*own.values()])
            except (RedisError, OSError, TickwheelError):
                if connection is self._home:
                    raise
                self._forget(connection)
            else:
                for shard, answer in zip(own, answers, strict=True):
                    if isinstance(answer, ServerRejects):
                        # The shard may have another server now.
                        del self._by_shard[shard]
                    elif not isinstance(answer, Exception):
                        replies[shard] = answer
        return replies

    def _connection(self, shard: int) -> ShardConnection:
        if shard not in self._by_shard:
            client = self._connect(shard)
            if client.connection_pool not in self._connections:
                self._connections[client.connection_pool] = ShardConnection(client, None)
            self._by_shard[shard] = self._connections[client.connection_pool]
        return self._by_shard[shard]

    def _forget(self, connection: ShardConnection) -> None:
        connection.close()
        self._connections = {pool: other for pool, other in self._connections.items() if other is not connection}
        self._by_shard = {shard: other for shard, other in self._by_shard.items() if other is not connection}

    def _clock_key(self, shard: int) -> str:
        return shard_key(self._namespace, shard, "clock")
