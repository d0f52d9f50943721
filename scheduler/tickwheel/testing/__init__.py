"""The test kit: a private server, and a clock that the test turns. A delay of 30 days is tested in milliseconds.

With pytest nothing has to be imported; the fixtures are there once Tickwheel is installed (see `plugin`):

    def test_an_unpaid_order_is_cancelled(tickwheel, tickwheel_clock):
        orders = tickwheel.queue("orders")
        orders.enqueue(b"order 17", delay=timedelta(days=30))
        tickwheel_clock.advance(timedelta(days=30) - timedelta(milliseconds=1))
        assert orders.dequeue() == []
        tickwheel_clock.advance(timedelta(milliseconds=1))
        assert [message.payload for message in orders.dequeue()] == [b"order 17"]

Without pytest:

    with PrivateServer() as server, sandbox(server, shards=4) as (tickwheel, clock):
        ...

Everything but the clock is real: the server, the scripts, the wheel. Sessions alone (how long a call may be repeated)
and `wait=` follow the real time.
"""

from tickwheel.testing.private_server import PrivateServer
from tickwheel.testing.sandbox import sandbox
from tickwheel.testing.virtual_clock import VirtualClock

__all__ = ["PrivateServer", "VirtualClock", "sandbox"]
