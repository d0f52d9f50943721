"""`tickwheel token`: create a token of the gRPC service."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tickwheel.cli.command import command
from tickwheel.cli.output import print_json
from tickwheel.cli.target import Target
from tickwheel.errors import InvalidArgument
from tickwheel.model.validation import plain_name, preview
from tickwheel.runtime.private_file import open_private

_FIELDS = ("roles", "queues", "namespaces")
_DEFAULTS = {"roles": ["produce", "consume"], "queues": ["*"]}


@command(
    "token", "tickwheel token shop --namespace shop", "tickwheel token shop --grant 'consume:mail.*' --out tokens.toml"
)
def token(
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token's owner, for the log.")],
    grant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLES[:QUEUES[:NAMESPACES]]",
            help="A grant: roles (produce, consume, admin, read), and patterns of queues and namespaces, each separated"
            " by commas. May be repeated. Default: produce,consume on all queues. A grant without namespaces is for"
            " --namespace.",
        ),
    ] = None,
    sinks: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Topics that the sinks of queues may have: a shell pattern, for each grant with the role admin. May be"
            " repeated. Default: none, so the token sets no sinks.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Append the entry to this tokens file, and print only the token. If the file does not exist, it is"
            " created so that only you can read it.",
        ),
    ] = None,
) -> None:
    """Create a token, and print it with an entry for the file of `serve --tokens`.

    The token is secret, and is printed only once. The entry contains its SHA-256 instead.
    """
    from tickwheel.service.authorization import digest_of, new_token
    from tickwheel.service.token_file import check_entry

    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"NAME must be valid Unicode text, not {preview(name)}") from error
    created = new_token()
    entry: dict[str, Any] = {"name": name, "sha256": digest_of(created).hex()}
    place = {} if target.namespace is None else {"namespaces": [plain_name("namespace", target.namespace)]}
    grants = [place | _parse(text) for text in grant or ()]
    if sinks:
        _add_sinks(grants, sinks)
    check_entry("the token", entry | ({"grant": grants} if grants else _DEFAULTS | place))
    tables = ["[[token]]\n" + _fields(entry | ({} if grants else _DEFAULTS | place))]
    tables += ["\n[[token.grant]]\n" + _fields(fields) for fields in grants]
    if out is not None:
        _append(out, "".join(tables))
    if target.json:
        print_json({"token": created} | entry | ({"grants": grants} if grants else place))
        return
    print(created if out is not None else f"{created}\n\n{''.join(tables)}".removesuffix("\n"))


def _append(file: Path, entry: str) -> None:
    """Append an entry to a tokens file. Raises OSError, and InvalidArgument if the service would reject the result."""
    from tickwheel.service.token_file import parse

    with open(open_private(file, os.O_RDWR | os.O_CREAT | os.O_APPEND), "r+b") as tokens:
        present = tokens.read()
        added = f"\n{entry}".encode() if present else entry.encode()
        parse(file, present + added)
        tokens.write(added)


def _parse(text: str) -> dict[str, list[str]]:
    parts = text.split(":")
    if len(parts) > len(_FIELDS):
        raise InvalidArgument(f"--grant must be ROLES[:QUEUES[:NAMESPACES]], not {preview(text)}")
    return {field: part.split(",") for field, part in zip(_FIELDS, parts, strict=False)}


def _add_sinks(grants: list[dict[str, list[str]]], sinks: list[str]) -> None:
    admins = [fields for fields in grants if "admin" in fields["roles"]]
    if not admins:
        raise InvalidArgument("--sinks needs a --grant with the role admin, for example --grant admin:mail")
    for fields in admins:
        fields["sinks"] = sinks


def _fields(fields: dict[str, Any]) -> str:
    return "".join(f"{name} = {_to_toml(value)}\n" for name, value in fields.items())


def _to_toml(value: str | list[str]) -> str:
    """Return the value as TOML, in ASCII, because the encoding of the output may have no other characters.

    JSON is not always TOML: it escapes a character above U+FFFF as a surrogate pair.
    """
    if isinstance(value, list):
        return f"[{', '.join(map(_to_toml, value))}]"
    quoted = value.replace("\\", r"\\").replace('"', r"\"")
    return '"' + "".join(c if " " <= c <= "~" else rf"\U{ord(c):08X}" for c in quoted) + '"'
