"""Sends the commands of a driver, or of a relay, to the shard's server and returns the replies.

A command without a reply is never sent again, because the command may have taken effect. Instead, the caller opens new
connections and reads everything again.
"""

import time
from collections.abc import Sequence
from typing import Any, Final, cast

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError as RedisConnectionError,
    MasterDownError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.retry import Retry

from tickwheel.driver.commands import Command, ReadClaim, ReadSlot, ReadSlots, ReadStream, WaitForReplicas
from tickwheel.driver.stream_tail import Entries, RawConnection, StreamTail, parse_entries
from tickwheel.errors import DataLoss
from tickwheel.storage.fence import CLAIM_FIELDS
from tickwheel.storage.key_types import WRONGTYPE, type_probes, wrong_type_text
from tickwheel.storage.script_errors import ScriptError
from tickwheel.storage.scripts import Call

# Replies that concern the server, not the call: this server cannot serve the shard now.
_UNAVAILABLE_ERRORS: Final = (*(AskError, ClusterDownError, MasterDownError, MovedError, ReadOnlyError),)
# While the keys of a hash slot migrate one by one, a call with keys on both nodes is rejected without being executed.
# The call is retried until the migration ends.
_MOVING_S: Final = 2.0
_MOVING_PAUSE_S: Final = 0.02


class ServerRejects(RedisConnectionError):
    """The server cannot serve the shard now, for example because the shard moves to another server."""


class ShardConnection:
    """The connections of a shard's driver or relay: one for calls, and one for blocking reads if ``wake`` is passed.

    After an error of redis-py, the caller replaces the whole object.
    """

    def __init__(self, client: Redis, wake: int | None, name: str = "") -> None:
        """``wake`` is a file descriptor that becomes readable to end a wait. If ``wake`` is None, the object cannot
        execute `ReadStream`. ``name`` is the client name on the server.

        The connections use the address and time-outs of ``client``, but not its retries.
        """
        self._client = client
        self._name = name
        self._connections: list[RawConnection] = []
        try:
            self._call_connection = self._connect()
            self._tail = None if wake is None else StreamTail(self._connect(), wake)
        except BaseException:
            self.close()
            raise
        self._loaded_scripts: set[str] = set()

    def close(self) -> None:
        for connection in self._connections:
            connection.disconnect()
        self._connections.clear()

    def execute(self, command: Command) -> Any:
        """Return the reply to a command. Raises `ScriptError`. After an error of redis-py, close this object.

        Raises DataLoss, which names the key, if another program has changed the type of a key that a command reads. If
        a script uses such a key, the text of the `ScriptError` names the key.
        """
        try:
            return self._execute(command)
        except ScriptError as error:
            if error.code != WRONGTYPE or not isinstance(command, Call):
                raise
            raise ScriptError(self._find_wrong_type(command.keys)) from error
        except ResponseError as error:
            if isinstance(command, Call | WaitForReplicas) or not str(error).startswith(WRONGTYPE):
                raise
            key = command.clock_key if isinstance(command, ReadClaim) else command.key
            raise DataLoss(self._find_wrong_type([key])) from error

    def execute_together(self, commands: Sequence[Call | ReadClaim]) -> list[Any]:
        """Return the replies to these commands, which are sent in one round trip.

        The reply to a command that fails is its error. After an error of redis-py, close this object.
        """
        words: list[tuple[Any, ...]] = []
        for command in commands:
            if isinstance(command, Call):
                if command.script.sha not in self._loaded_scripts:
                    self._load(command)
                words.append(_evaluate(command))
            else:
                words.append(("HMGET", command.clock_key, *CLAIM_FIELDS))
        connection = self._call_connection
        connection.send_packed_command(connection.pack_commands(words))
        replies: list[Any] = []
        for _ in words:
            try:
                replies.append(connection.read_response(disable_decoding=True))
            except ResponseError as error:
                replies.append(error)
        # A command that was rejected has done nothing.
        return [
            self._retry(command) if isinstance(reply, ResponseError) else reply
            for command, reply in zip(commands, replies, strict=True)
        ]

    def _retry(self, command: Call | ReadClaim) -> Any:
        try:
            return self.execute(command)
        except (ScriptError, DataLoss, ServerRejects) as error:
            return error

    def _find_wrong_type(self, keys: Sequence[str]) -> str:
        """Return the text of the error about the key, among these keys, that has a wrong type."""
        answers: list[object] = []
        for probe in type_probes(keys):
            try:
                answers.append(self._send_command(*probe))
            except ResponseError as error:
                answers.append(error)
        return wrong_type_text(keys, answers)

    def _execute(self, command: Command) -> Any:
        match command:
            case Call():
                return self._call(command)
            case ReadStream():
                assert self._tail is not None
                return self._tail.read(command)
            case ReadSlot(key, first, count):
                return self._send_command("LRANGE", key, first, first + count - 1)
            case ReadSlots(key, first, count):
                return self._send_command("ZRANGE", key, first, first + count - 1)
            case ReadClaim(key):
                return self._send_command("HMGET", key, *CLAIM_FIELDS)
            case WaitForReplicas(count, timeout_ms):
                return self._send_command("WAIT", count, timeout_ms)

    def read_stream_now(self, command: ReadStream) -> Entries:
        """Return the entries that the stream has now, without waiting."""
        reply = self._send_command("XREAD", "COUNT", command.count, "STREAMS", command.key, command.after)
        return parse_entries(reply)

    def _call(self, call: Call) -> Any:
        evaluate = _evaluate(call)
        try:
            if call.script.sha not in self._loaded_scripts:
                self._load(call)
            try:
                return self._send_command(*evaluate)
            except NoScriptError:
                # The scripts were flushed. A missing script has done nothing, so the call may be sent again.
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
                    raise ServerRejects(
                        f"the shard's hash slot has been migrating for {_MOVING_S} s; reconnecting"
                    ) from error
                time.sleep(_MOVING_PAUSE_S)
            except _UNAVAILABLE_ERRORS as error:
                raise ServerRejects(f"the server rejects the driver's commands for now: {error!r}") from error

    def _connect(self) -> RawConnection:
        connection = make_connection(self._client, self._name)
        self._connections.append(connection)
        connection.connect()
        return connection


def _evaluate(call: Call) -> tuple[Any, ...]:
    return "EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args


def make_connection(client: Redis, name: str = "") -> RawConnection:
    """Return a new connection with the settings of the client's pool. It is outside the pool, and not connected yet."""
    pool = client.connection_pool
    settings: dict[str, Any] = dict(pool.connection_kwargs) | {"retry": Retry(NoBackoff(), 0)}
    settings |= {"client_name": name} if name else {}
    return cast(RawConnection, pool.connection_class(**settings))
