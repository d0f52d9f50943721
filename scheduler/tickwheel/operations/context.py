"""What a client knows, apart from its connections: namespace, shards, configurations, sessions, heads.

Those of its methods that ask a server are plans (`plan.py`). `dispatch.py` sends the calls of the scripts.
"""

from collections.abc import Sequence

from tickwheel import limits
from tickwheel.errors import QueueNotFound, TickwheelError
from tickwheel.model import validation
from tickwheel.model.queue_config import BLOCKED, HEADS, QueueConfig
from tickwheel.operations.head_cache import HeadCache
from tickwheel.operations.sessions import SessionPool
from tickwheel.plan import Plan, Request, Round
from tickwheel.storage.keys import QUEUE_KEYS, SHARD_KEYS, namespace_key, queue_key, queues_key, shard_key
from tickwheel.storage.script_errors import NAMESPACEGONE, ScriptError
from tickwheel.storage.scripts import Call, load

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
        self.heads = HeadCache()
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

    def metadata_error(self, error: ScriptError) -> TickwheelError:
        """Return the exception for an error of a script that changes the namespace's queues or settings."""
        return self.namespace_gone_error() if error.code == NAMESPACEGONE else error.to_tickwheel_error(self.namespace)

    def config(self, queue: str) -> Plan[QueueConfig]:
        """A queue's configuration, from memory or from home; QueueNotFound where there is none."""
        return self.configs.get(queue) or (yield from self.fetch_config(queue))

    def fetch_config(self, queue: str) -> Plan[QueueConfig]:
        """A queue's configuration as home has it now; QueueNotFound where there is none."""
        config = yield from self.load_config(queue)
        if config is None:
            raise QueueNotFound(f"there is no queue {queue!r} in namespace {self.namespace!r}")
        return config

    def queue_recreated_error(self, queue: str, config: QueueConfig) -> QueueNotFound:
        """Why a call is refused that was packed for an earlier queue of this name, whose state is lost."""
        return QueueNotFound(
            f"queue {queue!r} of namespace {self.namespace!r} is gone, and another of its name is there, number"
            f" {config.number}: the call was for the one before"
        )

    def options(self, blocked: bool) -> int:
        """The options of a dequeue or enqueue call."""
        return (BLOCKED if blocked else 0) | (HEADS if self.shards > 1 else 0)
