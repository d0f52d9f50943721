"""The place that a pickled message of version 0.1 names; messages are in `tickwheel.model.message`."""

from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage, _unpickled

__all__ = ["EnqueueResult", "LeasedMessage", "MessageView", "NewMessage", "_unpickled"]
