"""Proxies that the environment names (`http_proxy`): no unencrypted call and no call to this machine goes there."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.integration.service_thread import ServiceThread
from tests.security.connect_proxy import ConnectProxy
from tickwheel import HandshakeFailed, Tickwheel, aio
from tickwheel.redis.encryption import VARIABLE
from tickwheel.service.tls import credentials
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

CERTS = Path(__file__).parents[1] / "fault" / "certs"
CERT, KEY = CERTS / "server.pem", CERTS / "server-key.pem"
TOKEN = "tw_secret"
TIMEOUT = timedelta(seconds=20)
ENDS_S = 60
PROXY_VARIABLES = ["grpc_proxy", "https_proxy", "http_proxy", "GRPC_ADDRESS_HTTP_PROXY"]
NO_PROXY_VARIABLES = ["no_grpc_proxy", "no_proxy", "NO_PROXY"]


def blocking(url: str) -> None:
    with Tickwheel(url, timeout=TIMEOUT) as tickwheel:
        tickwheel.queues()


def in_loop(url: str) -> None:
    async def program() -> None:
        async with aio.Tickwheel(url, timeout=TIMEOUT) as tickwheel:
            await tickwheel.queues()

    asyncio.run(program())


both_clients = pytest.mark.parametrize("use", [blocking, in_loop], ids=["blocking", "asyncio"])
Use = Callable[[str], None]


@pytest.fixture(scope="module")
def encrypted(tickwheel_server: PrivateServer) -> Iterator[ServiceThread]:
    with ServiceThread(tickwheel_server.url, credentials=credentials(CERT, KEY, None)) as serving:
        yield serving


def use_proxy(monkeypatch: pytest.MonkeyPatch, proxy: ConnectProxy, *variables: str) -> None:
    for name in (*PROXY_VARIABLES, *NO_PROXY_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    for name in variables:
        monkeypatch.setenv(name, proxy.target if name.startswith("GRPC_") else proxy.url)
    monkeypatch.setenv("GRPC_ADDRESS_HTTP_PROXY_ENABLED_ADDRESSES", "0.0.0.0/0")


@both_clients
@pytest.mark.parametrize("variable", PROXY_VARIABLES)
# A connection to 0.0.0.0 reaches this machine, but the address counts as that of another machine.
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_call_without_tls_never_goes_through_a_proxy(
    real_time_service: ServiceThread, use: Use, variable: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = real_time_service.target.rpartition(":")[2]
    with ConnectProxy(real_time_service.target) as proxy:
        use_proxy(monkeypatch, proxy, variable)
        use(f"grpc://:{TOKEN}@{host}:{port}")
        assert proxy.requests == []


@both_clients
@pytest.mark.parametrize("variable", PROXY_VARIABLES)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_encrypted_call_to_this_machine_never_goes_through_a_proxy(
    encrypted: ServiceThread, use: Use, variable: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = encrypted.target.rpartition(":")[2]
    with ConnectProxy(encrypted.target) as proxy:
        use_proxy(monkeypatch, proxy, variable)
        use(f"grpcs://:{TOKEN}@{host}:{port}?tls_ca={CERT}")
        assert proxy.requests == []


@both_clients
def test_an_encrypted_call_to_another_machine_goes_through_the_proxy(
    encrypted: ServiceThread, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ConnectProxy(encrypted.target) as proxy:
        use_proxy(monkeypatch, proxy, "https_proxy")
        # The proxy connects to the tests' service, whose certificate names another host. So the client sends nothing.
        with pytest.raises(HandshakeFailed, match=r"not valid for service\.example"):
            use(f"grpcs://:{TOKEN}@service.example:7400?tls_ca={CERT}")
        assert set(proxy.requests) == {"CONNECT service.example:7400 HTTP/1.1"}


def test_a_command_for_a_service_of_this_machine_ignores_the_proxy_if_tls_is_required(
    real_time_service: ServiceThread,
) -> None:
    with ConnectProxy(real_time_service.target) as proxy:
        environment = {key: value for key, value in os.environ.items() if key.lower() not in NO_PROXY_VARIABLES}
        done = subprocess.run(
            [sys.executable, "-m", "tickwheel", "counts", "--json"],
            env=environment | {"TICKWHEEL_URL": real_time_service.url, "http_proxy": proxy.url, VARIABLE: "1"},
            capture_output=True,
            text=True,
            timeout=ENDS_S,
            check=False,
        )
        assert (done.returncode, proxy.requests) == (0, []), done.stderr
