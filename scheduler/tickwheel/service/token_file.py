"""The file of tokens: read when the service starts, and again when it has changed.

It is TOML, and holds no secrets but their SHA-256: a token has 256 random bits, so there is nothing to guess.

    [[token]]
    name = "shop"                       # in the log and in metrics
    sha256 = "9f86d0…"                  # of the token
    roles = ["produce", "consume"]      # produce, consume, admin
    queues = ["orders", "mail.*"]       # as a shell's patterns; by default all
    namespaces = ["tw"]                 # by default ["tw"]
    expires = 2027-01-01T00:00:00Z      # by default never
    messages_per_second = 500           # of each process of the service; by default as many as come
    burst = 1000                        # at once; by default one second's worth
    waiting = 100                       # calls that wait, of each process; by default as many as the process may have
"""

import asyncio
import hashlib
import logging
import re
import tomllib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tickwheel import limits
from tickwheel.errors import InvalidArgument
from tickwheel.model import validation
from tickwheel.service.authorization import Caller, Role, TokenStore

_FIELDS: Final = {
    "name",
    "sha256",
    "roles",
    "queues",
    "namespaces",
    "expires",
    "messages_per_second",
    "burst",
    "waiting",
}
POLL_INTERVAL_S: Final = 1.0
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?!\[\]-]{1,256}")
_log = logging.getLogger("tickwheel.service")


class TokenFile:
    """The file, and the access that it says."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidArgument, which names what is wrong in the file, or with it."""
        self._path = path
        self._seen = self._state()
        self.token_store = TokenStore(read(path))

    async def run(self) -> None:
        """Take the file up whenever it has changed, until cancelled. One that is wrong changes nothing."""
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            try:
                self.reload_if_changed()
            except Exception:
                # A mistake of ours: without this nobody would hear of it, nor would any later change be taken up.
                _log.exception("the tokens stay as they were", extra={"fields": {"event": "tokens refused"}})

    def reload_if_changed(self) -> None:
        """Take the file up if it has changed."""
        seen = self._state()
        if seen == self._seen:
            return
        # Seen, right or wrong: what is wrong is told once. Looked at before it is read, so that no change is missed.
        self._seen = seen
        try:
            callers = read(self._path)
        except InvalidArgument as error:
            _log.error("the tokens stay as they were: %s", error, extra={"fields": {"event": "tokens refused"}})
            return
        self.token_store.replace(callers)
        fields = {"event": "tokens", "tokens": len(callers)}
        _log.info("%s has changed: %d tokens", self._path, len(callers), extra={"fields": fields})

    def _state(self) -> tuple[int, ...] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def read(path: Path) -> list[Caller]:
    """What the file says. Raises InvalidArgument."""
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise InvalidArgument(f"the tokens of {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} is no TOML: {error}") from error
    unknown = set(document) - {"token"}
    tables = document.get("token")
    if unknown or not isinstance(tables, list) or not tables:
        raise InvalidArgument(f"{path} must hold [[token]] tables, at least one, and nothing else")
    callers = [_parse_caller(f"token {n} of {path}", table) for n, table in enumerate(tables, 1)]
    if len({caller.digest for caller in callers}) < len(callers):
        raise InvalidArgument(f"{path} names one token twice")
    names = [caller.name for caller in callers]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"{path} has two tokens of the name {name!r}: the log would not tell them apart")
    return callers


def _parse_caller(label: str, table: Any) -> Caller:
    if not isinstance(table, dict):
        raise InvalidArgument(f"{label} must be a table")
    validation.reject_unknown(label, table, _FIELDS)
    try:
        digest = bytes.fromhex(table.get("sha256", ""))
    except (TypeError, ValueError):
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise InvalidArgument(f"{label} has no sha256 of 64 hexadecimal digits, as `tickwheel token` prints it")
    roles = _texts(label, table, "roles", None)
    for role in roles:
        validation.one_of(f"a role of {label}", role, [Role.PRODUCE.value, Role.CONSUME.value, Role.ADMIN.value])
    expires = table.get("expires")
    if expires is not None and (not isinstance(expires, datetime) or expires.tzinfo is None):
        raise InvalidArgument(f"expires of {label} must be a time with its zone, as 2027-01-01T00:00:00Z")
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{label} has no name")
    if "burst" in table and "messages_per_second" not in table:
        raise InvalidArgument(f"burst of {label} goes with messages_per_second, which it does not say")
    return Caller(
        name,
        digest,
        frozenset(map(Role, roles)),
        _patterns(label, table, "queues", ("*",)),
        _patterns(label, table, "namespaces", ("tw",)),
        expires,
        _number(label, table, "messages_per_second", limits.RATE_MAX),
        _number(label, table, "burst", limits.RATE_MAX),
        _number(label, table, "waiting", limits.RATE_MAX),
    )


def _number(label: str, table: Mapping[str, Any], name: str, maximum: int) -> int | None:
    return validation.integer(f"{name} of {label}", table[name], 1, maximum) if name in table else None


def _patterns(label: str, table: Mapping[str, Any], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """Patterns that some name can match: of a mistyped one nobody would hear."""
    patterns = _texts(label, table, name, default)
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise InvalidArgument(
                f"{name} of {label} has {validation.preview(pattern)}, which no name matches: names are letters,"
                " digits,"
                " '.', '_' and '-'; a pattern has also *, ? and [...]"
            )
    return patterns


def _texts(label: str, table: Mapping[str, Any], name: str, default: tuple[str, ...] | None) -> tuple[str, ...]:
    texts = table.get(name, default)
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidArgument(f"{name} of {label} must be a list of texts, not {validation.preview(texts)}")
    return tuple(texts)
