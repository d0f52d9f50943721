"""What a server reports about itself: the fields of INFO, and warnings for its operator."""

from tickwheel.errors import Forbidden
from tickwheel.model.security_releases import find_vulnerability
from tickwheel.plan import Command, ListPrimaries, Plan, Reply, Request, Round


def read_info(shard: int, *sections: str) -> Plan[dict[str, str]]:
    """Return the fields of these sections of INFO, or of the default sections, of the server of the shard."""
    commands: list[Command] = [("INFO", section) for section in sections] or [("INFO",)]
    replies: list[Reply] = yield Round([Request(shard, command=command) for command in commands])
    lines = [line for reply in replies for line in reply.value.decode().splitlines()]
    return dict(line.split(":", 1) for line in lines if ":" in line)


def find_vulnerabilities() -> Plan[list[str]]:
    """Return a warning for each primary whose version has a known vulnerability (`model/security_releases.py`).

    A server whose INFO the user may not read is left out.
    """
    servers: dict[str, int] = yield ListPrimaries()
    warnings = []
    for name, shard in servers.items():
        try:
            text = find_vulnerability((yield from read_info(shard, "server")))
        except Forbidden:
            continue
        if text is not None:
            warnings.append(f"{name}: {text}" if name else text)
    return warnings
