"""The test kit: a private server, and a clock that only the test moves. A delay of 30 days is tested in milliseconds.

Everything but the clock is real: the server, the scripts and the wheel. Two things still follow the real time: client
sessions (how long a call may be retried) and the ``wait=`` of a dequeue.

With pytest, no import is needed: pytest loads the fixtures of `plugin` if Tickwheel is installed.

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

plugin.py           the fixtures and the marker for pytest
private_server.py   `PrivateServer`: a Valkey server for one program
sandbox.py          `sandbox`: a namespace for one test, with its client and its clock
virtual_clock.py    `VirtualClock`: sets the time of a namespace, and makes the transitions that fall due
task_tester.py      `TaskTester`: the tasks of an app, run in the process of the test
manual_wheel.py     the driver of one shard, run step by step
driver_clock.py     the clock of this driver
"""

from tickwheel.testing.private_server import PrivateServer
from tickwheel.testing.sandbox import sandbox
from tickwheel.testing.virtual_clock import VirtualClock

__all__ = ["PrivateServer", "VirtualClock", "sandbox"]
