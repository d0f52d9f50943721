"""Authentication: finds the caller of a call by the token in its headers.

A call without a valid token is rejected before its request is read. So a client without a token cannot make the service
hold requests in memory.
"""

from collections.abc import Callable, Mapping
from typing import Any

import grpc

from tickwheel.errors import Forbidden, TickwheelError
from tickwheel.rpc.methods import METHODS
from tickwheel.service.authorization import CALL, UNKNOWN_CALLER, Role, TokenStore
from tickwheel.service.method_table import METHOD_TABLE


class AuthenticatingHandler(grpc.GenericRpcHandler):
    """Finds the handler of each call. A call without a valid token gets a handler that rejects the call."""

    def __init__(
        self,
        token_store: TokenStore,
        handlers: Mapping[str, Any],
        make_error_handler: Callable[[str, TickwheelError], Any],
    ) -> None:
        """``handlers`` maps the names of RPCs to their handlers. ``make_error_handler`` returns a handler that ends
        every call of the named RPC with the error.
        """
        self._token_store = token_store
        self._handlers = handlers
        self._make_error_handler = make_error_handler
        self._names = {method.path: method.name for method in METHODS.values()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of the RPC, or None if the RPC belongs to another service, such as health or reflection.

        `CALL` is set to the caller and the role that the RPC needs; if the call is rejected, to the role `read`.
        """
        name = self._names.get(handler_call_details.method)
        if name is None:
            return None
        caller = UNKNOWN_CALLER
        try:
            caller = self._token_store.authenticate(handler_call_details.invocation_metadata)
            role = _required_role(name)
        except TickwheelError as error:
            # Otherwise the log would name the previous caller.
            CALL.set((caller, Role.READ))
            return self._make_error_handler(name, error)
        CALL.set((caller, role))
        return self._handlers[name]


def _required_role(name: str) -> Role:
    """Return the role that an RPC needs. Raises Forbidden for an RPC without a row in the table."""
    row = METHOD_TABLE.get(name)
    if row is None:
        raise Forbidden(
            f"the service rejects {name} for every caller, because its table of RPCs has no row for it; this is a bug"
            " in the service: report it"
        )
    return row.role
