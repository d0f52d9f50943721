"""ZooKeeper: one server, or a quorum of three or more."""

import re
import socket
from pathlib import Path

from services.jvm import java_command
from services.process import HOST, Process, free_port
from services.process_group import ProcessGroup

_HEAP_MB = 96
_ANSWER_S = 2.0
_SETTINGS = """\
# Session timeouts from 1 s to 10 s: 2 and 20 ticks.
tickTime=500
initLimit=20
syncLimit=10
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,mntr,ruok,cons,dump
# Allocation step of the log, in KiB. The default would write 64 MiB at each start.
preAllocSize=1024
"""


class ZooKeeperServer(Process):
    """One server at ``address``, alone or as part of a quorum."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.port, self.peer_port, self.election_port = free_port(), free_port(), free_port()
        self.address = f"{HOST}:{self.port}"
        command = java_command(
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg"), heap_mb=_HEAP_MB
        )
        super().__init__(f"zookeeper-{number}", command, folder, lambda: self.mode() is not None)

    def mode(self) -> str | None:
        """Return "standalone", "leader" or "follower"; None if the server has no quorum. Raises OSError."""
        match = re.search(r"^Mode: (\w+)$", self.admin_command("srvr"), re.MULTILINE)
        return match[1] if match else None

    def admin_command(self, word: str) -> str:
        """Return the reply to a four-letter word: srvr, mntr, ruok, cons, dump. Raises OSError."""
        with socket.create_connection((HOST, self.port), _ANSWER_S) as connection:
            connection.sendall(word.encode())
            with connection.makefile("rb") as answer:
                return answer.read().decode()

    def configure(self, quorum: list["ZooKeeperServer"]) -> None:
        """Write the configuration of a member of ``quorum``. A quorum of one server is standalone."""
        data = self.folder / "data"
        data.mkdir(parents=True)
        lines = [f"dataDir={data}", f"clientPort={self.port}", f"clientPortAddress={HOST}"]
        if len(quorum) > 1:
            lines += [f"server.{server.number}={HOST}:{server.peer_port}:{server.election_port}" for server in quorum]
            (data / "myid").write_text(f"{self.number}\n")
        (self.folder / "zoo.cfg").write_text(_SETTINGS + "\n".join(lines) + "\n")


class ZooKeeper(ProcessGroup):
    """``servers`` form one ZooKeeper. Kill, pause and restart servers by their own methods."""

    def __init__(self, folder: Path, *, servers: int = 1) -> None:
        self.servers = [ZooKeeperServer(n, folder / f"{n}") for n in range(1, servers + 1)]
        for server in self.servers:
            server.configure(self.servers)
        super().__init__(self.servers)

    @property
    def hosts(self) -> str:
        """Host and port of every server, separated by commas, for clients."""
        return ",".join(server.address for server in self.servers)

    def leader(self) -> ZooKeeperServer | None:
        """Return the server that leads the quorum or is standalone; None if there is none."""
        return next((server for server in self.servers if server.is_running and _leads(server)), None)


def _leads(server: ZooKeeperServer) -> bool:
    try:
        return server.mode() in ("leader", "standalone")
    except OSError:
        return False
