"""`tickwheel import celery` lets kombu connect to the broker in the same way as redis-py."""

import ssl
from typing import Any

import pytest
from kombu.connection import Connection

from tickwheel.celery.broker_url import kombu_url

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("query", ["", "?socket_timeout=5", "?ssl_ca_certs=/ca.pem", "?db=1"])
def test_kombu_checks_the_certificate_of_the_broker(query: str) -> None:
    connection: Any = Connection(kombu_url(f"rediss://user:secret@broker:6380/1{query}"))
    assert connection.ssl["ssl_cert_reqs"] is ssl.CERT_REQUIRED
    assert (connection.hostname, connection.port, connection.password) == ("broker", 6380, "secret")
    assert connection.virtual_host == "1"
    assert connection.ssl.get("ssl_ca_certs") == ("/ca.pem" if "ca_certs" in query else None)


def test_a_url_that_names_the_check_is_kept() -> None:
    connection: Any = Connection(kombu_url("rediss://broker/0?ssl_cert_reqs=none"))
    assert connection.ssl["ssl_cert_reqs"] is ssl.CERT_NONE


def test_a_semicolon_in_a_password_is_a_part_of_the_password() -> None:
    connection: Any = Connection(kombu_url("redis://:a;b:c@broker:6380/1"))
    assert (connection.hostname, connection.port, connection.password) == ("broker", 6380, "a;b:c")
    assert connection.alt == []


def test_a_socket_keeps_its_database() -> None:
    assert kombu_url("unix:///run/redis.sock?db=3") == "redis+socket:///run/redis.sock?virtual_host=3"
    assert kombu_url("redis+socket:///run/redis.sock?virtual_host=3") == "redis+socket:///run/redis.sock?virtual_host=3"
