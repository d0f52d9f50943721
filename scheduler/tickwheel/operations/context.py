"""The state of a client apart from its connections: namespace, shards, configurations, sessions, and the head cache.

The *head* of a queue on a shard is the most urgent deadline there (`head_cache.py`).

Methods that call a server are plans (`plan.py`). `dispatch.py` sends the calls of the scripts.
"""

from collections.abc import Mapping, Sequence

from tickwheel import limits
from tickwheel.errors import NamespaceGone, QueueNotFound, TickwheelError
from tickwheel.model import validation
from tickwheel.model.queue_config import BLOCKED, HEADS, QueueConfig
from tickwheel.operations.head_cache import HeadCache
from tickwheel.operations.removal.free_numbers import FreeNumbers
from tickwheel.operations.sessions import SessionPool
from tickwheel.plan import Command, Plan, Reply, Request, Round
from tickwheel.storage.end_topic import END_MARK
from tickwheel.storage.keys import declared_keys, namespace_key, queue_key, queues_key
from tickwheel.storage.script_errors import NAMESPACEGONE, ScriptError
from tickwheel.storage.scripts import Call, load

# `NamespaceContext.history` is a number that scripts receive (`lua/_transition.lua`). Below RELAYED, the number is the
# maximum number of entries in a shard's stream of events; 0 keeps none. From RELAYED on, a shard keeps its events until
# they are relayed, and the number is a sum: RELAYED, the limit of the outbox in KiB, and DROPS if events beyond the
# limit are dropped.
RELAYED, DROPS = 2**31, 2**30


def outbox_of(history: int) -> tuple[int, bool]:
    """Return the limit of a shard's outbox in bytes, and whether events beyond the limit are dropped.

    ``history`` must be RELAYED or more.
    """
    return history % DROPS * 1024, history >= RELAYED + DROPS


def namespace_gone_error(namespace: str) -> NamespaceGone:
    """Return the error for a namespace that a client has opened, and that is missing or has other shards now."""
    return NamespaceGone(
        f"namespace {namespace!r} no longer exists with the settings this client opened it with: the server lost its"
        " data, the URL now points to another server, or the namespace was recreated with a different number of"
        " shards; close this client and open a new one"
    )


# A namespace has no more queues at a time.
_CONFIGS_MAX = limits.QUEUES_MAX

# The fragments that read the time in scripts: from the server, or from a field that a test sets.
CLOCK_FRAGMENTS = ("_clock", "_clock_test")


