"""Plans: the operations of a client as generators of steps, without I/O.

A plan yields a step, receives the answer to the step, and finally returns its result. An executor runs the steps. All
decisions are in the plans, which the blocking executor and the asyncio executor share. So each executor needs little
code.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import error as StructError
from typing import Any, Final, Generic, TypeVar

from tickwheel.errors import TickwheelError
from tickwheel.storage.script_errors import ScriptError
from tickwheel.storage.scripts import Call

Command = tuple[bytes | str | int, ...]
T = TypeVar("T")
# The errors that are raised for an answer of another type, length or format than the answers of Redis, the scripts and
# the service.
BROKEN_ANSWER: Final = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, StopIteration, StructError, TypeError, ValueError),
)


@dataclass(slots=True)
class Request:
    """A script call or a plain command on one shard.

    ``prelude`` is a command that runs before the call, in the same transaction. ``retry_args`` replace the arguments
    when the call is sent again. A ``durable`` call waits for as many replicas as the client's durability demands.
    """

    shard: int
    call: Call | None = None
    command: Command | None = None
    prelude: Command | None = None
    retry_args: Sequence[bytes | int | str] | None = None
    durable: bool = False


@dataclass(slots=True, eq=False)
class Reply:
    """The outcome of a request: a value, or the error of a script.

    ``resent``: the call was sent more than once, so an earlier copy may have been executed.
    """

    value: Any = None
    error: ScriptError | None = None
    resent: bool = False


@dataclass(slots=True)
class Round:
    """Requests that are sent in one round trip for each server. The answer is a list with a Reply for each request.

    ``allow_partial``: if at least one server answers, the round ends after two failed attempts to reach the others. The
    answer then has None for each request to an unresponsive server.
    """

    requests: list[Request]
    allow_partial: bool = False


@dataclass(slots=True)
class ListPrimaries:
    """List the primaries, as the cluster reports them now.

    The answer maps the name of each primary to a shard whose requests go to this primary. The name of a single server
    is empty.
    """


@dataclass(slots=True, eq=False)
class Search:
    """A search of a dequeue that waits and has a filter. An equal search of another call may answer the search.

    ``caller``: the service delays the searches of a caller, so each caller has its own, and none waits for others.
    ``final``: the call does not wait any longer. ``woken``: a wake-up is the reason for the search.
    """

    queue: str
    where: bytes
    caller: str
    final: bool
    woken: bool
    is_answered: bool = False
    """The executor sets this: another search has found that nothing matches the filter."""
    found: bool | None = None
    """The plan sets this: whether it found messages. None if it did not search to the end."""
    is_complete: bool = False
    """The plan sets this: whether it searched all shards."""


@dataclass(slots=True)
class BeginSearch:
    """Sleep until it is the search's turn, or until another search has answered the search."""

    search: Search


@dataclass(slots=True)
class EndSearch:
    """End a search after `BeginSearch`, also if it failed or did not begin. Other calls use its outcome."""

    search: Search


@dataclass(slots=True)
class Subscribe:
    """Subscribe to a queue's wake-ups.

    After the subscription is confirmed, the answer is a *waiter*: an object that receives the wake-ups for one call.
    ``where`` is the packed filter of the call. Calls with the same filter share their searches. ``caller`` names the
    caller: the callers of a process take turns.
    If not ``exists``, the queue does not exist, and there is no subscription. Each second, one waiter is woken, and
    checks again.
    """

    queue: str
    where: bytes = b""
    caller: str = ""
    exists: bool = True


@dataclass(slots=True)
class SubscribeJointly:
    """Subscribe to the wake-ups of several queues, all of which exist.

    The answer is one waiter (`redis.joint_wait.JointWaitHandle`) for all of the queues, without a filter. There is no
    subscription to the ``closed`` queues, which do not exist or are blocked. Each second, one waiter of the process is
    woken, and reads the closed queues of all waiters (`redis/closed_queues.py`).
    """

    queues: Sequence[str]
    caller: str = ""
    closed: Sequence[str] = ()


@dataclass(slots=True)
class SubscribeToEnd:
    """Subscribe to the ends of messages of a topic (`storage/end_topic.py`).

    After the subscription is confirmed, the answer is a waiter, which is woken when the message of ``field`` ends, or
    if announcements may have been lost. The waiters of several callers are woken in turns.
    """

    topic: str
    field: bytes
    caller: str = ""


@dataclass(slots=True)
class AwaitWakeup:
    """Sleep until the waiter is woken, for at most ``seconds``."""

    waiter: Any
    seconds: float


