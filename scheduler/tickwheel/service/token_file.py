"""The token file: read when the service starts, and reloaded when it changes.

A file that every user of the machine can read or change is never read. The file is TOML. It holds the SHA-256 of each
token instead of the token. A token has 256 random bits, so it cannot be guessed from its hash.

    [[token]]
    name = "shop"                       # for the log and for error texts
    sha256 = "9f86d0…"                  # of the token
    roles = ["produce", "consume"]      # produce, consume, admin, read
    queues = ["orders", "mail.*"]       # shell patterns; by default all queues
    namespaces = ["tw"]                 # by default ["tw"]
    sinks = ["mail.*"]                  # with the role admin: shell patterns of the topics of sinks; by default none
    expires = 2027-01-01T00:00:00Z      # by default never
    messages_per_second = 500           # in all processes of the service; by default unlimited
    burst = 1000                        # in messages; by default the messages of one second
    waiting = 100                       # waiting calls in all processes; by default the limit of each process
    auto_created_queues = 100           # existing queues that auto-create made for the token; by default 100

If a token has different roles on different queues, it has one or more tables [[token.grant]] instead of `roles`,
`queues`, `namespaces` and `sinks`. A call is permitted if one of the grants permits it.

    [[token]]
    name = "mail-worker"
    sha256 = "60303a…"
    [[token.grant]]
    roles = ["consume"]
    queues = ["mail.*"]
    [[token.grant]]
    roles = ["produce"]
    queues = ["reports"]
"""

import asyncio
import hashlib
import logging
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.runtime.event_loop import run_in_daemon_thread
from tickwheel.runtime.foreign_data import decode_toml
from tickwheel.runtime.log_fields import log_fields
from tickwheel.runtime.secret_file import read_secret_file
from tickwheel.service.authorization import Caller, Grant, Role, TokenStore
from tickwheel.service.shared_quota import SharedQuotas

_GRANT_FIELDS: Final = {"roles", "queues", "namespaces", "sinks"}
_FIELDS: Final = {
    "name",
    "sha256",
    "grant",
    *_GRANT_FIELDS,
    "expires",
    "messages_per_second",
    "burst",
    "waiting",
    "auto_created_queues",
}
POLL_INTERVAL_S: Final = 1.0
# A read that takes longer is logged: the file system is probably unreachable.
SLOW_READ_S: Final = 5.0
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?!\[\]-]{1,256}")
_log = logging.getLogger("tickwheel.service")


class TokenFile:
    """The token file and the store of its tokens."""

    def __init__(self, path: Path, quotas: SharedQuotas | None = None) -> None:
        """Read the file. With ``quotas``, the limits of the tokens hold over all processes of the service.

        Raises InvalidArgument with the problem if the file is unreadable or invalid.
        """
        self._path = path
        self._seen = self._state()
        self.token_store = TokenStore(read(path), None if quotas is None else quotas.counters)

    async def run(self) -> None:
        """Reload the file whenever it changes, until cancelled. An invalid file changes no token."""
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            try:
                self._replace(await self._read_in_thread())
            except Exception:
                # Only a bug in Tickwheel leads here. Without this handler, the task would end, and no later change of
                # the file would be loaded.
                _log.exception(
                    "the token file cannot be reloaded because of a bug; the tokens stay unchanged",
                    extra=log_fields("tokens refused"),
                )

    async def _read_in_thread(self) -> list[Caller] | None:
        """Run `_read_if_changed`. Log once if it takes long, and again at its end.

        To parse thousands of tokens takes long, and calls must not wait meanwhile. The file system may not answer at
        all, and then the service must still be able to stop.
        """
        began = time.monotonic()
        reading = asyncio.ensure_future(run_in_daemon_thread(self._read_if_changed))
        try:
            await asyncio.wait([reading], timeout=SLOW_READ_S)
            if not reading.done():
                _log.error(
                    "the token file %s could not be read within %g s; the tokens stay unchanged until the file is read:"
                    " check its file system",
                    *(self._path, SLOW_READ_S),
                    extra=log_fields("tokens unreadable", seconds=SLOW_READ_S),
                )
                await asyncio.wait([reading])
                seconds = time.monotonic() - began
                _log.warning(
                    "the token file %s is readable again, after %.0f s",
                    *(self._path, seconds),
                    extra=log_fields("tokens readable", seconds=round(seconds, 1)),
                )
            return await reading
        finally:
            reading.cancel()

    def reload_if_changed(self) -> None:
        """Reload the file if it has changed. An invalid file is logged once for each change, and changes no token."""
        self._replace(self._read_if_changed())

    def _read_if_changed(self) -> list[Caller] | None:
        """Return the callers that the file defines, or None if the file has not changed or is invalid."""
        seen = self._state()
        if seen == self._seen:
            return None
        # The file's status is stored even if the file is invalid, so that the error is logged once. The status is taken
        # before the file is read, so that no change is missed.
        self._seen = seen
        try:
            return read(self._path)
        except InvalidArgument as error:
            _log.error("the tokens stay unchanged: %s", error, extra=log_fields("tokens refused"))
            return None

    def _replace(self, callers: list[Caller] | None) -> None:
        if callers is None:
            return
        self.token_store.replace(callers)
        count = len(callers)
        _log.info("%s has changed; tokens now valid: %d", self._path, count, extra=log_fields("tokens", tokens=count))

    def _state(self) -> tuple[int, ...] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def read(path: Path) -> list[Caller]:
    """Return the callers that the file defines.

    Raises InvalidArgument if the file is unreadable or invalid, if it is not a regular file, or if every user of the
    machine can read or change it.
    """
    return parse(path, read_secret_file("the token file", path))