class NamespaceContext:
    """The shared state of one client. Thread-safe: cached objects are replaced, never changed."""

    def __init__(self, namespace: str, *, clock: str = "_clock", replicas: int = 0, is_embedded: bool = False) -> None:
        """``replicas``: how many replicas the client's durability demands.

        ``is_embedded``: the client uses the embedded server of a data directory.
        """
        self.namespace = namespace
        self.replicas = replicas
        self.is_embedded = is_embedded
        self.clock = validation.one_of("clock", clock, CLOCK_FRAGMENTS)
        self.shards = 1
        # Set when the client finds that its namespace no longer exists or has another number of shards.
        self.is_lost = False
        self.history = limits.HISTORY_ENTRIES
        self.auto_create = True
        self.clock_guard_ms = limits.CLOCK_GUARD_MS
        self.configs: dict[str, QueueConfig] = {}
        self.sessions = SessionPool()
        self.heads = HeadCache()
        self.free_numbers = FreeNumbers()

    def keys(self, shard: int, queue: str) -> dict[str, str]:
        """Return the keys of the shard and of the queue on this shard: the name that scripts declare -> the key."""
        return declared_keys(self.namespace, shard, queue)

    def cache_configs(self, configs: Mapping[str, QueueConfig]) -> None:
        """Cache configurations by the names of their queues.

        Other programs may have deleted queues whose configurations are cached. So a full cache is cleared.
        """
        if len(self.configs) >= _CONFIGS_MAX:
            self.configs.clear()
        self.configs.update(configs)

    def forget_queue(self, queue: str) -> None:
        """Forget a queue that does not exist."""
        self.configs.pop(queue, None)
        self.heads.forget(queue)

    def call(
        self,
        name: str,
        shard: int,
        queue: str,
        args: Sequence[bytes | int | str],
        session: str = "",
        call_digest: str | None = None,
    ) -> Call:
        """Return a call of the script ``name`` on a queue's keys.

        ``session`` is the key of the client session. ``call_digest`` is the key of the digest of its last call, if the
        session has a request id.
        """
        script = load(name, self.clock)
        queue_keys = self.keys(shard, queue)
        keys = [session if key == "session" else queue_keys[key] for key in script.keys]
        if call_digest is not None:
            keys.append(call_digest)
        return Call(script, keys, args)

    def channels(self, topic: str) -> list[str]:
        """Return the channels of a topic, one for each shard. A name is empty if the topic needs no channel there.

        The topic is a queue, for wake-ups, or `end_topic`.
        """
        queue, is_end, chosen = topic.partition(END_MARK)
        if not is_end:
            return [queue_key(self.namespace, shard, queue, "wake") for shard in range(self.shards)]
        channels = [""] * self.shards
        channels[int(chosen)] = queue_key(self.namespace, int(chosen), queue, "ended")
        return channels

    def load_config(self, queue: str) -> Plan[QueueConfig | None]:
        """Read a queue's configuration from the metadata shard and cache it. Return None if there is no such queue.

        Raises NamespaceGone if the metadata shard has lost its state, or stores another number of shards.
        """
        try:
            config_reply = yield from self.read_metadata(("HGET", queues_key(self.namespace), queue))
        except NamespaceGone:
            self.forget_queue(queue)
            raise
        if config_reply.value is None:
            self.forget_queue(queue)
            return None
        config = QueueConfig.from_bytes(queue, config_reply.value)
        if config.deleted:
            self.forget_queue(queue)
            raise QueueNotFound(
                f"{queue!r} stands for a deleted queue of namespace {self.namespace!r}: use another name"
            )
        self.cache_configs({queue: config})
        return config

    def read_metadata(self, command: Command) -> Plan[Reply]:
        """Send a command that reads the metadata shard, and return its reply. Raises NamespaceGone (`check_shards`)."""
        reply, shards = yield Round([Request(0, command=command), self.shards_request()])
        self.check_shards(shards)
        assert isinstance(reply, Reply)
        return reply

    def shards_request(self) -> Request:
        """Return the request for the number of shards, for `check_shards`."""
        return Request(0, command=("HGET", namespace_key(self.namespace), "shards"))

    def check_shards(self, reply: Reply) -> None:
        """Raise NamespaceGone if the metadata shard has lost its state, or stores another number of shards.

        Raises TypeError for an answer that no HGET returns.
        """
        if not isinstance(reply.value, bytes | None):
            raise TypeError(f"HGET returned {reply.value!r:.100}")
        if reply.value != str(self.shards).encode():
            raise self.namespace_gone_error()

    def namespace_gone_error(self) -> NamespaceGone:
        """Mark the namespace as lost, because its number of shards is missing or differs. Return the error to raise."""
        self.is_lost = True
        return namespace_gone_error(self.namespace)

    def metadata_error(self, error: ScriptError) -> TickwheelError:
        """Return the exception for an error of a script that changes the namespace's queues or settings."""
        return self.namespace_gone_error() if error.code == NAMESPACEGONE else error.to_tickwheel_error(self.namespace)

    def config(self, queue: str) -> Plan[QueueConfig]:
        """Return a queue's configuration, from the cache or the metadata shard. Raises QueueNotFound."""
        return self.configs.get(queue) or (yield from self.fetch_config(queue))

    def fetch_config(self, queue: str) -> Plan[QueueConfig]:
        """Return a queue's current configuration from the metadata shard. Raises QueueNotFound."""
        config = yield from self.load_config(queue)
        if config is None:
            raise self.queue_not_found_error(queue)
        return config

    def exists(self, queue: str) -> Plan[bool]:
        """Return whether a queue exists, from the cache or the metadata shard. The name of a deleted queue has none."""
        try:
            return queue in self.configs or (yield from self.load_config(queue)) is not None
        except QueueNotFound:
            return False

    def queue_not_found_error(self, queue: str) -> QueueNotFound:
        """Return the error for a queue that does not exist."""
        return QueueNotFound(f"there is no queue {queue!r} in namespace {self.namespace!r}")

    def queue_recreated_error(self, queue: str, config: QueueConfig) -> QueueNotFound:
        """Return the error for a call that was packed for an earlier queue of this name, which no longer exists."""
        return QueueNotFound(
            f"queue {queue!r} of namespace {self.namespace!r} was recreated and has number {config.number} now;"
            " this call is for the previous queue, which no longer exists: enqueue the messages again, and drop"
            " messages that were leased from the previous queue"
        )

    def lease_of_other_queue_error(self, queue: str, config: QueueConfig) -> QueueNotFound:
        """Return the error for leases with another number than the queue: of an earlier one, or of another queue."""
        return QueueNotFound(
            f"queue {queue!r} of namespace {self.namespace!r} has number {config.number}, and the leases are of a queue"
            f" with another number. If queue {queue!r} was recreated, drop the messages that were leased from the"
            " previous queue, which no longer exists. Otherwise, the leases are of a queue with another name"
        )

    def options(self, blocked: bool) -> int:
        """Return the option bits of a dequeue or enqueue call.

        BLOCKED makes the script reject the call; it is set if ``blocked``. HEADS makes the script `dequeue` also return
        the most urgent deadline that is left on the shard; it is set if there are several shards.
        """
        return (BLOCKED if blocked else 0) | (HEADS if self.shards > 1 else 0)
