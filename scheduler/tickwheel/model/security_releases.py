"""The releases of Redis and Valkey that mend vulnerabilities which a user with the rights of a client can exploit.

Clients load scripts, so each user of `tickwheel acl` can send any script. Redis Ltd. and the Valkey project list the
releases in their advisories.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Vulnerability:
    """A vulnerability, and the first release without it of each line (major and minor version) of each server."""

    name: str
    effect: str
    mended: Mapping[str, tuple[_Version, ...]]


# A line that is older than the newest line of a row, and is not in the row, has no release without the vulnerability.
# Redis 7.2 is listed with the release of July 2026, which contains all fixes of May 2026.
VULNERABILITIES = (
    Vulnerability(
        "CVE-2025-49844",
        "a script can run code of its choice in the server; CVE-2025-46818, mended by the same releases, lets a script"
        " act as another user",
        {
            "redis": ((6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)),
            "valkey": ((7, 2, 11), (8, 0, 6), (8, 1, 4), (9, 0, 0)),
        },
    ),
    Vulnerability(
        "CVE-2026-23631",
        "a script can run code of its choice in a replica that accepts writes",
        {
            "redis": ((7, 2, 15), (7, 4, 9), (8, 2, 6), (8, 4, 3), (8, 6, 3)),
            "valkey": ((7, 2, 13), (8, 0, 8), (8, 1, 7), (9, 0, 4), (9, 1, 0)),
        },
    ),
)


def find_vulnerability(info: Mapping[str, str]) -> str | None:
    """Return a warning if the server that sent these fields of INFO has a vulnerability, else None.

    Distributions mend old versions without a new version number, so the warning names this case.
    """
    server = "valkey" if "valkey_version" in info else info.get("server_name", "redis")
    text = info.get(f"{server}_version", "")
    version = _parse_version(text)
    if version is None:
        return None
    for vulnerability in VULNERABILITIES:
        releases = vulnerability.mended.get(server, ())
        if _is_vulnerable(version, releases):
            mended = ", ".join(".".join(map(str, release)) for release in safe_releases(server))
            return (
                f"{server.capitalize()} {text} has the vulnerability {vulnerability.name}: {vulnerability.effect}."
                f" Upgrade to {mended} or newer, unless the package of your distribution has the fix under this"
                " version number"
            )
    return None


def safe_releases(server: str) -> list[_Version]:
    """Return the first release of each line that has none of the vulnerabilities, sorted."""
    listed = {release for vulnerability in VULNERABILITIES for release in vulnerability.mended.get(server, ())}
    safe = [
        release
        for release in sorted(listed)
        if not any(_is_vulnerable(release, row.mended.get(server, ())) for row in VULNERABILITIES)
    ]
    return list({release[:2]: release for release in reversed(safe)}.values())[::-1]


def _is_vulnerable(version: _Version, releases: tuple[_Version, ...]) -> bool:
    for release in releases:
        if version[:2] == release[:2]:
            return version < release
    return bool(releases) and version < releases[-1]


def _parse_version(text: str) -> _Version | None:
    parts = text.partition("-")[0].split(".")
    if len(parts) != 3 or not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        return None
    major, minor, patch = (int(part) for part in parts)
    return major, minor, patch
