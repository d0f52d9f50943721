"""The client for asyncio: the public place of what is in `tickwheel.client.asyncio`."""

from tickwheel.client.asyncio import Message, Queue, Tickwheel

__all__ = ["Message", "Queue", "Tickwheel"]
