"""The public clients, and the two backends behind them: Redis directly, or the gRPC service."""

from tickwheel.client.blocking import Message, Queue, Tickwheel

__all__ = ["Message", "Queue", "Tickwheel"]
