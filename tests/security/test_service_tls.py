"""TLS of the service: nobody is served who cannot show a certificate where one is asked for, and nothing in clear."""

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


def test_a_client_that_knows_the_authority_is_served(encrypted: ServiceThread) -> None:
    with Tickwheel(f"{encrypted.url}?tls_ca={CERT}") as tickwheel:
        assert tickwheel.queue("q").enqueue(b"x", id="tls").state == "pending"


@pytest.mark.parametrize("url", ["grpcs://{0}", f"grpcs://{{0}}?tls_ca={STRANGER}", "grpc://{0}"])
def test_a_client_that_does_not_is_told_so(encrypted: ServiceThread, url: str) -> None:
    with pytest.raises(Unavailable) as refused:
        Tickwheel(url.format(encrypted.target), timeout=SHORT)
    assert not refused.value.may_have_happened


def test_a_client_with_a_certificate_of_the_authorities_is_served(mutual: ServiceThread) -> None:
    with Tickwheel(f"{mutual.url}?tls_ca={CERT}&tls_cert={CERT}&tls_key={KEY}") as tickwheel:
        tickwheel.queues()


def test_a_client_without_one_is_not(mutual: ServiceThread) -> None:
    with pytest.raises(Unavailable):
        Tickwheel(f"{mutual.url}?tls_ca={CERT}", timeout=SHORT)


@pytest.mark.parametrize(
    ("cert", "key", "client_ca", "said"),
    [
        (CERT, None, None, "give both --tls-cert and --tls-key"),
        (None, KEY, None, "give both --tls-cert and --tls-key"),
        (None, None, CERT, "needs --tls-cert and --tls-key"),
        (STRANGER, KEY, None, "cannot be served with"),
        (KEY, KEY, None, "cannot be served with"),
        (CERT, KEY, KEY, "cannot be served with"),
        (CERT, CERTS / "none.pem", None, "cannot be served with"),
    ],
)
def test_half_of_it_is_refused_before_anything_listens(
    cert: Path | None, key: Path | None, client_ca: Path | None, said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
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
def test_a_url_that_is_not_understood_is_refused_without_what_is_secret_in_it(url: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Tickwheel(url, timeout=SHORT)
    assert "secret" not in str(refused.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"tls_ca none\.pem cannot be read"):
        Tickwheel("grpcs://localhost:1?tls_ca=none.pem", timeout=SHORT)
