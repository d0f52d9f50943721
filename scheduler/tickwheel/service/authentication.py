"""Who comes in: a call is looked at when its headers are there, and refused before its request is read.

So nobody makes the service hold requests who has no token, and no call is without its caller.
"""

from collections.abc import Callable, Mapping
from typing import Any

import grpc

from tickwheel.errors import TickwheelError
from tickwheel.service.authorization import CALL, UNKNOWN_CALLER, Role, TokenStore
from tickwheel.service.method_table import METHOD_TABLE


class AuthenticatingHandler(grpc.GenericRpcHandler):
    """The methods of the service by path, for who may call them."""

    def __init__(
        self,
        token_store: TokenStore,
        methods: Mapping[str, Any],
        make_error_handler: Callable[[str, TickwheelError], Any],
    ) -> None:
        """``refusing`` is the method that answers calls of that name with an error."""
        self._token_store = token_store
        self._methods = methods
        self._make_error_handler = make_error_handler

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The method that the call names; None where it is none of these. The call's task knows its caller then."""
        method = self._methods.get(handler_call_details.method)
        if method is None:
            return None
        name = handler_call_details.method.rpartition("/")[2]
        try:
            caller = self._token_store.authenticate(handler_call_details.invocation_metadata)
        except TickwheelError as error:
            # Or it would be told as of whoever called before it.
            CALL.set((UNKNOWN_CALLER, Role.READ))
            return self._make_error_handler(name, error)
        CALL.set((caller, METHOD_TABLE[name].role))
        return method
