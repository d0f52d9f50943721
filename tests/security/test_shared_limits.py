"""The limits of a token over the processes of one `tickwheel serve --processes 2`."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.process import free_port
from tests.integration.cli.command_runner import TICKWHEEL
from tests.integration.generic_client import GenericClient
from tests.security.tokens import entry, generic_client, write_token_file
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

TOKEN, NAMESPACE = "tw_Shared-Over-Processes", "shared-limits"
CONNECTIONS = 16
JOBS = {"namespace": NAMESPACE, "queue": "jobs"}


@pytest.fixture
def service(tickwheel_server: PrivateServer, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    limits = f'namespaces = ["{NAMESPACE}"]\nmessages_per_second = 1\nburst = 10\nwaiting = {CONNECTIONS // 2}\n'
    write_token_file(tmp_path, entry(TOKEN, '["produce", "consume"]', limits))
    with Tickwheel(tickwheel_server.url, namespace=NAMESPACE, drive=False) as tickwheel:
        tickwheel.create_queue("jobs")
    port = free_port()
    options = ["--processes", "2", "--listen", f"127.0.0.1:{port}", "--tokens", str(tmp_path / "tokens.toml")]
    started = subprocess.Popen([*TICKWHEEL, "serve", "--url", tickwheel_server.url, *options])
    yield started, port
    started.send_signal(signal.SIGTERM)
    started.wait(60)
    tickwheel_server.clear(NAMESPACE)


def connect(stack: ExitStack, port: int) -> list[GenericClient]:
    """Open connections, which the kernel spreads over the processes, and wait until the service accepts calls."""
    channels = [
        stack.enter_context(
            grpc.insecure_channel(f"127.0.0.1:{port}", (("grpc.use_local_subchannel_pool", 1), ("grpc.channel_id", n)))
        )
        for n in range(CONNECTIONS)
    ]
    for channel in channels:
        grpc.channel_ready_future(channel).result(60)
    return [generic_client(channel, TOKEN) for channel in channels]


def processes(service: subprocess.Popen[bytes]) -> list[int]:
    return list(map(int, Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text().split()))
