"""The commands of a request, and the meaning of its answers: a reply, a retry, or an error. No I/O.

Every call may be sent again: it is idempotent by message id, by lease token or by client session. redis-py's own
retries are off, because Tickwheel must detect that a call was sent twice.
"""

from collections.abc import Sequence
from typing import NoReturn

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    InvalidResponse,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from tickwheel.errors import Forbidden, NotDurable, OutOfMemory, TickwheelError, Unavailable
from tickwheel.plan import Command, Reply, Request
from tickwheel.storage.key_types import WRONGTYPE, type_of_key
from tickwheel.storage.keys import namespace_of_key
from tickwheel.storage.script_errors import SCRIPT_ERRORS, ScriptError
from tickwheel.storage.scripts import load

# Temporary errors of a replica, a starting server, or a cluster without a quorum. Another server may be able to execute
# the call now, or this server soon.
_OTHER_SERVER_ERRORS = (ReadOnlyError, MasterDownError, ClusterDownError, BusyLoadingError)
_TEMPORARY_ERRORS = (*_OTHER_SERVER_ERRORS, TryAgainError)
# InvalidResponse: the other side is not a Redis server, or requests and answers no longer match.
LOST_CONNECTION = (ConnectionError, TimeoutError, OSError, InvalidResponse)
ASKING: Command = ("ASKING",)
_WAIT_MS = 2_000
# Longer than _WAIT_MS, so that the answer to WAIT arrives before the connection counts as lost.
REPLICA_ANSWER_S = 3.0


class ScriptMissing(Exception):
    """The server does not have the script, and the call was not executed. Load the script and send the call again."""


class TemporaryError(Exception):
    """The server refused the call temporarily and did nothing.

    ``on_other_server``: another server may accept the call.
    """

    def __init__(self, text: str, *, on_other_server: bool = False) -> None:
        super().__init__(text)
        self.on_other_server = on_other_server


class WrongType(Exception):
    """A key of the call has another type than Tickwheel gives to it. `type_probes` find the key."""


# A server may answer a new connection with an error. `permanent_error` decides if a retry makes sense.
CONNECTION_ERRORS = (TemporaryError, ResponseError, *LOST_CONNECTION)


def commands(request: Request, resent: bool, replicas: int) -> list[Command]:
    """Return the commands of a request. For a durable request and ``replicas`` > 0, the last command is WAIT.

    A small write (`lua/replication_barrier.lua`) precedes WAIT. Without this write, WAIT would return immediately if
    the call itself has written nothing.
    """
    if request.command is not None:
        return [request.command]
    call = request.call
    assert call is not None
    args = request.retry_args if resent and request.retry_args is not None else call.args
    evalsha = ("EVALSHA", call.script.sha, len(call.keys), *call.keys, *args)
    sent: list[Command] = [evalsha] if request.prelude is None else [("MULTI",), request.prelude, evalsha, ("EXEC",)]
    if not request.durable or not replicas:
        return sent
    barrier = load("replication_barrier")
    # The first key of every durable script is a hash that the shard always has.
    return [*sent, ("EVALSHA", barrier.sha, 1, call.keys[0]), ("WAIT", replicas, _WAIT_MS)]


def prefix_asking(request: Request, plain: list[Command]) -> list[Command]:
    """Return the commands for a server that imports the hash slot: ASKING precedes each command or transaction."""
    first = 1 if request.prelude is None else 4
    return [ASKING, *plain[:first], *(item for command in plain[first:] for item in (ASKING, command))]


def script_sources(requests: Sequence[Request], replicas: int) -> list[str]:
    """Return the sources of all scripts that these requests need, for a server that lacks one of the scripts."""
    scripts = [request.call.script for request in requests if request.call] + (
        [load("replication_barrier")] if replicas else []
    )
    return list({script.sha: script.source for script in scripts}.values())


def interpret(request: Request, answers: list[object], resent: bool, replicas: int) -> Reply:
    """Return the reply of a request. ``answers`` has an answer for each command; an error is a value, not raised.

    Raises ScriptMissing, TemporaryError, AskError or a TickwheelError, as `raise_for_reply` does, NotDurable if too few
    replicas have the change, and WrongType.
    """
    waited = request.call is not None and request.durable and replicas > 0
    answer = _call_answer(request, answers)
    if isinstance(answer, Exception):
        if is_wrong_type(answer):
            raise WrongType
        # The plan handles the error of a script. Any other error of the server is raised.
        error = ScriptError(str(answer))
        if isinstance(answer, ResponseError) and error.code in SCRIPT_ERRORS:
            return Reply(error=error, resent=resent)
        raise_for_reply(answer, request)
    if waited:
        if isinstance(answers[-2], Exception):
            raise_for_reply(answers[-2])
        reached = answers[-1]
        if not isinstance(reached, int) or reached < replicas:
            raise NotDurable(
                f"{reached} of {replicas} replicas confirmed the change within {_WAIT_MS} ms: the primary has executed"
                " the call, and the call may be repeated"
            )
    return Reply(answer, resent=resent)


def is_wrong_type(answer: object) -> bool:
    """Return whether the server refused a command, or a command of a script, because of the type of a key."""
    return isinstance(answer, ResponseError) and str(answer).startswith(WRONGTYPE)


