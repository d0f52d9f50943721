"""TLS of the service: it rejects unencrypted connections, and clients without a required certificate."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.integration.service_thread import ServiceThread
from tickwheel import InvalidArgument, Tickwheel, Unavailable
from tickwheel.service.tls import credentials
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

CERTS = Path(__file__).parents[1] / "fault" / "certs"
CERT, KEY, STRANGER = CERTS / "server.pem", CERTS / "server-key.pem", CERTS / "stranger.pem"
SHORT = timedelta(seconds=1)


@pytest.fixture(scope="module")
def encrypted(tickwheel_server: PrivateServer) -> Iterator[ServiceThread]:
    with ServiceThread(tickwheel_server.url, credentials=credentials(CERT, KEY, None)) as serving:
        yield serving


@pytest.fixture(scope="module")
def mutual(tickwheel_server: PrivateServer) -> Iterator[ServiceThread]:
    with ServiceThread(tickwheel_server.url, credentials=credentials(CERT, KEY, CERT)) as serving:
        yield serving


def test_a_client_that_trusts_the_authority_is_served(encrypted: ServiceThread) -> None:
    with Tickwheel(f"{encrypted.url}?tls_ca={CERT}") as tickwheel:
        assert tickwheel.queue("q").enqueue(b"x", id="tls").state == "pending"


@pytest.mark.parametrize("url", ["grpcs://{0}", f"grpcs://{{0}}?tls_ca={STRANGER}", "grpc://{0}"])
def test_a_client_that_does_not_trust_the_authority_gets_a_clear_error(encrypted: ServiceThread, url: str) -> None:
    with pytest.raises(Unavailable) as refused:
        Tickwheel(url.format(encrypted.target), timeout=SHORT)
    assert not refused.value.may_have_happened


def test_a_client_with_a_certificate_of_the_authority_is_served(mutual: ServiceThread) -> None:
    with Tickwheel(f"{mutual.url}?tls_ca={CERT}&tls_cert={CERT}&tls_key={KEY}") as tickwheel:
        tickwheel.queues()


def test_a_client_without_a_certificate_is_refused(mutual: ServiceThread) -> None:
    with pytest.raises(Unavailable):
        Tickwheel(f"{mutual.url}?tls_ca={CERT}", timeout=SHORT)


@pytest.mark.parametrize(
    ("cert", "key", "client_ca", "message"),
    [
        (CERT, None, None, "give both --tls-cert and --tls-key"),
        (None, KEY, None, "give both --tls-cert and --tls-key"),
        (None, None, CERT, "needs --tls-cert and --tls-key"),
        (STRANGER, KEY, None, "TLS cannot be used with"),
        (KEY, KEY, None, "TLS cannot be used with"),
        (CERT, KEY, KEY, "TLS cannot be used with"),
        (CERT, CERTS / "none.pem", None, "TLS cannot be used with"),
    ],
)
def test_incomplete_tls_options_are_refused_before_the_service_listens(
    cert: Path | None, key: Path | None, client_ca: Path | None, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        credentials(cert, key, client_ca)


@pytest.mark.parametrize(
    "url",
    [
        "grpc://",
        "grpc://host",
        "grpc://host:none",
        "grpc://host:70000",
        "grpc://host:1/path",
        "grpc://host:1?tls_ca=a",
        "grpc://host:1#a",
        "grpc://user:secret@host:1",
        "grpc://:sec ret@host:1",
        "grpcs://host:1?tls_cert=a",
        "grpcs://host:1?tls_key=a",
        "grpcs://host:1?other=secret",
    ],
)
def test_an_invalid_url_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Tickwheel(url, timeout=SHORT)
    assert "secret" not in str(refused.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"tls_ca none\.pem cannot be read"):
        Tickwheel("grpcs://localhost:1?tls_ca=none.pem", timeout=SHORT)
