"""Integration tests that use a namespace run twice: on one shard, and on four."""

from collections.abc import Iterator

import pytest

from tickwheel import Tickwheel
from tickwheel.testing import PrivateServer, VirtualClock, sandbox


@pytest.fixture(params=[1, 4], ids=["1-shard", "4-shards"])
def _tickwheel_sandbox(
    request: pytest.FixtureRequest, tickwheel_server: PrivateServer
) -> Iterator[tuple[Tickwheel, VirtualClock]]:
    marker = request.node.get_closest_marker("tickwheel")
    settings = {"shards": request.param} | (marker.kwargs if marker else {})
    with sandbox(tickwheel_server, **settings) as found:
        yield found
