"""Servers whose version has a known vulnerability are named, with the releases that mend it."""

import pytest

from tickwheel.model.security_releases import VULNERABILITIES, find_vulnerability, safe_releases
from tickwheel.operations.server_checks import VERSION_MIN

pytestmark = pytest.mark.unit


def info(server: str, version: str) -> dict[str, str]:
    if server == "valkey":
        return {"server_name": "valkey", "redis_version": "7.2.4", "valkey_version": version}
    return {"redis_version": version}


@pytest.mark.parametrize(
    ("server", "version", "name"),
    [
        ("redis", "7.0.15", "CVE-2025-49844"),
        ("redis", "7.2.10", "CVE-2025-49844"),
        ("redis", "7.2.11", "CVE-2026-23631"),
        ("redis", "8.0.3", "CVE-2025-49844"),
        ("redis", "8.0.4", "CVE-2026-23631"),
        ("redis", "8.2.1", "CVE-2025-49844"),
        ("redis", "8.2.5", "CVE-2026-23631"),
        ("redis", "8.4.2", "CVE-2026-23631"),
        ("valkey", "7.2.10", "CVE-2025-49844"),
        ("valkey", "8.0.5", "CVE-2025-49844"),
        ("valkey", "8.1.3", "CVE-2025-49844"),
        ("valkey", "8.1.4", "CVE-2026-23631"),
        ("valkey", "9.0.3", "CVE-2026-23631"),
        ("redis", "7.4.9", None),
        ("redis", "8.2.6", None),
        ("redis", "8.8.0", None),
        ("valkey", "7.2.13", None),
        ("valkey", "9.0.4", None),
        ("valkey", "9.1.2", None),
        ("valkey", "10.0.0", None),
        ("redis", "255.255.255", None),
        ("redis", "unstable", None),
        ("redis", "7.0." + "9" * 5_000, None),
    ],
)
def test_a_version_is_compared_with_the_releases_of_its_line(server: str, version: str, name: str | None) -> None:
    text = find_vulnerability(info(server, version))
    assert (text is None) == (name is None)
    assert name is None or (text is not None and name in text and version in text)


@pytest.mark.parametrize(
    ("server", "version", "advice"),
    [
        ("redis", "7.0.15", "Upgrade to 7.2.15, 7.4.9, 8.2.6, 8.4.3, 8.6.3 or newer"),
        ("redis", "8.0.4", "Upgrade to 7.2.15, 7.4.9, 8.2.6, 8.4.3, 8.6.3 or newer"),
        ("valkey", "8.0.5", "Upgrade to 7.2.13, 8.0.8, 8.1.7, 9.0.4, 9.1.0 or newer"),
    ],
)
def test_the_advice_names_only_releases_without_any_vulnerability(server: str, version: str, advice: str) -> None:
    assert advice in str(find_vulnerability(info(server, version)))


@pytest.mark.parametrize("server", ["redis", "valkey"])
def test_each_advised_release_is_supported(server: str) -> None:
    for release in safe_releases(server):
        assert release[:2] >= VERSION_MIN
        assert find_vulnerability(info(server, ".".join(map(str, release)))) is None


def test_the_number_that_valkey_reports_for_compatibility_is_not_compared() -> None:
    assert find_vulnerability({"server_name": "valkey", "redis_version": "7.2.4", "valkey_version": "9.1.2"}) is None


def test_the_releases_of_each_row_are_sorted_and_of_different_lines() -> None:
    for vulnerability in VULNERABILITIES:
        for releases in vulnerability.mended.values():
            assert list(releases) == sorted({release[:2]: release for release in releases}.values())
