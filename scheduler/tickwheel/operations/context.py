"""What a client knows, apart from its connections: namespace, shards, configurations, sessions, heads.

Its methods are plans (`plan.py`); the operations on messages build on `on_shards`, which takes care of stale
configurations and forgotten sessions.
"""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from math import inf

from tickwheel import limits
from tickwheel.errors import InvalidArgument, OutboxFull, QueueBlocked, QueueNotFound, SessionExpired, TickwheelError
from tickwheel.model import validation
from tickwheel.model.queue_config import BLOCKED, HEADS, QueueConfig
from tickwheel.operations.sessions import ClientSession, SessionPool
from tickwheel.plan import Heads, Plan, Reply, Request, Round
from tickwheel.storage.keys import QUEUE_KEYS, SHARD_KEYS, namespace_key, queue_key, queues_key, shard_key
from tickwheel.storage.scripts import Call, load

# The scripts that may make a message ready, and those that in an exclusive queue free a value for the next.
_READY = frozenset({"enqueue", "fail", "release", "reschedule", "redrive"})
_READY_EXCLUSIVE = _READY | {"complete", "cancel"}
_SESSION_ERRORS = ("SESSIONEXPIRED", "SESSIONOLD")
# `history` from here on keeps all until it is relayed: over it the outbox's limit in KiB, and DROPS where events beyond
# the limit are dropped (`lua/_transition.lua`).
RELAYED, DROPS = 2**31, 2**30


def outbox_of(history: int) -> tuple[int, bool]:
    """The limit in bytes of a shard's outbox, and whether events are dropped there; ``history`` is from RELAYED on."""
    return history % DROPS * 1024, history >= RELAYED + DROPS


# What tells the scripts the time: the server, or a field that a test turns.
CLOCK_FRAGMENTS = ("_clock", "_clock_test")


