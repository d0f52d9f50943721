"""A Valkey server with the users of `tickwheel acl`."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from services.valkey import ValkeyServer
from tickwheel.redis.acl import User


@contextmanager
def serve_with_users(
    folder: Path, users: Iterable[User], settings: dict[str, str] | None = None
) -> Iterator[ValkeyServer]:
    """Start a server with these users. The tests themselves connect as the default user."""
    file = folder / "users.acl"
    file.write_text("\n".join(["user default on nopass ~* &* +@all", *(user.rule for user in users)]) + "\n")
    with ValkeyServer("valkey", folder, {"aclfile": str(file), **(settings or {})}) as server:
        yield server
