"""A server whose answer to INFO does not show that it keeps all keys is rejected."""

import pytest

from tickwheel.errors import NotDurable
from tickwheel.operations.server_checks import Durability, check_server
from tickwheel.plan import Reply


def check(memory: str) -> None:
    """Let `check_server` read this answer to `INFO memory`, up to its next request."""
    plan = check_server(Durability("memory"), "tw")
    next(plan)
    plan.send({"": 0})
    plan.send([Reply(b"redis_version:8.0.4\r\n"), Reply(memory.encode())])


@pytest.mark.parametrize(
    "memory", ["maxmemory:0", "maxmemory_policy:noeviction", "maxmemory:1000\r\nmaxmemory_policy:noeviction"]
)
def test_a_server_without_a_limit_or_without_eviction_is_accepted(memory: str) -> None:
    check(memory)


@pytest.mark.parametrize("memory", ["", "maxmemory:1000", "maxmemory_policy:allkeys-lru"])
def test_a_server_that_does_not_report_both_is_rejected(memory: str) -> None:
    with pytest.raises(NotDurable, match="evicts keys"):
        check(memory)
