"""Removals through the gRPC service: purges and deletions, each as a sequence of RPCs."""

from collections.abc import Callable
from typing import Any

from tickwheel.plan import Plan, RpcCall


class GrpcRemover:
    """See `backend.Remover`. Each step is one RPC, and takes the token of the response before."""

    def __init__(self, method: str, request: Any, call: Callable[[str, Any], Plan[Any]] | None = None) -> None:
        """``call`` sends the RPC so that it takes effect once; by default, the RPC may be executed several times."""
        self._method = method
        self._request = request
        self._call = call
        self.ended = False

    def next(self) -> Plan[int]:
        """Return a plan for the next step; see `backend.Remover`."""
        if self._call is None:
            reply = yield RpcCall(self._method, self._request)
        else:
            self._request.request_id = ""
            reply = yield from self._call(self._method, self._request)
        self._request.page_token = reply.next_page_token
        self.ended = not reply.next_page_token
        return int(reply.removed)
