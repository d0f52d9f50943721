"""What both I/O layers share, without I/O: commands of a request, meaning of an answer, and when to try again.

Every call may be sent again: it is idempotent by id, by token or by its session. redis-py's own retries are off,
because they would repeat a call without telling anybody.
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

from tickwheel.errors import Forbidden, NotDurable, OutOfMemory, TickwheelError
from tickwheel.plan import Command, Reply, Request
from tickwheel.storage.script_errors import SCRIPT_ERRORS, ScriptError
from tickwheel.storage.scripts import load

# Another server may do it by now, or this one soon: a replica, one that starts, a cluster without a quorum.
_OTHER_SERVER_ERRORS = (ReadOnlyError, MasterDownError, ClusterDownError, BusyLoadingError)
_TEMPORARY_ERRORS = (*_OTHER_SERVER_ERRORS, TryAgainError)
# What is no answer of this protocol is none at all: another kind of server, or a connection that is out of step.
LOST_CONNECTION = (ConnectionError, TimeoutError, OSError, InvalidResponse)
ASKING: Command = ("ASKING",)
_WAIT_MS = 2_000
# So that the answer to WAIT arrives, whatever it is.
REPLICA_ANSWER_S = 3.0


class ScriptMissing(Exception):
    """The server does not have the script: load it and send the call again. It was not run."""


class TemporaryError(Exception):
    """The server refused for now, without doing anything. ``elsewhere``: another one may be asked."""

    def __init__(self, text: str, *, on_other_server: bool = False) -> None:
        super().__init__(text)
        self.on_other_server = on_other_server


# A server may answer a new connection with an error, before any call: `permanent_error` says whether it is for good.
CONNECTION_ERRORS = (TemporaryError, ResponseError, *LOST_CONNECTION)


def commands(request: Request, resent: bool, replicas: int) -> list[Command]:
    """The commands of a request, its own and, where it waits for replicas, a write and WAIT."""
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
    """The same commands for a server that is taking the slot over: each, and the transaction, may be done there."""
    first = 1 if request.prelude is None else 4
    return [ASKING, *plain[:first], *(item for command in plain[first:] for item in (ASKING, command))]


def script_sources(requests: Sequence[Request], replicas: int) -> list[str]:
    """The scripts that these requests need, for a server that does not have one of them."""
    scripts = [request.call.script for request in requests if request.call] + (
        [load("replication_barrier")] if replicas else []
    )
    return list({script.sha: script.source for script in scripts}.values())


def interpret(request: Request, answers: list[object], resent: bool, replicas: int) -> Reply:
    """The reply of a request from the answers to its commands, of which errors are values here."""
    waited = request.call is not None and request.durable and replicas > 0
    answer = _call_answer(request, answers)
    if isinstance(answer, Exception):
        # A script's own refusal is for the plan; all else that a server refuses is an error for the caller.
        error = ScriptError(str(answer))
        if isinstance(answer, ResponseError) and error.code in SCRIPT_ERRORS:
            return Reply(error=error, resent=resent)
        raise_for_reply(answer)
    if waited:
        if isinstance(answers[-2], Exception):
            raise_for_reply(answers[-2])
        reached = answers[-1]
        if not isinstance(reached, int) or reached < replicas:
            raise NotDurable(
                f"{reached} of {replicas} replicas had the change within {_WAIT_MS} ms: it is done on the primary, and"
                " the call may be sent again"
            )
    return Reply(answer, resent=resent)


def was_run(request: Request, answers: list[object]) -> bool:
    """Whether the request itself was done, whatever came of the wait for its replicas."""
    return not isinstance(_call_answer(request, answers), Exception)


def _call_answer(request: Request, answers: list[object]) -> object:
    return answers[0] if request.prelude is None else _transaction_answer(answers[:4])


def _transaction_answer(answers: list[object]) -> object:
    """The call's answer among those of MULTI, a command, the call and EXEC, or what kept it from running."""
    done = answers[-1]
    if isinstance(done, list):
        return next((answer for answer in done if isinstance(answer, Exception)), done[-1])
    return next(answer for answer in answers if isinstance(answer, Exception))


def raise_for_reply(error: Exception) -> NoReturn:
    """Raise what one of the server's errors means: the script is missing, later, elsewhere, or refused for good."""
    if isinstance(error, NoScriptError):
        raise ScriptMissing
    if isinstance(error, _TEMPORARY_ERRORS) or str(error).startswith("BUSY"):
        # Of TRYAGAIN redis-py keeps the text alone, which is about keys: what it means is about the slot.
        text = "its slot is being moved" if isinstance(error, TryAgainError) else str(error) or type(error).__name__
        raise TemporaryError(text, on_other_server=isinstance(error, _OTHER_SERVER_ERRORS))
    if isinstance(error, AskError):
        raise error
    raise to_tickwheel_error(error) from error


def to_tickwheel_error(error: Exception) -> TickwheelError:
    """The error of ours for one of the server's."""
    text = str(error)
    if isinstance(error, AskError):
        return TickwheelError("the server is one of a Redis Cluster: give a redis+cluster:// url")
    if "cluster support disabled" in text:
        return TickwheelError("the server is not one of a Redis Cluster: give a redis:// url")
    if isinstance(error, OutOfMemoryError):
        return OutOfMemory(f"the server is at its memory limit and refused the call: {text}")
    if isinstance(error, NoPermissionError | AuthenticationError) or text.startswith("ACL failure"):
        return Forbidden(f"the server refused this user: {text}")
    if text.startswith("MISCONF"):
        return NotDurable(f"the server cannot write to its disk and refused the call: {text}")
    return TickwheelError(f"the server refused the call: {text}")


def permanent_error(error: BaseException) -> TickwheelError | None:
    """The error of ours where a connection or subscription was refused for good; None where it may be tried again."""
    # Of any answer to a new connection the asyncio half of redis-py makes a lost connection.
    cause = error.__cause__ if isinstance(error.__cause__, RedisError) else error
    final = isinstance(cause, AuthenticationError | ResponseError) and not isinstance(cause, _TEMPORARY_ERRORS)
    return to_tickwheel_error(cause) if final and isinstance(cause, Exception) else None


def raise_if_permanent(error: BaseException | None) -> None:
    """Raise the error of ours where this one says that it is for good."""
    final = None if error is None else permanent_error(error)
    if final is not None:
        raise final from error


__all__ = [
    "ASKING",
    "CONNECTION_ERRORS",
    "LOST_CONNECTION",
    "REPLICA_ANSWER_S",
    "ScriptMissing",
    "TemporaryError",
    "commands",
    "interpret",
    "permanent_error",
    "prefix_asking",
    "raise_for_reply",
    "raise_if_permanent",
    "script_sources",
    "was_run",
]
