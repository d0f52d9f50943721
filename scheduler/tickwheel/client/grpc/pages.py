"""A walk over all messages of a queue that a server of this product answers page by page."""

from tickwheel.model import validation as arguments
from tickwheel.model.message import MessageView
from tickwheel.plan import Ask, Plan
from tickwheel.rpc import message_conversion as conversion
from tickwheel.storage.record import State
from tickwheel.v1 import message_service_pb2 as calls


class Pages:
    """See `operations.surface.Pages`."""

    def __init__(self, namespace: str, queue: str, state: str | None) -> None:
        labels = [each.label for each in State]
        asked = None if state is None else arguments.one_of("state", state, labels)
        self._request = calls.ListMessagesRequest(namespace=namespace, queue=queue, state=conversion.state(asked))
        self.ended = False

    def next(self) -> Plan[list[MessageView]]:
        """The next page; it may be empty before the end."""
        page = yield Ask("ListMessages", self._request)
        self._request.page_token = page.next_page_token
        self.ended = not page.next_page_token
        return [conversion.view(each) for each in page.messages]
