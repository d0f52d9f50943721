"""`rediss://`: clients, waiting dequeues, asyncio tasks and event processes use TLS and verify the certificate."""

import asyncio
import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.fault.event_processes import EventProcessChild
from tests.fault.faulty_server import FaultyServer
from tests.fault.flaky_proxy import FlakyProxy
from tickwheel import Tickwheel, Unavailable, aio
from tickwheel.redis import pools

pytestmark = pytest.mark.fault

CERTS = Path(__file__).with_name("certs")


@pytest.fixture
def proxy(faulty: FaultyServer) -> Iterator[FlakyProxy]:
    """A proxy that terminates TLS, because the bundled server does not support TLS."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTS / "server.pem", CERTS / "server-key.pem")
    with FlakyProxy(faulty.socket, tls=tls) as proxy:
        yield proxy


def url(proxy: FlakyProxy, trusted: str = "server.pem") -> str:
    return f"{proxy.url}?ssl_ca_certs={quote(str(CERTS / trusted))}"


@pytest.mark.parametrize("election", [None, "lease"])
def test_a_delayed_message_reaches_a_waiting_dequeue_through_tls(
    proxy: FlakyProxy, tmp_path: Path, election: str | None
) -> None:
    with (
        Tickwheel(url(proxy), namespace="tls") as tickwheel,
        EventProcessChild(url(proxy), "tls", tmp_path / "lock", election=election),
    ):
        work = tickwheel.queue("work")
        work.enqueue(b"secret", delay=timedelta(milliseconds=200))
        [message] = work.dequeue(wait=timedelta(seconds=20))
        message.complete()
        assert work.counts()["completed"] == 1
    assert proxy.requests


def test_a_waiting_task_is_woken_through_tls(proxy: FlakyProxy) -> None:
    async def wake_task() -> bytes:
        async with aio.Tickwheel(url(proxy), namespace="tls") as tickwheel:
            work = tickwheel.queue("work")
            waiting = asyncio.create_task(work.dequeue(wait=timedelta(seconds=20)))
            await work.enqueue(b"secret")
            [message] = await waiting
            return message.payload

    assert asyncio.run(wake_task()) == b"secret"


def test_lost_replies_duplicate_nothing_through_tls(proxy: FlakyProxy) -> None:
    with Tickwheel(url(proxy), namespace="tls") as tickwheel:
        work = tickwheel.create_queue("work")
        proxy.loses = 0.1
        for n in range(20):
            assert work.enqueue(b"", id=f"m{n}").created
            [message] = work.dequeue()
            assert (message.id, message.attempt) == (f"m{n}", 1)
            message.complete()
    assert proxy.lost


def test_a_server_with_an_untrusted_certificate_is_refused(proxy: FlakyProxy) -> None:
    with pytest.raises(Unavailable, match="certificate verify failed") as raised:
        Tickwheel(url(proxy, "stranger.pem"), namespace="tls", timeout=timedelta(milliseconds=200))
    assert not raised.value.may_have_happened
    assert proxy.requests == []


def test_a_client_with_tls_sends_no_command_to_a_server_without_tls(
    faulty: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "ANSWER_S", 0.2)
    with FlakyProxy(faulty.socket) as plain:
        address = f"rediss://127.0.0.1:{plain.port}?ssl_ca_certs={quote(str(CERTS / 'server.pem'))}"
        with pytest.raises(Unavailable):
            Tickwheel(address, namespace="tls", timeout=timedelta(milliseconds=200))
        assert not any(b"EVALSHA" in request or b"HSETNX" in request for request in plain.requests)
