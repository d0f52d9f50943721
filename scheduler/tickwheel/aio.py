"""The public names of the asyncio client, which is in `tickwheel.client.asyncio`."""

from tickwheel.client.asyncio import Tickwheel
from tickwheel.client.asyncio_queue import Message, Queue

__all__ = ["Message", "Queue", "Tickwheel"]
