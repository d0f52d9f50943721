"""`tickwheel serve` as a program that drives: its warnings and signals, and the embedded server of a data directory."""

import os
import signal
import threading
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from services.valkey import ValkeyServer
from tests.fault.worker_processes import is_process
from tests.integration.cli.command_runner import ENDS_S, Start
from tests.support.driven_before import drive_and_release
from tests.support.paused_process import pause
from tests.support.wait_until import eventually
from tickwheel import Tickwheel, TickwheelError
from tickwheel.embedded import EmbeddedServer
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

# Longer than the time after which a child that cannot reach its server is killed.
_AT_ONCE_S = 20
SERVE = ("serve", "--listen", "127.0.0.1:0")


def test_a_service_warns_while_nobody_drives(start: Start, tickwheel_server: PrivateServer, namespace: str) -> None:
    service = start(*SERVE, "--drive", "never", "--url", tickwheel_server.url, "--namespace", namespace)
    warning = f"no event process drives namespace '{namespace}'"
    eventually(lambda: warning in service.log, "the service warns", ENDS_S)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_second_signal_ends_a_service_and_its_child_at_once(start: Start, tmp_path: Path, processes: str) -> None:
    with ValkeyServer("valkey", tmp_path) as server:
        with Tickwheel(server.url) as direct, closing(server.client(decode_responses=False)) as redis:
            drive_and_release(direct, server.url, redis)
        options = ("--url", server.url, "--drain", "120s", "--processes", processes)
        service = start(*SERVE, *options)
        with Tickwheel(service.url, timeout=timedelta(seconds=10)) as tickwheel:
            queue = tickwheel.create_queue("jobs")
            eventually(lambda: is_driven(server), "the child drives", ENDS_S)
            pids = children(service.pid)
            with server.paused():
                calling = threading.Thread(target=enqueue, args=(queue,))
                calling.start()
                service.send_signal(signal.SIGTERM)
                eventually(lambda: "a second signal" in service.log, "the service stops")
                assert service.is_running
                service.send_signal(signal.SIGTERM)
                service.wait(_AT_ONCE_S)
            eventually(lambda: not any(map(is_process, pids)), "the children end")
            calling.join(ENDS_S)


def test_another_signal_while_a_service_stops_its_child_changes_nothing(
    start: Start, tickwheel_server: PrivateServer, namespace: str
) -> None:
    service = start(*SERVE, "--url", tickwheel_server.url, "--namespace", namespace)
    [child] = eventually(lambda: children(service.pid), "the child runs", ENDS_S)
    # The service waits for this child until it kills it.
    pause(child)
    service.send_signal(signal.SIGTERM)
    eventually(lambda: "tickwheel.service: ended" in service.log, "no call is in flight", ENDS_S)
    for number in (signal.SIGTERM, signal.SIGINT):
        service.send_signal(number)
    assert service.wait(_AT_ONCE_S) == 0
    assert not is_process(child)


def is_driven(server: ValkeyServer) -> bool:
    with closing(server.client()) as client:
        return bool(client.hget(shard_key("tw", 0, "clock"), "holder"))


def enqueue(queue: Any) -> None:
    with suppress(TickwheelError):
        queue.enqueue(b"1")


@pytest.mark.parametrize("durability", [(), ("--durability", "memory"), ("--durability", "fsync")])
def test_the_embedded_server_of_a_service_is_as_durable_as_the_option_says(
    start: Start, tmp_path: Path, durability: tuple[str, ...]
) -> None:
    folder = tmp_path / "data"
    start(*SERVE, "--data-dir", str(folder), *durability)
    with Redis.from_url(EmbeddedServer(folder).url) as client:
        fsync = client.config_get("appendfsync")["appendfsync"]
    assert fsync == ("everysec" if "memory" in durability else "always")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_sigusr1_does_not_end_a_service(
    start: Start, tickwheel_server: PrivateServer, namespace: str, processes: str
) -> None:
    where = ("--url", tickwheel_server.url, "--namespace", namespace, "--processes", processes)
    service = start(*SERVE, *where)
    pids = [service.pid, *children(service.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGUSR1)
    with Tickwheel(service.url, namespace=namespace) as tickwheel:
        tickwheel.create_queue("jobs").enqueue(b"1")
    assert service.is_running
    assert set(pids) <= {service.pid, *children(service.pid)}


def children(pid: int) -> list[int]:
    """Return the pids of the children of all threads of a process."""
    texts = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for text in texts for child in text.split()]
