"""Plans carried out with blocking sockets: one pipeline a round on a connection of redis-py, any number of threads."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.retry import Retry

from tickwheel.gate import Gate
from tickwheel.plan import Leave, Park, PassOn, Plan, Reply, Request, Round, Watch
from tickwheel.transport import (
    LOST_CONNECTION,
    UNANSWERED,
    Attempts,
    RedisError,
    ScriptMissing,
    TryLater,
    commands,
    interpret,
    sources,
)
from tickwheel.wake_thread import WakeThread

T = TypeVar("T")
# One answer takes no longer than this, or the connection counts as lost and the call is sent again.
ANSWER_S = 5.0


def pool(url: str, answer_s: float = ANSWER_S, **options: Any) -> ConnectionPool:
    """Connections to one server, without redis-py's own retries."""
    settings = {
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": min(ANSWER_S, answer_s),
        "socket_connect_timeout": min(ANSWER_S, answer_s),
        "max_connections": 65_536,
    }
    return ConnectionPool.from_url(url, **settings | options)


class SyncIO:
    """Runs plans against one server."""

    def __init__(
        self,
        connections: ConnectionPool,
        where: str,
        seconds: float,
        replicas: int = 0,
        revive: Callable[[], None] | None = None,
    ) -> None:
        self._pool = connections
        self._where = where
        self._gate = Gate(where)
        self._seconds = seconds
        self._revive = revive
        self.replicas = replicas
        self.wakes: WakeThread | None = None

    def run(self, plan: Plan[T]) -> T:
        """Carry a plan out, step by step."""
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = plan.send(answer) if error is None else plan.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = error = None
            try:
                answer = self._do(step)
            except BaseException as raised:
                # The plan hears of it, a Ctrl-C too, so that it can leave its waiter and its session behind in order.
                error = raised

    def _do(self, step: object) -> Any:
        match step:
            case Round(requests):
                return self.round(requests)
            case Watch(queue):
                assert self.wakes is not None
                return self.wakes.watch(queue)
            case Park(waiter, seconds):
                return waiter.park(seconds)
            case PassOn(waiter):
                waiter.pass_on()
            case Leave(waiter):
                waiter.leave()
        return None

    def round(self, requests: list[Request]) -> list[Reply]:
        """Send requests in one pipeline, again those that got no answer, until they have one or the time is up."""
        replies: list[Reply | None] = [None] * len(requests)
        attempts = Attempts(self._where, self._seconds)
        while True:
            waiting = [n for n, reply in enumerate(replies) if reply is None]
            self._gate.check(attempts.sent)
            try:
                self._attempt(requests, waiting, replies, attempts)
                return replies  # type: ignore[return-value]  # all are answered
            except ScriptMissing:
                self._load(requests)
            except UNANSWERED as error:
                self._gate.check(attempts.sent)
                time.sleep(attempts.pause(error))
                if self._revive is not None and not isinstance(error, TryLater):
                    self._revive()

    def _attempt(
        self, requests: list[Request], waiting: list[int], replies: list[Reply | None], attempts: Attempts
    ) -> None:
        resent, replicas = attempts.sent, self.replicas
        trouble: Exception | None = None
        todo = [commands(requests[n], resent, replicas) for n in waiting]
        connection: Any = self._pool.get_connection()
        try:
            packed = connection.pack_commands([command for each in todo for command in each])
            attempts.sent = True
            connection.send_packed_command(packed)
            for n, each in zip(waiting, todo, strict=True):
                answers = [_read(connection) for _ in each]
                try:
                    replies[n] = interpret(requests[n], answers, resent, replicas)
                except Exception as error:
                    trouble = trouble or error
            if trouble is not None:
                raise trouble
        except BaseException as error:
            if isinstance(error, ScriptMissing | TryLater):
                attempts.sent = resent
            elif error is not trouble:
                connection.disconnect()
            raise
        finally:
            self._pool.release(connection)

    def _load(self, requests: list[Request]) -> None:
        self.round([Request(0, command=("SCRIPT", "LOAD", source)) for source in sources(requests, self.replicas)])

    def close(self) -> None:
        """Close every connection, and end every call. Those of a process that this one was forked from stay."""
        self._gate.close()
        if not self._gate.is_ours:
            return
        if self.wakes is not None:
            self.wakes.stop()
        self._pool.disconnect()


def _read(connection: Any) -> object:
    try:
        return connection.read_response()
    except LOST_CONNECTION:
        raise
    except RedisError as error:
        return error
