"""`tickwheel token`: create a token of the gRPC service."""

import json
from typing import Annotated

import typer

from tickwheel.cli.command import command
from tickwheel.cli.output import print_json
from tickwheel.cli.target import Target


@command("token", "tickwheel token shop")
def token(
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token's owner, for the log.")],
) -> None:
    """Create a token, and print it with an entry for the file of `serve --tokens`."""
    from tickwheel.service.authorization import digest_of, new_token

    created = new_token()
    if target.json:
        print_json({"token": created, "name": name, "sha256": digest_of(created).hex()})
        return
    print(
        f'{created}\n\n[[token]]\nname = {json.dumps(name)}\nsha256 = "{digest_of(created).hex()}"\n'
        'roles = ["produce", "consume"]\nqueues = ["*"]'
    )
