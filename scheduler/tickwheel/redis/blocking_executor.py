"""Plans carried out with blocking sockets: one pipeline a round and server on redis-py's connections, any threads."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from redis import Redis

from tickwheel.errors import TickwheelError
from tickwheel.plan import Leave, Park, PassOn, Plan, Reply, Request, Round, Servers, Watch
from tickwheel.redis.pools import ServerPools, read_answer
from tickwheel.redis.replies import LOST_CONNECTION, UNANSWERED, Attempts, TryLater
from tickwheel.redis.round_trip import Delivery, Parcel, had_effect
from tickwheel.redis.wakeup_thread import WakeThread
from tickwheel.runtime.log_throttle import Seldom
from tickwheel.runtime.process_guard import Gate

T = TypeVar("T")


class SyncIO:
    """Runs plans against one server, or the servers of a cluster."""

    def __init__(
        self,
        servers: ServerPools,
        where: str,
        seconds: float,
        replicas: int = 0,
        revive: Callable[[], None] | None = None,
    ) -> None:
        self._servers = servers
        self._where = where
        self._gate = Gate(where)
        self._seconds = seconds
        self._revive = revive
        self._replicas = replicas
        self._seldom = Seldom()
        self.wakes: WakeThread | None = None

    def run(self, plan: Plan[T]) -> T:
        """Carry a plan out, step by step."""
        answer: Any = None
        error: BaseException | None = None
        # Whether a round of it has had an effect: then its call has, whatever becomes of the rounds to come.
        has_done = False
        while True:
            try:
                step = plan.send(answer) if error is None else plan.throw(error)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = error = None
            try:
                answer = self._do(step, has_done)
                has_done = has_done or (isinstance(step, Round) and had_effect(step.requests, answer))
            except BaseException as raised:
                # The plan hears of it, a Ctrl-C too, so that it can leave its waiter and its session behind in order.
                error = raised

    def _do(self, step: object, has_done: bool) -> Any:
        match step:
            case Round(requests, partly):
                return self.round(requests, has_done, partly)
            case Servers():
                return self._one_shard_each()
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

    def round(self, requests: list[Request], has_done: bool = False, partly: bool = False) -> list[Reply]:
        """Send requests, a pipeline to each server, again those without an answer, until all have one or time is up.

        ``has_done``: the call that they belong to has had an effect before. ``partly`` as a Round's.
        """
        delivery = Delivery(requests, self._servers.topology, self._replicas, has_done=has_done, partly=partly)
        attempts = Attempts(self._where, self._seconds, self._seldom)
        self._gate.check(has_done)
        while True:
            trouble = self._attempt(delivery)
            if delivery.is_done:
                if None not in delivery.replies:
                    attempts.answered()
                return delivery.replies  # type: ignore[return-value]  # all are answered
            self._gate.check(delivery.in_doubt)
            if trouble is not None:
                time.sleep(attempts.pause(trouble, delivery.in_doubt))
                if self._revive is not None and not isinstance(trouble, TryLater):
                    self._revive()

    def connect(self, shard: int, key: str) -> Redis:
        """A client of the server that holds the shard now: in a cluster, the one that answers for this key of it."""
        topology = self._servers.topology
        if topology.is_cluster:
            self.round([Request(shard, command=("EXISTS", key))])
        server = topology.server(shard)
        if server is None:
            raise TickwheelError(f"no server of the cluster has shard {shard} now")
        return Redis(connection_pool=self._servers.pool(server))

    def _attempt(self, delivery: Delivery) -> Exception | None:
        """Send all that is not answered, and read what comes; why to wait before the next attempt, if at all."""
        try:
            if delivery.map_is_old:
                self._servers.read_map(delivery.silent)
                delivery.map_is_read()
        except UNANSWERED as error:
            return error
        under_way: list[tuple[Parcel, Any]] = []
        try:
            for parcel in delivery.parcels():
                self._send(delivery, parcel, under_way)
            while under_way:
                self._receive(delivery, *under_way[0])
                under_way.pop(0)
        finally:
            # What was not read to its end is of no use to anybody else.
            for parcel, connection in under_way:
                connection.disconnect()
                self._servers.pool(parcel.server).release(connection)
        return delivery.next()

    def _send(self, delivery: Delivery, parcel: Parcel, under_way: list[tuple[Parcel, Any]]) -> None:
        pool = self._servers.pool(parcel.server)
        try:
            connection: Any = pool.get_connection()
        except UNANSWERED as error:
            delivery.lost(parcel, error)
            return
        under_way.append((parcel, connection))
        try:
            packed = connection.pack_commands(parcel.commands())
            delivery.sending(parcel)
            connection.send_packed_command(packed)
        except LOST_CONNECTION as error:
            delivery.lost(parcel, error)
            under_way.pop()
            connection.disconnect()
            pool.release(connection)

    def _receive(self, delivery: Delivery, parcel: Parcel, connection: Any) -> None:
        try:
            for _ in parcel.loads:
                delivery.loaded(read_answer(connection))
            for n, sent in parcel.requests:
                delivery.answered(parcel, n, sent, [read_answer(connection) for _ in sent])
        except LOST_CONNECTION as error:
            delivery.lost(parcel, error)
            connection.disconnect()
        self._servers.pool(parcel.server).release(connection)

    def _one_shard_each(self) -> dict[str, int]:
        if self._servers.topology.is_cluster:
            # The map is there once anything was answered.
            self.round([Request(0, command=("PING",))])
        return self._servers.topology.one_shard_each()

    def close(self) -> None:
        """Close every connection, and end every call. Those of a process that this one was forked from stay."""
        self._gate.close()
        if not self._gate.is_ours:
            return
        if self.wakes is not None:
            self.wakes.stop()
        self._servers.close()