def parse(path: Path, content: bytes) -> list[Caller]:
    """Return the callers that this content of the file defines. Raises InvalidArgument if the content is invalid."""
    try:
        document = decode_toml(content.decode())
    except ValueError as error:
        raise InvalidArgument(f"{path} is not valid TOML: {error}") from error
    unknown = set(document) - {"token"}
    tables = document.get("token")
    if unknown or not isinstance(tables, list) or not tables:
        raise InvalidArgument(f"{path} must contain at least one [[token]] table, and nothing else")
    callers = [check_entry(f"token {n} of {path}", table) for n, table in enumerate(tables, 1)]
    if len({caller.digest for caller in callers}) < len(callers):
        raise InvalidArgument(f"{path} contains the same sha256 twice: each token must have its own")
    check_names(path, callers)
    return callers


def check_names(path: Path, callers: Iterable[Caller]) -> None:
    """Raise InvalidArgument if two callers of the file have the same name."""
    [(name, count)] = Counter(caller.name for caller in callers).most_common(1)
    if count > 1:
        raise InvalidArgument(
            f"{path} must not have two tokens named {name!r}, because the log could not distinguish them: give one of"
            " them another name"
        )


def check_entry(label: str, table: Any) -> Caller:
    """Return the caller that a table [[token]] defines. Raises InvalidArgument, with the label, if it is invalid."""
    if not isinstance(table, dict):
        raise InvalidArgument(f"{label} must be a table")
    validation.reject_unknown(label, table, _FIELDS)
    try:
        digest = bytes.fromhex(table.get("sha256", ""))
    except (TypeError, ValueError):
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise InvalidArgument(f"{label} has no sha256 of 64 hexadecimal digits, as `tickwheel token` prints it")
    expires = table.get("expires")
    if expires is not None and (not isinstance(expires, datetime) or expires.tzinfo is None):
        raise InvalidArgument(f"expires of {label} must be a time with its zone, for example 2027-01-01T00:00:00Z")
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{label} has no name")
    if "burst" in table and "messages_per_second" not in table:
        raise InvalidArgument(f"burst of {label} needs messages_per_second, which the table lacks")
    return Caller(
        name,
        digest,
        _parse_grants(label, table),
        expires,
        _number(label, table, "messages_per_second", limits.RATE_MAX),
        _number(label, table, "burst", limits.RATE_MAX),
        _number(label, table, "waiting", limits.RATE_MAX),
        validation.integer(
            f"auto_created_queues of {label}",
            table.get("auto_created_queues", limits.AUTO_CREATED_QUEUES),
            0,
            limits.QUEUES_MAX,
        ),
    )


def _parse_grants(label: str, table: Mapping[str, Any]) -> tuple[Grant, ...]:
    """Return the grants of a token: the tables [[token.grant]], or the one grant in the table of the token itself."""
    if "grant" not in table:
        return (_parse_grant(label, table),)
    beside = sorted(_GRANT_FIELDS & table.keys())
    if beside:
        raise InvalidArgument(
            f"{label} has both {beside[0]} and [[token.grant]]: write {beside[0]} into each [[token.grant]]"
        )
    grants = table["grant"]
    if not isinstance(grants, list) or not grants or not all(isinstance(grant, dict) for grant in grants):
        raise InvalidArgument(f"the grants of {label} must be one or more tables [[token.grant]]")
    labels = [f"grant {n} of {label}" for n in range(1, len(grants) + 1)]
    for grant_label, grant in zip(labels, grants, strict=True):
        validation.reject_unknown(grant_label, grant, _GRANT_FIELDS)
    return tuple(map(_parse_grant, labels, grants))


def _parse_grant(label: str, table: Mapping[str, Any]) -> Grant:
    roles = _texts(label, table, "roles", None)
    for role in roles:
        validation.one_of(f"a role of {label}", role, [role.value for role in Role])
    sinks = () if table.get("sinks", []) == [] else _patterns(label, table, "sinks", ())
    if sinks and Role.ADMIN not in roles:
        raise InvalidArgument(f"sinks of {label} needs the role admin, which sets the sink of a queue")
    return Grant(
        frozenset(map(Role, roles)),
        _patterns(label, table, "queues", ("*",)),
        _patterns(label, table, "namespaces", ("tw",)),
        sinks,
    )


def _number(label: str, table: Mapping[str, Any], name: str, maximum: int) -> int | None:
    return validation.integer(f"{name} of {label}", table[name], 1, maximum) if name in table else None


def _patterns(label: str, table: Mapping[str, Any], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns of a field. Raises InvalidArgument if no name can match a pattern: the user would otherwise
    not notice that the pattern is wrong.
    """
    patterns = _texts(label, table, name, default)
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise InvalidArgument(
                f"{name} of {label} has {validation.preview(pattern)}, which no name matches: names consist of letters,"
                " digits, '.', '_' and '-'; a pattern may also contain *, ? and [...]"
            )
    return patterns


def _texts(label: str, table: Mapping[str, Any], name: str, default: tuple[str, ...] | None) -> tuple[str, ...]:
    texts = table.get(name, default)
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidArgument(f"{name} of {label} must be a list of strings, not {validation.preview(texts)}")
    return tuple(texts)
