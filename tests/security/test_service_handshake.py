"""If the TLS settings of client and service never match, the client fails immediately. Other failures are retried."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.service_thread import ServiceThread
from tickwheel import HandshakeFailed, Tickwheel, Unavailable, aio
from tickwheel.service.tls import credentials
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

CERTS = Path(__file__).parents[1] / "fault" / "certs"
CERT, KEY, STRANGER = CERTS / "server.pem", CERTS / "server-key.pem", CERTS / "stranger.pem"
OTHER, OTHER_KEY = CERTS / "other.pem", CERTS / "other-key.pem"
EXPIRED, EXPIRED_KEY = CERTS / "expired.pem", CERTS / "expired-key.pem"
LONG = timedelta(seconds=25)
# An immediate failure takes less than this part of LONG, even on a busy machine.
AT_ONCE_S = 8.0


def blocking(url: str, timeout: timedelta) -> None:
    with Tickwheel(url, timeout=timeout) as tickwheel:
        tickwheel.queues()


def in_loop(url: str, timeout: timedelta) -> None:
    async def program() -> None:
        async with aio.Tickwheel(url, timeout=timeout) as tickwheel:
            await tickwheel.queues()

    asyncio.run(program())


both_clients = pytest.mark.parametrize("use", [blocking, in_loop], ids=["blocking", "asyncio"])
Use = Callable[[str, timedelta], None]


@pytest.fixture(scope="module")
def services(tickwheel_server: PrivateServer) -> Iterator[dict[str, ServiceThread]]:
    """Services with different TLS settings, by name."""
    credentials_by_name: dict[str, Any] = {
        "plain": None,
        "tls": credentials(CERT, KEY, None),
        "mtls": credentials(CERT, KEY, CERT),
        "expired": credentials(EXPIRED, EXPIRED_KEY, None),
        "other host": credentials(OTHER, OTHER_KEY, None),
    }
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(ServiceThread(tickwheel_server.url, credentials=value))
            for name, value in credentials_by_name.items()
        }


@both_clients
@pytest.mark.parametrize(
    ("server", "url", "message"),
    [
        ("tls", f"grpcs://{{0}}?tls_ca={STRANGER}", "does not trust the server's certificate (self signed"),
        ("tls", "grpcs://{0}", "does not trust the server's certificate (self signed"),
        ("expired", f"grpcs://{{0}}?tls_ca={EXPIRED}", "(certificate has expired)"),
        ("other host", f"grpcs://{{0}}?tls_ca={OTHER}", "is not valid for 127.0.0.1"),
        ("plain", f"grpcs://{{0}}?tls_ca={CERT}", "use grpc:// instead of grpcs://"),
        ("tls", "grpc://{0}", "use grpcs:// instead of grpc://"),
        ("mtls", "grpc://{0}", "use grpcs:// instead of grpc://"),
        ("mtls", f"grpcs://{{0}}?tls_ca={CERT}", "set tls_cert and tls_key"),
        ("mtls", f"grpcs://{{0}}?tls_ca={CERT}&tls_cert={OTHER}&tls_key={OTHER_KEY}", "rejects the one in tls_cert"),
    ],
    ids=[
        "other authority",
        "authorities of the system",
        "expired",
        "other host",
        "TLS to plain",
        "plain to TLS",
        "plain to mTLS",
        "no certificate",
        "other certificate",
    ],
)
def test_a_url_that_can_never_work_is_refused_at_once(
    services: dict[str, ServiceThread], use: Use, server: str, url: str, message: str
) -> None:
    began = time.monotonic()
    with pytest.raises(HandshakeFailed) as refused:
        use(url.format(services[server].target), LONG)
    assert time.monotonic() - began < AT_ONCE_S
    assert message in str(refused.value)
    assert not refused.value.may_have_happened


class Restarting:
    """A port whose server restarts: it closes the first connections immediately, and forwards the later ones."""

    def __init__(self, target: str, closes: int) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._closes = closes
        self.closed = 0
        self._forwarded: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.closed < self._closes:
                    self.closed += 1
                    client.close()
                else:
                    server = socket.create_connection(self._target)
                    self._forwarded += client, server
                    for pair in ((client, server), (server, client)):
                        threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for connection in (self._listening, *self._forwarded):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


@contextmanager
def restarting(service: ServiceThread, closes: int) -> Iterator[Restarting]:
    proxy = Restarting(service.target, closes)
    yield proxy
    proxy.close()


@pytest.mark.parametrize(
    ("server", "use"), [("plain", blocking), ("mtls", in_loop)], ids=["plain, blocking", "mTLS, asyncio"]
)
def test_a_client_waits_for_a_server_that_is_restarting(
    services: dict[str, ServiceThread], use: Use, server: str
) -> None:
    # The gRPC library connects once and then waits a second; the client connects once to find the cause.
    with restarting(services[server], closes=2) as port:
        tls = f"grpcs://{port.address}?tls_ca={CERT}&tls_cert={CERT}&tls_key={KEY}"
        use(tls if server == "mtls" else f"grpc://{port.address}", LONG)
        assert port.closed == 2


@both_clients
def test_a_client_tries_to_reach_an_absent_server_for_the_whole_timeout(use: Use) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(Unavailable) as refused:
        use(f"grpcs://127.0.0.1:{port}?tls_ca={CERT}", timedelta(seconds=1))
    assert not isinstance(refused.value, HandshakeFailed)
    assert time.monotonic() - began >= 1
