"""`tickwheel acl`: the users that a Redis or Valkey needs, as its ACL file says them."""

import sys

import typer

from tickwheel.cli.command import command
from tickwheel.cli.output import print_json
from tickwheel.cli.target import Target
from tickwheel.redis.acl import users

commands = typer.Typer()


@command(commands, "acl", "tickwheel acl --namespace tw >> users.acl", panel="Processes")
def acl(target: Target) -> None:
    """Print the users of a namespace, each with the least that its process needs: lines of a server's ACL file.

    Their passwords are made anew each time, and go to stderr: the lines hold no more than their SHA-256. One is for the
    service and clients that go to Redis themselves, one for event processes, one for operators (doctor, shards).
    """
    accounts = users(target.namespace or "tw")
    if target.json:
        print_json([{"user": user.name, "password": user.password, "rule": user.rule} for user in accounts])
        return
    for user in accounts:
        print(user.rule)
        print(f"{user.name}: redis://{user.name}:{user.password}@…", file=sys.stderr)
