"""`tickwheel acl`: the users of a namespace, for the ACL file of Redis or Valkey."""

import sys

from tickwheel.cli.command import command
from tickwheel.cli.output import print_json
from tickwheel.cli.target import Target
from tickwheel.redis.acl import users


@command("acl", "tickwheel acl --namespace tw >> users.acl")
def acl(target: Target) -> None:
    """Print the users of a namespace as lines of a server's ACL file. Each user has only the permissions it needs.

    One user is for the service and for clients that connect to Redis themselves, one is for event processes, and one is
    for operators (doctor, shards). Workers and services with the first user do not drive, so they need event processes.
    Each call creates new passwords. The lines contain only the SHA-256 of each password, and the passwords go to
    stderr. With --json, the passwords are part of the output.
    """
    accounts = users(target.namespace or "tw")
    if target.json:
        print_json([{"user": user.name, "password": user.password, "rule": user.rule} for user in accounts])
        return
    for user in accounts:
        print(user.rule)
        print(f"{user.name}: redis://{user.name}:{user.password}@…", file=sys.stderr)
