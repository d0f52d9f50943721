"""A URL as logs and errors show it."""

import pytest

from tickwheel.urls import without_password

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/1", "redis://localhost:6379/1"),
        ("redis://user:secret@localhost", "redis://user:***@localhost"),
        ("rediss://:secret@[::1]:6380?ssl_cert_reqs=none", "rediss://:***@[::1]:6380?ssl_cert_reqs=none"),
        ("unix://user@/a/b.sock?password=secret&db=1", "unix://user@/a/b.sock?password=***&db=1"),
        ("unix:///a/b.sock?db=1&password=se%26cret", "unix:///a/b.sock?db=1&password=***"),
        ("redis://u:secret@h?password=secret", "redis://u:***@h?password=***"),
        ("rediss://h?ssl_password=secret&ssl_ca_certs=a", "rediss://h?ssl_password=***&ssl_ca_certs=a"),
        ("redis://h?%70assword=secret", "redis://h?%70assword=***"),
        ("redis://h?username=a&PassWord=b%26c", "redis://h?username=a&PassWord=***"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
