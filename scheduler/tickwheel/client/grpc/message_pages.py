"""The list of a queue's messages, page by page, from the service."""

from tickwheel.model import validation
from tickwheel.model.message import MessageView
from tickwheel.plan import Plan, RpcCall
from tickwheel.rpc import message_conversion
from tickwheel.storage.record import State
from tickwheel.v1 import message_service_pb2 as calls


class GrpcMessagePager:
    """See `backend.MessagePager`."""

    def __init__(self, namespace: str, queue: str, state: str | None) -> None:
        labels = [item.label for item in State]
        label = None if state is None else validation.one_of("state", state, labels)
        self._request = calls.ListMessagesRequest(
            namespace=namespace, queue=queue, state=message_conversion.state_to_proto(label)
        )
        self.ended = False

    def next(self) -> Plan[list[MessageView]]:
        """Return a plan for the next page; see `backend.MessagePager`."""
        page = yield RpcCall("ListMessages", self._request)
        self._request.page_token = page.next_page_token
        self.ended = not page.next_page_token
        return [message_conversion.message_from_proto(message) for message in page.messages]
