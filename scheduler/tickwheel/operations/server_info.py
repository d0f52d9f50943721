"""What a server reports about itself: the fields of INFO, and warnings for its operator."""

from tickwheel.errors import Forbidden, Unavailable
from tickwheel.model.security_releases import find_vulnerability
from tickwheel.plan import Command, ListPrimaries, Plan, Reply, Request, Round


def read_info(shard: int, *sections: str) -> Plan[dict[str, str]]:
    """Return the fields of these sections of INFO, or of the default sections, of the server of the shard."""
    commands: list[Command] = [("INFO", section) for section in sections] or [("INFO",)]
    replies: list[Reply] = yield Round([Request(shard, command=command) for command in commands])
    return parse_info(replies)


def find_vulnerabilities() -> Plan[list[str]]:
    """Return a warning for each primary whose version has a known vulnerability (`model/security_releases.py`).

    Servers that do not answer are left out, and so are all servers if the user may not run INFO.
    """
    try:
        servers: dict[str, int] = yield ListPrimaries()
        requests = [Request(shard, command=("INFO", "server")) for shard in servers.values()]
        replies: list[Reply | None] = yield Round(requests, allow_partial=True)
    except (Forbidden, Unavailable):
        return []
    warnings = []
    for name, reply in zip(servers, replies, strict=True):
        text = None if reply is None else find_vulnerability(parse_info([reply]))
        if text is not None:
            warnings.append(f"{name}: {text}" if name else text)
    return warnings


def parse_info(replies: list[Reply]) -> dict[str, str]:
    """Return the fields in these replies to INFO."""
    lines = [line for reply in replies for line in reply.value.decode().splitlines()]
    return dict(line.split(":", 1) for line in lines if ":" in line)
