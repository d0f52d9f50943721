"""The settings of a client, validated before the client opens a connection or starts a process."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypedDict

from tickwheel.client.encryption import check_encryption
from tickwheel.election.lease_options import LeaseOptions
from tickwheel.election.lock_file import default_lock
from tickwheel.embedded.server import resolve_data_dir
from tickwheel.errors import InvalidArgument
from tickwheel.limits import RETRY_MS
from tickwheel.model import validation
from tickwheel.model.validation import Duration
from tickwheel.operations.server_checks import Durability, parse_durability
from tickwheel.redis import url as redis_url
from tickwheel.redis.replies import REPLICA_ANSWER_S
from tickwheel.rpc import url as grpc_url

_PATH_BYTES = 4_096
SCHEMES = (*redis_url.SCHEMES, *grpc_url.SCHEMES)


class ClientOptions(TypedDict, total=False):
    """The arguments of a client that a `TaskApp` passes on; see `tickwheel.Tickwheel`."""

    shards: int | None
    durability: str | None
    drive: bool | None
    history: str | None
    auto_create: bool | None
    clock_guard: Duration | None
    outbox_limit: int | None
    outbox_full: str | None
    existing: bool
    timeout: Duration | None
    clock: str


class WhereOptions(ClientOptions, total=False):
    """All arguments of a client, for `TaskApp.move`."""

    url: str | None
    namespace: str
    data_dir: str | Path | None


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The server, the namespace and the limits of one client.

    For the embedded server, ``url`` is None, and ``data_dir`` is the directory of the server. With a URL, ``data_dir``
    is None. ``drives``: the client also runs an event process. ``producer_timeout_s`` is the timeout of the calls that
    producers make, and ``timeout_s`` that of all others.
    """

    # Tracebacks of other programs may print the settings, so the URL, which can contain a password, is left out.
    url: str | None = field(repr=False)
    namespace: str
    data_dir: Path | None
    durability: Durability
    drives: bool
    timeout_s: float
    producer_timeout_s: float

    @classmethod
    def validate(
        cls,
        url: str | None,
        namespace: str,
        data_dir: str | Path | None,
        durability: str | None,
        drive: bool | None,
        timeout: Duration | None,
        *,
        producer_retry_ms: int = RETRY_MS,
        timeout_ms_max: int = RETRY_MS,
    ) -> Self:
        """Return the settings for a client's arguments. Raises InvalidArgument for the first wrong argument.

        ``producer_retry_ms``: how long the calls of producers are retried if no ``timeout`` is set. ``timeout_ms_max``
        may be longer than the default if no call of the client changes messages: the server stores the answer of such a
        call only for a limited time, for a client that repeats the call.
        """
        namespace = validation.plain_name("namespace", namespace)
        if url is not None:
            _check_url(url)
        if data_dir is not None:
            _check_data_dir(url, data_dir)
        if url is not None and grpc_url.is_grpc_url(url):
            _check_grpc(durability, drive)
        parsed = parse_durability(("fsync" if url is None else "memory") if durability is None else durability)
        if url is None and parsed.replicas:
            raise InvalidArgument("the embedded server has no replicas: use 'fsync' or 'memory' for durability")
        drives = url is None if drive is None else validation.boolean("drive", drive)
        timeout_s = None if timeout is None else call_timeout_s(timeout, timeout_ms_max)
        timeouts = (RETRY_MS / 1000, producer_retry_ms / 1000) if timeout_s is None else (timeout_s, timeout_s)
        directory = resolve_data_dir(data_dir) if url is None else None
        return cls(url, namespace, directory, parsed, drives, *timeouts)

    @property
    def is_service(self) -> bool:
        """Whether the client calls the gRPC service instead of Redis."""
        return self.url is not None and grpc_url.is_grpc_url(self.url)

    @property
    def answer_s(self) -> float:
        """Seconds that a server may take for one answer: the timeout of a call, or more if calls wait for replicas."""
        return max(self.timeout_s, REPLICA_ANSWER_S) if self.durability.replicas else self.timeout_s

    @property
    def display_url(self) -> str:
        """The server's name in logs and errors, without a password."""
        return f"the embedded server in {self.data_dir}" if self.url is None else redis_url.redact(self.url)

    @property
    def uses_lease_election(self) -> bool:
        """Whether event processes elect leaders by lease unless they are started with another kind of election.

        The embedded server of a data directory has lock files, and so has a Redis Cluster.
        """
        return self.url is not None and not self.is_service and not redis_url.is_cluster_url(self.url)

    @property
    def election(self) -> LeaseOptions | Path:
        """The default election of event processes: by lease, or the path of its lock files (`election_lock`)."""
        return LeaseOptions() if self.uses_lease_election else self.election_lock

    @property
    def election_lock(self) -> Path:
        """The path of the lock files of the election, without the suffix for the shard; see `LockFileElection`."""
        return default_lock(self.url, self.namespace, self.data_dir)


def call_timeout_s(timeout: Duration, ms_max: int = RETRY_MS) -> float:
    """Return the timeout of a client or of a call in seconds. Raises InvalidArgument."""
    return validation.duration_ms("timeout", timeout, 1, ms_max) / 1000


def _check_url(url: object) -> None:
    if not isinstance(url, str) or url.partition("://")[0] not in SCHEMES:
        raise InvalidArgument(
            f"url must start with {', '.join(f'{scheme}://' for scheme in SCHEMES)} or be left out for the"
            f" embedded server, not {validation.preview_url(url)}"
        )
    if grpc_url.is_grpc_url(url):
        grpc_url.GrpcUrl.parse(url)
    else:
        redis_url.validate_redis_url(url)
    check_encryption(url)


def _check_data_dir(url: str | None, data_dir: object) -> None:
    if url is not None:
        raise InvalidArgument("data_dir belongs to the embedded server: give a url or a data_dir, not both")
    if not isinstance(data_dir, str | Path):
        raise InvalidArgument(f"data_dir must be a path, not {validation.preview(data_dir)}")
    if data_dir == "":
        raise InvalidArgument("data_dir is empty: name a directory ('.' for the current one), or leave data_dir out")
    validation.text("data_dir", str(data_dir), _PATH_BYTES, nul=False)


def _check_grpc(durability: str | None, drive: bool | None) -> None:
    if durability is not None:
        raise InvalidArgument(
            "with a grpc:// url, the service decides the durability (`tickwheel serve --durability`): leave durability"
            " out"
        )
    if drive:
        raise InvalidArgument("a client with a grpc:// url cannot run the event process: leave drive out")