@dataclass(slots=True)
class Pause:
    """Sleep for ``seconds``."""

    seconds: float


@dataclass(slots=True)
class ForwardWakeup:
    """Pass the wake-up of a waiter to a waiter with another filter, because no message matched this filter."""

    waiter: Any


@dataclass(slots=True)
class Unsubscribe:
    """Remove a waiter. A wake-up that the waiter did not use goes to another waiter."""

    waiter: Any


@dataclass(slots=True)
class ContinueWalk:
    """Announce that the next round continues a walk of an index, which one script call did not end. The round has a
    call for each of ``shards`` shards.

    The service charges these calls, and delays them while other walks of the same caller go on. Other executors do
    nothing. ``has_messages``: the plan has leased messages, whose workers wait for the end of the walk.
    """

    shards: int = 1
    has_messages: bool = False


@dataclass(slots=True)
class RpcCall:
    """A call of the gRPC service (`rpc.methods`). The answer is the response.

    If the call waits, ``until`` is the end of the wait, in monotonic seconds. A retry waits only for the remaining
    time.
    """

    method: str
    request: Any
    until: float | None = None


Step = (
    Round
    | ListPrimaries
    | BeginSearch
    | EndSearch
    | Subscribe
    | SubscribeJointly
    | SubscribeToEnd
    | AwaitWakeup
    | Pause
    | ForwardWakeup
    | Unsubscribe
    | ContinueWalk
    | RpcCall
)
Plan = Generator[Step, Any, T]


@dataclass(slots=True)
class Effects:
    """Whether a call has changed data. If the call runs several plans, all of them share the object."""

    applied: bool = False


class PlanRun(Generic[T]):
    """Steps through a plan. The executor runs each step and sets ``answer``, or ``error`` if the step raised one."""

    __slots__ = ("_has_answers", "_plan", "_server", "answer", "error", "result")
    result: T

    def __init__(self, plan: Plan[T], server: str | None = None) -> None:
        """``server`` names the server or the service. If it is None, errors about broken answers are not converted."""
        self._plan = plan
        self._server = server
        self._has_answers = False
        self.answer: Any = None
        self.error: BaseException | None = None

    def next_step(self) -> Step | None:
        """Pass the answer or the error to the plan. Return the plan's next step, or None if the plan has ended.

        Raises TickwheelError if the plan cannot interpret the server's answers.

        At the end of the plan, ``result`` is set. The plan receives every error, also KeyboardInterrupt and
        CancelledError, so that it releases its waiter and its session before the error reaches the caller.
        """
        answer, error = self.answer, self.error
        self.answer = self.error = None
        try:
            return self._plan.send(answer) if error is None else self._plan.throw(error)
        except StopIteration as returned:
            self.result = returned.value
            return None
        except ArgumentError as failed:
            raise failed.error from failed.error.__cause__
        except BROKEN_ANSWER as cause:
            # Before the first answer, and if the executor raised the error, the answers are not the cause.
            if self._server is None or cause is error or not self._has_answers or isinstance(cause, TickwheelError):
                raise
            raise broken_answer_error(self._server, cause) from cause
        finally:
            self._has_answers = True


class ArgumentError(Exception):
    """An iterable that the caller has passed raised ``error``. `PlanRun` raises ``error`` to the caller."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def iter_argument(items: Iterable[T]) -> Iterator[T]:
    """Yield the items of an iterable that the caller has passed, and that a plan reads between its steps.

    Raises ArgumentError for an error of the iterable: `PlanRun` would report the error as a broken answer.
    """
    try:
        yield from items
    except BROKEN_ANSWER as error:
        raise ArgumentError(error) from error


def broken_answer_error(server: str, cause: BaseException) -> TickwheelError:
    """Return the error for an answer that no Tickwheel script or service, and no Redis or Valkey server, returns."""
    return TickwheelError(
        f"an answer of {server} is not one of Redis or Valkey with the scripts of Tickwheel, or of a Tickwheel service"
        f" ({cause!r:.200}): check that the url names the right server, and that the network in between changes nothing"
    )


def send_request(request: Request) -> Plan[Reply]:
    """Send a round with a single request, and return its reply."""
    replies = yield Round([request])
    reply: Reply = replies[0]
    return reply


def pairs_from_flat(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Return the (field, value) pairs of a hash from the flat list in which Redis returns them.

    Raises TypeError for an answer of another type: an empty string would otherwise count as an empty hash.
    """
    if not isinstance(flat, list):
        raise TypeError(f"not the pairs of a hash: {flat!r:.80}")
    return zip(flat[::2], flat[1::2], strict=True)