class NamespaceContext:
    """The shared state of one client. Safe to use from many threads: what it caches is replaced, never changed."""

    def __init__(self, namespace: str, *, clock: str = "_clock") -> None:
        self.namespace = namespace
        self.clock = validation.one_of("clock", clock, CLOCK_FRAGMENTS)
        self.shards = 1
        # Set once its namespace was seen to be gone, or to be another.
        self.is_lost = False
        self.history = limits.HISTORY_ENTRIES
        self.auto_create = True
        self.clock_guard_ms = limits.CLOCK_GUARD_MS
        self.configs: dict[str, QueueConfig] = {}
        self.sessions = SessionPool()
        self.heads: dict[str, Heads] = {}
        # Queues that had nothing ready when they were last asked, or nothing with certain pairs.
        self.known_empty: set[tuple[str, bytes]] = set()
        self._keys: dict[tuple[int, str], dict[str, str]] = {}

    def keys(self, shard: int, queue: str) -> dict[str, str]:
        """The names of all keys of a queue on a shard, by what scripts call them."""
        key_names = self._keys.get((shard, queue))
        if key_names is None:
            key_names = {name: shard_key(self.namespace, shard, name) for name in SHARD_KEYS}
            key_names |= {name: queue_key(self.namespace, shard, queue, name) for name in QUEUE_KEYS}
            self._keys[shard, queue] = key_names
        return key_names

    def call(self, name: str, shard: int, queue: str, args: Sequence[bytes | int | str], session: str = "") -> Call:
        """A call of the script ``name`` on a queue's keys."""
        script = load(name, self.clock)
        keys = self.keys(shard, queue)
        return Call(script, [session if key == "session" else keys[key] for key in script.keys], args)

    def channels(self, queue: str) -> list[str]:
        """The wake channels of a queue, one for each shard."""
        return [queue_key(self.namespace, shard, queue, "wake") for shard in range(self.shards)]

    def load_config(self, queue: str) -> Plan[QueueConfig | None]:
        """Read a queue's configuration from its home, and keep it. Raises TickwheelError where home lost its state."""
        home = namespace_key(self.namespace)
        config_reply, shards = yield Round(
            [
                Request(0, command=("HGET", queues_key(self.namespace), queue)),
                Request(0, command=("HGET", home, "shards")),
            ]
        )
        if shards.value != str(self.shards).encode():
            self.configs.pop(queue, None)
            raise self.namespace_gone_error()
        if config_reply.value is None:
            self.configs.pop(queue, None)
            return None
        config = QueueConfig.from_bytes(queue, config_reply.value)
        self.configs[queue] = config
        return config

    def namespace_gone_error(self) -> TickwheelError:
        """Why nothing can be done in a namespace that is not there any more: how many shards it has is not known."""
        self.is_lost = True
        return TickwheelError(
            f"namespace {self.namespace!r} is gone: its server has lost its state, or is another one, or it was made"
            " anew with other shards; close this client and open another, which finds or makes it"
        )

    def config(self, queue: str) -> Plan[QueueConfig]:
        """A queue's configuration, from memory or from home; QueueNotFound where there is none."""
        return self.configs.get(queue) or (yield from self.fetch_config(queue))

    def fetch_config(self, queue: str) -> Plan[QueueConfig]:
        """A queue's configuration as home has it now; QueueNotFound where there is none."""
        config = yield from self.load_config(queue)
        if config is None:
            raise QueueNotFound(f"there is no queue {queue!r} in namespace {self.namespace!r}")
        return config

    def call_shards(
        self, queue: str, shards: Sequence[int], build: Callable[[QueueConfig, int], Request]
    ) -> Plan[list[Reply]]:
        """Send one call to each of the shards, in one round; again to those that had another configuration."""
        replies = yield from self._call_until_config_current(queue, shards, build)
        return [self._reply_or_raise(queue, reply) for reply in replies]

    def _call_until_config_current(
        self, queue: str, shards: Sequence[int], build: Callable[[QueueConfig, int], Request]
    ) -> Plan[list[Reply]]:
        """The replies of `on_shards`, of which refusals are values here."""
        config = yield from self.config(queue)
        replies: dict[int, Reply] = {}
        waiting = list(dict.fromkeys(shards))
        for _ in range(limits.STALE_CONFIG_RETRIES):
            requests = [build(config, shard) for shard in waiting]
            self._forget_heads(queue, config, requests)
            answers = yield Round(requests)
            replies.update(zip(waiting, answers, strict=True))
            waiting = [s for s in waiting if _code(replies[s]) == "STALECONFIG"]
            if not waiting:
                return [replies[shard] for shard in shards]
            config = yield from self._refetch_config(queue, config)
            yield from self.push_config_version(queue, config, waiting)
        raise TickwheelError(f"the configuration of queue {queue!r} changes faster than calls can follow")

    def _refetch_config(self, queue: str, previous: QueueConfig) -> Plan[QueueConfig]:
        """The configuration as home has it now; QueueNotFound where that is another queue than the call is for."""
        config = yield from self.load_config(queue)
        if config is None:
            raise QueueNotFound(f"there is no queue {queue!r} in namespace {self.namespace!r} any more")
        if config.uid != previous.uid:
            raise self.queue_recreated_error(queue, config)
        return config

    def queue_recreated_error(self, queue: str, config: QueueConfig) -> QueueNotFound:
        """Why a call is refused that was packed for an earlier queue of this name, whose state is lost."""
        return QueueNotFound(
            f"queue {queue!r} of namespace {self.namespace!r} is gone, and another of its name is there, number"
            f" {config.number}: the call was for the one before"
        )

    def push_config_version(self, queue: str, config: QueueConfig, shards: Sequence[int]) -> Plan[None]:
        """Give shards their copy of a configuration's version."""
        yield Round([Request(s, self.call("sync_queue_version", s, queue, [config.packed_version])) for s in shards])

    def call_in_session(
        self,
        queue: str,
        shard: int,
        client_session: ClientSession,
        build: Callable[[QueueConfig, bytes], tuple[str, Sequence[bytes | int | str]]],
    ) -> Plan[Reply]:
        """Send one call under the slot's next sequence; ``build`` makes its script's name and arguments."""
        replies = yield from self.call_shards_in_session(
            queue, [shard], client_session, lambda config, _, session: build(config, session)
        )
        return replies[0]

    def call_shards_in_session(
        self,
        queue: str,
        shards: Sequence[int],
        client_session: ClientSession,
        build: Callable[[QueueConfig, int, bytes], tuple[str, Sequence[bytes | int | str]]],
        *,
        reopens: bool = False,
    ) -> Plan[list[Reply]]:
        """Send one call to each of the shards, in one round, under the slot's next sequence.

        ``reopens`` is for calls that do no harm when they are done again: they are, where the session was forgotten.
        """
        sequence = client_session.sequence

        def request(config: QueueConfig, shard: int) -> Request:
            # Built again for another configuration it is the same call, which may have been done and its answer lost.
            client_session.sequence = sequence
            key, first, retry_session = client_session.begin_call(self.namespace, shard, reopens)
            name, args = build(config, shard, first)
            retry_args = [args[0], retry_session, *args[2:]]
            return Request(shard, self.call(name, shard, queue, args, key), retry_args=retry_args, durable=True)

        replies: dict[int, Reply] = {}
        waiting = shards
        while waiting:
            answers = yield from self._call_until_config_current(queue, waiting, request)
            replies.update(zip(waiting, answers, strict=True))
            waiting = [shard for shard in waiting if _code(replies[shard]) in _SESSION_ERRORS]
            for shard in waiting:
                if _code(replies[shard]) == "SESSIONOLD":
                    raise SessionExpired(
                        f"call {client_session.sequence} of slot {client_session.name} is refused: a newer one of"
                        " its slot was answered"
                    )
                if replies[shard].resent:
                    raise SessionExpired(
                        "the call was repeated after its session had expired: whether the first one took effect is not"
                        " known; look at the message before you go on"
                    )
                client_session.forget(shard)
        return [self._reply_or_raise(queue, replies[shard]) for shard in shards]

    def read(self, queue: str, shard: int, name: str, args: Sequence[bytes | int | str]) -> Plan[Reply]:
        """Send one call that only reads; its first argument, the context, is put before ``args``."""

        def build(config: QueueConfig, shard: int) -> Request:
            context = config.context(self.history)
            return Request(shard, self.call(name, shard, queue, [context, *args]))

        return (yield from self.call_shards(queue, [shard], build))[0]

    def options(self, blocked: bool) -> int:
        """The options of a dequeue or enqueue call."""
        return (BLOCKED if blocked else 0) | (HEADS if self.shards > 1 else 0)

    def record_head(self, queue: str, shard: int, deadline: int | None) -> None:
        """Remember the most urgent deadline of a shard; None: nothing is ready there."""
        self.heads.setdefault(queue, Heads()).deadlines[shard] = (deadline, time.monotonic())

    def recent_heads(self, queue: str, seconds: float) -> dict[int, int | None]:
        """What was heard of shards in the last ``seconds``, and is not known to be otherwise by now."""
        if queue not in self.heads:
            return {}
        since = time.monotonic() - seconds
        # A copy: other threads hear, too.
        recorded = self.heads[queue].deadlines.copy()
        return {shard: deadline for shard, (deadline, when) in recorded.items() if when >= since}

    def _forget_heads(self, queue: str, config: QueueConfig, requests: Sequence[Request]) -> None:
        """Where this client itself may make another message the most urgent."""
        if queue in self.heads:
            scripts = _READY if config.exclusive_key is None else _READY_EXCLUSIVE
            for request in requests:
                if request.call is not None and request.call.script.name in scripts:
                    self.heads[queue].deadlines[request.shard] = (None, -inf)

    def _reply_or_raise(self, queue: str, reply: Reply) -> Reply:
        if reply.error is None:
            return reply
        code, text = reply.error
        if code == "BLOCKED":
            raise QueueBlocked(f"queue {queue!r}: {text}; `unblock` it to go on")
        if code == "OUTBOXFULL":
            size, limit = map(int, text.split())
            raise OutboxFull(
                f"queue {queue!r}: enqueue, reschedule and redrive are refused: {size:,} bytes of events wait to be"
                f" relayed to Kafka, and the outbox's limit is {limit:,} a shard; once the relay has caught up, the"
                " same call will do",
                size,
                limit,
            )
        if code == "TOOFAR":
            maximum = timedelta(milliseconds=limits.DELAY_MS_MAX)
            raise InvalidArgument(
                f"due must be within {maximum.days} days from now, by the clock of the shard's server"
            )
        raise TickwheelError(f"{code} {text}")


def _code(reply: Reply) -> str:
    return reply.error[0] if reply.error else ""
