"""How often a server has executed a command."""

from typing import Any


def calls_of(server: Any, *commands: str) -> int:
    """Return how often clients and scripts have called these commands so far. ``server`` is a client of redis-py."""
    stats = server.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{command}", {}).get("calls", 0)) for command in commands)
