"""Sends the commands of a driver, or of a relay, to the shard's server and returns the replies.

Nothing is sent twice: whether a call that was not answered has taken effect is not known here, and the answer to that
is a new one, which reads everything again.
"""

import time
from typing import Any, Final, cast

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from tickwheel.driver.commands import Command, ReadFence, ReadSlot, ReadSlots, ReadStream, WaitForReplicas
from tickwheel.driver.stream_tail import Entries, RawConnection, StreamTail, parse_entries
from tickwheel.storage.script_errors import ScriptError
from tickwheel.storage.scripts import Call

# Answers that say nothing of the call, but that this server cannot be driven now.
_UNAVAILABLE_ERRORS: Final = (*(AskError, ClusterDownError, MasterDownError, MovedError, ReadOnlyError),)
# While keys of a slot move one by one, a call on some of both places is refused, not run; it waits for the rest.
_MOVING_S: Final = 2.0
_MOVING_PAUSE_S: Final = 0.02


class ShardConnection:
    """The two connections of a shard's driver or relay. Any failure ends it; what comes after has a new one."""

    def __init__(self, client: Redis, wake: int, name: str = "") -> None:
        """``wake`` is a file descriptor that becomes readable to end a wait. The server is told ``name``.

        The client's settings say how to connect and how long a call may take; its retries are not used.
        """
        self._client = client
        self._name = name
        self._connections: list[RawConnection] = []
        try:
            self._call_connection = self._connect()
            self._tail = StreamTail(self._connect(), wake)
        except BaseException:
            self.close()
            raise
        self._loaded_scripts: set[str] = set()

    def close(self) -> None:
        for connection in self._connections:
            connection.disconnect()
        self._connections.clear()

    def execute(self, command: Command) -> Any:
        """The reply to a command. Raises `Refused`, or an error of redis-py where the link is to be given up."""
        match command:
            case Call():
                return self._call(command)
            case ReadStream():
                return self._tail.read(command)
            case ReadSlot(key, first, count):
                return self._send_command("LRANGE", key, first, first + count - 1)
            case ReadSlots(key, first, count):
                return self._send_command("ZRANGE", key, first, first + count - 1)
            case ReadFence(key):
                return self._send_command("HGET", key, "fence")
            case WaitForReplicas(count, timeout_ms):
                return self._send_command("WAIT", count, timeout_ms)

    def read_stream_now(self, command: ReadStream) -> Entries:
        """What is in the stream, without waiting."""
        reply = self._send_command("XREAD", "COUNT", command.count, "STREAMS", command.key, command.after)
        return parse_entries(reply)

    def _call(self, call: Call) -> Any:
        script = call.script
        evaluate = ("EVALSHA", script.sha, len(call.keys), *call.keys, *call.args)
        try:
            if script.sha not in self._loaded_scripts:
                self._load(call)
            try:
                return self._send_command(*evaluate)
            except NoScriptError:
                # Flushed since. A script that is not there has done nothing: this may be sent again.
                self._load(call)
                return self._send_command(*evaluate)
        except ResponseError as error:
            raise ScriptError(str(error)) from error

    def _load(self, call: Call) -> None:
        self._send_command("SCRIPT", "LOAD", call.script.source)
        self._loaded_scripts.add(call.script.sha)

    def _send_command(self, *command: Any) -> Any:
        until = time.monotonic() + _MOVING_S
        while True:
            try:
                self._call_connection.send_command(*command)
                return self._call_connection.read_response(disable_decoding=True)
            except TryAgainError as error:
                if time.monotonic() > until:
                    raise RedisConnectionError(f"the shard's slot has been moving for {_MOVING_S} s") from error
                time.sleep(_MOVING_PAUSE_S)
            except _UNAVAILABLE_ERRORS as error:
                raise RedisConnectionError(f"the server cannot be driven now: {error!r}") from error

    def _connect(self) -> RawConnection:
        connection = make_connection(self._client, self._name)
        self._connections.append(connection)
        connection.connect()
        return connection


def make_connection(client: Redis, name: str = "") -> RawConnection:
    """A connection as the client's pool would make it, not connected yet: not out of the pool, which others share."""
    pool = client.connection_pool
    settings: dict[str, Any] = dict(pool.connection_kwargs) | {"retry": Retry(NoBackoff(), 0)}
    settings |= {"client_name": name} if name else {}
    return cast(RawConnection, pool.connection_class(**settings))
