"""What happens when a client is opened and closed: the URL, the embedded server, the child that drives the wheel."""

import sys
from datetime import timedelta
from pathlib import Path

from tickwheel.embedded import EmbeddedServer
from tickwheel.errors import InvalidArgument
from tickwheel.limits import RETRY_MS
from tickwheel.model import validation
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.server_checks import parse_durability
from tickwheel.redis import url as redis_url
from tickwheel.redis.replies import REPLICA_ANSWER_S
from tickwheel.rpc import url as grpc_url
from tickwheel.runtime.child_process import ChildProcess

_PATH_BYTES = 4_096
_URL_BYTES = 4_096
SCHEMES = (*redis_url.SCHEMES, *grpc_url.SCHEMES)


def check_url(url: object) -> None:
    """Raises InvalidArgument for a URL that no connection could be made from, or another than it says."""
    if not isinstance(url, str) or url.partition("://")[0] not in SCHEMES:
        raise InvalidArgument(
            f"url must start with {', '.join(f'{scheme}://' for scheme in SCHEMES)} or be left out for the"
            f" embedded server, not {validation.preview(url)}"
        )
    if grpc_url.is_grpc_url(url):
        validation.text("url", url, _URL_BYTES, nul=False)
        grpc_url.GrpcUrl.parse(url)
    else:
        redis_url.validate_redis_url(url)


class ClientSettings:
    """One client's way to its server. Checks everything at once; `open`, `prepare` and `start_driving` come after."""

    def __init__(
        self,
        url: str | None,
        namespace: str,
        data_dir: str | Path | None,
        durability: str | None,
        drive: bool | None,
        timeout: timedelta | None,
    ) -> None:
        self.namespace = validation.plain_name("namespace", namespace)
        if url is not None:
            check_url(url)
        if url is not None and data_dir is not None:
            raise InvalidArgument("data_dir belongs to the embedded server: give a url or a data_dir, not both")
        if data_dir is not None and not isinstance(data_dir, str | Path):
            raise InvalidArgument(f"data_dir must be a path, not {validation.preview(data_dir)}")
        if data_dir == "":
            raise InvalidArgument("data_dir is empty: name a directory, '.' for this one, or leave it out")
        if data_dir is not None:
            validation.text("data_dir", str(data_dir), _PATH_BYTES, nul=False)
        self.url = url
        self.is_service = url is not None and grpc_url.is_grpc_url(url)
        if self.is_service and durability is not None:
            raise InvalidArgument("durability is the server's to give, by `tickwheel serve --durability`: leave it out")
        if self.is_service and drive:
            raise InvalidArgument("with a grpc:// url the event process is the server's: leave drive out")
        self.durability = parse_durability(("fsync" if url is None else "memory") if durability is None else durability)
        if url is None and self.durability.replicas:
            raise InvalidArgument("the embedded server has no replicas: durability is 'fsync' or 'memory' there")
        self.drives = url is None if drive is None else validation.boolean("drive", drive)
        self.timeout_s = (
            RETRY_MS if timeout is None else validation.duration_ms("timeout", timeout, 1, RETRY_MS)
        ) / 1000
        # One answer takes no longer than the whole call; WAIT for replicas has its own time.
        self.answer_s = max(self.timeout_s, REPLICA_ANSWER_S) if self.durability.replicas else self.timeout_s
        self.server: EmbeddedServer | None = None
        if url is None:
            always = self.durability.name == "fsync"
            self.server = EmbeddedServer(
                None if data_dir is None else Path(data_dir), appendfsync="always" if always else "everysec"
            )
        self.display_url = (
            f"the embedded server in {self.server.data_dir}" if self.server else redis_url.redact(url or "")
        )
        self._child: ChildProcess | None = None
        self._connect_url = url or ""

    def open(self) -> str:
        """Start or join the embedded server, if it is one; answers the URL to connect to."""
        if self.server is not None:
            self.server.open()
            self._connect_url = self.server.url
        return self._connect_url

    def restart_embedded_server(self) -> None:
        """After a lost connection: start the embedded server again if it was killed."""
        if self.server is not None and self.server.is_open:
            self.server.ensure_running()

    def start_driving(self, context: NamespaceContext) -> None:
        """Start the event process as a child, so that this program's interpreter makes nothing late.

        It ends with this program, however that ends. Of several programs on one directory, one child is elected.
        """
        if not self.drives:
            return
        command = [sys.executable, "-m", "tickwheel.event_process", "--until-eof", "--namespace", context.namespace]
        if self.server is not None:
            lock = self.server.data_dir / f"event-process-{context.namespace}.lock"
            command += ["--data-dir", str(self.server.data_dir)]
        else:
            lock = redis_url.default_lock(self._connect_url, context.namespace)
        # Not as an argument, which every user of the host can read.
        self._child = ChildProcess([*command, "--lock", str(lock)], {redis_url.VARIABLE: self._connect_url})

    def close(self) -> None:
        """Stop the child and let go of the embedded server."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()
        if self.server is not None:
            self.server.close()
