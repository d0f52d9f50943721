"""What the client wants done, as data: operations make plans, executors carry them out.

A plan is a generator: it yields a step, is sent what came of it, and returns its result. So every decision is made
once, without I/O, and the two layers stay thin.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tickwheel.storage.script_errors import ScriptError
from tickwheel.storage.scripts import Call

Command = tuple[bytes | str | int, ...]
T = TypeVar("T")


@dataclass(slots=True)
class Request:
    """A script call or a plain command on one shard.

    ``prelude`` is sent in one transaction with the call, ahead of it. ``retry_args`` are the arguments for sending the
    call a second time, if they differ. ``durable`` calls wait for the replicas that the client asked for.
    """

    shard: int
    call: Call | None = None
    command: Command | None = None
    prelude: Command | None = None
    retry_args: Sequence[bytes | int | str] | None = None
    durable: bool = False


@dataclass(slots=True)
class Reply:
    """What came of a request: a value, or the error of a script.

    ``resent`` says that the call was sent more than once, so it may have been answered before.
    """

    value: Any = None
    error: ScriptError | None = None
    resent: bool = False


@dataclass(slots=True)
class Round:
    """Requests that are sent together, in one round trip for each server. Answered with a Reply for each.

    ``allow_partial``: if servers answer, those that stay silent when asked again are not waited for: None for each
    of theirs.
    """

    requests: list[Request]
    allow_partial: bool = False


@dataclass(slots=True)
class ListPrimaries:
    """Ask which servers there are. Answered with a shard for each name of one: requests of that shard go to it."""


@dataclass(slots=True)
class Subscribe:
    """Subscribe to a queue's wake-ups. Answered with a waiter once the subscription stands."""

    queue: str


@dataclass(slots=True)
class AwaitWakeup:
    """Sleep until woken, or for so many seconds."""

    waiter: Any
    seconds: float


@dataclass(slots=True)
class ForwardWakeup:
    """The waiter was woken and found nothing for itself: let another try."""

    waiter: Any


@dataclass(slots=True)
class Unsubscribe:
    """The waiter is no longer needed; a wake-up that it did not use goes to another."""

    waiter: Any


@dataclass(slots=True)
class RpcCall:
    """A call of the gRPC service (`rpc.methods`). Answered with its response.

    ``until``, in monotonic seconds, is when a call that waits is to be answered; sent again it waits only for the rest.
    """

    method: str
    request: Any
    until: float | None = None


Step = Round | ListPrimaries | Subscribe | AwaitWakeup | ForwardWakeup | Unsubscribe | RpcCall
Plan = Generator[Step, Any, T]


class PlanRun(Generic[T]):
    """Steps through a plan. The executor carries each step out and sets its ``answer``, or the ``error`` it raised."""

    __slots__ = ("_plan", "answer", "error", "result")
    result: T

    def __init__(self, plan: Plan[T]) -> None:
        self._plan = plan
        self.answer: Any = None
        self.error: BaseException | None = None

    def next_step(self) -> Step | None:
        """Pass the answer or the error to the plan. Return its next step, or None if it has returned its ``result``.

        The plan receives every error, also KeyboardInterrupt and CancelledError, and releases its waiter and its
        session before the error leaves it.
        """
        answer, error = self.answer, self.error
        self.answer = self.error = None
        try:
            return self._plan.send(answer) if error is None else self._plan.throw(error)
        except StopIteration as returned:
            self.result = returned.value
            return None


def send_request(request: Request) -> Plan[Reply]:
    """A round of a single request."""
    replies = yield Round([request])
    reply: Reply = replies[0]
    return reply


def pairs_from_flat(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Two by two, as Redis answers with hashes."""
    return zip(flat[::2], flat[1::2], strict=True)
