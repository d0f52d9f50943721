"""An event process that connects late to a restarted or promoted server: no command takes the namespace for idle."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from services.replica_set import ReplicaSet
from tests.fault.flaky_proxy import FlakyProxy
from tests.support.event_process_thread import run_event_process
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.operations.shard_status import RECONNECT_S, list_followers

pytestmark = pytest.mark.fault

NAMESPACE = "late"


class Deployment:
    """A server with a replica, and an event process that reaches the primary through a proxy."""

    def __init__(self, folder: Path) -> None:
        self.servers = ReplicaSet(folder)
        self.servers.start()
        self.proxy = FlakyProxy(("127.0.0.1", self.servers.primary.port), keeps_requests=False)

    def restart(self) -> None:
        """Restart the primary."""
        self.servers.restart(self.servers.primary)

    def fail_over(self) -> None:
        """Promote the replica, which runs longer than an event process needs to connect."""
        [replica] = self.servers.replicas
        with replica.client() as client:
            eventually(lambda: client.info("server")["uptime_in_seconds"] > RECONNECT_S, "the replica is not new")
        self.servers.primary.kill()
        self.servers.promote(replica)
        self.proxy.target = ("127.0.0.1", replica.port)

    def has_follower(self) -> bool:
        with Tickwheel(self.servers.url, namespace=NAMESPACE, drive=False) as tickwheel:
            return bool(tickwheel._run(list_followers(tickwheel._context, 0)))

    @contextmanager
    def driven(self, lock: Path) -> Iterator[None]:
        """Run an event process during the block."""
        with Tickwheel(self.servers.url, namespace=NAMESPACE, drive=False) as tickwheel:
            tickwheel.create_queue("work")
        with run_event_process(self.proxy.url, NAMESPACE, lock):
            eventually(self.has_follower, "the event process follows the inbox")
            yield

    def close(self) -> None:
        self.proxy.close()
        self.servers.stop()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path)
    yield deployment
    deployment.close()


@pytest.mark.parametrize("change", [Deployment.restart, Deployment.fail_over], ids=["restart", "failover"])
@pytest.mark.parametrize("command", ["namespace delete", "shards reset-epoch"])
def test_a_command_that_needs_an_idle_namespace_waits_for_event_processes_that_reconnect(
    deployment: Deployment, tmp_path: Path, change: object, command: str
) -> None:
    assert callable(change)
    with deployment.driven(tmp_path / "lock"):
        deployment.proxy.refuses = True
        deployment.proxy.cut()
        change(deployment)
        options = ["--yes", "--url", deployment.servers.url, "--namespace", NAMESPACE]
        arguments = [sys.executable, "-m", "tickwheel", *command.split(), *options]
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "was restarted or promoted: checking for up to" in process.stderr.readline()
            deployment.proxy.refuses = False
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "is being driven: connection" in errors


def test_a_command_goes_on_if_no_event_process_connects_to_a_promoted_server(deployment: Deployment) -> None:
    with Tickwheel(deployment.servers.url, namespace=NAMESPACE, drive=False) as tickwheel:
        tickwheel.create_queue("work")
    deployment.servers.promote(deployment.servers.replicas[0])
    with Tickwheel(deployment.servers.url, namespace=NAMESPACE, drive=False, existing=True) as tickwheel:
        assert tickwheel.delete_namespace() > 0