def is_script_failure(error: TickwheelError) -> bool:
    """Return whether a script failed, for example because the record of a message is damaged."""
    return isinstance(error.__cause__, ResponseError) and ScriptError(str(error.__cause__)).is_failure


def keys_of(request: Request) -> list[str]:
    """Return the keys of the request whose type is known. A plain command has its key in second place."""
    keys = request.call.keys if request.call is not None else (request.command or ())[1:2]
    return [key for key in keys if isinstance(key, str) and type_of_key(key) is not None]


def was_run(request: Request, answers: list[object]) -> bool:
    """Return whether the request itself was executed, even if the wait for replicas failed."""
    return not isinstance(_call_answer(request, answers), Exception)


def _call_answer(request: Request, answers: list[object]) -> object:
    return answers[0] if request.prelude is None else _transaction_answer(answers[:4])


def _transaction_answer(answers: list[object]) -> object:
    """Return the call's answer from the answers to MULTI, the prelude, the call and EXEC.

    If one of them is an error, return the first error.
    """
    done = answers[-1]
    if isinstance(done, list):
        return next((answer for answer in done if isinstance(answer, Exception)), done[-1])
    return next(answer for answer in answers if isinstance(answer, Exception))


def raise_for_reply(error: Exception, request: Request | None = None) -> NoReturn:
    """Raise the exception for an error of the server. If the user may not use a key of ``request``, explain this.

    ScriptMissing, TemporaryError and AskError (also MovedError) lead to another attempt; a TickwheelError is permanent.
    """
    if isinstance(error, NoScriptError):
        raise ScriptMissing
    if isinstance(error, _TEMPORARY_ERRORS) or str(error).startswith("BUSY"):
        # redis-py keeps only the text after TRYAGAIN, which is about keys. The cause is a hash slot in migration.
        text = "its slot is being moved" if isinstance(error, TryAgainError) else str(error) or type(error).__name__
        raise TemporaryError(text, on_other_server=isinstance(error, _OTHER_SERVER_ERRORS))
    if isinstance(error, AskError):
        raise error
    known = to_tickwheel_error(error)
    if isinstance(known, Forbidden) and request is not None and "access" in str(error):
        raise Forbidden(f"{known}{_explain_access(request)}") from error
    raise known from error


def _explain_access(request: Request) -> str:
    """Return what the user lacks. The server names neither the key nor the command, and the namespace can be wrong."""
    call, command = request.call, request.command or ()
    key = call.keys[0] if call is not None and call.keys else next(iter(command[1:2]), "")
    namespace = namespace_of_key(key) if isinstance(key, str) else ""
    if not namespace:
        return ""
    refused = str(command[0]) if call is None else f"EVALSHA of the script {call.script.name}"
    return (
        f"; the client uses namespace {namespace!r} (command: {refused}). If the user belongs to another namespace,"
        " name that one: namespace=…, TICKWHEEL_NAMESPACE or --namespace. Otherwise the user lacks a right that"
        f" `tickwheel acl --namespace {namespace}` prints"
    )


def to_tickwheel_error(error: Exception) -> TickwheelError:
    """Return the Tickwheel exception for a permanent error of the server."""
    # redis-py has no class for some errors of the server. Only the text identifies these errors.
    text = str(error)
    if isinstance(error, AskError):
        return TickwheelError("the server belongs to a Redis Cluster: use a redis+cluster:// url")
    # This error has only the general code ERR.
    if "cluster support disabled" in text:
        return TickwheelError("the server does not belong to a Redis Cluster: use a redis:// url")
    if isinstance(error, OutOfMemoryError):
        return OutOfMemory(f"the server is at its memory limit and refused the call: {text}")
    if isinstance(error, NoPermissionError | AuthenticationError) or text.startswith("ACL failure"):
        return Forbidden(f"the server refused this user: {text}")
    if text.startswith("MISCONF"):
        return NotDurable(f"the server cannot write to its disk and refused the call: {text}")
    return TickwheelError(f"the server refused the call: {text}")


def permanent_error(error: BaseException) -> TickwheelError | None:
    """Return the Tickwheel exception if ``error`` is a permanent refusal of a connection or subscription, else None."""
    if isinstance(error, TickwheelError):
        # Another attempt may find the server, or the service, available.
        return None if isinstance(error, Unavailable) else error
    # The asyncio part of redis-py turns any error answer to a new connection into a ConnectionError.
    cause = error.__cause__ if isinstance(error.__cause__, RedisError) else error
    final = isinstance(cause, AuthenticationError | ResponseError) and not isinstance(cause, _TEMPORARY_ERRORS)
    return to_tickwheel_error(cause) if final and isinstance(cause, Exception) else None


def raise_if_permanent(error: BaseException | None) -> None:
    """Raise the Tickwheel exception for the error if the error is permanent."""
    final = None if error is None else permanent_error(error)
    if final is not None and final is error:
        raise final
    if final is not None:
        raise final from error


__all__ = [
    "ASKING",
    "CONNECTION_ERRORS",
    "LOST_CONNECTION",
    "REPLICA_ANSWER_S",
    "ScriptMissing",
    "TemporaryError",
    "WrongType",
    "commands",
    "interpret",
    "is_wrong_type",
    "keys_of",
    "permanent_error",
    "prefix_asking",
    "raise_for_reply",
    "raise_if_permanent",
    "script_sources",
    "was_run",
]
