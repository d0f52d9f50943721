"""The names that pickled messages of version 0.1 refer to. Messages are in `tickwheel.model.message`."""

from tickwheel.model.message import EnqueueResult, LeasedMessage, MessageView, NewMessage, _unpickled

__all__ = ["EnqueueResult", "LeasedMessage", "MessageView", "NewMessage", "_unpickled"]
