"""Token files, and clients with tokens."""

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tickwheel import Tickwheel
from tickwheel.service.authorization import digest_of
from tickwheel.service.token_file import TokenFile


def grant(roles: Iterable[str], queues: Iterable[str] = ("*",), namespaces: Iterable[str] = ("tw",)) -> str:
    """Return a grant for the entry of a token in a file."""
    fields = {"roles": roles, "queues": queues, "namespaces": namespaces}
    return "[[token.grant]]\n" + "".join(f"{name} = {json.dumps(list(values))}\n" for name, values in fields.items())


def entry_with_grants(token: str, *grants: str) -> str:
    """Return the entry of a token with the grants."""
    return f'[[token]]\nname = "{token[3:]}"\nsha256 = "{digest_of(token).hex()}"\n{"".join(grants)}\n'


def entry(token: str, roles: str, rest: str = "") -> str:
    """Return the entry of a token in a file."""
    return f'[[token]]\nname = "{token[3:]}"\nsha256 = "{digest_of(token).hex()}"\nroles = {roles}\n{rest}\n'


def write_token_file(folder: Path, *entries: str) -> TokenFile:
    """Write a file of the entries, which only its owner can read."""
    path = folder / "tokens.toml"
    path.write_text("".join(entries))
    path.chmod(0o600)
    return TokenFile(path)


def client(service: ServiceThread, token: str, timeout: timedelta = timedelta(seconds=2), **options: Any) -> Tickwheel:
    return Tickwheel(service.url.replace("//", f"//:{token}@" if token else "//"), timeout=timeout, **options)


def generic_client(channel: grpc.Channel, token: str) -> GenericClient:
    """Return a client with the token that uses gRPC directly, like a client in another language."""
    return GenericClient(channel, (("authorization", f"Bearer {token}"),))
