"""The public clients, and the two backends behind them: Redis directly, or the gRPC service."""

from tickwheel.client.blocking import Tickwheel
from tickwheel.client.blocking_queue import Message, Queue

__all__ = ["Message", "Queue", "Tickwheel"]
